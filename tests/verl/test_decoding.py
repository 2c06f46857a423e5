import pytest
import torch
from verl.utils.torch_functional import logprobs_from_logits

from zerowait.verl.cpu.rollout.batch import BatchLimits, DecodingBatch
from zerowait.verl.cpu.rollout.generation import Generation
from zerowait.verl.cpu.rollout.sampling import Sampling

from .conftest import VOCABULARY, small_model

PROMPTS = [[5, 9, 11], [7], [30, 31, 32, 33, 34, 35, 36, 37], [5, 9, 11], [40, 41]]


def request(prompt, *, seed=0, decode=None, **sampling):
    return Generation(prompt, Sampling(**({"max_tokens": 10} | sampling)), seed=seed, decode=decode)


@pytest.fixture(params=[False, True], ids=["live columns", "fixed shapes"])
def graphs(request):
    """Both decoders; without a GPU, the shapes are those of a CUDA graph, but none is made."""
    return request.param


def decode_all(model, requests, *, joining=(), limits=None, graphs=False):
    """Every request decoded; `joining` maps a step to the requests that come in after it."""
    batch = DecodingBatch(model, limits or BatchLimits(), graphs=graphs)
    batch.admit(requests)
    batch.take_done()
    later = dict(joining)
    step = 0
    while batch.rows or later:
        step += 1
        if batch.rows:
            batch.step()
        if step in later:
            batch.admit(later.pop(step))
        batch.take_done()
    return batch


def slow_greedy(model, prompt, length):
    """The same without cache, batch or padding: the whole context is read for every token."""
    ids, log_probs = list(prompt), []
    for _ in range(length):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        ids.append(int(logits.argmax()))
        log_probs.append(float(logits.log_softmax(-1).max()))
    return ids[len(prompt) :], log_probs


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_batch_writes_what_each_request_would_get_alone_and_without_a_cache(groups, graphs):
    model = small_model(groups=groups)
    requests = [request(prompt, temperature=0) for prompt in PROMPTS]
    decode_all(model, requests, graphs=graphs)
    for prompt, done in zip(PROMPTS, requests, strict=True):
        tokens, log_probs = slow_greedy(model, prompt, 10)
        assert done.token_ids == tokens
        assert done.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert done.finish == "length"


def test_rows_that_end_early_leave_the_others_as_they_are(model, graphs):
    lengths = [3, 9, 1, 12, 5]
    requests = [
        request(prompt, temperature=0, max_tokens=length)
        for prompt, length in zip(PROMPTS, lengths, strict=True)
    ]
    decode_all(model, requests, graphs=graphs)
    for prompt, length, done in zip(PROMPTS, lengths, requests, strict=True):
        tokens, log_probs = slow_greedy(model, prompt, length)
        assert done.token_ids == tokens
        assert done.log_probs == pytest.approx(log_probs, abs=1e-4)


@pytest.mark.parametrize("late", [[50] * 90, [3]])
def test_a_request_that_joins_a_running_batch_is_decoded_as_if_alone(model, late, graphs):
    early = [request(prompt, temperature=0, max_tokens=30) for prompt in PROMPTS[:2]]
    joined = request(late, temperature=0)
    decode_all(model, early, joining=[(2, [joined])], graphs=graphs)
    assert joined.token_ids == slow_greedy(model, late, 10)[0]
    assert early[0].token_ids == slow_greedy(model, PROMPTS[0], 30)[0]


def test_the_cache_grows_with_long_responses(model, graphs):
    done = request(PROMPTS[0], temperature=0, max_tokens=200)
    decode_all(model, [done], graphs=graphs)
    assert done.token_ids == slow_greedy(model, PROMPTS[0], 200)[0]


def test_a_seed_gives_the_same_response_in_any_company(model, graphs):
    def sampled(prompt, seed):
        return request(prompt, seed=seed, temperature=1.0, top_p=0.95)

    alone = sampled(PROMPTS[2], 7)
    decode_all(model, [alone])  # one way alone, either way in company
    crowd = [sampled(prompt, seed) for seed, prompt in enumerate(PROMPTS)]
    again = sampled(PROMPTS[2], 7)
    decode_all(model, crowd, joining=[(3, [again])], graphs=graphs)
    assert again.token_ids == alone.token_ids
    assert again.log_probs == pytest.approx(alone.log_probs, abs=1e-4)


def test_siblings_with_different_seeds_differ(model):
    siblings = [request(PROMPTS[0], seed=seed) for seed in range(4)]
    decode_all(model, siblings)
    assert len({tuple(sibling.token_ids) for sibling in siblings}) == 4


def test_log_probabilities_are_those_that_verls_trainer_computes(model):
    """The trainer reads prompt and response at once, right-padded, and scales by temperature."""
    temperature = 0.7
    requests = [request(prompt, seed=3, temperature=temperature) for prompt in PROMPTS]
    decode_all(model, requests)
    width = max(len(done.context) for done in requests)
    ids = torch.zeros(len(requests), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, done in enumerate(requests):
        ids[row, : len(done.context)] = torch.tensor(done.context)
        mask[row, : len(done.context)] = 1
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits / temperature
    trained = logprobs_from_logits(logits=logits[:, :-1], labels=ids[:, 1:])
    for row, done in enumerate(requests):
        start = len(done.prompt_ids) - 1
        expected = trained[row, start : start + len(done.token_ids)]
        assert done.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


class CountingModel:
    """Counts the rows that a model reads."""

    def __init__(self, model):
        self._model = model
        self.config, self.device = model.config, model.device
        self.shapes = []

    def __call__(self, **inputs):
        self.shapes.append(tuple(inputs["input_ids"].shape))
        return self._model(**inputs)


def test_equal_prompts_are_read_once(model):
    counting = CountingModel(model)
    decode_all(counting, [request(PROMPTS[0], seed=seed, max_tokens=2) for seed in range(8)])
    assert counting.shapes == [(1, 3), (8, 1)]


def test_prompts_beyond_the_limit_are_read_in_portions(model):
    counting = CountingModel(model)
    limits = BatchLimits(prefill_tokens=8)
    requests = [request(prompt, temperature=0) for prompt in PROMPTS]
    decode_all(counting, requests, limits=limits)
    reads = [shape for shape in counting.shapes if shape[1] > 1]
    assert all(rows * width <= 8 for rows, width in reads)
    assert requests[2].token_ids == slow_greedy(model, PROMPTS[2], 10)[0]


def ids(text):
    return [ord(letter) - ord("a") for letter in text]


def test_a_response_ends_with_its_stop_token(model):
    free = request(PROMPTS[0], temperature=0)
    decode_all(model, [free])
    stopped = request(PROMPTS[0], temperature=0, stop_ids=frozenset({free.token_ids[3]}))
    decode_all(model, [stopped])
    length = free.token_ids.index(free.token_ids[3]) + 1
    assert stopped.token_ids == free.token_ids[:length]
    assert stopped.finish == "stop"


def test_a_stop_token_waits_for_the_shortest_length_wanted(model):
    everything = frozenset(range(0, VOCABULARY, 2))
    done = request(PROMPTS[0], stop_ids=everything, min_tokens=6, max_tokens=40)
    decode_all(model, [done])
    assert len(done.token_ids) > 5
    assert not everything & set(done.token_ids[:6])


def test_a_response_ends_with_the_token_that_completes_a_stop_text(model, tokenizer):
    free = request(PROMPTS[0], temperature=0)
    decode_all(model, [free])
    text = tokenizer.decode(free.token_ids)
    done = request(PROMPTS[0], temperature=0, stop_texts=(text[2:5],), decode=tokenizer.decode)
    decode_all(model, [done])
    assert tokenizer.decode(done.token_ids) == text[: text.index(text[2:5]) + 3]


@pytest.mark.parametrize(
    ("prompt", "written", "finish"),
    [
        pytest.param("xcd", "e", "stop", id="begun in the part that was aborted"),
        pytest.param("xc", "de", "stop", id="begun there with one letter"),
        pytest.param("xcde", "fg", "", id="whole in the prompt"),
        pytest.param("xcde", "fcde", "stop", id="whole in the prompt and once more"),
        pytest.param("cd" + "x" * 40, "e", "", id="begun too early"),
        pytest.param("x", "cde" + "y" * 40, "stop", id="of its own"),
    ],
)
def test_a_response_that_goes_on_completes_a_stop_text_that_its_first_part_began(
    tokenizer, prompt, written, finish
):
    """verl asks for the rest of an aborted response with the first part behind the prompt."""
    going_on = request(ids(prompt), stop_texts=("cde",), decode=tokenizer.decode, max_tokens=64)
    for token in ids(written):
        going_on.accept(token, -1.0)
        if going_on.finish:
            break
    assert going_on.finish == finish
    if finish:
        assert tokenizer.decode(going_on.token_ids).endswith("e")


def test_a_response_taken_out_goes_on_where_it_was(model):
    whole = request(PROMPTS[0], seed=5, max_tokens=20)
    decode_all(model, [whole])
    parted = request(PROMPTS[0], seed=5, max_tokens=20)
    batch = DecodingBatch(model, BatchLimits())
    batch.admit([parted])
    for _ in range(6):
        batch.step()
    assert batch.take_all() == [parted]
    decode_all(model, [parted])
    assert parted.token_ids == whole.token_ids


def test_a_model_of_broken_weights_is_an_error_and_not_a_response():
    model = small_model()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ArithmeticError, match="not numbers"):
        decode_all(model, [request(PROMPTS[0])])


def test_a_batch_counts_every_response_at_its_longest(model):
    batch = DecodingBatch(model, BatchLimits(rows=3, cache_tokens=60))
    batch.admit([request(PROMPTS[0], max_tokens=17)])
    assert batch.columns == 20
    assert batch.fits(3, 20)
    assert not batch.fits(4, 10)
    assert not batch.fits(3, 21)
    assert DecodingBatch(model, BatchLimits(cache_tokens=1)).fits(1, 1_000)


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(ValueError, match="no tokens"):
        request([])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
def test_a_recorded_step_writes_what_a_step_started_from_python_writes():
    model = small_model().to("cuda")
    plain, recorded = (
        [request(prompt, seed=3, max_tokens=150 + 9 * at) for at, prompt in enumerate(PROMPTS)]
        for _ in range(2)
    )
    decode_all(model, plain)
    batch = decode_all(model, recorded, graphs=True)
    assert batch.records_steps
    for ours, theirs in zip(recorded, plain, strict=True):
        assert ours.token_ids == theirs.token_ids
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-3)
