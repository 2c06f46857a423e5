"""The trainer's side of its tickets, from a thread that must never wait longer than it said."""

import asyncio
import queue
import threading

import pytest

from zerowait.config import load_config
from zerowait.engine import combine
from zerowait.engine.plan import compile_plan
from zerowait.errors import HubLostError, JudgementError
from zerowait.types import Reward, Sample, Score
from zerowait.verl.rewards.deadline import timed_out_reward
from zerowait.verl.rewards.redeemer import Redeemer

ONE = Reward(1.0, {"answer": Score(1.0)})
LATE = Reward(None, {}, {}, "neutral", "reward: timeout: late")


class Hub:
    """The other side of the wire: answers when it is told to."""

    def __init__(self):
        self.asked = []
        self.of = {}
        self.reached = queue.SimpleQueue()
        self.given_up = queue.SimpleQueue()
        self.told = {}
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def redeem(self, sample, *, of=None):
        self.asked.append(sample.id)
        self.of[sample.id] = of
        self.reached.put(sample.id)
        while sample.id not in self.told:
            await self.changed.wait()
            self.changed.clear()
        if isinstance(self.told[sample.id], Exception):
            raise self.told[sample.id]
        return self.told[sample.id]

    async def give_up(self, tickets):
        for ticket in tickets:
            self.given_up.put(ticket)

    def tell(self, **rewards):
        def now():
            self.told |= rewards
            self.changed.set()

        self.loop.call_soon_threadsafe(now)


@pytest.fixture
def hub():
    return []


@pytest.fixture
def redeemer(hub):
    async def open_hub():
        hub.append(Hub())
        return hub[0]

    with Redeemer(open_hub, on_timeout=lambda sample: LATE) as running:
        yield running


def row(name):
    return Sample("q", "a", id=name)


def test_rewards_come_in_while_nobody_waits(redeemer, hub):
    redeemer.begin([row("a")])
    assert redeemer.known([row("a")]) is None
    hub[0].tell(a=ONE)
    assert redeemer.collect([row("a")], within_s=30) == {"train/a": ONE}
    assert redeemer.known([row("a")]) == {"train/a": ONE}
    assert redeemer.pending == 0


def test_a_ticket_is_asked_for_once(redeemer, hub):
    redeemer.begin([row("a"), row("a")])
    redeemer.begin([row("a")])
    hub[0].tell(a=ONE)
    redeemer.collect([row("a"), row("a")], within_s=30)
    redeemer.begin([row("a")])
    assert hub[0].asked == ["a"]


def test_the_hub_is_told_how_many_of_a_group_are_fetched(redeemer, hub):
    redeemer.begin([row("a"), row("b")], sizes={"train/a": 3})
    hub[0].tell(a=ONE, b=ONE)
    redeemer.collect([row("a"), row("b")], within_s=30)
    assert hub[0].of == {"a": 3, "b": None}


def test_what_was_never_asked_for_can_be_given_up(redeemer, hub):
    redeemer.give_up(["train/a"])
    assert hub[0].given_up.get(timeout=30) == "train/a"
    redeemer.begin([row("a")])
    hub[0].tell(a=ONE)
    assert redeemer.collect([row("a")], within_s=30) == {"train/a": ONE}


def test_what_is_late_is_given_up_and_comes_too_late_afterwards(redeemer, hub):
    redeemer.begin([row("a"), row("b")])
    hub[0].tell(b=ONE)
    redeemer.collect([row("b")], within_s=30)
    assert redeemer.collect([row("a"), row("b")], within_s=0) == {"train/a": LATE, "train/b": ONE}
    hub[0].tell(a=ONE)
    redeemer.wait_for_change(0.05)
    assert redeemer.known([row("a")]) == {"train/a": LATE}
    assert redeemer.pending == 0
    assert hub[0].given_up.get(timeout=30) == "train/a"


@pytest.mark.parametrize("error", [JudgementError("raise"), HubLostError("gone")])
def test_what_makes_a_reward_impossible_stops_whoever_waits(redeemer, hub, error):
    redeemer.begin([row("a"), row("b")])
    hub[0].tell(a=error)
    with pytest.raises(type(error)):
        redeemer.collect([row("a"), row("b")], within_s=30)
    with pytest.raises(type(error)):
        redeemer.known([row("b")])


def test_a_reward_that_arrives_wakes_the_waiting_thread(redeemer, hub):
    others = [f"b{number}" for number in range(100)]
    redeemer.begin([row("a"), *map(row, others)])
    woken = threading.Event()

    def wait():
        while redeemer.known([row("a")]) is None:
            redeemer.wait_for_change(60)
        woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    hub[0].tell(a=ONE)
    for other in others:  # the first news may be there before the thread begins to wait
        if woken.wait(0.1):
            break
        hub[0].tell(**{other: ONE})
    assert woken.wait(30)
    waiting.join()


def test_what_is_forgotten_is_given_up_unless_it_is_known(redeemer, hub):
    redeemer.begin([row("a"), row("b")])
    hub[0].tell(b=ONE)
    redeemer.collect([row("b")], within_s=30)
    redeemer.forget([row("a"), row("b")])
    assert redeemer.pending == 0
    assert redeemer.known([row("b")]) is None
    assert hub[0].given_up.get(timeout=30) == "train/a"


def test_what_is_forgotten_can_be_begun_again(redeemer, hub):
    redeemer.begin([row("a")])
    assert hub[0].reached.get(timeout=30) == "a"
    redeemer.forget([row("a")])
    redeemer.begin([row("a")])
    assert hub[0].given_up.get(timeout=30) == "train/a"
    hub[0].tell(a=ONE)
    assert redeemer.collect([row("a")], within_s=30) == {"train/a": ONE}


def test_a_hub_that_cannot_be_opened_is_the_callers_error():
    before = set(threading.enumerate())

    async def broken():
        raise HubLostError("no hub")

    with pytest.raises(HubLostError, match="no hub"):
        Redeemer(broken, on_timeout=lambda sample: LATE)
    assert set(threading.enumerate()) <= before


def config(on_failure):
    components = {"answer": {"scorer": "qa_em"}, "style": {"scorer": "qa_em"}}
    return load_config({"components": components, "on_failure": on_failure})


@pytest.mark.parametrize(
    ("on_failure", "policy"),
    [
        ({}, "neutral"),
        ("mask", "mask"),
        ({"default": "mask", "timeout": "neutral"}, "neutral"),
        ({"style": "drop_group"}, "drop_group"),
        ({"timeout": {"value": 0.0}}, "neutral"),
    ],
)
def test_a_reward_that_is_late_abstains_and_is_never_a_number(on_failure, policy):
    reward = timed_out_reward(config(on_failure), row("a"), 30)
    assert (reward.value, reward.policy) == (None, policy)
    assert reward.why == "reward: timeout: not known 30 s after the step needed it"
    assert list(reward.components) == ["answer", "style"]


def test_a_late_reward_has_the_metrics_of_every_other():
    components = {"answer": {"scorer": "qa_em"}, "length": {"shape": "median_band"}}
    shaped = load_config({"components": components})
    late = timed_out_reward(shaped, row("a"), 30)
    terms = compile_plan(shaped).terms
    known = combine({name: Score(1.0) for name in components}, terms, shaped.on_failure)
    assert late.metrics.keys() == known.metrics.keys()
    assert late.metrics["answer/abstained"] == 1.0
    assert late.metrics["length_penalty"] is None


def test_a_late_reward_whose_policy_is_raise_stops_the_training():
    with pytest.raises(JudgementError, match="a: reward: timeout"):
        timed_out_reward(config("raise"), row("a"), 30)
