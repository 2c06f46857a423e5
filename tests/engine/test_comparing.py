"""Judges that compare siblings, over a judge on the wire, on a clock that jumps."""

import asyncio
import re

import msgspec
import pytest

from zerowait import Abstain, ConfigError, DataError, Engine, Sample, Score, Skipped
from zerowait.client import Reply
from zerowait.errors import ClosedError
from zerowait.events import ResponsesCompared
from zerowait.testing import virtually
from zerowait.testing.comparisons import compared_responses, preference_order, ranking_text

MANY = {"concurrency": 1000, "attempts": 1}


class Wire:
    """Prefers the greater number, `after_s` seconds later; `said` may answer first."""

    def __init__(self, said=lambda _texts: None, after_s=1.0):
        self.said = said
        self.after_s = after_s
        self.asked = []
        self.users = []
        self.in_flight = 0

    async def send(self, request, *, timeout_s):
        messages = msgspec.json.decode(request.body)["messages"]
        shown = compared_responses(messages)
        texts = [response.text for response in shown]
        self.asked.append(texts)
        self.users.append(messages[1]["content"])
        self.in_flight += 1
        try:
            await asyncio.sleep(self.after_s)
        finally:
            self.in_flight -= 1
        content = self.said(texts)
        if content is None:
            content = ranking_text(preference_order(shown, "better"))
        if content == "fail":
            return Reply(400, {}, b"{}")
        answer = {"message": {"content": content}, "finish_reason": "stop"}
        return Reply(200, {}, msgspec.json.encode({"model": "m-1", "choices": [answer]}))

    async def aclose(self):
        pass


def config(verdict, *, traffic=None, component=None, **parts):
    judge = {"endpoints": [{"base_url": "http://judge/v1", "model": "m"}], "verdict": verdict}
    base = {
        "components": {"style": {"judge": "q"} | (component or {})},
        "judges": {"q": judge},
        "traffic": MANY | (traffic or {}),
        "cache": "off",
    }
    return base | parts


def row(number, group="g", **fields):
    return Sample("How much?", f"It is {number}.", group=group, **fields)


def rows(*numbers, **fields):
    return [row(number, **fields) for number in numbers]


def scored(settings, samples, wire=None, listener=None):
    """The component's outcomes, the rewards, and the seconds they took."""

    async def scenario():
        options = {} if listener is None else {"listener": listener}
        async with Engine(settings, transport=wire or Wire(), **options) as engine:
            rewards = await engine.score_all(samples)
            assert not engine.groups._open
            return rewards

    rewards, elapsed_s = virtually(scenario())
    return [reward.components["style"] for reward in rewards], rewards, elapsed_s


def values(outcomes):
    return [outcome.value if isinstance(outcome, Score) else outcome for outcome in outcomes]


PAIRS, RANK = {"pairs": "group"}, {"rank": "group"}


@pytest.mark.parametrize("verdict", [PAIRS, PAIRS | {"ties": True}, RANK], ids=str)
def test_a_value_is_the_share_of_siblings_that_a_response_beats(verdict):
    outcomes, _, elapsed_s = scored(config(verdict), rows(3, 1, 5, 2, 4))
    assert values(outcomes) == [0.5, 0.0, 1.0, 0.25, 0.75]
    assert elapsed_s == pytest.approx(1)


def test_each_pair_is_shown_in_both_orders_and_no_response_with_itself():
    wire = Wire()
    scored(config(PAIRS), rows(1, 2, 3, 3), wire)
    texts = ["It is 1.", "It is 2.", "It is 3."]
    assert sorted(wire.asked) == [[a, b] for a in texts for b in texts if a != b]


def test_a_ranking_shows_all_different_responses_in_one_call():
    wire = Wire()
    outcomes, *_ = scored(config(RANK), rows(1, 2, 3, 3), wire)
    assert [sorted(texts) for texts in wire.asked] == [["It is 1.", "It is 2.", "It is 3."]]
    assert values(outcomes) == pytest.approx([0, 1 / 3, 5 / 6, 5 / 6])


@pytest.mark.parametrize("verdict", [PAIRS, RANK], ids=str)
def test_the_order_of_submission_changes_no_request(verdict):
    one, other = Wire(), Wire()
    scored(config(verdict), rows(1, 2, 3, 4), one)
    scored(config(verdict), rows(4, 2, 1, 3), other)
    assert sorted(one.users) == sorted(other.users)


def test_all_requests_of_a_group_begin_with_the_same_text_up_to_the_responses():
    wire = Wire()
    scored(config(PAIRS), rows(1, 2, 3), wire)
    before = {user.partition("<<<BEGIN RESPONSE")[0] for user in wire.users}
    assert len(before) == 1
    assert "How much?" in before.pop()


def test_both_orders_of_a_pair_differ_in_nothing_but_the_order():
    """So that a liking for a label, like one for a place, shows as a disagreement."""
    wire = Wire()
    scored(config(PAIRS), rows(1, 2), wire)
    forth, back = (re.findall(r"BEGIN RESPONSE (\w+) ", user) for user in wire.users)
    assert forth == back
    assert wire.asked[0] == wire.asked[1][::-1]


def test_a_judge_that_prefers_what_is_shown_first_makes_ties_that_are_reported():
    events = []
    wire = Wire()

    async def send(request, *, timeout_s):
        shown = compared_responses(msgspec.json.decode(request.body)["messages"])
        content = ranking_text(preference_order(shown, "first"))
        body = msgspec.json.encode({"choices": [{"message": {"content": content}}]})
        return Reply(200, {}, body)

    wire.send = send
    outcomes, rewards, _ = scored(config(PAIRS), rows(1, 2, 3), wire, events.append)
    assert values(outcomes) == [0.5, 0.5, 0.5]
    assert {r.metrics["style/inconsistent"] for r in rewards} == {1.0}
    (told,) = [e for e in events if isinstance(e, ResponsesCompared)]
    assert (told.group, told.members, told.comparisons, told.inconsistent) == ("g", 3, 3, 3)


def test_one_comparison_that_failed_is_left_out_for_both_responses():
    def said(texts):
        return "no idea" if set(texts) == {"It is 1.", "It is 4."} else None

    outcomes, rewards, _ = scored(config(PAIRS), rows(1, 2, 3, 4), Wire(said))
    assert values(outcomes) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [r.metrics["style/comparisons"] for r in rewards] == [2, 3, 3, 2]


def test_a_response_that_no_comparison_reached_abstains_and_its_siblings_do_not():
    def said(texts):
        return "fail" if "It is 1." in texts else None

    outcomes, rewards, _ = scored(config(PAIRS), rows(1, 2, 3), Wire(said))
    assert outcomes[0].kind == "http_error"
    assert values(outcomes[1:]) == [0, 1]
    assert rewards[0].value is None


def test_a_ranking_that_failed_abstains_the_whole_group_with_its_reason():
    outcomes, *_ = scored(config(RANK), rows(1, 2, 3), Wire(lambda _texts: "They are all fine."))
    assert {outcome.kind.value for outcome in outcomes} == {"unparseable"}
    assert "the reply names no verdict" in outcomes[0].detail


def test_with_rounds_each_response_meets_so_many_siblings():
    wire = Wire()
    outcomes, rewards, _ = scored(config(PAIRS | {"rounds": 3}), rows(*range(8)), wire)
    assert len(wire.asked) == 8 * 3
    assert {r.metrics["style/comparisons"] for r in rewards} == {3}
    assert (outcomes[0].value, outcomes[7].value) == (0, 1)


def test_bradley_terry_keeps_the_order_of_the_responses():
    verdict = PAIRS | {"by": "bradley_terry"}
    outcomes, *_ = scored(config(verdict), rows(3, 1, 4, 2))
    third, first, fourth, second = values(outcomes)
    assert 0 < first < second < third < fourth < 1
    assert first + second + third + fourth == pytest.approx(2)


def test_a_group_too_big_for_one_ranking_is_ranked_in_windows_with_two_anchors():
    wire = Wire()
    outcomes, *_ = scored(config(RANK | {"max_members": 5}), rows(*range(11)), wire)
    assert [len(texts) for texts in wire.asked] == [5, 5, 5]
    assert len(set.intersection(*map(set, wire.asked))) == 2
    assert values(outcomes)[0] < 0.35
    assert values(outcomes)[10] > 0.65
    assert all(isinstance(outcome, Score) for outcome in outcomes)


def test_a_group_of_equal_responses_ties_and_the_judge_is_not_asked():
    wire = Wire()
    outcomes, *_ = scored(config(RANK), rows(3, 3, 3), wire)
    assert values(outcomes) == [0.5] * 3
    assert wire.asked == []


@pytest.mark.parametrize("verdict", [PAIRS, RANK], ids=str)
def test_a_group_of_one_has_no_sibling_to_be_compared_with_and_is_skipped(verdict):
    """Every row of a validation with n = 1 had the reward 0.0, though no judge was asked."""
    wire = Wire()
    outcomes, rewards, _ = scored(config(verdict), rows(1), wire)
    assert outcomes == [Skipped("there is no sibling to compare it with")]
    assert (rewards[0].value, rewards[0].policy, wire.asked) == (None, "neutral", [])
    assert rewards[0].why.endswith("style: there is no sibling to compare it with")
    assert rewards[0].metrics["style/scored"] == rewards[0].metrics["style/abstained"] == 0


@pytest.mark.parametrize("verdict", [PAIRS, RANK], ids=str)
def test_a_row_without_siblings_has_the_value_of_its_other_components(verdict):
    given = config(verdict)
    given["components"] |= {"words": {"scorer": "contains"}}
    samples = [Sample("p", "It is 4.", "4", group="g"), Sample("p", "It is 4.", "5", group="h")]
    _, rewards, _ = scored(given, samples)
    assert [reward.value for reward in rewards] == [1.0, 0.0]


GATED = {
    "components": {
        "answer": {"scorer": "contains", "weight": 0},
        "style": {"judge": "q", "gate": "answer > 0"},
    }
}


def test_a_response_whose_gate_is_closed_is_neither_judged_nor_shown():
    wire = Wire()
    samples = [row(1, ground_truth="1"), row(2, ground_truth="none"), row(3, ground_truth="3")]
    outcomes, *_ = scored(config(PAIRS, **GATED), samples, wire)
    assert values(outcomes) == [0, Skipped("gate 'answer > 0' is closed"), 1]
    assert sorted(wire.asked) == [["It is 1.", "It is 3."], ["It is 3.", "It is 1."]]


def test_the_only_response_whose_gate_is_open_is_skipped():
    samples = [row(1, ground_truth="1"), row(2, ground_truth="none")]
    outcomes, *_ = scored(config(PAIRS, **GATED), samples)
    assert outcomes[0] == Skipped("there is no sibling to compare it with")


def test_a_response_whose_gate_abstained_abstains_and_the_others_are_compared():
    samples = [row(1, ground_truth="1"), row(2), row(3, ground_truth="3")]
    outcomes, *_ = scored(config(PAIRS, **GATED), samples)
    assert values([outcomes[0], outcomes[2]]) == [0, 1]
    assert outcomes[1].kind == "bad_input"


def test_sources_limit_who_is_compared():
    samples = [row(1, data_source="a"), row(2, data_source="b"), row(3, data_source="a")]
    outcomes, *_ = scored(config(PAIRS, component={"sources": ["a"]}), samples)
    assert values(outcomes) == [0, Skipped("not for data source 'b'"), 1]


def test_a_shadow_comparison_is_recorded_and_can_neither_change_nor_abstain_a_reward():
    settings = config(PAIRS, component={"weight": 0})
    outcomes, rewards, _ = scored(settings, rows(1, 2))
    assert (values(outcomes), [r.value for r in rewards]) == ([0, 1], [0, 0])
    _, rewards, _ = scored(settings, rows(1, 2), Wire(lambda _texts: "fail"))
    assert [r.value for r in rewards] == [0, 0]


def test_a_judge_of_each_response_and_one_of_the_group_work_at_the_same_time():
    parts = config(PAIRS)
    parts["components"]["quality"] = {"judge": "each"}
    parts["judges"]["each"] = parts["judges"]["q"] | {"verdict": {"integer": [1, 10]}}
    wire = Wire(lambda texts: None if texts else "Score: 7")
    _, rewards, elapsed_s = scored(parts, rows(1, 2), wire)
    assert [r.value for r in rewards] == [7, 8]
    assert elapsed_s == pytest.approx(1)


def test_a_group_of_which_the_siblings_say_different_prompts_is_not_compared():
    samples = [row(1), msgspec.structs.replace(row(2), prompt="How many?")]
    outcomes, *_ = scored(config(PAIRS), samples)
    assert outcomes[0].kind == "bad_input"
    assert "{{prompt}}" in outcomes[0].detail


def test_rows_that_name_no_group_are_refused_before_the_judge_is_asked():
    wire = Wire()
    with pytest.raises(DataError, match="has no group, which the component 'style' needs"):
        scored(config(PAIRS), [Sample("q", "a")], wire)
    assert wire.asked == []


# One by one, as a trainer's workers bring them


def streamed(settings, arrivals, wire=None):
    """The outcome of each (seconds, sample), or "cancelled" with (seconds, sample, until)."""

    async def scenario():
        async with Engine(settings, transport=wire or Wire()) as engine:

            async def one(at_s, sample, until_s=None):
                await asyncio.sleep(at_s)
                try:
                    async with asyncio.timeout(None if until_s is None else until_s - at_s):
                        return (await engine.score(sample)).components["style"]
                except TimeoutError:
                    return "cancelled"

            async with asyncio.TaskGroup() as tasks:
                started = [tasks.create_task(one(*arrival)) for arrival in arrivals]
            await asyncio.sleep(1e-6)  # what was cancelled ends in the next turns of the loop
            assert not engine.groups._open
            assert len(engine._comparisons._flights) == 0
            return [task.result() for task in started]

    return virtually(scenario())


@pytest.mark.parametrize(
    "verdict", [PAIRS, RANK, PAIRS | {"rounds": 2, "by": "bradley_terry"}], ids=str
)
def test_rows_that_come_one_by_one_get_what_they_get_together(verdict):
    numbers = [3, 1, 5, 5, 2, 4]
    together, *_ = scored(config(verdict), rows(*numbers))
    apart, elapsed_s = streamed(
        config(verdict), [(i, row(n, group_size=6)) for i, n in enumerate(numbers)]
    )
    assert apart == together
    assert elapsed_s == pytest.approx(6)


def test_past_the_deadline_those_that_came_are_compared_if_they_are_a_quorum():
    settings = config(PAIRS, traffic={"group_deadline_s": 60})
    outcomes, elapsed_s = streamed(settings, [(0, row(1, group_size=3)), (5, row(2, group_size=3))])
    assert values(outcomes) == [0, 1]
    assert elapsed_s == pytest.approx(61)


def test_past_the_deadline_fewer_than_a_quorum_abstain_and_the_judge_is_not_asked():
    settings = config(PAIRS | {"quorum": 0.8}, traffic={"group_deadline_s": 60})
    wire = Wire()
    outcomes, _ = streamed(settings, [(0, row(1, group_size=3)), (5, row(2, group_size=3))], wire)
    assert {(o.kind.value, o.detail) for o in outcomes} == {
        ("timeout", "2 of 3 responses of the group can be compared")
    }
    assert wire.asked == []


@pytest.mark.parametrize(("here", "of"), [([1, 2], 2), ([1], 1)])
@pytest.mark.parametrize("early", [False, True])
def test_siblings_that_are_known_not_to_come_are_compared_without_and_count_as_missing(
    here, of, early
):
    """A lone survivor abstains: it was to be compared, and there is no sibling left."""

    async def scenario():
        gate = {"gate": "first > 0"} if early else {}  # then they are known before any is compared
        settings = config(PAIRS, component=gate, traffic={"group_deadline_s": 600})
        settings["components"]["first"] = {"judge": "each", "weight": 0}
        settings["judges"]["each"] = settings["judges"]["q"] | {"verdict": {"integer": [1, 10]}}
        wire = Wire(lambda texts: None if texts else "Score: 7")
        async with Engine(settings, transport=wire) as engine, asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(engine.score(row(n, group_size=3))) for n in here]
            await asyncio.sleep(0.5 if early else 5)
            engine.groups.shrink("g", of)
        return [task.result().components["style"] for task in waiting]

    outcomes, elapsed_s = virtually(scenario())
    assert elapsed_s < 10
    if len(here) > 1:
        assert values(outcomes) == [0, 1]
    else:
        assert [(o.kind, o.detail) for o in outcomes] == [
            ("cancelled", "1 of 3 responses of the group can be compared")
        ]


def test_a_sibling_that_comes_while_the_others_are_compared_abstains():
    settings = config(PAIRS, traffic={"group_deadline_s": 60})
    late = (60.5, row(3, group_size=3))
    outcomes, _ = streamed(settings, [(0, row(1, group_size=3)), (5, row(2, group_size=3)), late])
    assert values(outcomes[:2]) == [0, 1]
    assert outcomes[2].kind == "timeout"


def test_a_member_that_is_cancelled_leaves_the_others_their_result():
    samples = rows(1, 2, 3, group_size=3)
    outcomes, _ = streamed(config(PAIRS), [(0, samples[0], 3.5), (1, samples[1]), (3, samples[2])])
    assert outcomes[0] == "cancelled"
    assert values(outcomes[1:]) == [0.5, 1]


def test_a_member_that_is_cancelled_before_its_gate_is_known_is_not_waited_for():
    parts = config(PAIRS, component={"gate": "quality > 5"})
    parts["components"]["quality"] = {"judge": "each", "weight": 0}
    parts["judges"]["each"] = parts["judges"]["q"] | {"verdict": {"integer": [1, 10]}}
    wire = Wire(lambda texts: None if texts else "Score: 7")
    samples = rows(1, 2, 3, group_size=3)
    arrivals = [(0, samples[0]), (0, samples[1]), (1.5, samples[2], 1.7)]
    outcomes, elapsed_s = streamed(parts, arrivals, wire)
    assert values(outcomes[:2]) == [0, 1]
    assert elapsed_s < 10


def test_when_all_members_are_cancelled_their_requests_that_were_not_sent_never_are():
    settings = config(PAIRS, traffic={"concurrency": 1})
    wire = Wire()
    samples = rows(1, 2, 3, group_size=3)
    outcomes, _ = streamed(settings, [(0, sample, 1.5) for sample in samples], wire)
    assert outcomes == ["cancelled"] * 3
    assert len(wire.asked) == 2


def test_a_member_that_was_given_up_and_comes_again_gets_its_value():
    samples = rows(1, 2, 3, group_size=3)
    arrivals = [(0, samples[0], 1), (2, samples[0]), (3, samples[1]), (4, samples[2])]
    outcomes, _ = streamed(config(PAIRS), arrivals)
    assert values(outcomes[1:]) == [0, 0.5, 1]


def test_closing_the_engine_ends_a_comparison_that_waits_for_siblings():
    async def scenario():
        async with Engine(config(PAIRS), transport=Wire()) as engine:
            waiting = asyncio.create_task(engine.score(row(1, group_size=2)))
            await asyncio.sleep(1)
        with pytest.raises(ClosedError):
            await waiting

    _, elapsed_s = virtually(scenario())
    assert elapsed_s == 1


def test_an_order_that_was_cut_short_is_asked_for_once_more_with_twice_the_tokens():
    bodies = []

    class Cut(Wire):
        async def send(self, request, *, timeout_s):
            reply = await super().send(request, timeout_s=timeout_s)
            bodies.append(msgspec.json.decode(request.body)["max_tokens"])
            if bodies[-1] == 1024:
                answer = {"message": {"content": "First I"}, "finish_reason": "length"}
                return Reply(200, {}, msgspec.json.encode({"choices": [answer]}))
            return reply

    outcomes, *_ = scored(config(RANK), rows(1, 2, 3), Cut())
    assert values(outcomes) == [0, 0.5, 1]
    assert bodies == [1024, 2048]


# Against a reference

REFERENCE = {"pairs": "reference"}


def test_each_response_is_compared_with_its_reference_in_both_orders_without_any_group():
    samples = [Sample("q", f"It is {n}.", extra={"reference": "It is 2."}) for n in (1, 2, 3)]
    wire = Wire()
    outcomes, *_ = scored(config(REFERENCE), samples, wire)
    assert values(outcomes) == [0, 0.5, 1]
    assert len(wire.asked) == 4


def test_a_panel_may_compare_with_a_reference():
    parts = config(REFERENCE)
    judge = parts["judges"]["q"]
    other = judge | {"endpoints": [{"base_url": "http://judge/v1", "model": "other"}]}
    parts["judges"] = {"q": {"panel": {"members": ["a", "b"]}}, "a": judge, "b": other}
    outcomes, *_ = scored(parts, [Sample("q", "It is 3.", extra={"reference": "It is 2."})])
    assert values(outcomes) == [1]


def test_the_reference_may_be_in_another_column_and_its_absence_is_an_error():
    settings = config(REFERENCE | {"reference_key": "baseline"})
    samples = [Sample("q", "It is 3.", extra={"baseline": "It is 2."}), Sample("q", "It is 3.")]
    outcomes, *_ = scored(settings, samples)
    assert values(outcomes[:1]) == [1]
    assert outcomes[1] == Abstain(
        "bad_input",
        "the verdict compares with the extra column 'baseline', which this sample does not have",
    )


# What makes no sense


@pytest.mark.parametrize(
    ("verdict", "problem"),
    [
        (
            PAIRS | RANK,
            r"judges.q.verdict .*exactly one of integer, number, choice, schema, rubric, reward, pairs, rank",
        ),
        (
            {"pairs": "siblings"},
            "judges.q.verdict.pairs must be group or reference, not 'siblings'",
        ),
        ({"rank": "reference"}, "judges.q.verdict.rank must be group, not 'reference'"),
        (PAIRS | {"round": 3}, "has no key 'round'; did you mean 'rounds'"),
        (
            PAIRS | {"by": "elo"},
            "judges.q.verdict.by must be wins or bradley_terry or probability or expectation, not 'elo'",
        ),
        (PAIRS | {"rounds": 0}, "rounds must be at least 1, not 0"),
        (PAIRS | {"max_members": 5}, "max_members goes with rank: group only"),
        (RANK | {"rounds": 3}, "rounds goes with pairs: group only"),
        (RANK | {"max_members": 2}, "max_members must be at least 3, not 2"),
        (RANK | {"quorum": 0}, r"quorum must be in \(0, 1\], not 0"),
        (REFERENCE | {"by": "wins"}, "by goes with pairs: group only"),
        (
            REFERENCE | {"quorum": 0.5},
            "quorum goes with pairs: group or rank: group or rubric: extra.NAME only",
        ),
        (
            {"integer": [1, 10], "ties": True},
            "ties goes with pairs: group or pairs: reference or rank",
        ),
        (REFERENCE | {"reference_key": " "}, "reference_key must name a column"),
    ],
)
def test_verdicts_that_make_no_sense_are_refused_with_the_key(verdict, problem):
    with pytest.raises(ConfigError, match=problem):
        Engine(config(verdict))


def test_a_gate_cannot_look_at_a_comparison_of_siblings():
    settings = config(PAIRS)
    settings["components"]["extra"] = {"scorer": "contains", "gate": "style > 0.5"}
    with pytest.raises(ConfigError, match=r"components.extra.gate names 'style', which compares"):
        Engine(settings)


@pytest.mark.parametrize(
    ("verdict", "rubric", "problem"),
    [
        (PAIRS, "quality", "judges.q: the rubric 'quality' shows one response"),
        ({"integer": [1, 10]}, "ranking", "judges.q: the rubric 'ranking' compares"),
    ],
)
def test_a_rubric_has_to_show_what_the_verdict_is_about(verdict, rubric, problem):
    settings = config(verdict)
    settings["judges"]["q"]["rubric"] = rubric
    with pytest.raises(ConfigError, match=problem):
        Engine(settings)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"votes": {"n": 3}, "temperature": 1}, "judges.q: votes is for verdicts on one response"),
        ({"ask": "apart"}, "judges.q: ask is for verdicts on one response"),
        ({"monitor": {}}, "judges.q: monitor is for verdicts on one response"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_for_single_responses_is_refused_beside_a_comparison(setting, problem):
    settings = config(RANK)
    settings["judges"]["q"] |= setting
    with pytest.raises(ConfigError, match=problem):
        Engine(settings)


def test_a_panel_of_judges_that_compare_siblings_is_refused():
    parts = config(PAIRS)
    judge = parts["judges"]["q"]
    parts["judges"] = {
        "q": {"panel": {"members": ["a", "b"]}},
        "a": judge,
        "b": judge | {"verdict": {"integer": [0, 1]}},
    }
    with pytest.raises(ConfigError, match=r"members\[0\] names 'a', which compares siblings"):
        Engine(parts)
