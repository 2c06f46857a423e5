"""The golden episodes through verl: rows, masks, groups and rewards, from agent loop to scorer.

They are those of ``tests/search/golden_episodes.json``; two of them share each prompt.
"""

import asyncio
import json
import warnings
from collections import defaultdict
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from omegaconf import OmegaConf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_em_format import qa_em_format
from zerowait.verl.agent.search_loop import SearchAgentLoop, _retriever, search_settings
from zerowait.verl.rewards.manager import sample_of

FILE = Path(__file__).parents[1] / "search" / "golden_episodes.json"
GOLDEN = json.loads(FILE.read_text())
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


@pytest.fixture(scope="module")
def letters():
    """A token a character, and two that end and begin messages."""
    characters = {chr(c): c for c in range(127)}
    core = Tokenizer(models.WordLevel(characters, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=TEMPLATE)
    made.add_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    made.eos_token = "<|im_end|>"
    return made


@asynccontextmanager
async def retriever(found):
    """A server that finds one document for everything, or is not there."""

    async def retrieve(request):
        queries = (await request.json())["queries"]
        if found is None:
            return web.Response(status=404)
        return web.json_response({"result": [[{"contents": found}] for _ in queries]})

    app = web.Application()
    app.router.add_post("/retrieve", retrieve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve"
    finally:
        await runner.cleanup()


class Sent:
    """The reward loop's end of the wire: keeps the batch that verl sends."""

    def __init__(self):
        self.compute_score = SimpleNamespace(remote=self._keep)

    async def _keep(self, batch):
        self.batch = batch
        return {"reward_score": 0.0, "reward_extra_info": {}}


async def rolled_out(golden, tokenizer):
    """The agent loop's output, and the batch that verl sends to be rewarded."""
    turns = iter(golden["turns"])

    async def generate(*, sampling_params, **_):
        ids = tokenizer.encode(next(turns), add_special_tokens=False)
        return TokenOutput(token_ids=ids[: sampling_params["max_tokens"]], stop_reason="completed")

    rollout = {"prompt_length": 64, "response_length": 1000, "name": "transformers"}
    async with retriever(golden["found"]) as url:
        whole = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": rollout},
                "algorithm": {},
                "data": {},
                "search": {**golden["settings"], "retriever": {"url": url}},
            }
        )
        server = SimpleNamespace(generate=generate)
        data = DictConfigWrap(whole.data)
        loop = SearchAgentLoop(DictConfigWrap(whole), server, tokenizer, None, RLHFDataset, data)
        prompt = [{"role": "user", "content": "Where is Lima?"}]
        try:
            output = await loop.run({}, raw_prompt=prompt)
        finally:  # in a worker it lives as long as the process
            await _retriever(search_settings(whole).retriever).aclose()
    worker, handle = object.__new__(AgentLoopWorker), Sent()
    worker.reward_loop_worker_handles = [handle]
    worker.processor, worker.mm_processor_kwargs = None, {}
    row = {
        "uid": golden["uid"],
        "session_id": golden["session"],
        "raw_prompt": prompt,
        "data_source": "golden",
        "reward_model": {"ground_truth": "Peru"},
        "extra_info": {"split": "train", "group_size": 2},
    }
    await worker._compute_score([output], row)
    return output, handle.batch


@pytest.fixture(scope="module")
def rows(letters):
    return {name: asyncio.run(rolled_out(golden, letters)) for name, golden in GOLDEN.items()}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_episode_has_its_tokens_mask_group_stop_and_rewards_in_verl(name, rows, letters):
    golden = GOLDEN[name]
    output, batch = rows[name]
    text = "".join(part for part, _ in golden["parts"])
    assert output.response_ids == [ord(c) for c in text]
    assert output.response_mask == [bit for part, bit in golden["parts"] for _ in part]
    sample = sample_of(batch, letters)
    assert sample.response == text
    assert sample.response_tokens == sum(output.response_mask)
    assert (sample.group, sample.group_size) == (golden["group"], 2)
    assert sample.id == f"{golden['group']}_{golden['session']}"
    assert sample.extra["episode"]["stop"] == golden["stop"]
    assert qa_em(sample).value == golden["qa_em"]
    assert qa_em_format(sample).value == pytest.approx(golden["qa_em_format"])


def test_equal_questions_of_different_prompts_share_no_group(rows, letters):
    groups = defaultdict(list)
    for name in GOLDEN:
        groups[sample_of(rows[name][1], letters).group].append(name)
    sizes = [len(names) for names in groups.values()]
    assert sizes[:-1] == [2] * (len(sizes) - 1)
    assert sum(sizes) == len(GOLDEN)


def test_the_golden_account_counts_what_happened(rows):
    account = {name: output.extra_fields["episode"] for name, (output, _) in rows.items()}
    assert account["failed retriever"]["failed_searches"] == 1
    assert account["failed retriever"]["failures"] == [
        "status 404: nothing is served at this address; check retriever.url"
    ]
    assert account["search"]["failures"] == []
    assert account["forged observation"]["forged"] == 1
    assert account["search"]["forged"] == 0
