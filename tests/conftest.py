"""Settings of the whole suite."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Real processes, real servers and real models: seconds each, where a unit test takes milliseconds.
WIRE = frozenset({"chaos", "cli", "hub", "recipes", "testing", "verl"})
# Of these folders, what runs in one process and in virtual time.
UNIT_FILES = frozenset(
    {
        "hub/test_job.py",
        "hub/test_rpc_sessions.py",
        "hub/test_shard_stats.py",
        "hub/test_slots.py",
        "hub/test_streaming.py",
        "hub/test_tickets.py",
    }
)
WIRE_FILES = frozenset(
    {
        "cache/test_limits.py",
        "cache/test_redis.py",
        "cache/test_sqlite.py",
        "client/test_apis.py",
        "client/test_soak.py",
        "client/test_transport.py",
        "client/test_wire.py",
        "engine/test_budget.py",
        "engine/test_function_faults.py",
        "engine/test_judge_kinds.py",
        "engine/test_own_failures.py",
        "engine/test_partition.py",
        "engine/test_pool.py",
        "engine/test_rewards.py",
        "engine/test_serving.py",
        "judge/test_reward_model.py",
        "observe/test_page_in_chromium.py",
        "observe/test_replay.py",
        "observe/dashboard/test_browser.py",
        "observe/dashboard/test_server.py",
        "search/test_retriever.py",
        "search/test_retriever_dense.py",
        "search/test_retriever_server.py",
        "test_ci.py",
        "test_docs.py",
        "test_serving.py",
    }
)

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"

# A shell lets what it starts in the background ignore SIGINT, and so would the commands that tests
# start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be busy: a property says what holds, not how fast.
# The same examples each time: what a change is told is about the change. PROPERTIES=random pytest
# looks for others.
settings.register_profile(
    "zerowait",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
    derandomize=os.environ.get("PROPERTIES") != "random",
)
settings.load_profile("zerowait")


@pytest.fixture
def usual_collector():
    """Python's cycle collector as it was, whatever the test makes of it."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    yield
    gc.set_threshold(*before)
    if gc.get_freeze_count() > frozen:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def hold_port():
    """``with hold_port() as port``: only servers of the test listen there, also after a death.

    Whoever asks the system for any port is given one that nobody holds, and so another one.
    """

    @contextmanager
    def held():
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            yield holder.getsockname()[1]

    return held


@contextmanager
def same_environment():
    """What a command tells its own process to use is not told to the next test."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def zerowait(tmp_path, capfd, usual_collector):
    """Runs the command in `tmp_path` and in this process; how it ended, with its output."""

    from zerowait.cli import app

    def run(*arguments, env=None):
        capfd.readouterr()
        with same_environment(), pytest.MonkeyPatch.context() as here:
            here.chdir(tmp_path)
            here.setattr("signal.signal", lambda *_: None)  # this process keeps its own handlers
            for name, value in (env or {}).items():
                here.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                app.run([str(argument) for argument in arguments])
        return Ended(ended.value.code, *capfd.readouterr())

    return run


class Gate:
    """``FakeJudge(hold=Gate(9))`` answers nine requests, and the others when the gate is opened."""

    def __init__(self, through=0):
        self._through = through
        self._opened = threading.Event()

    async def __call__(self, body):
        self._through -= 1
        if self._through < 0:
            while not self._opened.is_set():  # noqa: ASYNC110 - opened in another thread
                await asyncio.sleep(0.005)

    def open(self):
        self._opened.set()


@pytest.fixture(scope="session")
def gate():
    """``gate(9)``: what is done with nine answers stands still then, however late one looks."""
    return Gate


@pytest.fixture(scope="session")
def under_ray():
    """``with under_ray():`` a Ray of this process, with two processors."""

    @contextmanager
    def running(tries=3):
        import ray

        before = signal.getsignal(signal.SIGTERM)  # Ray takes it and does not give it back
        try:
            for left in reversed(range(tries)):
                try:
                    ray.init(
                        num_cpus=2,
                        include_dashboard=False,
                        log_to_driver=False,
                        configure_logging=False,
                    )
                    break
                except Exception:  # its node has 30 s to come up, which is little if all are busy
                    ray.shutdown()
                    if not left:
                        raise
                with warnings.catch_warnings():  # about its processes, which have been ended
                    warnings.simplefilter("ignore", ResourceWarning)
                    gc.collect()
            yield
        finally:
            ray.shutdown()
            signal.signal(signal.SIGTERM, before)

    return running


class LeapingLoop(asyncio.SelectorEventLoop):
    """Its clock goes on as every clock does, and further where a test says so."""

    def __init__(self):
        self._ahead_s = 0.0
        super().__init__()

    def time(self):
        return super().time() + self._ahead_s

    def leap(self, seconds):
        self._ahead_s += seconds


@pytest.fixture
def leaping():
    """Runs ``scenario(leap)`` with real processes and servers, and deadlines that cost no time.

    What should answer has a minute for it, however busy the machine is. When nothing but what
    should time out is under way, ``leap(60)`` brings its end.
    """

    def run(scenario):
        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            return runner.run(scenario(runner.get_loop().leap))

    return run


def pytest_configure(config):
    config.pluginmanager.register(Doctests())  # a conftest is not asked about files elsewhere


class Doctests:
    """A module without an example need not be imported to look for one."""

    def pytest_ignore_collect(self, collection_path):
        if collection_path.is_relative_to(SOURCE) and collection_path.suffix == ".py":
            return True if ">>>" not in collection_path.read_text("utf-8") else None
        return None


def pytest_collection_finish():
    """Ten thousand collected tests live to the end: no collection of cycles visits them again."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path, config):
    """What `-m "not wire"` leaves out is not even imported: with it would come torch and verl."""
    left_out = config.option.markexpr
    if "not wire" in left_out and is_wire(collection_path):
        return True
    if "not e2e" in left_out and collection_path == TESTS / "e2e":
        return True
    return None


@cache
def is_wire(path):
    if not path.is_relative_to(TESTS) or path == TESTS:
        return False
    file = path.relative_to(TESTS)
    if path.is_dir():
        return file.parts[0] in WIRE and not any(each.startswith(f"{file}/") for each in UNIT_FILES)
    name = file.as_posix()
    return (file.parts[0] in WIRE and name not in UNIT_FILES) or name in WIRE_FILES


def pytest_collection_modifyitems(items):
    for item in items:
        if is_wire(item.path):
            item.add_marker(pytest.mark.wire)
    # With several workers the longest group starts first, and the rest is done beside it.
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    # Not by marks for `--dist loadgroup`: under pytest 9.2, pytest-xdist 3.8 does not see them.
    from xdist.scheduler import LoadScopeScheduling

    class Companions(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return companions(nodeid)

    return Companions(config, log)


def companions(nodeid):
    """What runs one after the other in one worker: trainings, what is in Ray, and each file."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/e2e/"):
        return "e2e"
    if "/test_ray_" in file:
        return "ray"
    return file


# In place of llama.cpp's server: it answers as one, and its "weights" say how it behaves. Only the
# standard library, so that a test may start many.
LLAMA_SERVER = """#!{python}
import http.server, json, os, pathlib, subprocess, sys, time

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
weights = pathlib.Path(given["--model"])
behaviour = weights.read_text().strip()
with open(weights.with_suffix(".pids"), "a") as pids:
    pids.write(f"{{os.getpid()}} {{os.environ.get('CUDA_VISIBLE_DEVICES')}}\\n")
if behaviour == "family":  # as vLLM's engine, which does not notice that its server has died
    child = subprocess.Popen(["sleep", "1000"])
    with open(weights.with_suffix(".children"), "a") as children:
        children.write(f"{{child.pid}}\\n")
if behaviour == "broken":
    sys.exit("error: tensor 'blk.0' has the wrong shape")

class Handler(http.server.BaseHTTPRequestHandler):
    def say(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.say(503 if behaviour == "loading" else 200, {{"status": behaviour}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if behaviour == "slow":
            time.sleep(0.05)
        assert body["model"] == given["--alias"], body["model"]
        message = {{"role": "assistant", "content": json.dumps({{"reason": "", "score": 7}})}}
        choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
        self.say(200, {{"object": "chat.completion", "model": body["model"], "choices": [choice],
                       "usage": {{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}}})

    def log_message(self, *words):
        pass

    protocol_version = "HTTP/1.1"

http.server.ThreadingHTTPServer((given["--host"], int(given["--port"])), Handler).serve_forever()
"""


class Weights(NamedTuple):
    """What a llama-server of the tests serves."""

    path: Path

    @property
    def started(self):
        """The process and the GPUs of every server that was started with them."""
        file = self.path.with_suffix(".pids")
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), line.split(" ", 1)[1]) for line in lines]

    @property
    def running(self):
        """The processes of the servers that run now."""
        return [pid for pid, _ in self.started if is_running(pid)]

    @property
    def children(self):
        """The processes that servers have started and that run now."""
        lines = self.path.with_suffix(".children").read_text().split()
        return [pid for pid in map(int, lines) if is_running(pid)]


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b") ")[2][:1] not in (b"Z", b"X")


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Weights that the program llama-server on the PATH serves; an argument says how it behaves."""
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text(LLAMA_SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # logs of what does not start stay there

    def made(behaviour="well"):
        path = tmp_path / f"{behaviour}.gguf"
        path.write_text(behaviour)
        return Weights(path)

    return made
