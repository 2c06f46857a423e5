"""A key that is found by texts is the key of exactly the request that would be made of them."""

import asyncio
import gc
import json
import tracemalloc
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import Engine, Sample
from zerowait.engine.judging.cached_judge import KeyMemo, digest_of
from zerowait.testing import FakeJudge

texts = st.dictionaries(
    st.sampled_from(["prompt", "response"]), st.text(st.characters()), min_size=2, max_size=2
)
asked = st.tuples(
    texts.map(lambda t: dict(sorted(t.items()))), st.integers(0, 2), st.integers(0, 2)
)


@given(asked, asked)
def test_two_requests_have_one_digest_only_if_they_are_the_same(one, other):
    assert (digest_of(*one) == digest_of(*other)) == (one == other)


@given(st.text(st.characters(), min_size=1), st.integers(0, 8))
def test_no_text_can_pass_its_end_off_as_the_beginning_of_the_next(text, cut):
    moved = {"prompt": text[:cut], "response": text[cut:]}
    assert (digest_of({"prompt": text, "response": ""}, 0, 0) == digest_of(moved, 0, 0)) == (
        text[cut:] == ""
    )


def test_half_a_surrogate_pair_has_a_digest_too():
    half, whole = {"response": "\ud83d"}, {"response": "\\ud83d"}
    assert digest_of(half, 0, 0) == digest_of(dict(half), 0, 0) != digest_of(whole, 0, 0)


def test_the_oldest_key_makes_room_for_the_newest():
    memo = KeyMemo(most=2)
    for digest in (b"a", b"b", b"c"):
        memo.keep(digest, digest.decode())
    assert [memo.find(digest) for digest in (b"a", b"b", b"c")] == [None, "b", "c"]


CRITERIA = """---
criteria: {logic: 1, style: 1}
---
## System
You judge.

## User
{{prompt}}
{{response}}
{{criteria}}

{{reply_format}}
"""


def test_an_answer_in_memory_is_never_that_of_another_vote_criterion_or_cut(tmp_path):
    """Scored a second time, every sample has its own score again, and no judge is asked."""
    (tmp_path / "rubric.md").write_text(CRITERIA)
    samples = [Sample("ab"[:cut] or "-", "ab"[cut:] + str(n)) for cut in (1, 2) for n in range(3)]

    def answer(body):  # another score for each text, criterion and vote
        return f"Score: {1 + crc32(json.dumps(body, sort_keys=True).encode()) % 10}"

    async def main(judge):
        entry = {
            "endpoints": [{"base_url": judge.url, "model": "m"}],
            "verdict": {"integer": [1, 10]},
            "rubric": str(tmp_path / "rubric.md"),
            "ask": "apart",
            "votes": {"n": 3},
            "parameters": {"seed": 1},
        }
        config = {
            "components": {"quality": {"judge": "j"}},
            "judges": {"j": entry},
            "cache": {"path": str(tmp_path / "cache.db")},
        }
        async with Engine(config) as engine:
            first = await engine.score_all(samples)
            return first, await engine.score_all(samples), engine.stats()

    with FakeJudge(answer=answer) as judge:
        first, second, stats = asyncio.run(main(judge))
        asked = judge.seen.requests
    assert [reward.components for reward in first] == [reward.components for reward in second]
    assert len({reward.value for reward in first}) > 1
    assert stats.asked == stats.cached == asked == len(samples) * 2 * 3


@pytest.mark.wire
@pytest.mark.parametrize(("cache", "says"), [("off", "Score: 7"), ("file", "no verdict")])
def test_of_a_judgement_that_nothing_is_kept_of_nothing_is_kept(tmp_path, cache, says):
    """A run of a thousand steps makes millions of them."""
    engines = ("client", "engine", "judge", "cache")
    ours = [tracemalloc.Filter(True, f"*/zerowait/{part}/*") for part in engines]
    # what it keeps of ten minutes grows with the time that the judgements take
    ours.append(tracemalloc.Filter(False, "*/zerowait/engine/lag.py"))

    async def main(judge):
        entry = {"endpoints": [{"base_url": judge.url, "model": "m"}], "max_tokens": 64}
        config = {
            "components": {"quality": {"judge": "j"}},
            "judges": {"j": entry | {"verdict": {"integer": [1, 10]}}},
            "cache": {"path": str(tmp_path / "cache.db")} if cache == "file" else "off",
            "traffic": {"concurrency": 4, "hedge": "off", "give_up_after": "off"},
        }
        async with Engine(config) as engine:
            held = []
            for step in range(3):
                await engine.score_all([Sample("q", f"{step} {row}") for row in range(120)])
                gc.collect()
                traces = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
                held.append(sum(trace.size for trace in traces))
            return held

    with FakeJudge(answer=lambda _: says) as judge:
        tracemalloc.start()
        try:
            held = asyncio.run(main(judge))
        finally:
            tracemalloc.stop()
    # what is kept of each judgement shows at every step, what some moment needs or what has a limit
    # does not
    assert min(after - before for before, after in pairwise(held)) < 120 * 80


@pytest.mark.parametrize("prompt", [np.str_("q"), [{"role": "user", "content": np.str_("q")}]])
def test_the_text_of_a_numpy_array_is_judged_like_any_other(prompt):
    rows = [Sample("q", "a"), Sample(prompt, np.str_("a"))]

    async def main(judge):
        entry = {
            "endpoints": [{"base_url": judge.url, "model": "m"}],
            "verdict": {"integer": [1, 10]},
        }
        config = {"components": {"quality": {"judge": "j"}}, "judges": {"j": entry}, "cache": "off"}
        async with Engine(config) as engine:
            return [(await engine.score(row)).value for row in rows]

    with FakeJudge(answer=lambda _: "Score: 7") as judge:
        assert asyncio.run(main(judge)) == [7, 7]
