"""What becomes of rows when a node of a Ray cluster dies, its head restarts or a firewall drops.

    python benchmarks/cluster.py [EVENT ...] [--rows 900] [--network loopback] [--json]

Three raylets of `ray.cluster_utils.Cluster` hold the hub, two reward workers and two fake judges; a
Redis is the cache of judgements and, in the events that say so, the store of Ray's head. As root
each raylet has a network namespace with an address of its own behind a router, so that a node can
be unplugged and the router can drop packets. On the loopback address such events are left out.

An event happens when 200 rows have their rewards. Counted are: rows with a reward, and rows
without; rows that died with their worker, which another worker submits then, as a trainer does;
judgements that the judges were asked for more than once; the longest that a living worker waited
for a reward after the event. A row that has no reward, or not the score that its judge gave, or is
asked about after it had its reward, is an exit code of 1; the event in which Ray ends the job may
lose rows.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait import Sample
from zerowait.cli.tables import show
from zerowait.errors import ZerowaitError
from zerowait.testing import FakeJudge, Latency, Script

LATENCY_S: Final = 0.2
CONCURRENCY: Final = 16
BEFORE: Final = 200
DRIVER: Final = 1
"""The node of the driver and of a worker; it never dies."""
AWAY_S: Final = 15.0
"""How long the head is away, until it is started again."""
CLOSED_S: Final = 60.0
"""How many seconds the hub's port is closed."""
LONGEST_S: Final = 250.0
START_S: Final = 180.0
TRIES: Final = 3
HEAD: Final = (
    *("event", "rewarded", "lost", "handed on", "asked twice"),
    *("longest wait s", "over after s"),
)
_RULE: Final = ("ipproto", "tcp")
_ROW: Final = re.compile(r"response (\d+)\.")


class Network:
    """The addresses of three nodes: all that of this machine."""

    has_namespaces = False

    def address(self, node: int | None) -> str:
        """Of a node, or of the router."""
        import ray

        if node is None:
            return "127.0.0.1"
        return str(ray.util.get_node_ip_address())  # Ray replaces 127.0.0.1 by it

    @contextmanager
    def at(self, node: int | None) -> Iterator[None]:
        """What the block starts is on that node, or on the router."""
        del node
        yield

    def open(self) -> None:
        """Make it."""

    def close(self) -> None:
        """Undo it; no process may be left on any node."""


class Namespaces(Network):
    """A network namespace for each node, and one for the router between them."""

    has_namespaces = True

    def __init__(self, name: str) -> None:
        self.name = name

    def address(self, node: int | None) -> str:
        """See `Network`."""
        return "10.77.0.1" if node is None else f"10.77.{node}.2"

    def open(self) -> None:
        """See `Network`."""
        for node in (None, 0, 1, 2):
            _ip("netns", "add", self._of(node))
            _ip("-n", self._of(node), "link", "set", "lo", "up")
        for node in range(3):
            here, router, wire = self._of(node), self._of(None), f"wire{node}"
            _ip("-n", here, "link", "add", "eth0", "type", "veth", "peer", wire, "netns", router)
            _ip("-n", here, "addr", "add", f"10.77.{node}.2/24", "dev", "eth0")
            _ip("-n", router, "addr", "add", f"10.77.{node}.1/24", "dev", wire)
            _ip("-n", here, "link", "set", "eth0", "up")
            _ip("-n", router, "link", "set", wire, "up")
            _ip("-n", here, "route", "add", "default", "via", f"10.77.{node}.1")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _ip("netns", "exec", self._of(None), "sh", "-c", forward)

    def close(self) -> None:
        """See `Network`."""
        for node in (0, 1, 2, None):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._of(node))

    def unplug(self, node: int) -> None:
        """Nothing reaches the node or leaves it any more, and nobody is told."""
        _ip("-n", self._of(None), "link", "set", f"wire{node}", "down")

    def drop(self, port: int) -> None:
        """The router drops what goes to that port of any node, or comes from it."""
        for end in ("dport", "sport"):
            _ip("-n", self._of(None), "rule", "add", *_RULE, end, str(port), "blackhole")

    def let_through(self, port: int) -> None:
        """Undo `drop`."""
        for end in ("dport", "sport"):
            _ip("-n", self._of(None), "rule", "del", *_RULE, end, str(port), "blackhole")

    @contextmanager
    def at(self, node: int | None) -> Iterator[None]:
        """See `Network`; only this thread goes there, and what it starts."""
        with Path("/proc/thread-self/ns/net").open() as before:
            with Path("/run/netns", self._of(node)).open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def _of(self, node: int | None) -> str:
        return f"{self.name}-{'router' if node is None else node}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S607


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is before an event, and what Ray is told.

    Args:
        hub: its node. workers, judges: theirs.
        redis: the cache is in Redis, and not in a file that all nodes see.
        ray_redis: Ray's head keeps its state in Redis. tls: Ray's processes talk over TLS.
        needs_namespaces: the event unplugs a node or drops packets.
        port_closed: the router drops what goes to the hub's port before the workers connect.
        ends: Ray ends the job, so that rows are lost.
    """

    hub: int = 0
    workers: tuple[int, int] = (1, 2)
    judges: tuple[int, int] = (0, 1)
    redis: bool = True
    ray_redis: bool = False
    tls: bool = False
    needs_namespaces: bool = False
    port_closed: bool = False
    ends: bool = False


class Cluster:
    """The raylets, the judges beside them, and a Redis; in the process of the driver."""

    def __init__(self, setting: Setting, network: Network, folder: Path, stack: ExitStack) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.setting, self.network, self.folder, self._stack = setting, network, folder, stack
        self._judges: dict[int, subprocess.Popen[str]] = {}
        self._ray = RayCluster()
        stack.callback(self._ray.shutdown)
        self._nodes: dict[int, Any] = {}
        self._gcs_port: int | None = None  # Ray's choice, and the same after a restart
        for node in range(3):
            self.start_node(node)

    def start_node(self, node: int) -> None:
        """Start a raylet; the first one with Ray's head."""
        head = {"gcs_server_port": self._gcs_port, "include_dashboard": False} if node == 0 else {}
        with self.network.at(node):
            self._nodes[node] = self._ray.add_node(
                num_cpus=1,
                object_store_memory=80_000_000,
                wait=False,
                node_ip_address=self.network.address(node),
                resources={f"node-{node}": 1, **({"zerowait_hub": 1} if self._holds(node) else {})},
                **head,
            )
        self._gcs_port = int(self.gcs_address.rpartition(":")[2])

    def _holds(self, node: int) -> bool:
        """Whether the hub is told to be there, and not on the head node as by itself."""
        return node == self.setting.hub != 0

    def start_judges(self) -> list[str]:
        """Their URLs."""
        for node in self.setting.judges:
            command = [sys.executable, __file__, "--judge", self.network.address(node)]
            log = self.folder / f"asked-{node}"
            with self.network.at(node):
                judge = subprocess.Popen(
                    [*command, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            self._stack.callback(_end, judge)
            self._judges[node] = judge
        return [_line(judge) for judge in self._judges.values()]

    def kill(self, node: int) -> None:
        """End every process of a node at once, by SIGKILL."""
        ray_node = self._nodes[node]
        running = [each.process for of in ray_node.all_processes.values() for each in of]
        pids = [pid for process in running for pid in (process.pid, *_descendants(process.pid))]
        judge = self._judges.get(node)
        for pid in [*pids, *([judge.pid] if judge else [])]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ray_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        self._ray.worker_nodes.discard(ray_node)
        if ray_node is self._ray.head_node:
            self._ray.head_node = None

    @property
    def gcs_address(self) -> str:
        """Of Ray's head."""
        return str(self._ray.address)


@contextmanager
def redis(network: Network, folder: Path) -> Iterator[str]:
    """The address of a Redis beside the nodes, as long as the block."""
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("needs redis-server: apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    options = ["--save", "", "--protected-mode", "no", "--dir", str(folder)]
    command = [server, "--port", str(port), "--bind", network.address(None), *options]
    with network.at(None):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"{network.address(None)}:{port}"
    finally:
        _end(running)


def settings_of_ray(
    setting: Setting, network: Network, folder: Path, redis_address: str
) -> dict[str, str]:
    """Environment variables, which Ray reads when it is imported."""
    # a ray.init() elsewhere must not find this cluster
    variables = {"RAY_TMPDIR": str(folder / "ray"), "RAY_USAGE_STATS_ENABLED": "0"}
    if setting.ray_redis:
        variables["RAY_REDIS_ADDRESS"] = redis_address
    if setting.tls:
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        addresses = {"127.0.0.1", *(network.address(node) for node in range(3))}
        names = ",".join(f"IP:{address}" for address in sorted(addresses))
        subject = ["-subj", "/CN=ray", "-addext", f"subjectAltName={names}"]
        files = ["-keyout", str(key), "-out", str(certificate)]
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        subprocess.run([*make, *subject, *files], check=True, capture_output=True)
        variables |= {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": str(certificate),
            "RAY_TLS_SERVER_KEY": str(key),
            "RAY_TLS_CA_CERT": str(certificate),
        }
    return variables


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    return process.stdout.readline().strip()


def _descendants(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def namespaces_of(cluster: Cluster) -> Namespaces:
    """The cluster's network namespaces."""
    assert isinstance(cluster.network, Namespaces)  # noqa: S101 - events that need it are left out
    return cluster.network


def nothing(_: Cluster) -> None:
    """Nothing happens."""


def node_dies(cluster: Cluster) -> None:
    """SIGKILL to all that runs on the third node."""
    cluster.kill(2)


def node_unplugged(cluster: Cluster) -> None:
    """The third node is unplugged."""
    namespaces_of(cluster).unplug(2)


def head_restarts(cluster: Cluster) -> None:
    """SIGKILL to the head node, with the hub on it; it is started again after 15 s."""
    cluster.kill(0)
    time.sleep(AWAY_S)
    cluster.start_node(0)


def head_dies(cluster: Cluster) -> None:
    """SIGKILL to the head node, for good."""
    cluster.kill(0)


def port_closes(cluster: Cluster) -> None:
    """The router drops what goes to the hub's port, for a minute."""
    port = hub_port(str(cluster.folder / "reward.yaml"))
    namespaces_of(cluster).drop(port)
    time.sleep(CLOSED_S)
    namespaces_of(cluster).let_through(port)


EVENTS: Final[dict[str, tuple[Callable[[Cluster], None], Setting]]] = {
    "nothing": (nothing, Setting()),
    "worker-killed": (node_dies, Setting(judges=(0, 2))),
    "worker-unplugged": (node_unplugged, Setting(judges=(0, 2), needs_namespaces=True)),
    "hub-killed": (node_dies, Setting(hub=2, workers=(0, 1))),
    "hub-killed-file": (node_dies, Setting(hub=2, workers=(0, 1), redis=False)),
    "hub-unplugged": (node_unplugged, Setting(hub=2, workers=(0, 1), needs_namespaces=True)),
    "head-restarts": (head_restarts, Setting(judges=(1, 2), ray_redis=True)),
    "head-killed": (head_dies, Setting(judges=(1, 2), ends=True)),
    "tls": (node_dies, Setting(hub=2, workers=(0, 1), tls=True)),
    "port-never-open": (nothing, Setting(needs_namespaces=True, port_closed=True)),
    "port-shut": (port_closes, Setting(hub=0, needs_namespaces=True)),
}


class RowResult(msgspec.Struct, frozen=True):
    """A row's reward or error, as its worker wrote it down; `at` is Unix time."""

    row: int
    at: float
    value: float | None = None
    error: str = ""


class Asker:
    """A reward worker: a process of the job. The hub ends with the worker that created it."""

    _hub: object = None

    def ask(self, config: str, rows: list[int], log: str) -> None:
        """Get the rewards of `rows` and write them down as they come."""
        from zerowait.hub.ray import RayHub

        says = logging.FileHandler(f"{log}.says")
        logging.getLogger("zerowait").addHandler(says)

        async def main() -> None:
            hub = self._hub = RayHub(config, record=None)
            async with asyncio.TaskGroup() as tasks:
                for row in rows:
                    tasks.create_task(one(hub, row))

        async def one(hub: RayHub, row: int) -> None:
            value, error = None, ""
            try:
                value = (await hub.reward(Sample("What?", f"response {row}."))).value
            except ZerowaitError as failed:
                error = f"{type(failed).__name__}: {failed}"
            outcome = {"row": row, "at": time.time(), "value": value, "error": error}
            lines.write(json.dumps(outcome) + "\n")

        with Path(log).open("a", buffering=1) as lines:
            asyncio.run(main())


def hub_node() -> int:
    """The node on which the hub is."""
    import ray

    hub: Any = ray.get_actor("zerowait-hub")
    where = hub.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
    found = ray.get(where, timeout=60)
    [resources] = [node["Resources"] for node in ray.nodes() if node["NodeID"] == found]
    [name] = [name for name in resources if name.startswith("node-")]
    return int(name.removeprefix("node-"))


def hub_port(config: str) -> int:
    """On which the hub listens."""
    import ray

    hub: Any = ray.get_actor("zerowait-hub")
    address = ray.get(hub.open_session.remote(config, secrets.token_hex(16)), timeout=60)
    return int(address.port)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one event; times in seconds."""

    event: str
    rows: int
    rewarded: int
    wrong: int
    lost: int
    handed_on: int
    asked_twice: int
    asked_again: int
    waited_s: float
    took_s: float
    says: list[str]
    ends: bool = False
    began: bool = True

    @property
    def violated(self) -> bool:
        """Whether something is not as it should be."""
        lost = self.lost and not self.ends
        return bool(self.wrong or self.asked_again or lost or not self.began)


def score_of(row: int) -> int:
    """What the judges say about a row: 1 to 10."""
    return row % 10 + 1


def judge(host: str, log: str) -> None:
    """A judge that writes down whom it was asked about, until it is ended."""
    with Path(log).open("a", buffering=1) as lines:

        def answer(body: dict[str, Any]) -> str:
            return json.dumps({"reason": "", "score": score_of(_row(body))})

        async def note(body: dict[str, Any]) -> None:
            lines.write(f"{_row(body)} {time.time()}\n")

        with FakeJudge(
            Script(latency=Latency(LATENCY_S)), answer=answer, hold=note, host=host
        ) as it:
            print(it.url, flush=True)
            sys.stdin.read()  # until the driver ends, in whatever way


def _row(body: dict[str, Any]) -> int:
    found = _ROW.search(json.dumps(body["messages"]))
    return int(found[1]) if found else -1


def drive(event: str, network: Network, folder: Path, rows: int, *, redis_address: str) -> None:
    """Start the cluster, submit the rows, let the event happen, wait for the rows."""
    act, setting = EVENTS[event]
    with ExitStack() as stack:
        cluster = Cluster(setting, network, folder, stack)
        cache = {"url": f"redis://{redis_address}/1"}
        if not setting.redis:
            cache = {"path": str(folder / "judgements.db")}
        config = write_configuration(folder, cluster.start_judges(), cache)
        import ray

        ray.init(
            address=cluster.gcs_address,
            _node_ip_address=network.address(DRIVER),
            namespace="cluster",
            log_to_driver=False,
        )
        stack.callback(ray.shutdown)
        if setting.port_closed:
            close_port_before_workers(cluster, config)
        parts = [list(range(0, rows, 2)), list(range(1, rows, 2))]
        tasks = {
            submit(node, config, part, folder / f"rewards-{node}"): (node, part)
            for node, part in zip(setting.workers, parts, strict=True)
        }
        wait_for(folder, min(BEFORE, rows // 3), list(tasks))
        if hub_node() != setting.hub:
            raise SystemExit(f"the hub is on node {hub_node()}")
        (folder / "event-at").write_text(str(time.time()))
        act(cluster)
        follow(tasks, config, folder)


def close_port_before_workers(cluster: Cluster, config: str) -> None:
    """Open the hub, and have the router drop what goes to its port."""
    from zerowait.hub.ray import RayHub

    hub = RayHub(config, record=None)
    asyncio.run(hub.ready())
    _KEPT.append(hub)  # it ends with the last handle of its creator
    namespaces_of(cluster).drop(hub_port(config))


def submit(node: int, config: str, rows: list[int], log: Path) -> Any:
    """Hand rows to a worker on a node; a reference to its end."""
    import ray

    worker = ray.remote(Asker).options(num_cpus=0, resources={f"node-{node}": 0.01}).remote()
    done = worker.ask.remote(config, rows, str(log))
    _KEPT.append(worker)
    return done


_KEPT: list[Any] = []


def follow(tasks: dict[Any, tuple[int, list[int]]], config: str, folder: Path) -> None:
    """Wait for the workers; the rows of one that died go to the driver's node."""
    import ray

    while tasks:
        ended, _ = ray.wait(list(tasks), timeout=LONGEST_S)
        if not ended:
            raise SystemExit(f"no worker ended within {LONGEST_S:g} s after the event")
        [done] = ended
        node, part = tasks.pop(done)
        try:
            ray.get(done)
        except ray.exceptions.RayActorError as died:
            had = {each.row for each in results_in(folder / f"rewards-{node}")}
            left = [row for row in part if row not in had]
            (folder / "handed-on").write_text(str(len(left)))
            (folder / "worker-died").write_text(str(died))
            tasks[submit(DRIVER, config, left, folder / "rewards-next")] = (DRIVER, left)


def wait_for(folder: Path, rewards: int, tasks: list[Any]) -> None:
    """Wait until so many rows have their rewards."""
    import ray

    give_up = time.monotonic() + LONGEST_S
    while sum(len(results_in(log)) for log in logs(folder)) < rewards:
        if time.monotonic() > give_up:
            raise SystemExit(f"{rewards} rewards did not come in {LONGEST_S:g} s")
        ended, _ = ray.wait(tasks, timeout=0.05)
        if ended:
            ray.get(ended)
            raise SystemExit("a worker ended too early")


def logs(folder: Path) -> list[Path]:
    """Of all workers."""
    return [log for log in folder.glob("rewards-*") if log.suffix != ".says"]


def results_in(log: Path) -> list[RowResult]:
    """What a worker wrote down."""
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [msgspec.json.decode(line, type=RowResult) for line in lines if line.endswith(b"\n")]


def write_configuration(folder: Path, judges: Sequence[str], cache: dict[str, str]) -> str:
    """The path of the configuration."""
    path = folder / "reward.yaml"
    settings = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": url, "model": "m"} for url in judges],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"concurrency": CONCURRENCY, "hedge": "off"},
        "cache": cache,
    }
    path.write_text(json.dumps(settings))
    return str(path)


def run_event(event: str, rows: int, network: Network) -> Counts:
    """The counts of an event.

    Ray gives a node 30 s to come up, which is little on a busy machine. Where it does not, all
    starts over.
    """
    for _ in range(TRIES - 1):
        counts = run_once(event, rows, network)
        if counts.began:
            return counts
    return run_once(event, rows, network)


def exit_code_of(driver: subprocess.Popen[bytes], folder: Path) -> int:
    """The exit code of the driver, which is killed where Ray or the rows hang."""
    started = (folder / "event-at").exists
    with suppress(subprocess.TimeoutExpired):
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up and not started():
            with suppress(subprocess.TimeoutExpired):
                return driver.wait(timeout=0.5)
        if started():
            return driver.wait(timeout=LONGEST_S)
    driver.kill()
    return driver.wait()


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with a short name, as Ray's sockets in it need; a dying raylet may still write."""
    return tempfile.TemporaryDirectory(prefix="zw-", dir="/tmp", ignore_cleanup_errors=True)


def run_once(event: str, rows: int, network: Network) -> Counts:
    """The counts of one try, whose driver is a process of its own."""
    setting = EVENTS[event][1]
    with new_folder() as name, ExitStack() as stack:
        folder = Path(name)
        stack.callback(network.close)
        network.open()
        address = ""
        if setting.redis or setting.ray_redis:
            address = stack.enter_context(redis(network, folder))
        command = [sys.executable, __file__, event, "--rows", str(rows), "--inside", name]
        command += ["--redis", address]
        if isinstance(network, Namespaces):
            command += ["--namespaces", network.name]
        with network.at(DRIVER), (folder / "driver").open("wb") as output:
            driver = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | settings_of_ray(setting, network, folder, address),
            )
        stack.callback(_end, driver)
        failed = exit_code_of(driver, folder)
        counts = counts_of(event, rows, folder, ended_at=time.time())
        if failed and not setting.ends:
            print((folder / "driver").read_text(), file=sys.stderr)
        return counts


def counts_of(event: str, rows: int, folder: Path, *, ended_at: float) -> Counts:
    """From what workers and judges wrote down."""
    moment = folder / "event-at"
    at = float(moment.read_text()) if moment.exists() else time.time()
    found = {each.row: each for log in logs(folder) for each in results_in(log)}
    rewarded = [each for each in found.values() if each.value is not None]
    wrong = [each for each in rewarded if each.value != score_of(each.row)]
    asked = [
        line.split() for log in folder.glob("asked-*") for line in log.read_text().splitlines()
    ]
    times = Counter(row for row, _ in asked)
    again = [row for row, when in asked if (of := found.get(int(row))) and float(when) > of.at]
    errors = Counter(each.error or "abstained" for each in found.values() if each.value is None)
    says = sorted({line for log in folder.glob("*.says") for line in log.read_text().splitlines()})
    died, handed = folder / "worker-died", folder / "handed-on"
    ends = EVENTS[event][1].ends
    last_words = (folder / "driver").read_text().splitlines()[-1:] if ends else []
    return Counts(
        event=event,
        rows=rows,
        rewarded=len(rewarded),
        wrong=len(wrong),
        lost=rows - len(rewarded),
        handed_on=int(handed.read_text()) if handed.exists() else 0,
        asked_twice=sum(count > 1 for count in times.values()),
        asked_again=len(again),
        waited_s=longest_wait(rewarded, at),
        took_s=(ended_at if ends else max((each.at for each in found.values()), default=at)) - at,
        says=[f"{n} x {error}" for error, n in errors.items()]
        + says
        + ([died.read_text()] if died.exists() else [])
        + last_words,
        ends=ends,
        began=moment.exists(),
    )


def longest_wait(rewards: list[RowResult], at: float) -> float:
    """The longest time without a reward after the event."""
    times = sorted(each.at for each in rewards if each.at > at)
    return max((b - a for a, b in zip([at, *times], times, strict=False)), default=0.0)


def main() -> int:
    """Print the table; 1 where a row was lost or has a wrong score."""
    if sys.argv[1:2] == ["--judge"]:
        judge(*sys.argv[2:4])
        return 0
    options = argparse.ArgumentParser()
    options.add_argument("events", nargs="*", choices=[*EVENTS, []], metavar="EVENT")
    options.add_argument("--rows", type=int, default=900)
    options.add_argument("--network", choices=["namespaces", "loopback"])
    options.add_argument("--json", action="store_true")
    options.add_argument("--inside", help=argparse.SUPPRESS)
    options.add_argument("--namespaces", help=argparse.SUPPRESS)
    options.add_argument("--redis", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.inside:
        network = Namespaces(chosen.namespaces) if chosen.namespaces else Network()
        folder = Path(chosen.inside)
        drive(chosen.events[0], network, folder, chosen.rows, redis_address=chosen.redis)
        return 0
    network = Network()
    if os.geteuid() == 0 and chosen.network != "loopback":
        network = Namespaces(f"zerowait-{os.getpid()}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = []
    for event in chosen.events or EVENTS:
        if EVENTS[event][1].needs_namespaces and not network.has_namespaces:
            print(f"{event}: left out, it needs root and network namespaces", file=sys.stderr)
            continue
        results.append(run_event(event, chosen.rows, network))
    if chosen.json:
        print(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        show([HEAD, *(row_of(result) for result in results)])
        for result in results:
            print(f"{result.event}:", *(result.says or ["nothing is said"]), sep="\n    ")
    return int(any(result.violated for result in results))


def row_of(result: Counts) -> Sequence[str]:
    """A line of the table."""
    numbers = (result.rewarded, result.lost, result.handed_on, result.asked_twice)
    seconds = (result.waited_s, result.took_s)
    return [result.event, *map(str, numbers), *(f"{each:.1f}" for each in seconds)]


if __name__ == "__main__":
    sys.exit(main())
