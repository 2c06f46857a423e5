"""The hub's actor without Ray: its sessions, its errors, its end."""

import asyncio
import pickle

import pytest

from zerowait import ConfigError, Sample
from zerowait.errors import ClosedError
from zerowait.hub.ray.actor import HubActor
from zerowait.hub.rpc import encode_message
from zerowait.hub.tickets import Deposit, Redemption
from zerowait.types import Reward

RULE = "components: {answer: {scorer: qa_em}}\n"
ROW = Sample("Capital of France?", "<answer>Paris</answer>", "Paris")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(RULE)
    return str(path)


def message(payloads):
    return encode_message(payloads, [], dumps=pickle.dumps)


async def collected(actor, count, session="me"):
    """`count` results; on a busy machine one call may return none of them yet."""
    results = []
    while len(results) < count:
        results += await actor.collect(session)
    return results


def test_a_session_submits_and_collects(config):
    async def scenario():
        actor = HubActor(config, None)
        await actor.open_session(config, "me")
        assert await actor.submit("me", message([(5, ROW)]))
        [(number, streamed)] = await collected(actor, 1)
        settled = (await actor.stats()).settled
        await actor.close_session("me")
        await actor.aclose(0.0)
        return number, streamed.value, settled

    assert asyncio.run(scenario()) == (5, 1.0, 1)


def test_every_caller_gets_the_error_in_the_configuration(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorrer: qa_em}}\n")

    async def scenario():
        actor = HubActor(str(path), None)
        for call in (actor.ready(str(path)), actor.open_session(str(path), "me"), actor.stats()):
            with pytest.raises(ConfigError, match=r"reward.yaml:1.*scorer") as caught:
                await call
            travelled = pickle.loads(pickle.dumps(caught.value))
            assert str(travelled) == str(caught.value)

    asyncio.run(scenario())


def test_a_corrected_configuration_is_read_by_the_next_call(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {}\n")

    async def scenario():
        actor = HubActor(str(path), None)
        with pytest.raises(ConfigError):
            await actor.ready(str(path))
        path.write_text(RULE)
        await actor.ready(str(path))
        await actor.aclose(0.0)

    asyncio.run(scenario())


def test_a_handle_with_another_configuration_is_refused(config):
    async def scenario():
        actor = HubActor(config, None)
        with pytest.raises(ConfigError, match=r"not by /other.yaml: give the second hub a name"):
            await actor.ready("/other.yaml")

    asyncio.run(scenario())


@pytest.mark.parametrize("kept", [None, "/runs/1"])
def test_a_handle_that_expects_another_record_is_told_that_it_would_stay_empty(config, kept):
    async def scenario():
        actor = HubActor(config, kept)
        with pytest.raises(ConfigError, match=f"in {kept or 'no folder'}, .* nothing to /runs/2"):
            await actor.ready(config, None, "/runs/2")

    asyncio.run(scenario())


def test_a_handle_with_the_same_record_or_none_is_let_in(config, tmp_path):
    async def scenario():
        actor = HubActor(config, str(tmp_path / "run"))
        assert await actor.ready(config) == 1
        assert await actor.ready(config, None, str(tmp_path / "run")) == 1
        await actor.aclose(0.0)

    asyncio.run(scenario())


def test_a_closed_hub_stays_closed(config):
    async def scenario():
        actor = HubActor(config, None)
        await actor.ready(config)
        await actor.aclose(0.0)
        await actor.aclose(0.0)
        with pytest.raises(ClosedError):
            await actor.open_session(config, "me")

    asyncio.run(scenario())


def test_the_last_counts_are_on_the_record_when_it_closes(config, tmp_path):
    record = tmp_path / "run"

    async def scenario():
        actor = HubActor(config, str(record))
        await actor.open_session(config, "me")
        await actor.submit("me", message((n, ROW) for n in range(3)))
        await collected(actor, 3)
        await actor.aclose(0.0)

    asyncio.run(scenario())
    last = (record / "stats.jsonl").read_bytes().splitlines()[-1]
    assert b'"settled":3' in last


def test_a_caller_with_another_number_of_shards_gets_an_error(config):
    async def scenario():
        actor = HubActor(config, None)
        assert await actor.ready(config) == 1
        with pytest.raises(ConfigError, match=r"hub.shards was 1 .* and is 4 now"):
            await actor.open_session(config, "me", 4)
        await actor.aclose(0.0)

    asyncio.run(scenario())


def test_a_session_gets_rows_rewarded_and_redeems_the_deposit_of_another(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorer: qa_em}}")
    row = Sample("q", "<answer>Rome</answer>", "Rome", id="1")

    async def worked(actor, session, items):
        await actor.open_session(str(path), session)
        await actor.submit(session, message(enumerate(items)))
        results = await collected(actor, len(items), session)
        return [result for _, result in sorted(results)]

    async def scenario():
        actor = HubActor(str(path), None)
        (deposited,) = await worked(actor, "worker", [Deposit(row)])
        streamed, reward = await worked(actor, "trainer", [row, Redemption(row)])
        await actor.aclose(0)
        return deposited, streamed, reward

    deposited, streamed, reward = asyncio.run(scenario())
    assert deposited is None
    assert streamed.value == reward.value == 1.0
    assert isinstance(reward, Reward)
