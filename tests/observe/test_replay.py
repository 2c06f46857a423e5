"""Samples of a recorded run scored by another configuration, without asking its judges."""

import asyncio
from contextlib import contextmanager

import pytest

from zerowait import ConfigError, DataError, Engine, Sample
from zerowait.config import load_config
from zerowait.hub import JobHub
from zerowait.observe import replay
from zerowait.testing import FakeJudge, Garbage, Length, Script, Status
from zerowait.types import Abstain, Score, Skipped

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
UNREACHABLE = "http://127.0.0.1:9/v1"
FAULTY = Script(
    seed=3,
    faults=(Garbage(share=0.1, always=True), Status(status=400, share=0.1, always=True)),
)
CRITERIA = """---
criteria:
  logic: {weight: 3, ask: "Does each step follow?"}
  style: 1
---
## System
You judge.

## User
{{response}}

{{criteria}}

{{reply_format}}
"""


def samples(count, **fields):
    """Groups of four, in steps of forty; each response is another one."""
    return [
        Sample(
            f"Capital {at // 4}?",
            f"{'Paris' if at % 3 else 'Rome'} number {at}, {'very ' * (at % 5)}sure",
            "Paris",
            group=f"g{at // 4}",
            id=str(at),
            step=at // 40,
            response_tokens=10 + at % 5,
            **fields,
        )
        for at in range(count)
    ]


def judge_at(url, **settings):
    settings.setdefault("verdict", {"integer": [1, 10]})
    return {"endpoints": [{"base_url": url, "model": "m"}], **settings}


def config(url, *, judge=None, component=None, **parts):
    return {
        "components": {
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q", "weight": 0.1} | (component or {}),
        },
        "judges": {"q": judge_at(url, **(judge or {}))},
        "traffic": {"hedge": "off", "timeout_s": 60, "attempts": 2, "give_up_after": "off"},
        "cache": "off",
    } | parts


def record(settings, rows, folder):
    """Score the rows by a hub that records them."""

    async def score():
        async with JobHub(settings, record=folder) as hub:
            return await hub.score_all(rows)

    return asyncio.run(score())


def fresh(settings, rows):
    """The rewards of the rows from judges that are asked."""

    async def score():
        async with Engine(settings) as engine:
            return await engine.score_all(rows)

    return asyncio.run(score())


def replayed(folder, settings, **options):
    return asyncio.run(replay(folder, load_config(settings), **options))


def pairs(found):
    """The pairs in the order of the ids: a record has its rows in the order in which they settled."""
    return sorted(found.pairs, key=lambda pair: int(pair[0].id))


def values(found):
    return [now.value for _, now in pairs(found)]


def outcomes(found, component="quality"):
    return [now.components[component] for _, now in pairs(found)]


@contextmanager
def recorded(folder, *, script=FAULTY, answer=None, rows=None, settings=config):
    """A judge that runs, with a run of its on record; yields it and the rows."""
    rows = samples(80) if rows is None else rows
    with FakeJudge(script, answer=answer) as judge:
        record(settings(judge.url), rows, folder)
        yield judge, rows


CHANGES = {
    "weights": {"component": {"weight": 0.7}},
    "a gate": {"component": {"gate": "answer > 0"}},
    "normalize": {"component": {"normalize": True}},
    "on_failure": {"on_failure": {"value": 2.0}},
    "raise": {"on_failure": "neutral"},
    "a shape": {
        "components": {
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q", "weight": 0.1},
            "length": {"shape": "median_band", "peak_ratio": 0.1, "outer_ratio": 0.2},
        }
    },
    "another rule": {
        "components": {
            "answer": {"scorer": "regex", "pattern": "Paris"},
            "quality": {"judge": "q", "weight": 0.1},
        }
    },
    "another name": {"components": {"style": {"judge": "q", "weight": 0.1}}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_replayed_rewards_are_those_of_a_judge_that_is_asked_again(tmp_path, change):
    with recorded(tmp_path) as (judge, rows):
        settings = config(judge.url, **CHANGES[change])
        before = judge.seen.requests
        found = replayed(tmp_path, settings)
        assert judge.seen.requests == before
        afresh = fresh(settings, rows)
    assert found.requests == 0
    assert values(found) == [reward.value for reward in afresh]
    for (_, now), reward in zip(pairs(found), afresh, strict=True):
        assert now.components == reward.components


def test_500_rows_replay_without_the_judge_or_its_key(tmp_path):
    """As a user does it later: the judge is gone, and the variable of its key is not set."""
    with recorded(tmp_path, rows=samples(500), script=Script(seed=1)) as (judge, rows):
        afresh = fresh(config(judge.url, component={"weight": 3.0}), rows)
    gone = config(UNREACHABLE, component={"weight": 3.0})
    gone["judges"]["q"]["endpoints"][0]["api_key_env"] = "A_KEY_THAT_IS_NOT_SET"
    found = replayed(tmp_path, gone)
    assert values(found) == [reward.value for reward in afresh]
    assert found.answered == {"q": {"same": 500}}
    assert found.requests == 0


VERDICTS = {
    "other bounds": {"integer": [0, 20]},
    "decimals": {"number": [1, 10]},
    "bounds that some break": {"integer": [1, 5]},
    "by the prompt alone": {"integer": [1, 10], "structured": "off"},
}


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS)
def test_another_verdict_reads_the_recorded_replies(tmp_path, verdict):
    with recorded(tmp_path, script=Script(seed=1)) as (judge, rows):
        was = [each.components["quality"].value for each in fresh(config(judge.url), rows)]
    found = replayed(tmp_path, config(UNREACHABLE, judge={"verdict": verdict}))
    assert found.answered == {"q": {"reread": 80}}
    high = 5 if verdict.get("integer") == [1, 5] else 20
    for value, outcome in zip(was, outcomes(found), strict=True):
        if value <= high:
            assert outcome.value == value
        else:
            assert outcome.kind == "out_of_range"
    assert (high == 5) == any(isinstance(each, Abstain) for each in outcomes(found))


def test_other_words_of_a_choice_read_the_recorded_words(tmp_path):
    good_first, bad_first = {"choice": ["good", "bad"]}, {"choice": ["bad", "good"]}
    script = Script(seed=1)
    with recorded(
        tmp_path, script=script, settings=lambda url: config(url, judge={"verdict": good_first})
    ) as (judge, rows):
        was = fresh(config(judge.url, judge={"verdict": good_first}), rows)
    found = replayed(tmp_path, config(UNREACHABLE, judge={"verdict": bad_first}))
    assert found.requests == 0
    before = [reward.components["quality"].value for reward in was]
    assert set(before) == {0.0, 1.0}
    assert [outcome.value for outcome in outcomes(found)] == [1.0 - value for value in before]


OTHER_QUESTIONS = {
    "rubric": ({"rubric": "tool_reasoning"}, "another rubric"),
    "model": ({"endpoints": [{"base_url": UNREACHABLE, "model": "n"}]}, "another model"),
    "temperature": ({"temperature": 0.7}, "another temperature"),
    "parameter": ({"parameters": {"top_p": 0.5}}, "another top_p"),
}


@pytest.mark.parametrize("change", OTHER_QUESTIONS)
def test_a_reply_to_another_question_is_no_verdict(tmp_path, change):
    judge, why = OTHER_QUESTIONS[change]
    with recorded(tmp_path, script=Script(seed=1), rows=samples(8)):
        pass
    found = replayed(tmp_path, config(UNREACHABLE, judge=judge))
    assert found.answered == {"q": {"missing": 8}}
    [(words, count)] = found.missing["q"].items()
    assert (why in words, count) == (True, 8)
    assert all(each.kind == "cancelled" and why in each.detail for each in outcomes(found))
    assert values(found) == [None] * 8


def test_a_judge_is_asked_only_for_what_is_missing_and_only_when_told_to(tmp_path):
    """Half of the rows are new to the judge of the second component; failures are asked again."""
    with recorded(tmp_path) as (judge, rows):
        settings = config(judge.url)
        settings["components"]["logic"] = {"judge": "l", "gate": "answer > 0"}
        settings["judges"]["l"] = judge_at(judge.url, rubric="tool_reasoning")
        before = judge.seen.requests
        found = replayed(tmp_path, settings, ask=True)
        asked = judge.seen.requests - before
        afresh = fresh(settings, rows)
    assert values(found) == [reward.value for reward in afresh]
    paris = sum(row.response.startswith("Paris") for row in rows)
    assert found.answered["l"] == {"asked": paris}
    assert found.answered["q"]["same"] + found.answered["q"]["asked"] == len(rows)
    assert paris <= asked == found.requests


def test_a_failure_of_the_run_fails_again_in_the_words_of_then(tmp_path):
    with recorded(tmp_path) as (judge, rows):
        was = fresh(config(judge.url), rows)
    found = replayed(tmp_path, config(UNREACHABLE, component={"weight": 1.0}))
    failed = [each.components["quality"] for each in was if each.value is None]
    assert {each.kind.value for each in failed} == {"http_error", "unparseable"}
    assert [each for each in outcomes(found) if isinstance(each, Abstain)] == failed
    assert found.answered["q"]["failed"] == sum(each.kind == "http_error" for each in failed)


def criteria(folder):
    (folder / "criteria.md").write_text(CRITERIA)
    return {"rubric": str(folder / "criteria.md")}


def kinds_of_judgement(url, folder):
    """Configurations by name, whose judgements are more than one plain answer."""
    episode = [
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "content": "Paris."},
        {"role": "assistant", "content": "It is Paris."},
    ]
    rubric = [{"criterion": "names a city", "points": 2}, {"criterion": "is short", "points": 1}]
    panel = config(url)
    panel["judges"] |= {
        "p": {"panel": {"members": ["q", "other"], "normalize": True}},
        "other": judge_at(url, verdict={"choice": ["good", "bad"]}),
    }
    panel["components"]["quality"]["judge"] = "p"
    turns = {"component": {"per": "turn", "aggregate": "mean"}}
    monitor = {
        "rubric": "monitor",
        "verdict": {"choice": ["yes", "no"]},
        "monitor": {"within": "think"},
    }
    thinking = [
        Sample(
            "Q?",
            f"<think>I guess {at}.</think> Lima.",
            "Lima",
            extra={"is_correct": bool(at % 2)},
            id=str(at),
        )
        for at in range(8)
    ]
    return {
        "votes": (config(url, judge={"votes": {"n": 3}, "temperature": 1.0}), samples(8)),
        "panel": (panel, samples(8)),
        "criteria apart": (config(url, judge=criteria(folder) | {"ask": "apart"}), samples(8)),
        "criteria together": (config(url, judge=criteria(folder)), samples(8)),
        "turns": (
            config(url, **turns),
            [Sample(f"Q {at}?", episode, "Paris", id=str(at)) for at in range(4)],
        ),
        "monitor": (config(url, judge=monitor), thinking),
        "row rubric": (
            config(url, judge={"verdict": {"rubric": "extra.rubric"}, "ask": "apart"}),
            samples(8, extra={"rubric": rubric}),
        ),
        "comparison": (config(url, judge={"verdict": {"pairs": "group"}}), samples(8)),
        "ranking": (config(url, judge={"verdict": {"rank": "group"}}), samples(8)),
        "probability": (
            config(url, judge={"verdict": {"choice": ["yes", "no"], "by": "probability"}}),
            samples(8),
        ),
        "a form that is refused": (config(url), samples(8)),
    }


KINDS = (
    *("votes", "panel", "criteria apart", "criteria together", "turns", "monitor", "row rubric"),
    *("comparison", "ranking", "probability", "a form that is refused"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_judgement_is_answered_from_the_record(tmp_path, kind):
    run = tmp_path / "run"
    structured = "vllm" if "refused" in kind else "enforced"
    with FakeJudge(Script(seed=2, structured=structured)) as judge:
        settings, rows = kinds_of_judgement(judge.url, tmp_path)[kind]
        was = record(settings, rows, run)
        before = judge.seen.requests
        assert before
    found = replayed(run, settings)
    assert found.missing == {}
    assert [now.components for _, now in pairs(found)] == [reward.components for reward in was]
    assert values(found) == [reward.value for reward in was]
    assert None not in values(found)


def test_a_sample_keeps_the_reply_that_it_got_where_the_judge_said_two_things(tmp_path):
    """Equal requests, one after the other and without a cache, may be answered differently."""
    said = iter(["Score: 3", "Score: 8"])
    settings = {"verdict": {"integer": [1, 10], "structured": "off"}}
    row = {"ground_truth": "Paris", "prompt": "Q?", "response": "Paris"}
    rows = [Sample(**row, id="0"), Sample(**row, id="1")]
    with FakeJudge(answer=lambda _: next(said)) as judge:
        for each in rows:
            record(config(judge.url, judge=settings), [each], tmp_path)
    for judge_settings in (settings, {"verdict": {"number": [0, 20], "structured": "off"}}):
        found = replayed(tmp_path, config(UNREACHABLE, judge=judge_settings))
        assert [outcome.value for outcome in outcomes(found)] == [3.0, 8.0]


def test_a_text_with_half_a_surrogate_pair_is_answered_by_the_recorded_reply(tmp_path):
    """The record holds what the judge read instead of it."""
    rows = [Sample("Capital?", "Paris \ud83d", "Paris", id="0", extra={"half": "\udc00"})]
    with recorded(tmp_path, script=Script(), rows=rows):
        pass
    found = replayed(tmp_path, config(UNREACHABLE))
    [(then, now)] = found.pairs
    assert now.value == then.value is not None


@pytest.mark.parametrize("how", ["same", "reread"])
def test_what_was_shown_as_a_picture_is_found_again(tmp_path, how):
    url = f"data:image/png;base64,{PIXEL}"
    said = [
        {"type": "text", "text": "Capital of Peru?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    rows = [Sample([{"role": "user", "content": said}], "Lima", "Lima", id="0")]
    with recorded(
        tmp_path,
        script=Script(),
        rows=rows,
        settings=lambda url: config(url, judge={"images": True}),
    ) as (judge, _):
        was = fresh(config(judge.url, judge={"images": True}), rows)
    assert list(tmp_path.glob("pictures/*.png"))
    bounds = {"integer": [1, 10]} if how == "same" else {"integer": [0, 20]}
    found = replayed(tmp_path, config(UNREACHABLE, judge={"images": True, "verdict": bounds}))
    assert found.answered == {"q": {how: 1}}
    assert values(found) == [was[0].value]


def test_votes_are_pooled_otherwise_from_the_same_replies(tmp_path):
    settings = config(UNREACHABLE, judge={"votes": {"n": 3, "by": "median"}, "temperature": 1.0})
    with recorded(
        tmp_path,
        script=Script(seed=2),
        rows=samples(16),
        settings=lambda url: config(url, judge={"votes": {"n": 3}, "temperature": 1.0}),
    ) as (judge, rows):
        asked = {"votes": {"n": 3, "by": "median"}, "temperature": 1.0}
        afresh = fresh(config(judge.url, judge=asked), rows)
    assert values(replayed(tmp_path, settings)) == [reward.value for reward in afresh]


def test_an_older_record_is_answered_from_the_cache(tmp_path):
    run, cache = tmp_path / "run", str(tmp_path / "judgements.db")
    with recorded(
        run, script=Script(seed=1), settings=lambda url: config(url, cache={"path": cache})
    ) as (_, rows):
        pass
    for part in run.glob("judgements*"):
        part.unlink()
    for part in run.glob("index.db*"):
        part.unlink()
    found = replayed(run, config(UNREACHABLE, cache={"path": cache}, component={"weight": 1.0}))
    assert found.answered == {"q": {"cache": len(rows)}}
    assert "no judgements" in found.notes[0]
    nothing = replayed(run, config(UNREACHABLE))
    assert nothing.answered == {"q": {"missing": len(rows)}}
    kept = replayed(run, config(UNREACHABLE, component={"weight": 1.0}), keep=["quality"])
    assert values(kept) == values(found)


def test_rows_without_texts_are_counted_and_not_scored(tmp_path):
    with recorded(
        tmp_path, rows=samples(8), settings=lambda url: config(url, record={"texts": "hash"})
    ):
        pass
    for keep in ((), ("quality",)):
        with pytest.raises(DataError, match=r"texts were not kept .*--keep every component"):
            replayed(tmp_path, config(UNREACHABLE), keep=keep)


@pytest.mark.parametrize("texts", ["hash", "drop"])
def test_rows_without_texts_are_weighed_again_where_every_component_is_kept(tmp_path, texts):
    with recorded(
        tmp_path, rows=samples(8), settings=lambda url: config(url, record={"texts": texts})
    ) as (judge, rows):
        afresh = fresh(config(judge.url, component={"weight": 1.0}), rows)
    settings = config(UNREACHABLE, component={"weight": 1.0})
    found = replayed(tmp_path, settings, keep=["answer", "quality"])
    assert values(found) == pytest.approx([reward.value for reward in afresh])
    assert found.not_replayed == {}


def test_a_record_without_replies_keeps_its_components_only(tmp_path):
    with recorded(
        tmp_path,
        rows=samples(8),
        script=Script(seed=1),
        settings=lambda url: config(url, record={"judgements": "off"}),
    ) as (judge, rows):
        afresh = fresh(config(judge.url, component={"weight": 1.0}), rows)
    settings = config(UNREACHABLE, component={"weight": 1.0})
    assert values(replayed(tmp_path, settings)) == [None] * 8
    assert values(replayed(tmp_path, settings, keep=["quality"])) == [r.value for r in afresh]


def test_a_kept_component_that_was_skipped_abstains_where_its_gate_is_open(tmp_path):
    gated = {"gate": "answer > 0"}
    with recorded(
        tmp_path,
        script=Script(seed=1),
        rows=samples(12),
        settings=lambda url: config(url, component=gated),
    ):
        pass
    found = replayed(tmp_path, config(UNREACHABLE), keep=["quality"])
    for row, (then, now) in zip(samples(12), pairs(found), strict=True):
        was_skipped = isinstance(then.components["quality"], Skipped)
        assert was_skipped == row.response.startswith("Rome")
        assert isinstance(now.components["quality"], Abstain if was_skipped else Score)


@pytest.mark.parametrize(
    ("keep", "said"),
    [("qualiti", "did you mean 'quality'"), ("length", "is a shape"), ("new", "of the record")],
)
def test_what_cannot_be_kept_is_said_at_once(tmp_path, keep, said):
    shaped = {
        "components": {
            "quality": {"judge": "q"},
            "length": {"shape": "hard_cap", "limit": 10},
            "new": {"scorer": "contains"},
        }
    }
    with recorded(
        tmp_path,
        rows=samples(4),
        settings=lambda url: config(
            url, components={k: shaped["components"][k] for k in ("quality", "length")}
        ),
    ):
        pass
    with pytest.raises(ConfigError, match=said):
        replayed(tmp_path, config(UNREACHABLE, **shaped), keep=[keep])


def test_groups_are_those_of_one_step(tmp_path):
    """The same group name in two steps is two groups, for shapes as for comparisons."""
    rows = [
        Sample("Q?", "a b c", "a", group="g", step=step, response_tokens=tokens, id=f"{step}{at}")
        for step, lengths in ((0, (10, 10, 20)), (1, (100, 100, 200)))
        for at, tokens in enumerate(lengths)
    ]
    plain = {"components": {"answer": {"scorer": "contains"}}}
    shaped = {"components": plain["components"] | {"length": {"shape": "median_band"}}}
    record(plain, rows, tmp_path)
    assert values(replayed(tmp_path, shaped)) == [1.0, 1.0, 0.0] * 2


def test_a_missing_group_is_said_for_each_row(tmp_path):
    plain = {"components": {"answer": {"scorer": "contains"}}}
    shaped = {"components": plain["components"] | {"length": {"shape": "median_band"}}}
    record(plain, [Sample("Q?", "a", "a")], tmp_path)
    with pytest.raises(DataError, match="group"):
        replayed(tmp_path, shaped)


def test_a_folder_without_a_record_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no record"):
        replayed(tmp_path, {"components": {"answer": {"scorer": "contains"}}})


def test_the_record_is_not_touched(tmp_path):
    with recorded(tmp_path, rows=samples(8)):
        pass
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    replayed(tmp_path, config(UNREACHABLE, component={"weight": 1.0}))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == before


def test_a_truncated_answer_is_read_by_its_second_longer_reply(tmp_path):
    with recorded(
        tmp_path, script=Script(seed=1, faults=(Length(share=0.5, cured_at=2048),)), rows=samples(8)
    ) as (judge, rows):
        afresh = fresh(config(judge.url), rows)
    found = replayed(tmp_path, config(UNREACHABLE))
    assert [now.components for _, now in pairs(found)] == [each.components for each in afresh]
