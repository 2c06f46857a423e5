"""The engine over a judge that is scripted on the wire, on a clock that jumps."""

import asyncio
import math
import re
from collections import deque
from fractions import Fraction

import msgspec
import numpy as np
import pytest

import zerowait
from zerowait import Abstain, ConfigError, DataError, Engine, JudgementError, Sample, Score, Skipped
from zerowait.cache import open_store
from zerowait.client import Reply
from zerowait.config import Cache
from zerowait.engine.monitor.prometheus import exposition
from zerowait.errors import ClosedError
from zerowait.events import JudgementSettled, RewardSettled
from zerowait.testing import virtually

JUDGE = {
    "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
    "verdict": {"integer": [1, 10]},
}


def config(**parts):
    base = {"components": {"quality": {"judge": "q"}}, "judges": {"q": JUDGE}, "cache": "off"}
    return base | parts


class Wire:
    """Replies with `script(body)`: (seconds, status, content), once it may."""

    def __init__(self, script, time_factor=1):
        self.script = script
        self.time_factor = time_factor
        self.bodies = []
        self.in_flight = self.peak = 0
        self.closed = False
        self.busy = asyncio.Event()
        self.may_reply = asyncio.Event()
        self.may_reply.set()

    async def send(self, request, *, timeout_s):
        self.bodies.append(request.body)
        if len(self.bodies) == 2:
            self.busy.set()
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            after_s, status, content = self.script(request.body.decode())
            await asyncio.sleep(after_s * self.time_factor)
            await self.may_reply.wait()
        finally:
            self.in_flight -= 1
        body = b'{"choices": [{"message": {"content": "%s"}}]}' % content.encode()
        return Reply(status, {}, body)

    async def aclose(self):
        self.closed = True


def seven(_body):
    return 1, 200, "Score: 7"


def scored(settings, samples, script=seven, **options):
    """Rewards, stats, elapsed seconds, and the wire.

    With a cache it runs in real time, a hundred times faster: the cache works in a thread.
    """
    cached = settings.get("cache", "off") != "off"
    wire = Wire(script, time_factor=0.01 if cached else 1)

    async def scenario():
        async with Engine(settings, transport=wire, **options) as engine:
            return await engine.score_all(samples), engine.stats()

    if cached:
        return *asyncio.run(scenario()), None, wire
    (rewards, stats), elapsed_s = virtually(scenario())
    return rewards, stats, elapsed_s, wire


def rows(count, **fields):
    return [Sample("q", f"answer {i}", **fields) for i in range(count)]


def test_rewards_come_in_the_order_of_the_samples():
    def slower_first(body):
        return (3 if "answer 0" in body else 1), 200, f"Score: {1 + ('answer 1' in body)}"

    rewards, *_ = scored(config(), rows(3), slower_first)
    assert [reward.value for reward in rewards] == [1, 2, 1]


def test_many_slow_judgements_take_as_long_as_the_slowest_and_not_their_sum():
    _, _, elapsed_s, _ = scored(config(traffic={"concurrency": 64}), rows(64))
    assert elapsed_s == pytest.approx(1)


def test_without_a_limit_of_ones_own_the_engine_finds_one_and_says_it():
    _, stats, _, wire = scored(config(), rows(64))
    assert 32 <= stats.peak_in_flight <= 48
    assert len(wire.bodies) == 64
    assert stats.limits == {"http://judge/v1/chat/completions m": stats.limit}
    assert stats.limit > 32


def test_a_model_that_turns_many_away_costs_another_one_at_the_same_url_no_slot():
    judges = {
        name: JUDGE | {"endpoints": [{"base_url": "http://judge/v1", "model": name}]}
        for name in ("busy", "calm")
    }
    taken = deque()

    def script(body):
        """Judge in a second; of `busy` at most eight at a time, and turn the others away."""
        if "busy" not in body:
            return 1, 200, "Score: 7"
        now_s = asyncio.get_running_loop().time()
        while taken and taken[0] <= now_s - 1:
            taken.popleft()
        if len(taken) == 8:
            return 0.1, 429, ""
        taken.append(now_s)
        return 1, 200, "Score: 7"

    components = {name: {"judge": name} for name in judges}
    settings = config(judges=judges, components=components, traffic={"attempts": 100})
    _, stats, _, _ = scored(settings, rows(300), script)
    url = "http://judge/v1/chat/completions"
    assert stats.limits[f"{url} busy"] < 32 <= stats.limits[f"{url} calm"]


def test_the_concurrency_limit_is_kept():
    _, stats, elapsed_s, wire = scored(config(traffic={"concurrency": 4}), rows(16))
    assert wire.peak == stats.peak_in_flight == 4
    assert elapsed_s == pytest.approx(4)


def test_identical_requests_in_flight_are_asked_once():
    rewards, stats, _, wire = scored(config(), [Sample("q", "same")] * 50)
    assert len(wire.bodies) == 1
    assert {reward.value for reward in rewards} == {7}
    assert (stats.asked, stats.joined) == (1, 49)


def test_answered_requests_are_not_asked_again_even_by_another_engine(tmp_path):
    settings = config(cache={"path": str(tmp_path / "j.db")})
    scored(settings, rows(8))
    _, stats, _, wire = scored(settings, rows(8))
    assert wire.bodies == []
    assert stats.cached == 8


@pytest.mark.parametrize(
    "change",
    [
        {"endpoints": [{"base_url": "http://judge/v1", "model": "other"}]},
        {"max_tokens": 7},
        {"temperature": 0.5},
        {"rubric": "tool_reasoning"},
    ],
)
def test_the_cache_never_answers_for_another_model_parameter_or_rubric(tmp_path, change):
    cache = {"cache": {"path": str(tmp_path / "j.db")}}
    scored(config(**cache), rows(1))
    *_, wire = scored(config(judges={"q": JUDGE | change}, **cache), rows(1))
    assert len(wire.bodies) == 1


def test_a_failure_is_never_remembered_as_a_verdict(tmp_path):
    settings = config(cache={"path": str(tmp_path / "j.db")})
    rewards, *_ = scored(settings, rows(1), lambda _body: (0, 200, "no idea"))
    assert rewards[0].value is None
    rewards, *_ = scored(settings, rows(1))
    assert rewards[0].value == 7


def test_a_kept_reply_is_read_anew_and_asked_for_again_when_it_cannot_be_read(tmp_path):
    """The raw reply is the record; the verdict is what today's parser makes of it."""
    path = tmp_path / "j.db"
    events = []
    scored(config(cache={"path": str(path)}), rows(1), listener=events.append)
    (key,) = {e.key for e in events if isinstance(e, JudgementSettled)}

    async def damage():
        store = await open_store(Cache(path=str(path)))
        entry = await store.get(key)
        await store.put(key, msgspec.structs.replace(entry, reply=b"{}"))
        await store.aclose()

    asyncio.run(damage())
    rewards, _, _, wire = scored(config(cache={"path": str(path)}), rows(1))
    assert len(wire.bodies) == 1
    assert rewards[0].value == 7


def test_a_truncated_verdict_is_asked_for_once_more_with_twice_the_tokens():
    def thinks_long(body):
        return 0, 200, "Score: 8" if '"max_tokens":2048' in body else ""

    wire = Wire(thinks_long)
    original = wire.send

    async def send(request, *, timeout_s):
        reply = await original(request, timeout_s=timeout_s)
        if b'"max_tokens":1024' in request.body:
            body = b'{"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}'
            return Reply(200, {}, body)
        return reply

    wire.send = send

    async def scenario():
        async with Engine(config(), transport=wire) as engine:
            return await engine.score(rows(1)[0])

    reward, _ = virtually(scenario())
    assert reward.value == 8
    assert len(wire.bodies) == 2


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("15", "out_of_range"),
        ("Score: 15", "out_of_range"),
        ("", "http_error"),  # no ending is told either: it was never finished
        ("fine", "unparseable"),
    ],
)
def test_what_the_judge_did_not_say_is_an_abstention_and_never_a_number(content, kind):
    rewards, stats, *_ = scored(config(), rows(1), lambda _body: (0, 200, content))
    assert rewards[0].value is None
    assert rewards[0].components["quality"].kind == kind
    assert stats.abstentions == {kind: 1}


def test_a_closed_gate_skips_and_asks_nobody():
    settings = config(
        components={
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q", "gate": "answer > 0"},
        }
    )
    samples = [Sample("q", "Paris", "Paris"), Sample("q", "Rome", "Paris")]
    rewards, _, _, wire = scored(settings, samples)
    assert [reward.value for reward in rewards] == [8, 0]
    assert isinstance(rewards[1].components["quality"], Skipped)
    assert len(wire.bodies) == 1


def test_an_abstaining_gate_abstains_the_sample_and_asks_nobody():
    settings = config(
        components={
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q", "gate": "answer > 0"},
        }
    )
    rewards, _, _, wire = scored(settings, [Sample("q", "Paris", None)])
    assert rewards[0].value is None
    assert isinstance(rewards[0].components["quality"], Abstain)
    assert wire.bodies == []


def test_a_component_is_skipped_for_other_data_sources():
    settings = config(components={"quality": {"judge": "q", "sources": ["math"]}})
    samples = [Sample("q", "a", data_source="math"), Sample("q", "b", data_source="chat")]
    rewards, *_ = scored(settings, samples)
    assert [reward.value for reward in rewards] == [7, None]


def test_a_normalised_verdict_is_mapped_to_nought_to_one():
    settings = config(components={"quality": {"judge": "q", "normalize": True}})
    rewards, *_ = scored(settings, rows(1))
    assert rewards[0].value == pytest.approx(6 / 9)


def test_two_judges_of_one_sample_are_asked_at_once():
    settings = config(
        components={"a": {"judge": "a"}, "b": {"judge": "b"}},
        judges={"a": JUDGE, "b": JUDGE | {"max_tokens": 9}},
    )
    rewards, _, elapsed_s, _ = scored(settings, rows(1))
    assert rewards[0].value == 14
    assert elapsed_s == pytest.approx(1)


def test_the_median_band_sees_the_whole_group_and_charges_the_outlier():
    settings = {
        "components": {
            "answer": {"scorer": "contains"},
            "length": {"shape": "median_band", "scale": 0.5},
        },
        "cache": "off",
    }
    lengths = [100, 100, 100, 300]
    samples = [Sample("q", "Paris", "Paris", group="g", response_tokens=n) for n in lengths]
    rewards, *_ = scored(settings, samples)
    assert [reward.value for reward in rewards] == [1, 1, 1, 0.5]


def test_groups_are_shaped_apart_even_when_their_rows_are_mixed():
    settings = {"components": {"length": {"shape": "median_band"}}, "cache": "off"}
    samples = [
        Sample("q", "x", group=str(i % 2), response_tokens=100 if i % 2 else 900) for i in range(8)
    ]
    rewards, *_ = scored(settings, samples)
    assert [reward.value for reward in rewards] == [0] * 8


def test_an_abstained_siblings_length_still_counts_in_the_median():
    settings = config(components={"quality": {"judge": "q"}, "length": {"shape": "median_band"}})
    samples = [
        Sample("q", f"answer {i}", group="g", response_tokens=n)
        for i, n in enumerate([100, 100, 10])
    ]
    rewards, *_ = scored(
        settings, samples, lambda body: (1, 400 if "answer 0" in body else 200, "Score: 7")
    )
    assert [reward.value for reward in rewards] == [None, 7, 6]


def test_a_shape_without_lengths_or_groups_is_a_clear_error_before_any_work():
    settings = config(components={"quality": {"judge": "q"}, "length": {"shape": "median_band"}})
    wire = Wire(seven)

    async def scenario(sample):
        async with Engine(settings, transport=wire) as engine:
            await engine.score_all([sample])

    with pytest.raises(DataError, match=r"no response_tokens, which the shape 'length' needs"):
        virtually(scenario(Sample("q", "a", group="g")))
    with pytest.raises(DataError, match="has no group"):
        virtually(scenario(Sample("q", "a", response_tokens=3)))
    assert wire.bodies == []


def test_a_tokenizer_counts_where_the_sample_does_not_say():
    class Words:
        def encode(self, text):
            return text.split()

    settings = {"components": {"length": {"shape": "median_band"}}, "cache": "off"}
    samples = [Sample("q", "one two three", group="g"), Sample("q", "one", group="g")]
    rewards, *_ = scored(settings, samples, tokenizer=Words())
    assert [outcome.components["length"].detail["response_length"] for outcome in rewards] == [3, 1]


def test_a_tokenizer_that_raises_costs_the_shape_and_not_the_batch():
    class Broken:
        def encode(self, text):
            raise OverflowError("too long")

    settings = {"components": {"length": {"shape": "median_band"}}, "cache": "off"}
    rewards, *_ = scored(settings, rows(2, group="g"), tokenizer=Broken())
    for reward in rewards:
        assert reward.components["length"].kind == "crashed"
        assert "OverflowError: too long" in reward.components["length"].detail


def test_a_response_that_no_rule_is_for_is_not_shaped_as_a_wrong_one():
    components = {
        "answer": {"scorer": "contains", "sources": ["qa"]},
        "length": {"shape": "cosine", "limit": 100},
    }
    settings = {"components": components, "cache": "off"}
    pair = [
        Sample("q", "yes", "yes", data_source=name, group=name, response_tokens=50)
        for name in ("qa", "chat")
    ]
    rewards, *_ = scored(settings, pair)
    assert rewards[0].components["length"].value == 1.5
    assert isinstance(rewards[1].components["length"], Abstain)


def test_raise_ends_the_batch_with_the_failure_itself():
    with pytest.raises(JudgementError, match="on_failure says raise"):
        scored(config(on_failure="raise"), rows(4), lambda _body: (0, 400, "x"))


def test_a_cancelled_caller_does_not_take_the_answer_from_another():
    wire = Wire(seven)

    async def scenario():
        async with Engine(config(), transport=wire) as engine:
            first = asyncio.create_task(engine.score(Sample("q", "same")))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(engine.score(Sample("q", "same")))
            await asyncio.sleep(0.1)
            first.cancel()
            return await second

    reward, _ = virtually(scenario())
    assert reward.value == 7
    assert len(wire.bodies) == 1


def test_what_ends_without_a_reward_is_counted_so_that_the_counts_add_up():
    """A caller that stops waiting, a batch that is cancelled, an exception by the policy."""
    wire = Wire(seven)

    async def cancelled():
        async with Engine(config(), transport=wire) as engine:
            one = asyncio.create_task(engine.score(Sample("q", "one")))
            batch = asyncio.create_task(engine.score_all(rows(4)))
            await asyncio.sleep(0.1)
            one.cancel()
            batch.cancel()
            await asyncio.wait({one, batch})
            await engine.score(Sample("q", "another"))
            return engine.stats()

    async def raised():
        refusing = Wire(lambda _body: (0, 400, "x"))
        async with Engine(config(on_failure="raise"), transport=refusing) as engine:
            with pytest.raises(JudgementError):
                await engine.score_all(rows(4))
            return engine.stats()

    for stats, settled in ((virtually(cancelled())[0], 1), (virtually(raised())[0], 0)):
        assert (stats.settled, stats.settled + stats.given_up) == (settled, stats.submitted)
        metrics = exposition(stats)
        assert f"zerowait_given_up_total {float(stats.submitted - settled)}\n" in metrics


def test_closing_with_a_drain_lets_paid_answers_reach_the_cache(tmp_path):
    settings = config(cache={"path": str(tmp_path / "j.db")}, traffic={"concurrency": 2})
    wire = Wire(seven, time_factor=0)

    async def interrupted():
        wire.may_reply.clear()
        engine = Engine(settings, transport=wire)
        await engine.__aenter__()
        batch = asyncio.create_task(engine.score_all(rows(6)))
        await wire.busy.wait()
        batch.cancel()
        await asyncio.wait({batch})
        asyncio.get_running_loop().call_soon(wire.may_reply.set)  # when it is closing
        await engine.aclose(drain_s=60)

    asyncio.run(interrupted())
    assert len(wire.bodies) == 2
    _, stats, _, again = scored(settings, rows(6))
    assert len(again.bodies) == 4
    assert stats.cached == 2


def test_closing_closes_the_transport_and_refuses_more_work():
    wire = Wire(seven)

    async def scenario():
        async with Engine(config(), transport=wire) as engine:
            pass
        await engine.aclose()
        with pytest.raises(ClosedError):
            await engine.score(rows(1)[0])

    virtually(scenario())
    assert wire.closed


def test_every_reward_and_every_judgement_is_told():
    events = []
    scored(config(), [Sample("q", "same")] * 3, listener=events.append)
    sources = sorted(e.source for e in events if isinstance(e, JudgementSettled))
    assert sources == ["asked", "joined", "joined"]
    assert sum(isinstance(e, RewardSettled) for e in events) == 3


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"components": {"quality": {"judge": "nobody"}}}, "components.quality.judge names 'nobody'; judges: q"),
        ({"components": {"a": {"scorer": "qa_emm"}, "quality": {"judge": "q"}}}, "there is no scorer 'qa_emm'; did you mean 'qa_em'"),
        ({"components": {"a": {"scorer": "gsm8k", "metod": "strict"}, "quality": {"judge": "q"}}}, "no option 'metod'; did you mean 'method'"),
        ({"components": {"quality": {"judge": "q", "gate": "answr > 0"}}}, "components.quality.gate names 'answr'"),
        ({"components": {"a": {"shape": "median_band"}, "quality": {"judge": "q", "gate": "a > 0"}}}, "gates see per-sample components only"),
        ({"components": {"a": {"judge": "q", "gate": "b > 0"}, "b": {"judge": "q", "gate": "a > 0"}}}, "the gates form a cycle"),
        ({"components": {"a": {"shape": "kimi"}, "quality": {"judge": "q"}}}, "kimi needs the rules' scores, and no rule has a weight other than 0"),
        ({"components": {"a": {"shape": "median_bandd"}, "quality": {"judge": "q"}}}, "did you mean 'median_band'"),
        ({"components": {"a": {"shape": "median_band", "outer_ratio": 0.1}, "quality": {"judge": "q"}}}, "outer_ratio"),
        ({"components": {"a": {"scorer": "qa_em"}}}, "judges.q is used by no component"),
        ({"judges": {"q": JUDGE | {"rubric": "qualitty"}}}, "did you mean 'quality'"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_run_is_refused_before_any_work(parts, says):
    with pytest.raises(ConfigError) as caught:
        Engine(config(**parts))
    assert says in str(caught.value)


def test_a_missing_api_key_names_its_variable():
    endpoint = JUDGE["endpoints"][0] | {"api_key_env": "JUDGE_KEY"}
    settings = config(judges={"q": JUDGE | {"endpoints": [endpoint]}})
    with pytest.raises(ConfigError, match="variable JUDGE_KEY, which is not set"):
        Engine(settings, environ={})
    Engine(settings, environ={"JUDGE_KEY": "sk"})


def test_the_synchronous_face_returns_a_future_at_once_and_scores_in_order():
    settings = {"components": {"answer": {"scorer": "contains"}}}
    with zerowait.open(settings) as rewards:
        future = rewards.submit(Sample("q", "Paris", "Paris"))
        batch = rewards.score([Sample("q", "Paris", "Paris"), Sample("q", "Rome", "Paris")])
        assert future.result(60).value == 1
        assert [reward.value for reward in batch] == [1, 0]
        assert rewards.stats().settled == 3
    with pytest.raises(ClosedError):
        rewards.submit(Sample("q", "a", "b"))
    assert isinstance(batch[0].components["answer"], Score)


def test_a_listener_that_raises_loses_no_reward(caplog):
    def listener(event):
        raise RuntimeError("mine")

    rewards, stats, _, _ = scored(config(), rows(3), listener=listener)
    assert [reward.value for reward in rewards] == [7, 7, 7]
    assert stats.submitted == 3
    assert "the listener raised on RewardSettled" in caplog.text


def test_a_row_that_is_no_sample_is_named_before_anybody_is_asked():
    with pytest.raises(DataError, match="row 1 is a dict, not a Sample"):
        scored(config(), [*rows(1), {"prompt": "q", "response": "a"}])


def test_a_sample_that_no_judge_can_be_asked_about_abstains_alone():
    class Odd:
        def get(self, *_):
            raise KeyError("role")

    samples = [Sample("q", "a"), Sample([Odd()], "b")]
    rewards, _, _, _ = scored(config(), samples)
    assert rewards[0].value == 7
    assert rewards[1].components["quality"].kind == "bad_input"


def test_an_engine_is_opened_once():
    async def scenario():
        async with Engine(config(), transport=Wire(seven)) as engine:
            with pytest.raises(ClosedError, match="opened once"):
                await engine.__aenter__()
            again = await engine.score(rows(1)[0])
        with pytest.raises(ClosedError, match="opened once"):
            await engine.__aenter__()
        return again.value

    assert virtually(scenario())[0] == 7


def test_a_number_that_no_float_holds_is_out_of_range_and_harms_no_sibling(tmp_path):
    (tmp_path / "s.json").write_text(
        '{"type": "object", "required": ["reason", "score"], "properties": {"reason": {"type": '
        '"string"}, "score": {"type": "number", "multipleOf": 0.5}}}'
    )
    judge = JUDGE | {"verdict": {"schema": str(tmp_path / "s.json"), "value": "/score"}}
    huge, fine = ('{\\"reason\\": \\"x\\", \\"score\\": %s}' % n for n in ("1e400", "2"))  # noqa: UP031

    def script(body):
        return 1, 200, huge if "answer 0" in body else fine

    rewards, _, _, _ = scored(config(judges={"q": judge}), rows(3), script)
    assert rewards[0].components["quality"].kind == "out_of_range"
    assert [reward.value for reward in rewards[1:]] == [2.0, 2.0]


def test_what_is_not_known_by_the_deadline_of_a_batch_abstains_and_its_policy_decides():
    """One judge hangs for one of two; the rule of both and the other's verdict are known."""

    def script(body):
        return (1e4 if "answer 0" in body else 1), 200, "Score: 7"

    settings = config(
        components={
            "rule": {"scorer": "contains"},
            "quality": {"judge": "q", "weight": 0.1, "gate": "rule > 0"},
        },
        traffic={"timeout_s": 2e4, "deadline_s": 2e4, "hedge": "off"},
        on_failure={"timeout": {"value": 2}},
    )

    async def scenario():
        async with Engine(settings, transport=Wire(script)) as engine:
            return await engine.score_all(rows(2, ground_truth="answer"), deadline_s=300)

    (late, early), elapsed_s = virtually(scenario())
    assert elapsed_s < 301
    assert late.components["rule"].value == early.components["rule"].value == 1
    assert late.components["quality"] == Abstain("timeout", "not known 300 s after the batch began")
    assert (late.value, early.value) == (pytest.approx(1.2), pytest.approx(1.7))


WRONG_DEADLINES = [math.nan, math.inf, -math.inf, -1, 0, 0.0, "300", b"3", True, False, [300], 3j]


@pytest.mark.parametrize("deadline_s", WRONG_DEADLINES)
def test_a_deadline_that_is_no_number_of_seconds_is_an_error_at_the_call(deadline_s):
    """NaN and infinity would wait for ever, True for a second, and what is over scores nothing."""
    asked = []

    def script(body):
        asked.append(body)
        return 1, 200, "Score: 7"

    async def scenario():
        async with Engine(config(), transport=Wire(script)) as engine:
            with pytest.raises(ConfigError, match=f"deadline_s .* {re.escape(repr(deadline_s))}"):
                await engine.score_all(rows(2), deadline_s=deadline_s)

    virtually(scenario())
    assert asked == []


@pytest.mark.parametrize("deadline_s", [300, 300.5, np.float32(300), np.int64(300), Fraction(300)])
def test_any_number_of_seconds_is_a_deadline(deadline_s):
    def script(_):
        return 1, 200, "Score: 7"

    async def scenario():
        async with Engine(config(), transport=Wire(script)) as engine:
            return await engine.score_all(rows(2), deadline_s=deadline_s)

    found, _ = virtually(scenario())
    assert [reward.value is None for reward in found] == [False, False]
