import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zerowait.client import AttemptOutcome, FixedLimit, Limiter
from zerowait.testing import virtually


class Dial:
    """A limit that the test turns by hand, and that notes what it was told."""

    def __init__(self, limit):
        self.limit = limit
        self.samples = []

        self.frees_rejected = False

    def sent(self, number, others):
        pass

    def recover(self):
        pass

    def observe(self, sample):
        self.samples.append(sample)


class Growing(Dial):
    """One slot more for every success."""

    def observe(self, sample):
        super().observe(sample)
        self.limit += sample.ending is AttemptOutcome.SUCCEEDED


async def hold(limiter, seconds, log=None, name=None):
    async with limiter.slot() as slot:
        if log is not None:
            log.append(name)
        await asyncio.sleep(seconds)
        return slot.queue_s


def test_never_more_than_the_limit_are_inside_and_all_come_through():
    limiter = Limiter(FixedLimit(3))

    async def main():
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(hold(limiter, 1.0))

    _, elapsed_s = virtually(main())
    assert elapsed_s == 4.0
    assert (limiter.peak, limiter.in_flight, limiter.waiting) == (3, 0, 0)


def test_slots_are_given_in_the_order_in_which_they_were_asked_for():
    limiter, log = Limiter(FixedLimit(2)), []

    async def main():
        async with asyncio.TaskGroup() as group:
            for name in range(20):
                group.create_task(hold(limiter, 1.0 + name % 3, log, name))

    virtually(main())
    assert log == list(range(20))


def test_a_newcomer_does_not_overtake_one_who_was_granted_a_slot_and_has_not_run_yet():
    limiter, log = Limiter(FixedLimit(1)), []

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(hold(limiter, 1.0, log, "first"))
            group.create_task(hold(limiter, 1.0, log, "second"))
            asyncio.get_running_loop().call_at(
                1.0, lambda: group.create_task(hold(limiter, 1.0, log, "late"))
            )
            await asyncio.sleep(2.5)

    virtually(main())
    assert log == ["first", "second", "late"]


def test_who_had_a_slot_before_goes_ahead_of_those_who_had_none():
    limiter, log = Limiter(FixedLimit(1)), []

    async def come(name, *, again):
        async with limiter.slot(again=again):
            log.append(name)
            await asyncio.sleep(1.0)

    async def main():
        async with asyncio.TaskGroup() as group:
            for name in ("holds", "new", "newer"):
                group.create_task(come(name, again=False))
            await asyncio.sleep(0.5)
            for name in ("back", "back too"):
                group.create_task(come(name, again=True))
            await asyncio.sleep(0.1)
            assert limiter.waiting == 4

    virtually(main())
    assert log == ["holds", "back", "back too", "new", "newer"]


def test_a_spare_slot_is_there_only_while_nobody_waits():
    limiter = Limiter(FixedLimit(2))
    told = []

    async def main():
        limiter.when_spare(lambda: told.append(limiter.in_flight))
        async with limiter.slot(), asyncio.TaskGroup() as group:
            spare = limiter.spare_slot()
            assert limiter.in_flight == 2
            assert limiter.spare_slot() is None
            waits = group.create_task(hold(limiter, 1.0))
            await asyncio.sleep(0)
            spare.release()
            assert limiter.spare_slot() is None
            assert told == []
            await waits
        assert told == [1, 0]

    virtually(main())


def test_the_time_in_the_queue_is_measured_up_to_the_slot():
    limiter = Limiter(FixedLimit(1))

    async def main():
        async with asyncio.TaskGroup() as group:
            first = group.create_task(hold(limiter, 3.0))
            second = group.create_task(hold(limiter, 1.0))
        return first.result(), second.result()

    assert virtually(main())[0] == (0.0, 3.0)


def test_an_exception_inside_gives_the_slot_back():
    limiter = Limiter(FixedLimit(1))

    async def crash():
        async with limiter.slot() as slot:
            slot.sent()
            raise ZeroDivisionError

    async def main():
        with pytest.raises(ZeroDivisionError):
            await crash()
        assert (limiter.in_flight, limiter.on_wire) == (0, 0)

    virtually(main())


def test_a_waiter_cancelled_in_the_very_turn_in_which_it_is_granted_passes_the_slot_on():
    limiter, log = Limiter(FixedLimit(1)), []

    async def main():
        async with asyncio.TaskGroup() as group:
            async with limiter.slot():
                unlucky = group.create_task(hold(limiter, 1.0, log, "unlucky"))
                group.create_task(hold(limiter, 1.0, log, "next"))
                await asyncio.sleep(0)
                assert limiter.waiting == 2
            unlucky.cancel()  # its slot was granted one line above

    virtually(main())
    assert log == ["next"]
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_a_thousand_cancelled_waiters_leave_nothing_behind():
    limiter, log = Limiter(FixedLimit(1)), []

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(hold(limiter, 1.0))
            gone = [group.create_task(hold(limiter, 1.0, log, "gone")) for _ in range(1000)]
            group.create_task(hold(limiter, 1.0, log, "stays"))
            await asyncio.sleep(0.5)
            for task in gone:
                task.cancel()
            await asyncio.sleep(0.1)
            assert limiter.waiting == 1

    _, elapsed_s = virtually(main())
    assert elapsed_s == 2.0
    assert log == ["stays"]


def test_a_limit_that_grows_by_what_it_observes_lets_waiters_in_at_once():
    limiter = Limiter(Growing(1))

    async def worker():
        async with limiter.slot() as slot:
            slot.sent()
            await asyncio.sleep(1.0)
            slot.ended(AttemptOutcome.SUCCEEDED)
            await asyncio.sleep(9.0)  # the slot is held on, yet the limit grew

    async def main():
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(worker())
            await asyncio.sleep(1.5)
            assert limiter.in_flight == 2

    _, elapsed_s = virtually(main())
    assert elapsed_s == 12.0


def test_a_limit_raised_from_outside_is_followed():
    dial = Dial(1)
    limiter = Limiter(dial)

    async def main():
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(hold(limiter, 10.0))
            await asyncio.sleep(1.0)
            dial.limit = 3
            limiter.follow()
            await asyncio.sleep(0)
            assert (limiter.in_flight, limiter.waiting, limiter.limit) == (3, 1, 3)

    virtually(main())


def test_a_newcomer_does_not_overtake_waiters_when_the_limit_rose_unnoticed():
    dial, log = Dial(1), []
    limiter = Limiter(dial)

    async def main():
        async with asyncio.TaskGroup() as group:
            for name in ("holder", "waiter"):
                group.create_task(hold(limiter, 1.0, log, name))
            await asyncio.sleep(0.5)
            dial.limit = 2
            group.create_task(hold(limiter, 1.0, log, "newcomer"))

    _, elapsed_s = virtually(main())
    assert log == ["holder", "waiter", "newcomer"]
    assert elapsed_s == 2.0


def test_a_limit_that_falls_takes_no_slot_away_and_gives_none_until_it_is_met():
    dial = Dial(3)
    limiter = Limiter(dial)

    async def main():
        async with asyncio.TaskGroup() as group:
            for seconds in (1.0, 2.0, 3.0, 1.0):
                group.create_task(hold(limiter, seconds))
            await asyncio.sleep(0.5)
            dial.limit = 1
            seen = []
            for _ in range(3):
                seen.append(limiter.in_flight)
                await asyncio.sleep(1.0)
            seen.append(limiter.in_flight)
        return seen

    assert virtually(main())[0] == [3, 2, 1, 1]


def test_the_rule_hears_of_an_overload_when_it_happens_and_not_when_the_slot_is_released():
    dial = Dial(4)
    limiter = Limiter(dial)

    async def main():
        async with limiter.slot() as slot, limiter.slot() as other:
            other.sent()
            slot.sent()
            await asyncio.sleep(2.0)
            slot.ended(AttemptOutcome.OVERLOADED)
            (sample,) = dial.samples
            assert sample.ending is AttemptOutcome.OVERLOADED
            assert (sample.sent_s, sample.ended_s) == (0.0, 2.0)
            assert (sample.occupancy, sample.on_wire) == (0.5, 1)
            await asyncio.sleep(5.0)
            assert limiter.on_wire == 1  # the one that backs off is not on the wire
            slot.sent()
            slot.ended(AttemptOutcome.SUCCEEDED)
            slot.ended(AttemptOutcome.SUCCEEDED)  # nothing was sent since

    virtually(main())
    endings = [sample.ending for sample in dial.samples]
    assert endings == [
        AttemptOutcome.OVERLOADED,
        AttemptOutcome.SUCCEEDED,
        AttemptOutcome.SAYS_NOTHING,
    ]


def test_a_cancelled_attempt_says_nothing():
    dial = Dial(1)
    limiter = Limiter(dial)

    async def attempt():
        async with limiter.slot() as slot:
            slot.sent()
            await asyncio.sleep(60.0)

    async def main():
        task = asyncio.create_task(attempt())
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait([task])

    virtually(main())
    assert [sample.ending for sample in dial.samples] == [AttemptOutcome.SAYS_NOTHING]
    assert (limiter.in_flight, limiter.on_wire) == (0, 0)


def test_a_slot_that_was_never_sent_from_tells_the_rule_nothing():
    dial = Dial(1)
    virtually(hold(Limiter(dial), 1.0))
    assert dial.samples == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match="at least 1"):
        FixedLimit(limit)


class LimiterAgainstModel(RuleBasedStateMachine):
    """Asks, releases, cancellations and turned limits in any order and at any turn of the loop."""

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.loop = self.runner.get_loop()
        self.dial = Dial(2)
        self.limiter = Limiter(self.dial)
        self.tasks, self.doors, self.inside = {}, {}, set()
        self.held, self.queue = [], []  # the model
        self.settled = True

    async def worker(self, name):
        async with self.limiter.slot():
            self.inside.add(name)
            try:
                await self.doors[name]
            finally:
                self.inside.discard(name)

    def grant(self):
        while self.queue and len(self.held) < self.dial.limit:
            self.held.append(self.queue.pop(0))

    @rule()
    def ask(self):
        name = len(self.tasks)
        self.doors[name] = self.loop.create_future()
        self.tasks[name] = self.loop.create_task(self.worker(name))
        self.queue.append(name)
        self.grant()
        self.settled = False

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        name = data.draw(st.sampled_from(self.held))
        self.doors[name].set_result(None)
        self.held.remove(name)
        self.grant()
        self.settled = False

    @precondition(lambda self: self.held or self.queue)
    @rule(data=st.data())
    def cancel(self, data):
        name = data.draw(st.sampled_from(self.held + self.queue))
        self.tasks[name].cancel()
        (self.held if name in self.held else self.queue).remove(name)
        self.grant()
        self.settled = False

    @rule()
    def turn(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    @rule()
    def settle(self):
        for _ in range(3 * len(self.tasks) + 3):
            self.turn()
        self.settled = True

    @precondition(lambda self: self.settled)
    @rule(limit=st.integers(1, 4))
    def turn_the_dial(self, limit):
        self.dial.limit = limit
        self.limiter.follow()
        self.grant()
        self.settled = False

    @precondition(lambda self: self.settled)
    @invariant()
    def agrees_with_the_model(self):
        assert self.inside == set(self.held)
        assert self.limiter.in_flight == len(self.held)
        assert self.limiter.waiting == len(self.queue)

    def teardown(self):
        for task in self.tasks.values():
            task.cancel()
        self.settle()
        assert (self.limiter.in_flight, self.limiter.waiting) == (0, 0)
        self.runner.close()


LimiterAgainstModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
TestLimiterAgainstModel = LimiterAgainstModel.TestCase
