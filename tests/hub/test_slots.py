"""A job's slots among the shards of its hub: all are used, fairly, and never too many."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zerowait.engine import JudgementCounts, Stats, StepRow
from zerowait.engine.monitor.health import HealthRow
from zerowait.hub.slots import (
    MIN_SLOTS,
    GoneError,
    ShardLoad,
    SlotBalancer,
    SlotShares,
    fair_shares,
)
from zerowait.testing import virtually

TOTAL, COUNT = 20, 4


@st.composite
def divisions(draw):
    demands = draw(st.lists(st.integers(0, 500), min_size=1, max_size=9))
    return draw(st.integers(len(demands), 300)), demands


@given(divisions())
def test_the_shares_sum_to_the_total_and_none_is_empty(division):
    total, demands = division
    parts = fair_shares(total, demands)
    assert sum(parts) == total
    assert min(parts) >= MIN_SLOTS


@given(divisions())
def test_no_shard_gets_less_than_its_demand_while_another_has_more_than_an_equal_part(division):
    total, demands = division
    parts = fair_shares(total, demands)
    short = [part for part, demand in zip(parts, demands, strict=True) if part < demand]
    for part in short:
        assert max(parts) <= part + 1


def test_more_shards_than_slots_are_refused():
    with pytest.raises(ValueError, match="3 slots are too few for 4 shards"):
        fair_shares(3, [0] * 4)


def load(slots, held, demand=100):
    return ShardLoad(slots=slots, held=held, demand=demand)


def test_slots_are_not_given_away_before_the_shard_that_has_them_returns_them():
    shares = SlotShares(20, 2)
    shares.update(0, load(slots=19, held=0))
    shares.update(1, load(slots=1, held=0))
    assert shares.reductions() == {0: 10}
    assert shares.increases() == {}
    shares.update(0, load(slots=10, held=0))
    assert shares.increases() == {1: 10}


def test_slots_that_were_returned_are_not_given_away_while_requests_still_hold_them():
    shares = SlotShares(20, 2)
    shares.update(0, load(slots=10, held=19))
    shares.update(1, load(slots=1, held=1))
    assert shares.increases() == {}
    shares.update(0, load(slots=10, held=14))
    assert shares.increases() == {1: 6}


def test_two_shards_are_not_given_the_same_free_slots():
    shares = SlotShares(20, 3)
    for index, slots in enumerate((9, 1, 1)):
        shares.update(index, load(slots=slots, held=slots))
    assert shares.increases() == {1: 7, 2: 4}
    assert shares.increases() == {}


class Traffic(RuleBasedStateMachine):
    """Shards that start and end requests at any moment, also within a round, and die."""

    def __init__(self):
        super().__init__()
        self.shares = SlotShares(TOTAL, COUNT)
        self.slots = [MIN_SLOTS] * COUNT
        self.held = [0] * COUNT
        self.line = [0] * COUNT
        self.begun = False

    def load(self, index):
        held = self.held[index]
        return ShardLoad(slots=self.slots[index], held=held, demand=held + self.line[index])

    @rule(index=st.integers(0, COUNT - 1), waiting=st.integers(0, 60))
    def comes(self, index, waiting):
        self.line[index] += waiting

    @rule(index=st.integers(0, COUNT - 1))
    def begins(self, index):
        while self.line[index] and self.held[index] < self.slots[index]:
            self.held[index] += 1
            self.line[index] -= 1

    @rule(index=st.integers(0, COUNT - 1), ended=st.integers(1, 5))
    def ends(self, index, ended):
        self.held[index] = max(0, self.held[index] - ended)

    @rule(index=st.integers(0, COUNT - 1))
    def answers(self, index):
        self.shares.update(index, self.load(index))

    @rule(index=st.integers(0, COUNT - 1))
    def dies_and_comes_back(self, index):
        self.slots[index], self.held[index] = MIN_SLOTS, 0
        self.shares.mark_dead(index)

    @rule(index=st.integers(0, COUNT - 1))
    def dies_unnoticed(self, index):
        self.slots[index], self.held[index] = MIN_SLOTS, 0

    @rule(answer=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
    def has_to_give_back(self, answer):
        for index, slots in self.shares.reductions().items():
            if answer[index]:
                self.slots[index] = slots
                self.shares.update(index, self.load(index))

    @rule(arrives=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
    def is_given(self, arrives):
        for index, slots in self.shares.increases().items():
            if arrives[index]:
                self.slots[index] = slots

    @rule()
    def the_balancer_starts_over(self):
        self.shares = SlotShares(TOTAL, COUNT)

    @precondition(lambda self: any(self.line))
    @rule()
    def every_shard_answers_and_is_served(self):
        for _ in range(2):
            for index in range(COUNT):
                self.answers(index)
                self.held[index] = min(self.held[index], self.slots[index])
                self.answers(index)
            self.has_to_give_back([True] * COUNT)
            self.is_given([True] * COUNT)
        assert sum(self.slots) == TOTAL

    @invariant()
    def never_more_than_the_total(self):
        assert sum(map(max, self.slots, self.held)) <= TOTAL
        assert min(self.slots) >= MIN_SLOTS


TestNeverTooMany = Traffic.TestCase


class Fake:
    """A shard whose demand, answers and rows the test sets."""

    def __init__(self, demand=0):
        self.slots, self.demand = MIN_SLOTS, demand
        self.dead = self.deaf = False
        self.rows, self.settled = [], 0
        self.judgements, self.others = JudgementCounts(), None

    async def current_load(self, others=None):
        self.others = others or self.others
        if self.dead:
            raise GoneError("dead")
        if self.deaf:
            raise TimeoutError
        rows, self.rows = self.rows, []
        held = min(self.slots, self.demand)
        return ShardLoad(
            slots=self.slots,
            held=held,
            demand=self.demand,
            rows=rows,
            judgements=self.judgements,
            stats=Stats(settled=self.settled),
        )

    async def set_slots(self, slots):
        load = await self.current_load()
        self.slots = slots
        return type(load)(slots=slots, held=min(slots, self.demand), demand=self.demand)


def rounds(balancer, shards, count=3):
    async def scenario():
        for _ in range(count):
            await balancer.round(shards)

    asyncio.run(scenario())
    return [shard.slots for shard in shards]


def test_slots_go_where_the_work_is_and_those_of_a_dead_shard_to_the_others_until_it_returns():
    shards, balancer = [Fake(), Fake(), Fake(100)], SlotBalancer(32, 3)
    assert rounds(balancer, shards) == [1, 1, 30]
    shards[0].demand = shards[1].demand = 100
    assert rounds(balancer, shards) == [10, 11, 11]
    shards[2].dead = True
    assert rounds(balancer, shards)[:2] == [15, 16]
    shards[2].dead, shards[2].slots = False, MIN_SLOTS
    assert rounds(balancer, shards) == [10, 11, 11]


def test_a_shard_that_is_silent_keeps_what_it_has():
    shards, balancer = [Fake(100), Fake(100)], SlotBalancer(32, 2)
    assert rounds(balancer, shards) == [16, 16]
    shards[1].deaf = True
    assert rounds(balancer, shards) == [16, 16]


def test_a_new_balancer_gives_no_slots_before_every_shard_has_answered():
    shards = [Fake(100), Fake(100), Fake(100)]
    rounds(SlotBalancer(32, 3), shards)
    shards[2].deaf = True
    shards[0].slots = MIN_SLOTS
    again = SlotBalancer(32, 3)
    assert rounds(again, shards)[0] == MIN_SLOTS
    shards[2].deaf = False
    assert rounds(again, shards)[0] == 10


def test_each_shard_hears_how_many_judgements_failed_at_the_others():
    shards, balancer = [Fake(), Fake(), Fake()], SlotBalancer(32, 3)
    for shard, failed in zip(shards, (5, 7, 9), strict=True):
        shard.judgements = JudgementCounts(failed)
    shards[2].judgements = JudgementCounts(9, reached=True)
    rounds(balancer, shards)
    assert [(shard.others.failed, shard.others.reached) for shard in shards] == [
        (16, True),
        (14, True),
        (12, False),
    ]


def test_the_statistics_of_all_shards_but_the_first_are_gathered_also_of_one_that_fell_silent():
    shards, balancer = [Fake(), Fake(), Fake()], SlotBalancer(32, 3)
    for shard, settled in zip(shards, (5, 7, 9), strict=True):
        shard.settled = settled
    rounds(balancer, shards)
    shards[1].settled, shards[2].deaf = 8, True
    rounds(balancer, shards)
    assert [stats.settled for stats in balancer.other_shards()] == [8, 9]


def test_rows_that_shards_have_gathered_are_checked_once():
    shards, balancer, checked = [Fake(), Fake(), Fake()], SlotBalancer(32, 3), []
    for number, shard in enumerate(shards):
        shard.rows = [StepRow(number, HealthRow(1.0))]

    async def scenario():
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await balancer.run(shards, check=checked.append)

    virtually(scenario())
    assert [sorted(rows) for rows in checked[:2]] == [
        [StepRow(n, HealthRow(1.0)) for n in range(3)],
        [],
    ]
    assert len(checked) == 10  # one a second, once every shard has answered
