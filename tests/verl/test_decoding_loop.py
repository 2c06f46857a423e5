import asyncio
import threading

import pytest

from zerowait.errors import ClosedError
from zerowait.verl.cpu.rollout.batch import BatchLimits, DecodingBatch
from zerowait.verl.cpu.rollout.generation import Generation
from zerowait.verl.cpu.rollout.loop import DecodingLoop
from zerowait.verl.cpu.rollout.sampling import Sampling

PROMPTS = [[5, 9, 11], [7], [30, 31, 32], [40, 41]]
LONG = 120


def request(prompt, *, max_tokens=6, seed=0, temperature=0.0):
    return Generation(prompt, Sampling(max_tokens=max_tokens, temperature=temperature), seed=seed)


def with_loop(model, work, *, limits=None, batch=None):
    """What ``work(loop)`` returns; the loop is closed, and leaves no task behind."""

    async def main():
        loop = DecodingLoop(batch or DecodingBatch(model, limits or BatchLimits()), quiet_s=0.002)
        try:
            return await work(loop)
        finally:
            await loop.aclose()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(main())


async def until(condition):
    while not condition():  # noqa: ASYNC110 - tokens are counted in another thread
        await asyncio.sleep(0.001)


async def all_of(loop, requests):
    async with asyncio.TaskGroup() as group:
        for one in requests:
            group.create_task(loop.generate(one))


def test_requests_that_come_together_are_decoded_together(model):
    async def work(loop):
        requests = [request(prompt) for prompt in PROMPTS]
        await all_of(loop, requests)
        assert loop.stats.admissions == 1
        assert loop.stats.widest == len(PROMPTS)
        assert loop.stats.responses == len(PROMPTS)
        assert all(len(one.token_ids) == 6 for one in requests)

    with_loop(model, work)


def test_a_late_request_joins_between_two_tokens(model):
    async def work(loop):
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.generate(request(PROMPTS[0], max_tokens=LONG)))
            await until(lambda: loop.stats.steps > 3)
            late = await loop.generate(request(PROMPTS[1]))
            assert len(late.token_ids) == 6
            assert loop.stats.admissions == 2
            assert loop.stats.responses == 1

    with_loop(model, work)


def test_requests_beyond_the_batch_wait_their_turn(model):
    async def work(loop):
        await all_of(loop, [request(prompt) for prompt in PROMPTS * 3])
        assert loop.stats.widest == 2
        assert loop.stats.responses == 12

    with_loop(model, work, limits=BatchLimits(rows=2))


@pytest.mark.parametrize("reject", [False, True])
def test_an_abort_hands_over_what_was_written_at_once(model, reject):
    """What has not begun waits for the resume: it would only come back, and count as interrupted."""

    async def work(loop):
        running, waiting = request(PROMPTS[0], max_tokens=400), request(PROMPTS[1])
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.generate(running))
            await until(lambda: loop.stats.steps > 3)
            group.create_task(loop.generate(waiting))
            await asyncio.sleep(0)
            assert await loop.abort(reject=reject) == 1 + reject
            assert waiting.finish == ("aborted" if reject else "")
            loop.accept_requests()
        assert running.finish == "aborted"
        assert 3 < len(running.token_ids) < 400
        assert len(running.log_probs) == len(running.token_ids)
        assert waiting.finish == ("aborted" if reject else "length")

    with_loop(model, work, limits=BatchLimits(rows=1))


def test_after_an_abort_requests_wait_for_the_resume(model):
    async def work(loop):
        await loop.abort(reject=False)
        task = asyncio.create_task(loop.generate(request(PROMPTS[0])))
        await asyncio.sleep(0.02)
        assert not task.done()
        loop.accept_requests()
        assert len((await task).token_ids) == 6

    with_loop(model, work)


def test_after_a_rejecting_abort_requests_are_turned_away_until_the_resume(model):
    async def work(loop):
        await loop.abort(reject=True)
        turned_away = await loop.generate(request(PROMPTS[0]))
        assert (turned_away.finish, turned_away.token_ids) == ("aborted", [])
        loop.accept_requests()
        assert (await loop.generate(request(PROMPTS[0]))).finish == "length"

    with_loop(model, work)


def test_an_evicted_response_goes_on_with_the_same_tokens(model):
    async def work(loop):
        whole = await loop.generate(request(PROMPTS[0], max_tokens=LONG, seed=4, temperature=1))
        parted = request(PROMPTS[0], max_tokens=LONG, seed=4, temperature=1)
        before = loop.stats.steps
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.generate(parted))
            await until(lambda: loop.stats.steps > before + 3)
            await loop.evict("weights")
            written = len(parted.token_ids)
            await asyncio.sleep(0.02)
            assert 0 < len(parted.token_ids) == written < LONG
            loop.resume("weights")
        assert parted.token_ids == whole.token_ids

    with_loop(model, work)


def test_two_reasons_to_pause_need_two_resumes(model):
    async def work(loop):
        await loop.pause("sleep")
        await loop.pause("weights")
        task = asyncio.create_task(loop.generate(request(PROMPTS[0])))
        loop.resume("sleep")
        await asyncio.sleep(0.02)
        assert not task.done()
        loop.resume("weights")
        await task

    with_loop(model, work)


def test_a_caller_that_gives_up_frees_its_row(model):
    async def work(loop):
        given_up = request(PROMPTS[0], max_tokens=400)
        task = asyncio.create_task(loop.generate(given_up))
        await until(lambda: loop.stats.steps > 2)
        task.cancel()
        await asyncio.wait({task})
        done = await loop.generate(request(PROMPTS[1]))
        assert len(done.token_ids) == 6
        assert len(given_up.token_ids) < 400

    with_loop(model, work, limits=BatchLimits(rows=1))


class BrokenBatch(DecodingBatch):
    """Fails at one step, as a device out of memory does."""

    broken = True

    def step(self):
        if self.broken:
            self.broken = False
            raise MemoryError("no room")
        super().step()


def test_a_failing_model_is_everybodys_error_and_the_next_request_is_answered(model):
    async def work(loop):
        failures = []

        async def attempt(one):
            try:
                await loop.generate(one)
            except MemoryError as error:
                failures.append(error)

        async with asyncio.TaskGroup() as group:
            for prompt in PROMPTS:
                group.create_task(attempt(request(prompt)))
        assert len(failures) == len(PROMPTS)
        assert len((await loop.generate(request(PROMPTS[0]))).token_ids) == 6

    with_loop(model, work, batch=BrokenBatch(model, BatchLimits()))


def test_a_closed_loop_ends_its_responses_and_takes_no_more(model):
    async def work(loop):
        task = asyncio.create_task(loop.generate(request(PROMPTS[0], max_tokens=400)))
        await until(lambda: loop.stats.steps > 2)
        await loop.aclose()
        assert (await task).finish == "aborted"
        with pytest.raises(ClosedError):
            await loop.generate(request(PROMPTS[0]))

    with_loop(model, work)


def test_tokens_are_computed_in_one_thread_that_is_not_the_loops(model):
    async def work(loop):
        names = {await loop.run(lambda: threading.current_thread().name) for _ in range(3)}
        assert len(names) == 1
        assert threading.current_thread().name not in names

    with_loop(model, work)
