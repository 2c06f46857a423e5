"""Validation is paid from a budget of its own, and what it spends never stops training."""

import asyncio
import json
import pickle

import pytest

from zerowait import Abstain, ConfigError, Engine, JudgementError, Sample
from zerowait.cache import Shard
from zerowait.cache.ledger import accounts
from zerowait.client import Reply
from zerowait.config import load_config
from zerowait.engine import Partition
from zerowait.testing import virtually

PRICES = {"m": {"input": 1.0, "output": 10.0}}
JUDGE = {
    "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
    "verdict": {"integer": [1, 10]},
    "max_tokens": 100,
}
BILLED_USD = (200 * 1.0 + 20 * 10.0) / 1e6
KEY = "traffic.validation_budget_usd"


def config(judge=JUDGE, *, traffic, **parts):
    base = {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": judge},
        "cache": "off",
        "prices": PRICES,
        "traffic": {"concurrency": 1, "attempts": 1, "hedge": "off"} | traffic,
    }
    return base | parts


class Wire:
    """A judge that says what is asked for, after a second, and bills it."""

    def __init__(self, content="Score: 7", *, after_s=1):
        self.content = content
        self.after_s = after_s
        self.sent = 0

    async def send(self, request, *, timeout_s):
        self.sent += 1
        await asyncio.sleep(self.after_s)
        choice = {"message": {"content": self.content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 200, "completion_tokens": 20}
        body = {"choices": [choice], "usage": usage, "model": "m"}
        return Reply(200, {}, json.dumps(body).encode())

    async def aclose(self):
        pass


def rows(count, split, **fields):
    return [Sample("q", f"answer {i}", split=split, **fields) for i in range(count)]


async def scenario(settings, batches, wire):
    async with Engine(settings, transport=wire) as engine:
        return [await engine.score_all(batch) for batch in batches], engine.stats()


def scored(settings, *batches, wire=None):
    """The rewards of each batch, one batch after the other, and the engine's statistics."""
    return virtually(scenario(settings, batches, wire or Wire()))[0]


def scored_on_disk(settings, *batches):
    """Likewise where files are written, which takes real time."""
    return asyncio.run(scenario(settings, batches, Wire(after_s=0)))


def judged(rewards):
    return sum(reward.value is not None for reward in rewards)


def test_validation_is_charged_to_its_own_budget_and_training_to_its_own():
    settings = config(traffic={"budget_usd": 1.0, "validation_budget_usd": 0.5})
    _, stats = scored(settings, rows(3, "validation"), [Sample("q", "another")])
    assert stats.validation_budget_spent_usd == pytest.approx(3 * BILLED_USD)
    assert stats.budget_spent_usd == pytest.approx(BILLED_USD)
    assert (stats.budget_usd, stats.validation_budget_usd) == (1.0, 0.5)
    assert stats.budget_reserved_usd == stats.validation_budget_reserved_usd == 0
    assert stats.spent_usd == pytest.approx(4 * BILLED_USD)


def test_validation_abstains_when_its_budget_is_spent_and_training_goes_on():
    settings = config(traffic={"budget_usd": 1.0, "validation_budget_usd": 0.01})
    (validation, training), stats = scored(settings, rows(60, "validation"), rows(60, "train"))
    assert 0 < judged(validation) < 60
    assert judged(training) == 60
    assert 0.006 < stats.validation_budget_spent_usd <= 0.01
    lost = next(r.components["quality"] for r in validation if r.value is None)
    assert lost.kind == "budget"
    assert lost.detail.startswith(f"{KEY} is $0.01: $0.00")


def test_validation_goes_on_when_the_budget_of_training_is_spent():
    settings = config(traffic={"budget_usd": 0, "validation_budget_usd": 1})
    (training, validation), _ = scored(settings, rows(3, "train"), rows(3, "validation"))
    assert (judged(training), judged(validation)) == (0, 3)


def test_a_budget_for_validation_leaves_training_without_one():
    settings = config(traffic={"validation_budget_usd": 0})
    (training, validation), stats = scored(settings, rows(3, "train"), rows(3, "validation"))
    assert (judged(training), judged(validation)) == (3, 0)
    assert stats.budget_usd is None


def test_without_the_key_all_are_paid_from_one_budget():
    settings = config(traffic={"budget_usd": 1.0})
    _, stats = scored(settings, rows(3, "validation"), [Sample("q", "another")])
    assert stats.budget_spent_usd == pytest.approx(4 * BILLED_USD)
    assert stats.validation_budget_usd is None


GROUP = {"group": "g", "group_size": 2}
CRITERIA = """---
criteria:
  logic: 3
  style: 1
---
## System
You judge.

## User
{{response}}

{{criteria}}

{{reply_format}}
"""


@pytest.mark.parametrize(
    ("judge", "content"),
    [
        ({}, "Score: 7"),
        ({"votes": {"n": 3}, "temperature": 1}, "Score: 7"),
        (
            {
                "monitor": {"truth": "right"},
                "verdict": {"choice": ["yes", "no"]},
                "rubric": "monitor",
            },
            "Verdict: yes",
        ),
        ({"verdict": {"pairs": "group"}, "rubric": "pairwise"}, "Verdict: tie"),
        ({"verdict": {"pairs": "reference"}, "rubric": "pairwise"}, "Verdict: tie"),
        ({"verdict": {"rank": "group"}, "rubric": "ranking"}, "Ranking: none"),
        ({"rubric": "apart.md", "ask": "apart"}, "Score: 7"),
    ],
    ids=["plain", "votes", "monitor", "pairs", "reference", "rank", "apart"],
)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_whatever_a_judge_is_asked_about_validation_is_paid_by_validation(
    tmp_path, judge, content, split
):
    (tmp_path / "apart.md").write_text(CRITERIA)
    if judge.get("rubric") == "apart.md":
        judge = judge | {"rubric": str(tmp_path / "apart.md")}
    settings = config(JUDGE | judge, traffic={"budget_usd": 1, "validation_budget_usd": 1})
    extra = {"right": True, "reference": "another"}
    samples = rows(2, split, extra=extra, **GROUP)
    wire = Wire(content)
    _, stats = scored(settings, samples, wire=wire)
    assert wire.sent > 0
    assert stats.budget_spent_usd == 0
    assert stats.validation_budget_spent_usd == pytest.approx(wire.sent * BILLED_USD)


def test_a_panels_members_are_paid_by_whoever_asks_the_panel():
    judges = {
        "q": JUDGE,
        "r": JUDGE | {"max_tokens": 90},
        "both": {"panel": {"members": ["q", "r"]}},
    }
    settings = config(traffic={"budget_usd": 1, "validation_budget_usd": 1})
    settings |= {"judges": judges, "components": {"quality": {"judge": "both"}}}
    _, stats = scored(settings, rows(2, "validation"))
    assert stats.budget_spent_usd == 0
    assert stats.validation_budget_spent_usd > 0


def test_what_validation_cannot_pay_for_is_not_refused_to_training_that_asks_the_same():
    """Both ask at once; a caller that joined the other's call would abstain for its spent budget."""
    settings = config(traffic={"validation_budget_usd": 0, "concurrency": 8})
    same = [rows(1, "validation")[0], rows(1, "train")[0]]
    (both,), _ = scored(settings, same)
    assert [reward.value for reward in both] == [None, 7]


def test_what_validation_has_paid_for_is_in_training_s_cache(tmp_path):
    settings = config(traffic={"budget_usd": 0, "validation_budget_usd": 1})
    settings["cache"] = {"path": str(tmp_path / "j.db")}
    (_, training), stats = scored_on_disk(settings, rows(3, "validation"), rows(3, "train"))
    assert judged(training) == 3
    assert (stats.asked, stats.cached) == (3, 3)


ALWAYS = {"default": "raise"}


@pytest.mark.parametrize(
    "policy",
    [
        "raise",
        ALWAYS,
        {"default": "neutral", "budget": "raise"},
        {"default": "neutral", "quality": "raise"},
        {"default": "neutral", "quality": {"default": "mask", "budget": "raise"}},
    ],
)
def test_a_spent_validation_raises_nothing_whatever_the_policy_and_training_does(policy):
    settings = config(traffic={"budget_usd": 0, "validation_budget_usd": 0}, on_failure=policy)
    ((lost,),), _ = scored(settings, rows(1, "validation"))
    assert (lost.value, lost.policy) == (None, "neutral")
    assert lost.why.startswith(f"quality: budget: {KEY}")
    with pytest.raises(JudgementError, match=r"traffic\.budget_usd is \$0"):
        scored(settings, rows(1, "train"))


def test_other_failures_of_validation_are_what_their_policy_says():
    settings = config(traffic={"validation_budget_usd": 1}, on_failure="raise")
    with pytest.raises(JudgementError, match="unparseable"):
        scored(settings, rows(1, "validation"), wire=Wire("Well."))


def test_without_a_budget_of_its_own_a_validation_that_raises_does():
    settings = config(traffic={"budget_usd": 0}, on_failure="raise")
    with pytest.raises(JudgementError, match=r"traffic\.budget_usd"):
        scored(settings, rows(1, "validation"))


def test_a_run_that_is_resumed_knows_what_validation_has_spent(tmp_path):
    settings = config(traffic={"budget_usd": 1, "validation_budget_usd": 0.005})
    settings["cache"] = {"path": str(tmp_path / "j.db")}
    file = tmp_path / "reward.yaml"
    file.write_text(json.dumps(settings))
    (first, _), _ = scored_on_disk(file, rows(2, "validation"), rows(1, "train"))
    more = [Sample("q", f"new {i}", split="validation") for i in range(9)]
    (again,), stats = scored_on_disk(file, more)
    assert judged(first) == 2
    assert 0 < judged(again) < 9
    assert stats.validation_budget_spent_usd == pytest.approx((2 + judged(again)) * BILLED_USD)
    assert stats.validation_budget_spent_usd <= 0.005
    kept = {one.name: one.spent for one in accounts(tmp_path / "spend.db")}
    assert kept == {
        str(file): 0,  # the training's one sample was answered from the validation's reply
        f"{file} (validation)": round(stats.validation_budget_spent_usd * 1e9),
    }


def test_engines_that_share_a_job_pay_with_the_purse_of_whoever_asks():
    """The owner of a key asks, and is told for whom."""
    settings = config(traffic={"budget_usd": 1, "validation_budget_usd": 1, "concurrency": 64})
    engines = []

    async def ask(index, asked):
        answer = await engines[index].answer(pickle.loads(pickle.dumps(asked)))
        return pickle.loads(pickle.dumps(answer))

    async def together():
        wire = Wire()
        engines.extend(
            Engine(settings, transport=wire, partition=Partition(Shard(index, 3), ask))
            for index in range(3)
        )
        for engine in engines:
            await engine.__aenter__()
            engine.endpoint_states.divide(20)
        rewards = await engines[0].score_all(rows(12, "validation"))
        known = [engine.stats() for engine in engines]
        spent = [(one.budget_spent_usd, one.validation_budget_spent_usd) for one in known]
        for engine in engines:
            await engine.aclose()
        return rewards, spent

    rewards, spent = virtually(together())[0]
    assert judged(rewards) == 12
    assert sum(training for training, _ in spent) == 0
    assert sum(validation for _, validation in spent) == pytest.approx(12 * BILLED_USD)
    assert sum(validation > 0 for _, validation in spent) > 1


def test_the_validations_budget_needs_prices_and_is_no_debt():
    with pytest.raises(ConfigError, match=f"has no price, and {KEY} needs one"):
        Engine(config(traffic={"validation_budget_usd": 1}, prices={}))
    with pytest.raises(ConfigError, match="validation_budget_usd must not be negative"):
        load_config(config(traffic={"validation_budget_usd": -1}))
    with pytest.raises(ConfigError, match="did you mean 'validation_budget_usd'"):
        load_config(config(traffic={"validation_budget": 1}))


def test_an_abstention_for_the_budget_says_what_the_next_request_may_cost():
    settings = config(traffic={"validation_budget_usd": 0})
    ((lost,),), _ = scored(settings, rows(1, "validation"))
    assert isinstance(lost.components["quality"], Abstain)
    assert "this request may cost $0.00" in lost.components["quality"].detail
