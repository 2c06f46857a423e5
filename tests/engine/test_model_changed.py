"""The alarm for a judge that is no longer the one it was."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import Engine, Sample
from zerowait.client import Reply
from zerowait.events import ModelChanged
from zerowait.judge import ModelChangeDetector, ServedModel


class Wire:
    """Serves the origins one after the other; the last one for ever."""

    def __init__(self, *origins):
        self.origins = list(origins)

    async def send(self, request, *, timeout_s):
        model, fingerprint = self.origins.pop(0) if self.origins[1:] else self.origins[0]
        body = {"choices": [{"message": {"content": "Score: 7"}}]}
        body |= {"model": model} if model else {}
        body |= {"system_fingerprint": fingerprint} if fingerprint else {}
        return Reply(200, {}, msgspec.json.encode(body))

    async def aclose(self):
        pass


def changes(*origins, samples=6, cache="off"):
    events = []
    config = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": cache,
    }

    async def main():
        async with Engine(config, transport=Wire(*origins), listener=events.append) as engine:
            for number in range(samples):
                await engine.score(Sample("q", f"answer {number}"))
            return engine.stats().model_changes

    count = asyncio.run(main())
    told = [event for event in events if isinstance(event, ModelChanged)]
    assert len(told) == count
    return [(event.judge, event.before, event.after) for event in told]


@pytest.mark.parametrize(
    ("origins", "told"),
    [
        ([("m", "f1")], []),
        ([("", "")], []),
        ([("m", "f1"), ("m", "f2")], [("q", "m (f1)", "m (f2)")]),
        ([("m", ""), ("n", "")], [("q", "m", "n")]),
        ([("m", "f1"), ("n", "")], [("q", "m (f1)", "n")]),
        ([("m", "f1"), ("m", ""), ("", ""), ("m", "f1")], []),
        ([("m", ""), ("m", "f1")], []),
        ([("m", "f1"), ("m", ""), ("m", "f2")], [("q", "m (f1)", "m (f2)")]),
        ([("m", "1"), ("m", "2"), ("m", "1"), ("m", "2")], [("q", "m (1)", "m (2)")]),
        (
            [("m", "1"), ("m", "2"), ("n", "3")],
            [("q", "m (1)", "m (2)"), ("q", "m (2)", "n (3)")],
        ),
    ],
)
def test_each_other_model_or_fingerprint_is_told_once(origins, told):
    assert changes(*origins) == told


def test_cached_verdicts_of_another_model_than_todays_raise_the_alarm(tmp_path):
    cache = {"path": str(tmp_path / "j.db")}
    assert changes(("m", "old"), samples=3, cache=cache) == []
    assert changes(("m", "new"), samples=6, cache=cache) == [("q", "m (old)", "m (new)")]


@given(
    st.lists(
        st.builds(ServedModel, st.sampled_from(["", "m", "n"]), st.sampled_from(["", "f", "g"]))
    )
)
def test_no_more_changes_are_told_than_there_are_different_origins(origins):
    served = ModelChangeDetector()
    told = [change for change in map(served.changed, origins) if change is not None]
    news = [after for _, after in told]
    assert len(news) == len(set(news))
    assert all(before != after for before, after in told)
    if len({origin.model for origin in origins if origin.model}) > 1:
        assert told
