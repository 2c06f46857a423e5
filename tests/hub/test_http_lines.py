"""Rewards that are sent as lines: each as soon as it is final, and none twice or too early."""

import asyncio
import json
from collections import Counter

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import Reward, Sample
from zerowait.config import FailurePolicy
from zerowait.engine import settle_groups
from zerowait.engine.final_rewards import FinalRewards
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Hang, Script, Status

NDJSON = "application/x-ndjson"
RIGHT = {"prompt": "Capital?", "response": "<answer>Paris</answer>", "ground_truth": "Paris"}
WRONG = RIGHT | {"response": "<answer>Rome</answer>"}


def config(judge=None, **parts):
    """A configuration in which right answers also go to the judge, if there is one."""
    rule = {"answer": {"scorer": "qa_em"}}
    if judge is None:
        return {"components": rule} | parts
    endpoint = {"base_url": judge.url, "model": "m"}
    return {
        "components": rule | {"quality": {"judge": "q", "gate": "answer > 0"}},
        "judges": {"q": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
        "traffic": {"attempts": 1},
        "cache": "off",
    } | parts


def ask(config, rows, *, lines=False, read=None, **settings):
    """The status, the kind of the reply, and its lines; at most `read` of them."""
    asked = answer(config, rows, lines=lines, read=read, **settings)
    return asyncio.run(asyncio.wait_for(asked, 60))


async def answer(config, rows, *, lines=False, read=None, each=lambda _line: None, **settings):
    """What `ask` returns; `each` is told of every line as it comes."""
    kind = NDJSON if lines else "application/json"
    body = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    headers = {"Content-Type": kind, "Accept": NDJSON}

    async with (
        serving(config, ServiceSettings(port=0, **settings)) as (url, _),
        aiohttp.ClientSession(url) as session,
        session.post("/v1/score", data=body, headers=headers) as reply,
    ):
        found = []
        while read is None or len(found) < read:
            line = await reply.content.readline()
            if not line:
                break
            found.append(json.loads(line))
            each(found[-1])
        return reply.status, reply.content_type, found


@pytest.mark.parametrize("lines", [False, True])
def test_each_sample_gets_a_line_that_says_which_one_it_is(lines):
    rows = [RIGHT, WRONG, RIGHT]
    status, kind, found = ask(config(), rows, lines=lines)
    assert (status, kind) == (200, NDJSON)
    values = {line["index"]: line["reward"]["value"] for line in found}
    assert len(found) == 3
    assert values == {0: 1.0, 1: 0.0, 2: 1.0}


def test_what_is_known_is_sent_while_a_judge_still_hangs():
    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        _, _, found = ask(config(judge), [RIGHT, WRONG, WRONG], read=2)
    assert sorted(line["index"] for line in found) == [1, 2]


def test_a_deadline_in_the_middle_is_an_error_in_the_last_line(leaping):
    """The first line has all the time that it needs; the deadline comes as soon as it is here."""

    async def scenario(leap):
        rows, late_s = [RIGHT, WRONG], 50
        each = lambda _line: leap(late_s)  # noqa: E731
        return await answer(config(judge), rows, each=each, deadline_s=late_s)

    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        status, _, found = leaping(scenario)
    assert (status, found[0]["index"]) == (200, 1)
    assert found[1:] == [{"error": {"type": "TimeoutError", "message": "not done in 50 s"}}]


def test_a_failure_under_raise_is_the_last_line_and_before_any_line_a_status():
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        raising = config(judge, on_failure="raise")
        status, _, found = ask(raising, [WRONG, RIGHT])
        assert ask(raising, [RIGHT])[:2] == (502, "application/json")
    assert (status, found[0]["index"]) == (200, 0)
    assert found[1]["error"]["type"] == "JudgementError"


@pytest.mark.parametrize(
    ("body", "says"),
    [(['{"prompt": "p"'], "line 2 is not JSON"), (['{"respond": 1}'], "line 2 has the field")],
)
def test_a_wrong_line_is_named_before_any_judge_is_asked(body, says):
    async def scenario():
        async with (
            serving(config(), ServiceSettings(port=0)) as (url, _),
            aiohttp.ClientSession(url) as session,
            session.post(
                "/v1/score",
                data="\n".join([json.dumps(RIGHT), *body]),
                headers={"Content-Type": NDJSON},
            ) as reply,
        ):
            return reply.status, (await reply.json())["error"]["message"]

    status, message = asyncio.run(scenario())
    assert status == 400
    assert message.startswith(says)


def test_no_samples_are_no_lines():
    assert ask(config(), [], lines=True) == (200, NDJSON, [])


@st.composite
def settled(draw):
    """Rows in groups or alone, what came of each, and the order in which it became known."""
    policies = st.sampled_from(["", "neutral", "drop_group"])
    members = draw(st.lists(st.tuples(st.sampled_from("abc#"), policies), max_size=12))
    samples = [Sample("q", "r", group=None if group == "#" else group) for group, _ in members]
    rewards = [Reward(None if policy else 1.0, {}, {}, policy) for _, policy in members]
    return samples, rewards, draw(st.permutations(range(len(members))))


@given(settled(), st.floats(0.1, 1.0))
def test_rewards_that_are_sent_early_equal_those_of_the_whole_list(given_, quorum):
    samples, rewards, order = given_
    policy = FailurePolicy(default="drop_group", quorum=quorum)
    final_rewards = FinalRewards(samples, policy)
    sent = [each for index in order for each in final_rewards.add(index, rewards[index])]
    assert Counter(index for index, _ in sent) == Counter(range(len(samples)))
    whole = settle_groups(rewards, [sample.group for sample in samples], quorum)
    assert [reward for _, reward in sorted(sent, key=lambda each: each[0])] == whole


def test_nothing_waits_for_siblings_where_no_failure_can_drop_them():
    samples = [Sample("q", "r", group="a")] * 2
    final_rewards = FinalRewards(samples, FailurePolicy(default="mask"))
    assert final_rewards.add(1, Reward(1.0, {}, {})) == [(1, Reward(1.0, {}, {}))]


def test_a_policy_can_drop_a_group_wherever_it_says_so():
    nested = FailurePolicy(components={"q": FailurePolicy(kinds={"timeout": "drop_group"})})
    assert nested.can_drop
    assert not FailurePolicy(default="neutral").can_drop
