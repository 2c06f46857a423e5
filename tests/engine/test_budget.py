"""What judges cost, and a budget that holds whatever happens to the requests."""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import textwrap

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait import Abstain, ConfigError, Engine, Sample
from zerowait.cache import SqliteLedger
from zerowait.client import (
    CostMeter,
    MemoryLedger,
    MeteringTransport,
    Reply,
    Request,
    TransportError,
    nano_usd,
)
from zerowait.client.cost import BudgetSpentError
from zerowait.completion import Completion
from zerowait.config import Price, load_config
from zerowait.engine.budget import budget_name
from zerowait.events import JudgementSettled, RequestCharged
from zerowait.testing import virtually
from zerowait.types import FailureKind

PRICES = {"m": {"input": 1.0, "output": 10.0}}
JUDGE = {
    "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
    "verdict": {"integer": [1, 10]},
    "max_tokens": 100,
}
BILLED_USD = (200 * 1.0 + 20 * 10.0) / 1e6


def config(*, traffic=None, **parts):
    base = {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": JUDGE},
        "cache": "off",
        "prices": PRICES,
        "traffic": {"concurrency": 1024, "attempts": 2} | (traffic or {}),
    }
    return base | parts


def completion(prompt=200, completion=20, content="Score: 7", finish="stop"):
    choice = {"message": {"content": content}, "finish_reason": finish}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return msgspec.json.encode({"choices": [choice], "usage": usage, "model": "m"})


class Wire:
    """Answers with `script(request)`: (seconds, Reply or error), and knows what it would bill."""

    def __init__(self, script=lambda _request: (1, Reply(200, {}, completion()))):
        self.script = script
        self.sent = 0
        self.in_flight = self.peak = 0

    async def send(self, request, *, timeout_s):
        self.sent += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            after_s, result = self.script(request)
            await asyncio.sleep(after_s)
        finally:
            self.in_flight -= 1
        if isinstance(result, Exception):
            raise result
        return result

    async def aclose(self):
        pass


def scored(settings_, samples, wire=None, listener=lambda _event: None):
    wire = wire or Wire()

    async def scenario():
        async with Engine(settings_, transport=wire, listener=listener) as engine:
            return await engine.score_all(samples), engine.stats()

    rewards, stats = virtually(scenario())[0]
    return rewards, stats, wire


def rows(count):
    return [Sample("q", f"answer {i}") for i in range(count)]


def kinds(rewards):
    outcomes = [reward.components["quality"] for reward in rewards]
    return [outcome.kind.value if isinstance(outcome, Abstain) else "score" for outcome in outcomes]


def test_spend_and_tokens_are_counted_by_judge_also_without_a_budget():
    judges = {"a": JUDGE, "b": JUDGE | {"max_tokens": 50}}
    components = {"x": {"judge": "a"}, "y": {"judge": "b", "sources": ["only"]}}
    samples = [*rows(3), Sample("q", "one", data_source="only")]
    _, stats, _ = scored(config(judges=judges, components=components), samples)
    assert stats.spent_usd == pytest.approx(5 * BILLED_USD)
    assert stats.judges["a"].spent_usd == pytest.approx(4 * BILLED_USD)
    assert stats.judges["b"].spent_usd == pytest.approx(BILLED_USD)
    assert (stats.judges["a"].asked, stats.judges["b"].asked, stats.asked) == (4, 1, 5)
    assert stats.components["x"].spent_usd == pytest.approx(4 * BILLED_USD)
    assert (stats.components["x"].asked, stats.components["y"].completion_tokens) == (4, 20)
    assert (stats.judges["a"].prompt_tokens, stats.judges["a"].completion_tokens) == (800, 80)
    assert stats.budget_usd is None


def test_without_prices_tokens_are_counted_and_nothing_is_charged():
    events = []
    _, stats, _ = scored(config(prices={}), rows(2), listener=events.append)
    assert (stats.prompt_tokens, stats.spent_usd) == (400, 0)
    assert not [event for event in events if isinstance(event, RequestCharged)]


def test_each_judgement_says_what_it_cost_and_a_joined_one_is_paid_once():
    events = []
    _, stats, wire = scored(config(), [Sample("q", "same")] * 3, listener=events.append)
    settled = [event for event in events if isinstance(event, JudgementSettled)]
    assert sum(each.cost_usd for each in settled) == pytest.approx(stats.spent_usd)
    assert sum(each.prompt_tokens for each in settled) == stats.prompt_tokens
    assert sum(each.attempts for each in settled) == wire.sent == 1
    assert stats.spent_usd == pytest.approx(BILLED_USD)


def test_past_the_budget_new_calls_abstain_with_budget_and_nobody_is_asked():
    rewards, stats, wire = scored(config(traffic={"budget_usd": 0.02, "concurrency": 1}), rows(60))
    known = kinds(rewards)
    assert set(known) == {"score", "budget"}
    assert wire.sent == known.count("score")
    assert stats.budget_spent_usd == pytest.approx(wire.sent * BILLED_USD)
    assert stats.budget_spent_usd <= stats.budget_usd == 0.02
    assert stats.budget_reserved_usd == 0
    assert stats.asked == wire.sent
    detail = next(r.components["quality"].detail for r in rewards if r.value is None)
    assert detail.startswith("traffic.budget_usd is $0.02: $0.0")


def test_a_spent_budget_is_said_at_once_and_not_after_a_wait_in_line():
    """One slot, held by a slow call; the budget has room for that call only."""
    wire = Wire(lambda _request: (1000, Reply(200, {}, completion())))
    settings_ = config(
        traffic={"budget_usd": 0.005, "concurrency": 1, "timeout_s": 2000, "deadline_s": 2000}
    )

    async def scenario():
        async with Engine(settings_, transport=wire) as engine:
            slow = asyncio.create_task(engine.score(Sample("q", "slow")))
            await asyncio.sleep(1)
            refused = await engine.score(Sample("q", "other"))
            at_s = asyncio.get_running_loop().time()
            joined = await engine.score(Sample("q", "slow"))
            return refused, at_s, joined, await slow

    (refused, at_s, joined, slow), _ = virtually(scenario())
    assert kinds([refused, joined, slow]) == ["budget", "score", "score"]
    assert at_s == pytest.approx(1)


def test_what_is_in_the_cache_is_still_answered_past_the_budget_and_costs_nothing(tmp_path):
    cache = {"path": str(tmp_path / "j.db")}
    events = []

    async def scenario(traffic, listener=lambda _event: None):
        wire = Wire(lambda _request: (0.001, Reply(200, {}, completion())))
        settings_ = config(cache=cache, traffic=traffic)
        async with Engine(settings_, transport=wire, listener=listener) as engine:
            return await engine.score_all(rows(5)), engine.stats(), wire

    asyncio.run(scenario({}))
    rewards, stats, wire = asyncio.run(scenario({"budget_usd": 0}, events.append))
    assert kinds(rewards) == ["score"] * 5
    assert (wire.sent, stats.spent_usd, stats.cached) == (0, 0, 5)
    settled = [event for event in events if isinstance(event, JudgementSettled)]
    assert {(e.cost_usd, e.latency_s, e.queue_s, e.prompt_tokens) for e in settled} == {
        (0, 0, 0, 0)
    }


@pytest.mark.parametrize(
    ("result", "charged"),
    [
        (Reply(200, {}, completion()), "bill"),
        (Reply(200, {}, completion(0, 0)), "worst"),
        (Reply(200, {}, completion(200, 0)), "worst"),
        (Reply(200, {}, b"{"), "worst"),
        (Reply(400, {}, b"no"), "nothing"),
        (Reply(429, {}, b"slow down"), "nothing"),
        (Reply(500, {}, b"oops"), "worst"),
        (Reply(502, {}, b"oops"), "worst"),
        (Reply(503, {}, b"busy"), "nothing"),
        (Reply(529, {}, b"busy"), "nothing"),
        (TransportError(FailureKind.TIMEOUT, "late"), "worst"),
        (TransportError(FailureKind.UNREACHABLE, "cut"), "worst"),
        (TransportError(FailureKind.UNREACHABLE, "no connection", sent=False), "nothing"),
    ],
)
def test_what_a_request_is_charged(result, charged):
    events = []
    body = msgspec.json.encode({"model": "m", "max_tokens": 100, "messages": []})
    ledger = MemoryLedger(nano_usd(1))

    async def scenario():
        meter = metering(Wire(lambda _request: (1, result)), ledger, events.append)
        with contextlib.suppress(TransportError):
            await meter.send(Request("u", {}, body), timeout_s=9)

    virtually(scenario())
    worst = (len(body) + 256) * 1000 + 100 * 10_000
    cost = {"bill": 200 * 1000 + 20 * 10_000, "worst": worst, "nothing": 0}[charged]
    assert ledger.account == (nano_usd(1), cost, 0)
    assert [event.usd for event in events] == ([cost / 1e9] if cost else [])
    assert [event.estimated for event in events] == ([charged == "worst"] if cost else [])


def metering(wire, ledger, listener=lambda _event: None):
    def decode(body):
        try:
            said = json.loads(body)["usage"]
        except ValueError:
            return None
        return Completion(
            prompt_tokens=said["prompt_tokens"], completion_tokens=said["completion_tokens"]
        )

    meter = CostMeter("q", {"m": Price(input=1.0, output=10.0)})
    return MeteringTransport(wire, meter, decode=decode, ledger=ledger, listener=listener)


ABSURD = [10**12, 2**70, -5, True, 0.5, "many", None, [7]]


@pytest.mark.parametrize("which", ["prompt", "completion"])
@pytest.mark.parametrize("tokens", ABSURD, ids=str)
def test_a_bill_that_cannot_be_true_is_ignored_whatever_it_says(which, tokens, caplog):
    """Neither the budget nor the quota nor the statistics take a server's word for everything."""
    wire = Wire(lambda _request: (1, Reply(200, {}, completion(**{which: tokens}))))
    traffic = {"budget_usd": 1.0, "tpm": 600_000.0, "concurrency": 4}
    rewards, stats, _ = scored(config(traffic=traffic), rows(40), wire)
    assert [reward.value for reward in rewards] == [7] * 40
    assert 0 < stats.budget_spent_usd <= 40 * 0.01
    assert stats.budget_reserved_usd == 0
    assert 0 <= stats.prompt_tokens <= 40 * 200
    assert 0 <= stats.completion_tokens <= 40 * 20
    warnings = [record for record in caplog.records if "bills" in record.message]
    assert len(warnings) == (tokens in (10**12, 2**70))


def test_a_bill_above_the_worst_case_that_may_be_true_is_believed():
    """A judge may think on top of its max_tokens, and that is paid for."""
    ledger = MemoryLedger(nano_usd(1))
    body = msgspec.json.encode({"model": "m", "max_tokens": 100})

    async def scenario():
        bill = Wire(lambda _request: (1, Reply(200, {}, completion(200, 700))))
        await metering(bill, ledger).send(Request("u", {}, body), timeout_s=9)

    virtually(scenario())
    assert ledger.account.spent == 200 * 1000 + 700 * 10_000


def test_a_cancelled_request_is_charged_its_reservation():
    ledger = MemoryLedger(nano_usd(1))

    async def scenario():
        meter = metering(Wire(), ledger)
        body = msgspec.json.encode({"model": "m", "max_tokens": 100})
        task = asyncio.create_task(meter.send(Request("u", {}, body), timeout_s=9))
        await asyncio.sleep(0.5)
        reserved = ledger.account.reserved
        task.cancel()
        await asyncio.wait([task])
        return reserved

    reserved, _ = virtually(scenario())
    assert ledger.account == (nano_usd(1), reserved, 0)
    assert reserved > 0


def test_a_retry_is_another_request_and_the_budget_may_end_before_it():
    failing = Wire(lambda _request: (1, Reply(500, {}, b"")))
    rewards, stats, _ = scored(config(traffic={"budget_usd": 0.005}), rows(1), failing)
    assert kinds(rewards) == ["budget"]
    assert failing.sent == 1
    assert 0 < stats.budget_spent_usd <= 0.005


def test_a_truncated_answer_and_the_longer_one_after_it_are_both_paid():
    def script(request):
        cut = b'"max_tokens":100,' in request.body
        content, finish = ("", "length") if cut else ("Score: 7", "stop")
        return 1, Reply(200, {}, completion(content=content, finish=finish))

    events = []
    _, stats, wire = scored(config(), rows(1), Wire(script), events.append)
    (settled,) = [event for event in events if isinstance(event, JudgementSettled)]
    assert wire.sent == 2
    assert settled.cost_usd == pytest.approx(2 * BILLED_USD) == stats.spent_usd
    assert (settled.prompt_tokens, stats.prompt_tokens) == (400, 400)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), share=st.floats(0.05, 1.2))
def test_the_settled_spend_never_exceeds_the_budget_whatever_happens_to_1024_in_flight(seed, share):
    """Random latencies, bills, refusals, errors and cancellations, all at once."""
    draw = random.Random(seed)
    budget = nano_usd(1400 * BILLED_USD * share)
    billed = [0]
    ledger = MemoryLedger(budget)

    def script(request):
        prompt = draw.randint(1, len(request.body) + 256)
        answer = draw.randint(1, 100)
        result = draw.choice(
            [
                *[Reply(200, {}, completion(prompt, answer))] * 6,
                Reply(200, {}, b"cut"),
                Reply(429, {}, b""),
                Reply(500, {}, b""),
                TransportError(FailureKind.TIMEOUT, ""),
                TransportError(FailureKind.UNREACHABLE, "", sent=False),
            ]
        )
        refused = isinstance(result, Reply) and result.status == 429
        unsent = isinstance(result, TransportError) and not result.sent
        # what the provider bills at most, whether or not its answer arrives
        billed[0] += 0 if refused or unsent else prompt * 1000 + answer * 10_000
        assert ledger.account.spent + ledger.account.reserved <= budget
        return draw.choice([0.0, draw.random(), draw.expovariate(0.1)]), result

    wire = Wire(script)
    meter = metering(wire, ledger)
    refused = [0]

    async def one(number):
        await asyncio.sleep(draw.random())
        body = msgspec.json.encode({"model": "m", "max_tokens": 100, "user": "x" * (number % 300)})
        try:
            await meter.send(Request("u", {}, body), timeout_s=9)
        except BudgetSpentError:
            refused[0] += 1
        except TransportError:
            pass
        assert ledger.account.spent <= budget

    async def scenario():
        tasks = [asyncio.create_task(one(number)) for number in range(1400)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(draw.random())
            draw.choice(tasks).cancel()
        for task in tasks:
            assert task.cancelled() or task.exception() is None

    virtually(scenario())
    assert billed[0] <= ledger.account.spent <= budget
    assert ledger.account.reserved == 0
    assert wire.sent + refused[0] <= 1400
    assert share > 0.5 or refused[0] > 0


def test_an_engine_with_1024_in_flight_spends_what_the_budget_allows_and_no_more():
    rewards, stats, wire = scored(config(traffic={"budget_usd": 3.0}), rows(3000))
    assert wire.peak > 500
    assert set(kinds(rewards)) == {"score", "budget"}
    assert stats.budget_spent_usd == pytest.approx(wire.sent * BILLED_USD)
    assert stats.budget_spent_usd <= 3.0
    assert stats.budget_reserved_usd == 0


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        ({}, "judges.q.endpoints[0].model is 'm', which has no price"),
        ({"n": {"input": 1, "output": 1}}, "; known: n"),
        ({"mm": {"input": 1, "output": 1}}, "did you mean 'mm'?"),
    ],
)
def test_a_budget_without_a_price_is_an_error_that_names_the_model(prices, says):
    with pytest.raises(ConfigError) as caught:
        Engine(config(prices=prices, traffic={"budget_usd": 1.0}))
    assert says in str(caught.value)


def test_a_configuration_file_is_the_name_of_its_budget_unless_it_has_one(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps({"reward": config()}))
    assert budget_name(load_config(f"{file}#reward")) == f"{file}#reward"
    file.write_text(json.dumps({"reward": config(traffic={"budget_name": "run 7"})}))
    assert budget_name(load_config(f"{file}#reward")) == "run 7"
    assert budget_name(load_config(config())) is None


def test_the_spend_of_earlier_runs_counts_until_the_budget_is_raised(tmp_path):
    file = tmp_path / "reward.yaml"

    async def run(budget, first):
        file.write_text(json.dumps(config(cache={"path": "j.db"}, traffic={"budget_usd": budget})))
        wire = Wire(lambda _request: (0.001, Reply(200, {}, completion())))
        samples = [Sample("q", f"answer {first + i}") for i in range(40)]
        async with Engine(file, transport=wire) as engine:
            rewards = [await engine.score(sample) for sample in samples]
            return kinds(rewards), engine.stats()

    known, before = asyncio.run(run(0.005, 0))
    assert 0 < known.count("score") < 40
    known, stats = asyncio.run(run(0.005, 100))
    assert known == ["budget"] * 40
    assert stats.budget_spent_usd == pytest.approx(before.budget_spent_usd)
    assert stats.spent_usd == 0
    known, stats = asyncio.run(run(1.0, 200))
    assert known == ["score"] * 40
    assert stats.budget_spent_usd == pytest.approx(before.budget_spent_usd + 40 * BILLED_USD)
    assert (tmp_path / "spend.db").is_file()


KILLED = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from zerowait.cache import SqliteLedger

    async def main():
        ledger = SqliteLedger(Path(sys.argv[1]), name="run", limit=10_000)
        for number in range(50):
            assert await ledger.reserve(10)
            print("sent", flush=True)
        ledger.settle(10, 3)
        await ledger.reserve(0)
        print("settled", flush=True)
        await asyncio.sleep(60)

    asyncio.run(main())
    """
)


def test_a_killed_process_has_spent_what_it_had_reserved(tmp_path):
    path = tmp_path / "spend.db"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    lines = [process.stdout.readline() for _ in range(51)]
    assert lines[-1] == "settled\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()

    async def look():
        ledger = SqliteLedger(path, name="run", limit=500)
        account = ledger.account
        granted = await ledger.reserve(8), await ledger.reserve(7)
        await ledger.aclose()
        return account, granted

    account, granted = asyncio.run(look())
    assert account == (500, 3, 490)
    assert granted == (False, True)
