"""Every kind of judgement through the engine and a real HTTP judge, with what can go wrong."""

import asyncio
import json
from collections import Counter
from itertools import count

import pytest

from zerowait import Abstain, Engine, Sample, Score, Skipped
from zerowait.events import JudgementSettled
from zerowait.testing import FakeJudge, Garbage, Length, Script

SAMPLE = Sample("Q?", "<think>easy</think> A.", ground_truth="A.", extra={"is_correct": True})
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
SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}


def said(score):
    return json.dumps({"reason": "Step 2 is missing.", "score": score})


class Asked:
    """A judge's answers, in turn or by what is asked; keeps the bodies."""

    def __init__(self, *answers):
        self.answers = answers
        self.bodies = []
        self._turn = count()

    def __call__(self, body):
        self.bodies.append(body)
        turn = next(self._turn)
        if callable(self.answers[0]):
            return self.answers[0](body)
        return self.answers[turn % len(self.answers)]

    def texts(self, role):
        at = {"system": 0, "user": 1}[role]
        return [body["messages"][at]["content"] for body in self.bodies]


def entry(judge, **parts):
    endpoint = {"base_url": judge.url, "model": "m"}
    return {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}} | parts


def config(judges, **parts):
    """Everything that a test does not say: one component on the judge ``j``, no cache."""
    base = {
        "components": {"quality": {"judge": "j"}},
        "judges": judges,
        "cache": "off",
        "traffic": {"attempts": 1, "concurrency": 8},
    }
    return base | parts


def scored(settings, *samples, listener=lambda _event: None):
    async def scenario():
        async with Engine(settings, listener=listener) as engine:
            return await engine.score_all(samples or [SAMPLE]), engine.stats()

    return asyncio.run(scenario())


def outcome_of(settings, *samples, **options):
    rewards, _ = scored(settings, *samples, **options)
    return rewards[0].components["quality"]


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps(SCHEMA))
    return {"schema": str(path), "value": "/score"}


@pytest.fixture
def rubric(tmp_path):
    path = tmp_path / "criteria.md"
    path.write_text(CRITERIA)
    return str(path)


@pytest.fixture
def absent(hold_port):
    """The address of a judge that is not there, nor another server while the test runs."""
    with hold_port() as port:
        yield {"base_url": f"http://127.0.0.1:{port}/v1", "model": "gone"}


# ---- JSON schema


def test_a_schema_verdict_is_the_number_at_its_place_and_the_object_is_kept(schema):
    asked = Asked(said(4))
    with FakeJudge(answer=asked) as judge:
        outcome = outcome_of(config({"j": entry(judge, verdict=schema)}))
    assert (outcome.value, outcome.why) == (4, "Step 2 is missing.")
    assert outcome.detail["reply"] == json.loads(said(4))
    sent = asked.bodies[0]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["strict"] is True
    assert sent["json_schema"]["schema"] == SCHEMA
    assert list(sent["json_schema"]["schema"]["properties"]) == ["reason", "score"]


def test_a_schema_verdict_that_is_not_structured_has_its_schema_in_the_prompt_alone(schema):
    asked = Asked(f"It skips a step.\n```json\n{said(2)}\n```")
    with FakeJudge(answer=asked) as judge:
        verdict = schema | {"structured": False}
        assert outcome_of(config({"j": entry(judge, verdict=verdict)})).value == 2
    assert "response_format" not in asked.bodies[0]
    assert "First give your reasons" in asked.texts("user")[0]
    assert json.dumps(SCHEMA) in asked.texts("user")[0]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (said(6), "out_of_range"),
        (said(4.5), "unparseable"),
        (said("4"), "unparseable"),
        ('{"score": 4}', "unparseable"),
        ("Score: 4", "unparseable"),
        ("I'm sorry, I cannot help with that.", "refused"),
    ],
)
def test_a_reply_that_does_not_fit_the_schema_abstains(schema, reply, kind):
    with FakeJudge(answer=Asked(reply)) as judge:
        outcome = outcome_of(config({"j": entry(judge, verdict=schema)}))
    assert isinstance(outcome, Abstain)
    assert outcome.kind == kind


def test_a_schema_verdict_is_normalised_by_its_minimum_and_maximum(schema):
    components = {"quality": {"judge": "j", "normalize": True}}
    with FakeJudge(answer=Asked(said(4))) as judge:
        settings = config({"j": entry(judge, verdict=schema)}, components=components)
        assert outcome_of(settings).value == 0.75


def test_another_schema_asks_again_and_the_same_one_does_not(schema, tmp_path):
    cache = {"path": str(tmp_path / "j.db")}
    with FakeJudge(answer=Asked(said(4))) as judge:
        settings = config({"j": entry(judge, verdict=schema)}, cache=cache)
        for _ in range(2):
            scored(settings)
        assert judge.seen.requests == 1
        changed = SCHEMA | {"title": "Strictly"}
        (tmp_path / "verdict.json").write_text(json.dumps(changed))
        scored(settings)
        assert judge.seen.requests == 2


def test_two_judges_that_send_the_same_request_share_the_call_and_read_their_own_value(tmp_path):
    places = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    schema = {"type": "object", "properties": places, "required": ["a", "b"]}
    (tmp_path / "two.json").write_text(json.dumps(schema))
    verdict = {"schema": str(tmp_path / "two.json"), "structured": False}
    with FakeJudge(answer=Asked('{"a": 1, "b": 2}')) as judge:
        judges = {name: entry(judge, verdict=verdict | {"value": name}) for name in "ab"}
        components = {name: {"judge": name} for name in "ab"}
        rewards, stats = scored(config(judges, components=components))
        assert judge.seen.requests == 1
    assert [outcome.value for outcome in rewards[0].components.values()] == [1, 2]
    assert (stats.asked, stats.joined) == (1, 1)


# ---- criteria


def test_criteria_are_judged_in_one_call_and_weighed(rubric):
    asked = Asked("Step 2 does not follow.\n\nlogic: 4\nstyle: 8")
    with FakeJudge(answer=asked) as judge:
        rewards, stats = scored(config({"j": entry(judge, rubric=rubric)}))
    outcome = rewards[0].components["quality"]
    assert outcome.value == 5  # (3 * 4 + 1 * 8) / 4
    assert outcome.why == "Step 2 does not follow."
    assert outcome.detail["criteria"] == {"logic": 4, "style": 8}
    assert rewards[0].metrics["quality/logic"] == 4
    assert stats.asked == 1
    assert "- logic: Does each step follow?\n- style" in asked.texts("user")[0]


def by_criterion(**verdicts):
    """A judge that is asked about one criterion at a time."""

    def answer(body):
        name = next(n for n in verdicts if f"- {n}" in body["messages"][1]["content"])
        return verdicts[name]

    return Asked(answer)


def test_criteria_asked_apart_are_a_call_each_that_begin_alike(rubric):
    asked = by_criterion(logic="Score: 4", style="Score: 8")
    with FakeJudge(answer=asked) as judge:
        rewards, stats = scored(config({"j": entry(judge, rubric=rubric, ask="apart")}))
    assert rewards[0].value == 5
    assert rewards[0].metrics["quality/style"] == 8
    assert stats.asked == 2
    one, other = asked.texts("user")
    shared = one[: one.index("- ")]
    assert other.startswith(shared)
    assert "<<<END RESPONSE" in shared
    assert len(set(asked.texts("system"))) == 1


@pytest.mark.parametrize("ask", ["together", "apart"])
def test_one_criterion_without_a_verdict_abstains_the_judgement_and_its_metrics(rubric, ask):
    replies = {"together": Asked("logic: 9"), "apart": by_criterion(logic="Score: 9", style="?")}
    with FakeJudge(answer=replies[ask]) as judge:
        rewards, _ = scored(config({"j": entry(judge, rubric=rubric, ask=ask)}))
    outcome = rewards[0].components["quality"]
    assert outcome.kind == "unparseable"
    assert "style" in outcome.detail
    assert rewards[0].value is None
    assert rewards[0].metrics["quality/logic"] is None


def test_a_repeated_criterion_comes_from_the_cache(rubric, tmp_path):
    replies = {"logic": "Score: 9", "style": "?"}
    with FakeJudge(answer=by_criterion(**replies)) as judge:
        judges = {"j": entry(judge, rubric=rubric, ask="apart")}
        settings = config(judges, cache={"path": str(tmp_path / "j.db")})
        assert scored(settings)[0][0].value is None
    with FakeJudge(answer=by_criterion(logic="Score: 1", style="Score: 5")) as judge:
        settings["judges"] = {"j": entry(judge, rubric=rubric, ask="apart")}
        rewards, stats = scored(settings)
    assert rewards[0].components["quality"].detail["criteria"] == {"logic": 9, "style": 5}
    assert (stats.cached, stats.asked) == (1, 1)


def test_the_built_in_criteria_are_weighed_as_the_tool_rubric_says():
    with FakeJudge(answer=Asked("follows: 10\nclarity: 5\nvalid: 10")) as judge:
        outcome = outcome_of(config({"j": entry(judge, rubric="tool_criteria")}))
    assert outcome.value == pytest.approx(0.3 * 10 + 0.6 * 5 + 0.1 * 10)


# ---- votes


def votes(judge, n, **parts):
    options = {"votes": {"n": n} | parts.pop("votes", {}), "temperature": 0.7}
    return entry(judge, **options | parts)


def test_votes_are_calls_of_their_own_and_their_mean_counts():
    events = []
    with FakeJudge(answer=Asked("Score: 6", "Score: 7", "Score: 8")) as judge:
        rewards, stats = scored(config({"j": votes(judge, 3)}), listener=events.append)
    assert rewards[0].value == 7
    assert sorted(rewards[0].components["quality"].detail["votes"]) == [6, 7, 8]
    assert rewards[0].metrics["quality/spread"] == pytest.approx((2 / 3) ** 0.5)
    assert stats.asked == 3
    assert len({event.key for event in events if isinstance(event, JudgementSettled)}) == 3


def test_a_seed_is_shifted_by_the_vote():
    asked = Asked("Score: 6")
    with FakeJudge(answer=asked) as judge:
        scored(config({"j": votes(judge, 3, temperature=0, parameters={"seed": 40})}))
    assert sorted(body["seed"] for body in asked.bodies) == [40, 41, 42]


def test_more_votes_ask_only_for_those_that_are_new(tmp_path):
    cache = {"path": str(tmp_path / "j.db")}
    with FakeJudge(answer=Asked("Score: 6")) as judge:
        scored(config({"j": entry(judge, temperature=0.7)}, cache=cache))
        scored(config({"j": votes(judge, 3)}, cache=cache))
        assert judge.seen.requests == 3


def test_a_garbage_vote_is_left_out_while_the_quorum_holds():
    with FakeJudge(answer=Asked("Score: 6", "lorem ipsum", "Score: 8")) as judge:
        outcome = outcome_of(config({"j": votes(judge, 3, votes={"quorum": 2})}))
    assert outcome.value == 7
    assert outcome.detail["votes"].count(None) == 1


def test_below_the_quorum_the_votes_abstain_with_the_kind_of_most_failures():
    with FakeJudge(answer=Asked("Score: 6", "lorem ipsum", "Score: 11", "dolor")) as judge:
        outcome = outcome_of(config({"j": votes(judge, 4, votes={"quorum": 2})}))
    assert outcome.kind == "unparseable"
    assert outcome.detail.startswith("1 of 4 votes gave a verdict, 2 are needed; unparseable: ")


def test_a_majority_of_words_says_how_many_agree():
    with FakeJudge(answer=Asked("Verdict: yes", "Verdict: no", "Verdict: yes")) as judge:
        verdict = {"choice": ["yes", "no"]}
        judges = {"j": votes(judge, 3, votes={"by": "majority"}, verdict=verdict)}
        rewards, _ = scored(config(judges))
    assert rewards[0].components["quality"].detail["verdict"] == "yes"
    assert rewards[0].metrics["quality/agreement"] == pytest.approx(2 / 3)


def test_tied_votes_abstain():
    with FakeJudge(answer=Asked("Score: 3", "Score: 9")) as judge:
        outcome = outcome_of(config({"j": votes(judge, 2, votes={"by": "majority"})}))
    assert (outcome.kind, outcome.detail) == ("unparseable", "the votes are tied: 1 each for 3, 9")


def test_votes_on_criteria_average_each_of_them(rubric):
    replies = Asked("logic: 4\nstyle: 8", "logic: 6\nstyle: 8")
    with FakeJudge(answer=replies) as judge:
        rewards, _ = scored(config({"j": votes(judge, 2, rubric=rubric)}))
    assert rewards[0].value == pytest.approx((5 + 6.5) / 2)
    assert rewards[0].metrics["quality/logic"] == 5


# ---- panels


def panel(members, **parts):
    return {"panel": {"members": list(members)} | parts}


def test_a_panel_asks_its_members_and_they_need_no_component():
    with (
        FakeJudge(answer=Asked("Score: 4")) as a,
        FakeJudge(answer=Asked("Score: 9")) as b,
        FakeJudge(answer=Asked("Score: 8")) as c,
    ):
        members = {"a": entry(a), "b": entry(b, max_tokens=9), "c": entry(c, max_tokens=8)}
        rewards, stats = scored(config(members | {"j": panel(members, by="median")}))
    assert rewards[0].value == 8
    assert rewards[0].components["quality"].detail["members"] == {"a": 4, "b": 9, "c": 8}
    assert rewards[0].metrics["quality/a"] == 4
    assert rewards[0].metrics["quality/spread"] > 0
    assert {name: part.asked for name, part in stats.judges.items()} == {"a": 1, "b": 1, "c": 1}


def test_a_panel_goes_on_without_a_dead_member_while_its_quorum_holds(absent):
    with FakeJudge(answer=Asked("Score: 4")) as judge:
        members = {"a": entry(judge), "b": entry(judge) | {"endpoints": [absent]}}
        rewards, _ = scored(config(members | {"j": panel(members, quorum=1)}))
    assert rewards[0].value == 4
    assert rewards[0].components["quality"].detail["members"] == {"a": 4, "b": None}
    assert rewards[0].metrics["quality/b"] is None


def test_a_panel_below_its_quorum_abstains_with_the_dominating_kind(absent):
    with FakeJudge(answer=Asked("Score: 4")) as judge:
        members = {"a": entry(judge), "b": entry(judge) | {"endpoints": [absent]}}
        outcome = outcome_of(config(members | {"j": panel(members)}))
    assert outcome.kind == "unreachable"
    assert outcome.detail.startswith("1 of 2 members gave a verdict, 2 are needed; unreachable: ")


def test_members_with_different_ranges_are_normalised_first(schema):
    with (
        FakeJudge(answer=Asked("Score: 10")) as a,
        FakeJudge(answer=Asked(said(3))) as b,
    ):
        members = {"a": entry(a), "b": entry(b, verdict=schema)}
        outcome = outcome_of(config(members | {"j": panel(members, normalize=True)}))
    assert outcome.value == 0.75  # of 1 and 0.5
    assert outcome.detail["members"] == {"a": 10, "b": 3}


def test_a_member_may_vote_and_have_criteria(rubric):
    with (
        FakeJudge(answer=Asked("Score: 5", "Score: 7")) as a,
        FakeJudge(answer=Asked("logic: 4\nstyle: 8")) as b,
    ):
        members = {"a": votes(a, 2), "b": entry(b, rubric=rubric)}
        assert outcome_of(config(members | {"j": panel(members)})).value == 5.5


# ---- correctness against a reference


@pytest.mark.parametrize(("word", "value"), [("correct", 1), ("partly", 0.5), ("incorrect", 0)])
def test_a_response_is_compared_with_its_reference(word, value):
    asked = Asked(f"Both say A.\nVerdict: {word}")
    verdict = {"choice": ["correct", "partly", "incorrect"]}
    with FakeJudge(answer=asked) as judge:
        outcome = outcome_of(config({"j": entry(judge, rubric="reference", verdict=verdict)}))
    assert outcome.value == value
    assert "\nA.\n<<<END GROUND_TRUTH" in asked.texts("user")[0]


def test_a_sample_without_a_reference_abstains_and_asks_nobody():
    verdict = {"choice": ["correct", "incorrect"]}
    with FakeJudge() as judge:
        settings = config({"j": entry(judge, rubric="reference", verdict=verdict)})
        assert outcome_of(settings, Sample("Q?", "A.")).kind == "bad_input"
        assert judge.seen.requests == 0


# ---- monitor


def monitor(judge, **parts):
    options = {"rubric": "monitor", "verdict": {"choice": ["yes", "no"]}, "monitor": {}}
    return entry(judge, **options | parts)


@pytest.mark.parametrize(
    ("word", "truth", "worth", "right"),
    [
        ("yes", True, -1, 1),
        ("no", True, 1, 0),
        ("yes", False, 1, 0),
        ("no", False, -1, 1),
    ],
)
def test_a_monitor_pays_the_policy_for_what_it_could_not_read(word, truth, worth, right):
    asked = Asked(f"It is short.\nVerdict: {word}")
    with FakeJudge(answer=asked) as judge:
        sample = Sample("Q?", "<think>easy</think> A.", extra={"is_correct": truth})
        rewards, _ = scored(config({"j": monitor(judge)}), sample)
    assert rewards[0].value == worth
    assert rewards[0].metrics["quality/right"] == right
    assert rewards[0].metrics["quality/predicted"] == (word == "yes")
    assert rewards[0].components["quality"].detail["verdict"] == word
    text = asked.texts("user")[0]
    assert ">>>\neasy\n<<<END RESPONSE" in text
    assert "A." not in text


def test_a_monitors_reward_is_divided_by_how_frequent_its_truth_is():
    with FakeJudge(answer=Asked("Verdict: yes")) as judge:
        options = {"correct_reward": 1, "wrong_reward": 0, "rebalance": {"true": 0.8}}
        assert outcome_of(config({"j": monitor(judge, monitor=options)})).value == 1.25


def test_a_sample_without_its_truth_abstains_and_asks_nobody():
    with FakeJudge() as judge:
        outcome = outcome_of(config({"j": monitor(judge)}), Sample("Q?", "A."))
        assert (outcome.kind, judge.seen.requests) == ("bad_input", 0)
    assert "extra.is_correct is missing" in outcome.detail


def test_a_monitor_that_gives_no_prediction_abstains():
    with FakeJudge(answer=Asked("Hard to say.")) as judge:
        rewards, _ = scored(config({"j": monitor(judge)}))
    assert rewards[0].components["quality"].kind == "unparseable"
    assert rewards[0].metrics["quality/right"] is None


def test_a_monitor_may_vote():
    with FakeJudge(answer=Asked("Verdict: yes", "Verdict: no", "Verdict: yes")) as judge:
        options = {"temperature": 1.0, "votes": {"n": 3, "by": "majority"}}
        rewards, _ = scored(config({"j": monitor(judge, **options)}))
    assert rewards[0].value == -1
    assert rewards[0].metrics["quality/agreement"] == pytest.approx(2 / 3)


# ---- what holds for all kinds


def of_kind(kind, judge, *, schema, rubric):
    """The judges of a configuration, and an answer from which the verdict is read."""
    match kind:
        case "schema":
            return {"j": entry(judge, verdict=schema)}
        case "criteria":
            return {"j": entry(judge, rubric=rubric)}
        case "apart":
            return {"j": entry(judge, rubric=rubric, ask="apart")}
        case "votes":
            return {"j": votes(judge, 3)}
        case "monitor":
            return {"j": monitor(judge)}
    members = {"a": entry(judge), "b": entry(judge, max_tokens=512)}
    return members | {"j": panel(members)}


KINDS = {"schema": 1, "criteria": 1, "apart": 2, "votes": 3, "panel": 2, "monitor": 1}
ANSWER = {
    "schema": said(4),
    "criteria": "logic: 4\nstyle: 8",
    "monitor": "Verdict: no",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_reply_is_asked_once_more_with_twice_the_tokens(kind, schema, rubric):
    script = Script(faults=(Length(cured_at=1025),))
    asked = Asked(ANSWER.get(kind, "Score: 4"))
    events = []
    with FakeJudge(script, answer=asked) as judge:
        judges = of_kind(kind, judge, schema=schema, rubric=rubric)
        for name in {"a", "b"} & set(judges):
            judges[name]["max_tokens"] = {"a": 1024, "b": 1000}[name]
        rewards, stats = scored(config(judges), listener=events.append)
        requests = judge.seen.requests
    assert isinstance(rewards[0].components["quality"], Score)
    assert requests == 2 * KINDS[kind]
    settled = [event for event in events if isinstance(event, JudgementSettled)]
    assert [event.attempts for event in settled] == [2] * KINDS[kind]
    # both replies are paid for: the cut one for all its tokens
    assert stats.completion_tokens > 1000 * KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_judge_that_only_says_garbage_is_never_a_number(kind, schema, rubric):
    with FakeJudge(Script(faults=(Garbage(),))) as judge:
        rewards, _ = scored(config(of_kind(kind, judge, schema=schema, rubric=rubric)))
    assert rewards[0].value is None
    assert rewards[0].components["quality"].kind == "unparseable"
    measured = {
        k: v for k, v in rewards[0].metrics.items() if not k.endswith(("scored", "abstained"))
    }
    assert set(measured.values()) <= {None}


@pytest.mark.parametrize("kind", KINDS)
def test_gates_shadows_and_ranges_work_with_every_kind(kind, schema, rubric):
    components = {
        "answer": {"scorer": "contains"},
        "quality": {"judge": "j", "gate": "answer > 0", "normalize": True},
        "shadow": {"judge": "j", "weight": 0},
    }
    with FakeJudge(answer=Asked(ANSWER.get(kind, "Score: 4"))) as judge:
        judges = of_kind(kind, judge, schema=schema, rubric=rubric)
        wrong = Sample("Q?", "no", ground_truth="A.", extra={"is_correct": True})
        rewards, _ = scored(config(judges, components=components), SAMPLE, wrong)
    good, bad = rewards
    assert 0 <= good.components["quality"].value <= 1
    assert good.value == 1 + good.components["quality"].value
    assert isinstance(bad.components["quality"], Skipped)
    assert bad.value == 0
    assert isinstance(bad.components["shadow"], Score)
    assert sorted(good.metrics) == sorted(bad.metrics)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rerun_asks_nothing_again_whatever_the_kind(kind, schema, rubric, tmp_path):
    with FakeJudge(answer=Asked(ANSWER.get(kind, "Score: 4"))) as judge:
        judges = of_kind(kind, judge, schema=schema, rubric=rubric)
        settings = config(judges, cache={"path": str(tmp_path / "j.db")})
        first, _ = scored(settings, SAMPLE, SAMPLE)
        again, stats = scored(settings, SAMPLE, SAMPLE)
        assert judge.seen.requests == KINDS[kind]
    assert first == again
    assert Counter(asked=stats.asked) == Counter(asked=0)
