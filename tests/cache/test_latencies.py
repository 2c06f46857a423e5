import stat

import pytest

from zerowait.cache import LatencyFile, Shard, latency_file
from zerowait.client import EndpointStates
from zerowait.client.hedging import KNOWN_AT_LEAST, HedgeRule
from zerowait.config import Endpoint, Traffic
from zerowait.config.schema import Cache

NAME = "http://judge/v1/chat/completions m"


def test_latencies_come_back_as_they_were_kept(tmp_path):
    file = LatencyFile(tmp_path / "a.latencies.json")
    file.save({NAME: [0.1, 0.2]})
    file.save({"other": [1.0]})
    assert file.load() == {NAME: [0.1, 0.2], "other": [1.0]}
    assert stat.S_IMODE((tmp_path / "a.latencies.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.latencies.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"latencies_s": {"a": ["x"]}}', b'{"latencies_s": {"a": [-1.0]}}'],
)
def test_a_damaged_file_is_none(tmp_path, content):
    path = tmp_path / "a.latencies.json"
    path.write_bytes(content)
    assert LatencyFile(path).load() == {}


def test_a_file_that_cannot_be_written_is_left(tmp_path):
    LatencyFile(tmp_path / "missing" / "a.latencies.json").save({NAME: [1.0]})


@pytest.mark.parametrize("cache", [Cache(path=None), Cache(url="redis://host/0")])
def test_without_a_file_of_its_own_a_cache_keeps_none(cache):
    assert latency_file(cache, Shard()) is None


def test_the_shards_of_a_hub_begin_with_what_any_of_them_knew(tmp_path):
    cache = Cache(path=str(tmp_path / "judgements.db"))
    (tmp_path / "judgements-0-of-4.db").touch()
    latency_file(cache, Shard(0, 4)).save({NAME: [0.5]})
    assert latency_file(cache, Shard(3, 4)).load() == {NAME: [0.5]}
    assert latency_file(cache, Shard()).load() == {NAME: [0.5]}


def test_a_summary_makes_the_next_process_hedge_from_its_first_request():
    before, after = HedgeRule(), HedgeRule()
    for hundredth in range(1000):
        before.observe(hundredth / 100)
    assert after.after_s(0) is None
    after.recall(before.latencies_s)
    assert len(before.latencies_s) >= KNOWN_AT_LEAST
    assert after.after_s(0) == pytest.approx(before.after_s(0), rel=0.02)


def test_lanes_that_are_made_later_recall_what_is_known_of_their_endpoint():
    endpoint_states = EndpointStates(Traffic())
    endpoint_states.recall({NAME: [1.0] * 128})
    endpoint_states.of(Endpoint(base_url="http://judge/v1", model="m"))
    endpoint_states.of(Endpoint(base_url="http://judge/v1", model="other"))
    assert endpoint_states.latencies_s() == {NAME: [1.0] * 128}
