"""The files that a row passes through from verl's reward manager to the hub's engine and back."""

import asyncio
import sys
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
pytest.importorskip("verl")

import numpy as np  # noqa: E402 - verl is optional
from omegaconf import OmegaConf  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl import DataProto

    from zerowait.verl.rewards.manager import RewardManager
    from zerowait.verl.rewards.tickets import ticket_in

import zerowait  # noqa: E402
from zerowait.hub import read_rewards  # noqa: E402
from zerowait.hub.ray import RayTickets  # noqa: E402

SOURCE = Path(zerowait.__file__).parent
MOST_FILES = 12
"""Outside the engine and what it calls; may only fall. A response with a tool's text passes through
one more, which cuts that text out."""
RULE = "components: {answer: {scorer: qa_em}}\n"
RESPONSE = "<answer>Paris</answer>"

pytestmark = pytest.mark.usefixtures("usual_collector")


class Letters:
    """Token ids are letters."""

    def decode(self, ids, *, skip_special_tokens):
        return "".join(chr(int(token)) for token in ids)


def layer(code):
    path = code.co_filename
    if not path.startswith(f"{SOURCE}/"):
        return None
    return Path(path).relative_to(SOURCE).parts[0]


@contextmanager
def traced(files):
    """Add to `files` each of ours in which a function runs that the engine did not call."""

    def called(frame, event, _):
        if event != "call" or layer(frame.f_code) is None:
            return
        caller = frame
        while caller is not None:
            if layer(caller.f_code) in ("engine", "client"):
                return
            caller = caller.f_back
        files.add(str(Path(frame.f_code.co_filename).relative_to(SOURCE)))

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)


def batch(name, tool_text=""):
    """verl's batch of one finished trajectory, whose first tokens a tool may have written."""
    tokens = torch.tensor([[ord(letter) for letter in tool_text + RESPONSE]])
    response_mask = [0] * len(tool_text) + [1] * len(RESPONSE)
    columns = {
        "uid": name,
        "session_id": 0,
        "global_steps": 1,
        "raw_prompt": [{"role": "user", "content": "Capital of France?"}],
        "data_source": "capitals",
        "reward_model": {"ground_truth": "Paris"},
        "extra_info": {"split": "train", "group_size": 1},
        "tool_extra_fields": {"response_mask": response_mask},
    }
    arrays = {}
    for column, value in columns.items():
        arrays[column] = np.empty(1, dtype=object)
        arrays[column][0] = value
    mask = torch.ones(1, 2 + len(response_mask))
    return DataProto.from_dict(
        tensors={"responses": tokens, "attention_mask": mask}, non_tensors=arrays
    )


def verl_config(tmp_path, mode):
    config = tmp_path / "reward.yaml"
    config.write_text(RULE)
    return OmegaConf.create(
        {
            "trainer": {"v1": {"trainer_mode": mode, "sampler": {}}},
            "data": {"train_batch_size": 4},
            "actor_rollout_ref": {"rollout": {"n": 4}},
            "reward": {
                "num_workers": 1,
                "zerowait": {"config": str(config), "record": str(tmp_path / "run")},
            },
            "algorithm": {"adv_estimator": "grpo"},
        }
    )


def walked(ray_here, tmp_path, mode, row):
    """The files of a worker's first row, in a hub that is open, and the result of `row`.

    `row` is called with the worker's reward manager, the trainer's handle and the row's name.
    """
    files = set()

    async def scenario():
        config = verl_config(tmp_path, mode)
        ours = config.reward.zerowait
        for name in ("opens the hub", "is traced"):
            manager = RewardManager(config, Letters())
            trainer = RayTickets(ours.config, record=ours.record)
            with traced(files) if name == "is traced" else nullcontext():
                result = await row(manager, trainer, name)
        await ray_here[0].actor.aclose(0.0)
        return result

    result = asyncio.run(scenario())
    assert len(list(read_rewards(tmp_path / "run"))) == 2
    return files, result


@pytest.mark.parametrize(("tool_text", "more"), [("", 0), ("Rome", 1)], ids=["plain", "tool"])
def test_a_streamed_row_passes_through_at_most_twelve_files(ray_here, tmp_path, tool_text, more):
    async def row(manager, _trainer, name):
        return await manager.run_single(batch(name, tool_text))

    files, result = walked(ray_here, tmp_path, "sync", row)
    assert result["reward_score"] == 1.0
    assert {"verl/rewards/manager.py", "hub/rpc.py", "hub/job.py"} < files
    assert len(files) <= MOST_FILES + more, "\n".join(sorted(files))


def test_a_deposited_row_and_its_redemption_pass_through_at_most_twelve_files(ray_here, tmp_path):
    async def row(manager, trainer, name):
        told = await manager.run_single(batch(name))
        return await trainer.redeem(ticket_in(told))

    files, reward = walked(ray_here, tmp_path, "zerowait", row)
    assert reward.value == 1.0
    assert {"verl/rewards/manager.py", "hub/rpc.py", "hub/tickets.py"} < files
    assert len(files) <= MOST_FILES, sorted(files)
