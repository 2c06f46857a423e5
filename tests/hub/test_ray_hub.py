"""One hub for all Ray workers of a job: real Ray, real processes, real kills."""

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
import weakref
from contextlib import contextmanager, suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

ray = pytest.importorskip("ray")

from zerowait import Sample  # noqa: E402 - Ray is optional
from zerowait.errors import ClosedError, HubLostError, ZerowaitError  # noqa: E402
from zerowait.hub.ray import RayHub  # noqa: E402
from zerowait.testing import FakeJudge, Latency, Script  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LONG_S = 300


@pytest.fixture(scope="module", autouse=True)
def cluster(under_ray):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with under_ray():
        yield


def settings(tmp_path, judge, *, concurrency=32, name="reward"):
    path = tmp_path / f"{name}.yaml"
    path.write_text(
        f"""
components: {{quality: {{judge: q}}}}
judges:
  q:
    endpoints: [{{base_url: "{judge.url}", model: m}}]
    verdict: {{integer: [1, 10]}}
traffic: {{concurrency: {concurrency}, hedge: "off"}}
cache: {{path: {tmp_path / name}.db}}
"""
    )
    return str(path)


def fake(latency_s=0.0, *, hold=None):
    return FakeJudge(Script(latency=Latency(latency_s)), hold=hold)


async def rewards(hub, numbers):
    async with asyncio.TaskGroup() as tasks:
        rows = [tasks.create_task(hub.reward(Sample("q", f"answer {n}"))) for n in numbers]
    return [row.result().value for row in rows]


@ray.remote(num_cpus=0)
class Worker:
    """A process of the job."""

    def pid(self):
        return os.getpid()

    def ask(self, config, name, numbers):
        """The rewards of its rows."""
        return asyncio.run(rewards(RayHub(config, record=None, name=name), numbers))

    def complaint(self, config, name):
        """The error that it gets, as its type and its words."""
        try:
            asyncio.run(RayHub(config, record=None, name=name).reward(Sample("q", "a")))
        except ZerowaitError as error:
            return type(error).__name__, str(error)
        return "none", ""


@pytest.fixture(scope="module")
def workers(cluster):
    """Eight processes; a test that kills one takes it out."""
    some = [Worker.remote() for _ in range(8)]
    ray.get([one.pid.remote() for one in some], timeout=LONG_S)
    return some


def until(true):
    give_up = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < give_up, "what the test waits for does not come"
        time.sleep(0.01)


def pid_of(hub):
    return ray.get(hub._first._actor.__ray_call__.remote(lambda _: os.getpid()), timeout=LONG_S)


def waiting(config, name):
    """How many judgements the hub has not begun."""
    return asyncio.run(RayHub(config, record=None, name=name).stats()).waiting


def committed(config):
    with sqlite3.connect(config.replace(".yaml", ".db")) as database:
        return database.execute("SELECT count(*) FROM replies").fetchone()[0]


@contextmanager
def hub_named(name, config, **options):
    """A handle of this process; the hub is ended afterwards."""
    hub = RayHub(config, record=None, name=name, **options)
    try:
        yield hub
    finally:
        with suppress(ValueError):
            ray.kill(ray.get_actor(name, namespace=options.get("namespace")))


def test_eight_processes_share_one_limit_and_ask_each_thing_once(tmp_path, workers):
    # every row is asked for by two of the eight
    rows = [[(w * 30 + n) % 240 for n in range(60)] for w in range(8)]
    with fake(0.1) as judge:
        config = settings(tmp_path, judge)
        with hub_named("eight", config):
            work = [one.ask.remote(config, "eight", rows[w]) for w, one in enumerate(workers)]
            done = ray.get(work, timeout=LONG_S)
        assert len(set(ray.get([one.pid.remote() for one in workers]))) == 8
        assert judge.seen.distinct_bodies == 240
        assert set(judge.seen.asked_per_body.values()) == {1}
        assert 1 < judge.seen.peak_in_flight <= 32
    values = {}
    for asked, numbers in zip(rows, done, strict=True):
        for row, value in zip(asked, numbers, strict=True):
            assert values.setdefault(row, value) == value


def test_a_killed_worker_holds_nothing_up(tmp_path, workers, gate):
    victim, other, held = workers.pop(), workers[0], gate(10)
    with fake(hold=held) as judge:
        config = settings(tmp_path, judge, concurrency=4)
        with hub_named("robust", config) as hub:
            asyncio.run(hub.ready())
            pid = ray.get(victim.pid.remote())
            lost = victim.ask.remote(config, "robust", range(100))
            until(lambda: (judge.seen.answered, judge.seen.in_flight) == (10, 4))
            os.kill(pid, signal.SIGKILL)
            held.open()
            values = ray.get(other.ask.remote(config, "robust", range(90, 130)), timeout=LONG_S)
            assert len(values) == 40
            with pytest.raises(ray.exceptions.RayActorError):
                ray.get(lost, timeout=LONG_S)
        assert judge.seen.peak_in_flight <= 4
        assert set(judge.seen.asked_per_body.values()) == {1}


def test_the_hub_survives_the_worker_that_created_it(tmp_path, workers, gate):
    creator, other, held = workers.pop(), workers[0], gate(10)
    with fake(hold=held) as judge:
        config = settings(tmp_path, judge, concurrency=4)
        pid = ray.get(creator.pid.remote())
        lost = creator.ask.remote(config, "orphan", range(100))
        until(lambda: (judge.seen.answered, judge.seen.in_flight) == (10, 4))
        rest = other.ask.remote(config, "orphan", range(100, 160))
        until(lambda: waiting(config, "orphan") == 160 - 10 - 4)
        os.kill(pid, signal.SIGKILL)
        held.open()
        assert len(ray.get(rest, timeout=LONG_S)) == 60
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(lost, timeout=LONG_S)


def test_a_killed_hub_comes_back_and_asks_only_for_what_was_not_committed(tmp_path, workers, gate):
    held = gate(60)
    with fake(hold=held) as judge:
        config = settings(tmp_path, judge, concurrency=16)
        with hub_named("phoenix", config) as hub:
            asyncio.run(hub.ready())
            pid = pid_of(hub)
            halves = [
                one.ask.remote(config, "phoenix", range(w * 100, w * 100 + 100))
                for w, one in enumerate(workers[:2])
            ]
            until(lambda: (committed(config), judge.seen.in_flight) == (60, 16))
            os.kill(pid, signal.SIGKILL)
            until(lambda: judge.seen.cancelled_by_client == 16)
            held.open()
            done = ray.get(halves, timeout=LONG_S)
            stats = asyncio.run(hub.stats())
            assert [len(values) for values in done] == [100, 100]
            assert stats.asked == 200 - 60
            assert judge.seen.requests == 60 + 16 + 140
            assert judge.seen.repeats == 0
        with hub_named("rerun", config) as hub:
            again = asyncio.run(rewards(hub, range(200)))
            assert asyncio.run(hub.stats()).asked == 0
        assert again == done[0] + done[1]


def test_two_hubs_with_two_names_have_two_limits(tmp_path, workers):
    with fake(0.1) as one, fake(0.1) as two:
        first = settings(tmp_path, one, concurrency=2, name="first")
        second = settings(tmp_path, two, concurrency=8, name="second")
        with hub_named("first", first), hub_named("second", second):
            work = [
                workers[0].ask.remote(first, "first", range(30)),
                workers[1].ask.remote(second, "second", range(30)),
            ]
            assert [len(values) for values in ray.get(work, timeout=LONG_S)] == [30, 30]
        assert one.seen.peak_in_flight <= 2 < two.seen.peak_in_flight <= 8


def test_two_jobs_share_a_detached_hub_by_its_namespace(tmp_path):
    job = f"""
import asyncio, ray
from zerowait import Sample
from zerowait.hub.ray import RayHub
ray.init(address="{ray.get_runtime_context().gcs_address}", log_to_driver=False)
async def main():
    hub = RayHub(CONFIG, record=None, name="common", namespace="judges", detached=True)
    async with asyncio.TaskGroup() as tasks:
        for n in range(20):
            tasks.create_task(hub.reward(Sample("q", f"answer {{n}}")))
asyncio.run(main())
ray.shutdown()
"""
    with fake(0.01) as judge:
        config = settings(tmp_path, judge)
        code = job.replace("CONFIG", repr(config))
        subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG_S)
        with hub_named("common", config, namespace="judges", detached=True) as hub:
            assert asyncio.run(hub.stats()).asked == 20
            asyncio.run(rewards(hub, range(25)))
            stats = asyncio.run(hub.stats())
            assert (stats.asked, stats.cached) == (25, 20)
            asyncio.run(hub.aclose())
            with pytest.raises(ClosedError, match="'common' is closed"):
                asyncio.run(hub.stats())
            asyncio.run(hub.aclose())
            with pytest.raises(ValueError, match="common"):
                ray.get_actor("common", namespace="judges")
        assert judge.seen.requests == 25


def test_what_is_wrong_with_the_configuration_reaches_every_worker(tmp_path, workers):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorer: qa_emm}}\n")
    told = ray.get(
        [one.complaint.remote(str(path), "wrong") for one in workers[:3]], timeout=LONG_S
    )
    assert {kind for kind, _ in told} == {"ConfigError"}
    assert all("reward.yaml:1" in text and "qa_em" in text for _, text in told)


def test_a_hub_that_answers_no_more_is_an_error_in_bounded_time(tmp_path):
    with fake(0.01) as judge:
        config = settings(tmp_path, judge)
        with hub_named("frozen", config) as patient:
            asyncio.run(patient.ready())
            hub = RayHub(config, record=None, name="frozen", patience_s=1.0)
            pid = pid_of(hub)
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(HubLostError, match="'frozen' did not answer for 1 s"):
                    asyncio.run(asyncio.wait_for(hub.reward(Sample("q", "a")), LONG_S))
            finally:
                os.kill(pid, signal.SIGCONT)
            until(lambda: hears(hub))


def hears(hub):
    """A second may be too short for a hub that has just been stopped."""
    with suppress(HubLostError):
        return asyncio.run(hub.reward(Sample("q", "answer 1")))
    return None


def test_cancelling_a_caller_cancels_its_call_in_the_hub(tmp_path, gate):
    with fake(hold=gate()) as judge:
        config = settings(tmp_path, judge, concurrency=1)
        with hub_named("patient", config) as hub:

            async def scenario():
                await hub.ready()
                calls = [asyncio.create_task(rewards(hub, [n])) for n in range(3)]
                while judge.seen.in_flight < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
                while (await hub.stats()).waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

            asyncio.run(asyncio.wait_for(scenario(), LONG_S))
        assert judge.seen.requests == 1


def test_rows_go_by_calls_where_no_connection_to_the_hub_can_be_made(tmp_path, monkeypatch):
    async def no_route(*_):
        raise OSError("no route to host")

    with fake() as judge:
        config = settings(tmp_path, judge)
        with hub_named("behind", config) as hub:
            monkeypatch.setattr(asyncio, "open_connection", no_route)
            assert None not in asyncio.run(rewards(hub, range(20)))
        assert judge.seen.distinct_bodies == 20


def test_a_closed_loop_is_forgotten(tmp_path):
    loops = []

    async def scenario(hub):
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await rewards(hub, range(3))

    with fake() as judge, hub_named("often", settings(tmp_path, judge)) as hub:
        asyncio.run(hub.ready())
        for _ in range(4):
            asyncio.run(scenario(hub))
        gc.collect()
        left = [loop for loop in loops[:-1] if loop() is not None]
    assert left == []


def test_the_hubs_metrics_are_in_rays_own_metrics_agent(tmp_path):
    """Under the names of /metrics, with Ray's prefix: an existing dashboard of Ray's finds them."""
    with fake() as judge:
        hub = RayHub(settings(tmp_path, judge, name="scraped"), record=None, name="scraped")
        asyncio.run(rewards(hub, range(4)))
        node = ray.nodes()[0]
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        until_s = time.monotonic() + LONG_S
        values = {}
        while values.get("ray_zerowait_asked_total") != 4.0:
            assert time.monotonic() < until_s, values
            time.sleep(0.2)
            with urllib.request.urlopen(url, timeout=60) as page:
                families = list(text_string_to_metric_families(page.read().decode()))
            ours = [
                each for family in families for each in family.samples if "zerowait" in each.name
            ]
            values = {each.name: each.value for each in ours}
        assert values["ray_zerowait_settled_total"] == 4.0
        assert values["ray_zerowait_limit"] == 32.0
        assert {each.labels["shard"] for each in ours} == {"0"}
        asyncio.run(hub.aclose())
