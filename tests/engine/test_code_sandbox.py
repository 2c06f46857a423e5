"""The scorer `code` with real programs in real sandboxes."""

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import zerowait
from zerowait import Abstain, ConfigError, FailureKind, Sample, Score
from zerowait.engine.sandbox.local import LocalSandbox
from zerowait.engine.sandbox.scoring import CodeScoring
from zerowait.scorers.code.program import Program

pytestmark = pytest.mark.wire

ISOLATIONS = ("namespaces", "seccomp")
DOUBLE = {"inputs": ["1\n", "2\n", "30\n"], "outputs": ["2\n", "4\n", "60\n"]}
CALLS = {"fn_name": "double", "inputs": [[1], [2]], "outputs": [[2], [4]]}
ASSERTS = ["assert double(1) == 2", "assert abs(double(2) - 4) < 1e-6", "assert double(3) == 6"]
SOUND = "print(int(input()) * 2)"
QUICK = {"time_limit_s": 1, "memory_mb": 512}


def row(program, tests=None, **extra):
    return Sample("", f"Here:\n```python\n{program}\n```\n", tests or DOUBLE, extra=extra)


@asynccontextmanager
async def scoring(isolation="namespaces"):
    code = CodeScoring(isolation=isolation)
    try:
        yield code
    finally:
        await code.aclose()


async def outcomes_of(rows, options=QUICK, *, isolation="namespaces", concurrency=2):
    async with scoring(isolation) as code, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                code.outcome(each, options, component="code", concurrency=concurrency)
            )
            for each in rows
        ]
        await asyncio.wait(tasks)
    return [task.result() for task in tasks]


def outcomes(*rows, options=QUICK, isolation="namespaces"):
    return asyncio.run(outcomes_of(rows, options, isolation=isolation))


def values(found):
    return [each.value if isinstance(each, Score) else each for each in found]


@pytest.fixture
def nothing_left():
    """No process, file or open file is left by the test."""
    gc.collect()
    servers, files, names = _left()
    yield
    end = time.monotonic() + 30
    while not _is_nothing_more_left(servers, files, names) and time.monotonic() < end:
        gc.collect()  # threads of an earlier test may still be closing theirs
        time.sleep(0.1)
    assert _is_nothing_more_left(servers, files, names), (_left(), (servers, files, names))


def _is_nothing_more_left(servers, files, names):
    now = _left()
    return set(now[0]) <= set(servers) and now[1] <= files and set(now[2]) <= set(names)


def _left():
    folders = [Path("/tmp"), Path("/dev/shm")]
    names = sorted(
        str(each) for folder in folders for each in folder.iterdir() if "sandbox" in each.name
    )
    return _servers(), len(list(Path("/proc/self/fd").iterdir())), names


def _servers():
    found = []
    for each in Path("/proc").iterdir():
        if not each.name.isdecimal():
            continue
        try:
            command = (each / "cmdline").read_bytes()
        except OSError:
            continue
        if str(Path(zerowait.__file__).parent / "engine/sandbox/server.py").encode() in command:
            found.append(each.name)
    return found


RIGHT = {
    "stdin": (SOUND, DOUBLE),
    "all of stdin": ("import sys\nprint(2 * int(sys.stdin.read()), end='')", DOUBLE),
    "function": ("def double(x):\n    return 2 * x", CALLS),
    "method, with names that benchmarks assume": ("class Solution:\n    def double(self, x: Optional[int]) -> List[int]:\n        return 2 * x", CALLS),
    "asserts": ("def double(x):\n    print('noise')\n    return x * 2", ASSERTS),
    "an expected exception": ("def f(x):\n    raise ValueError(x)", ["try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"]),
    "a list that is changed": ("def f(x):\n    x.sort()", ["a = [2, 1]\nf(a)\nassert a == [1, 2]"]),
    "the program's own class": ("class P:\n    def __init__(self, a):\n        self.a = a\ndef f(ps):\n    return sum(p.a for p in ps)", ["assert f([P(1), P(2)]) == 3", "assert P(5).a == 5"]),
    "a name of a builtin": ("def sum(a, b):\n    return a + b", ["assert sum(1, 2) == 3"]),
    "a name that benchmarks assume": ("def gcd(a, b):\n    return 77", ["assert gcd(4, 6) == 77"]),
    "an iterator": ("def f(x):\n    return (i for i in range(x))", ["assert list(f(3)) == [0, 1, 2]"]),
    "sets and tuples": ("def f(x):\n    return {(1, 2.5): {x}}, 1 + 2j, b'x', 10**30", ["assert f(3) == ({(1, 2.5): {3}}, 1 + 2j, b'x', 10**30)"]),
    "a test of the standard library": ("def f(x):\n    return x", ["import math\nassert math.isclose(f(1.0), 1)"]),
    "an import of the solution": ("def f(x):\n    return x", "from solution import f\ndef test_f():\n    assert f(1) == 1"),
    "a thread": ("import threading\nt = threading.Thread(target=lambda: print(2 * int(input())))\nt.start()\nt.join()", DOUBLE),
    "deep recursion": ("def d(x, n):\n    return x if n == 0 else d(x, n - 1)\nprint(2 * d(int(input()), 20_000))", DOUBLE),
    "exit": ("print(int(input()) * 2)\nexit()", DOUBLE),
    "main": ("def main():\n    print(int(input()) * 2)\nif __name__ == '__main__':\n    main()", DOUBLE),
}  # fmt: skip


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_right_programs_earn(isolation, nothing_left):
    found = outcomes(*(row(*each) for each in RIGHT.values()), isolation=isolation)
    assert dict(zip(RIGHT, values(found), strict=True)) == dict.fromkeys(RIGHT, 1.0)


FAKE = "class A:\n    def __eq__(self, other):\n        return True\n    def __sub__(self, other):\n        return self\n    def __abs__(self):\n        return 0\n    def __lt__(self, other):\n        return True\n"
HOSTILE = {
    "wrong": ("print(3)", DOUBLE),
    "no such function": ("def other(x):\n    return 2", CALLS),
    "os._exit": ("import os\nprint(2)\nos._exit(0)", DOUBLE),
    "os._exit in asserts": ("import os\nos._exit(0)", ASSERTS),
    "sys.exit in a call": ("import sys\ndef double(x):\n    sys.exit(0)", ASSERTS),
    "endless loop": ("while True:\n    pass", DOUBLE),
    "loop that catches all": ("def double(x):\n    while True:\n        try:\n            while True:\n                pass\n        except BaseException:\n            pass", ASSERTS[:1]),
    "fork bomb": ("import os\nwhile True:\n    os.fork()", DOUBLE),
    "fork bomb in a call": ("import os\ndef double(x):\n    os.fork()\n    return 2", ASSERTS),
    "10 GB of output": ("import os\nwhile True:\n    os.write(1, b'2' * 2**20)", DOUBLE),
    "10 GB of memory": ("x = bytearray(10**10)", DOUBLE),
    "a full folder": ("for i in range(10_000):\n    open(f'/tmp/{i}', 'wb').write(b'x' * 2**20)", DOUBLE),
    "deleted working folder": ("import shutil\nshutil.rmtree('.', ignore_errors=True)\nshutil.rmtree('/tmp', ignore_errors=True)\nprint(open('answers.txt').read())", DOUBLE),
    "network": ("import socket\nsocket.create_connection(('127.0.0.1', 80))\nprint(2)", DOUBLE),
    "always equal": (FAKE + "def double(x):\n    return A()", ASSERTS),
    "always equal int": ("class A(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\ndef double(x):\n    return A(0)", ASSERTS),
    "always equal list": ("class A(list):\n    def __eq__(self, other):\n        return True\ndef double(x):\n    return A()", CALLS),
    "patched builtins": ("import builtins\ndef abs(x):\n    return 0\nbuiltins.abs = abs\nAssertionError = builtins.AssertionError = int\ndef double(x):\n    return 9", ASSERTS),
    "a patched library": ("class math:\n    isclose = staticmethod(lambda *_: True)\ndef double(x):\n    return 9", ["import math\nassert math.isclose(double(1), 2)", "assert math.isclose(double(1), 2)"]),
    "stack and memory": ("import gc, sys\ndef found():\n    frame = sys._getframe()\n    while frame:\n        yield from map(str, frame.f_locals.values())\n        frame = frame.f_back\n    yield from (str(each) for each in gc.get_objects() if isinstance(each, (str, bytes, dict)))\nLEAK = any('double(3) ' + '== 6' in each for each in found())\ndef double(x):\n    return 2 * x if LEAK else -1", ASSERTS),
    "the tester's files": ("import os\nLEAK = b''\nfor name in ['/proc/1/mem', '/proc/1/fd/0', '/proc/1/environ', f'/proc/{os.getppid()}/fd/0', '/proc/self/fd/0']:\n    try:\n        LEAK += open(name, 'rb').read(10**6)\n    except OSError:\n        pass\ndef double(x):\n    return 2 * x if b'assert' in LEAK else -1", ASSERTS),
    "a report of its own": ("import os\nfor file in range(1, 20):\n    try:\n        os.write(file, b'{\"loaded\":null,\"results\":[[\"passed\"],[\"passed\"],[\"passed\"]]}')\n    except OSError:\n        pass\nos._exit(0)", ASSERTS),
    "kills the tester": ("import os\nfor pid in [1, os.getppid(), -1, 0]:\n    try:\n        os.kill(pid, 9)\n    except OSError:\n        pass\ndef double(x):\n    return -1", ASSERTS),
    "a huge number": ("def double(x):\n    return 1 << 5_000_000", CALLS),
    "a deep list": ("def double(x):\n    a = []\n    for _ in range(9999):\n        a = [a]\n    return a", CALLS),
    "prose": ("I cannot do this.", DOUBLE),
    "half a surrogate pair": ("print('\ud800')", ASSERTS),
}  # fmt: skip


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_hostile_programs_earn_nothing_beside_a_hundred_sound_rows(isolation, nothing_left):
    rows = [row(SOUND)] * 100
    for place, hostile in enumerate(HOSTILE.values()):
        rows.insert(4 * place, row(*hostile))
    one = {"time_limit_s": 0.5, "memory_mb": 512, "max_tests": 1}
    found = values(asyncio.run(outcomes_of(rows, one, isolation=isolation, concurrency=4)))
    hostile = [found[4 * place] for place in range(len(HOSTILE))]
    assert dict(zip(HOSTILE, hostile, strict=True)) == dict.fromkeys(HOSTILE, 0.0)
    sound = [each for place, each in enumerate(found) if place % 4 or place >= 4 * len(HOSTILE)]
    assert sound == [1.0] * 100


@pytest.mark.skipif(sys.platform != "linux", reason="the local sandbox is for Linux")
def test_a_program_sees_neither_secrets_nor_data_nor_the_network(tmp_path, monkeypatch):
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps(DOUBLE))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    program = (
        f"import os\nprint(os.environ.get('OPENAI_API_KEY'), os.path.exists({str(answers)!r}))"
    )

    async def run():
        sandbox = LocalSandbox()
        try:
            return await sandbox.run(Program(source=program))
        finally:
            await sandbox.aclose()

    assert asyncio.run(run()).stdout == b"None False\n"


def test_a_share_of_the_tests_earns_a_share():
    half = row("x = int(input())\nprint(2 * x if x < 30 else 0)")
    (share,) = outcomes(half, options={"credit": "share", "score": 3.0})
    assert share.value == 2.0
    assert share.detail == {"passed": 2, "tests": 3}
    assert share.why == "2 of 3 tests passed; test 3: printed '0', expected '60'"
    (none,) = outcomes(half)
    assert none.value == 0.0
    asserts = row("def double(x):\n    return 2 if x == 1 else 0", ASSERTS)
    assert values(outcomes(asserts, options={"credit": "share"})) == [pytest.approx(1 / 3)]


def test_a_test_that_is_broken_itself_abstains():
    (broken,) = outcomes(row("def f(x):\n    return x", ["assert f(lambda: 1)"]))
    assert broken == Abstain(FailureKind.BAD_INPUT, broken.detail)
    assert "no plain data" in broken.detail
    (setup,) = outcomes(
        row("def f(x):\n    return x", ["import no_such\ndef g(): pass\nassert f(1)"])
    )
    assert isinstance(setup, Abstain)
    (lacking,) = outcomes(
        row("def f(x):\n    return x", "def g():\n    pass\nx = h(1)\nassert f(1) == 1\n")
    )
    assert lacking.value == 0.0


COLOURS = """
from enum import Enum
class Base: pass
class Thing(Base):
    SIZE = 3
    @staticmethod
    def twice(x): return 2 * x
class Other: pass
class Colour(Enum):
    RED = 1
    BLUE = 2
def thing(): return Thing()
def colour(): return Colour.RED
def views(): return {1: 2}
def keys(): return {1: 2}.keys()
def items(): return {1: 2}.items()
"""


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_classes_and_constants_of_the_program_can_be_tested(isolation):
    asserts = [
        "assert isinstance(thing(), Thing) and isinstance(thing(), (int, Base))",
        "assert not isinstance(thing(), Other) and not isinstance(3, Thing)",
        "assert colour() == Colour.RED and colour() != Colour.BLUE and colour() in [Colour.RED]",
        "assert Thing.SIZE == 3 and Thing.twice(2) == 4 and thing.__name__ == 'thing'",
        "assert keys() == {1} and list(items()) == [(1, 2)] and list(map(Thing.twice, [1])) == [2]",
    ]
    imported = "from solution import Thing, thing\n\ndef test_a():\n    assert isinstance(thing(), Thing)\n"
    rows = [row(COLOURS, asserts), row(COLOURS, imported)]
    assert values(outcomes(*rows, isolation=isolation)) == [1.0, 1.0]


HELD = """
from collections import namedtuple
from datetime import date, timedelta
class Box:
    def __init__(self, *items): self.items = list(items)
    def __len__(self): return len(self.items)
    def __getitem__(self, at): return self.items[at]
    def __setitem__(self, at, item): self.items[at] = item
    def __iter__(self): return iter(self.items)
    def __str__(self): return f"Box{self.items}"
    def __add__(self, other): return Box(*self.items, *other.items)
def point(): return namedtuple("Point", "x y")(1, 2)
def day(): return date(2020, 2, 29) + timedelta(days=1)
"""


def test_objects_of_the_program_can_be_used_as_its_class_says():
    tests = """
from datetime import date
box = Box(1, 2)
box[0] = 5
box.label = "b"
assert len(box) == 2 and box[0] == 5 and list(box) == [5, 2] and 2 in box and box.label == "b"
assert str(box + Box(3)) == "Box[5, 2, 3]"
assert point().y == 2 and point() == (1, 2)
assert day() == date(2020, 3, 1)
"""
    assert values(outcomes(row(HELD, tests))) == [1.0]


def test_a_program_that_lacks_the_tested_function_fails_whatever_its_name():
    """Programs may use `gcd` without importing it; that does not give them one."""
    names = ["add(1, 2) == 3", "gcd(4, 6) == 2", "copy([1]) == [1]"]
    lacking = [row("x = 1", [f"assert {each}"]) for each in names]
    having = row("def copy(x):\n    return [*x]", ["assert copy([1]) == [1]"])
    assert values(outcomes(*lacking, having)) == [0, 0, 0, 1]


CLASSES_OF_TESTS = [
    (
        "import unittest\nclass Tests(unittest.TestCase):\n    def setUp(self): self.two = 2\n"
        "    def test_a(self): self.assertEqual(double(1), self.two)\n"
        "    def test_b(self): assert double(2) == 4\n"
    ),
    (
        "class TestDouble:\n    def setup_method(self): self.two = 2\n"
        "    def test_a(self): assert double(1) == self.two\n"
        "    def test_b(self): assert double(2) == 4\n"
    ),
]


def test_the_methods_of_test_classes_are_tests():
    for tests in CLASSES_OF_TESTS:
        right = row("def double(x):\n    return 2 * x", tests)
        wrong = row("def double(x):\n    return 2", tests)
        assert values(outcomes(right, wrong, options={"credit": "share"})) == [1, 0.5]


@pytest.mark.parametrize("tests", ["def verify():\n    assert double(1) == 2\n", "assert True"])
def test_tests_that_never_call_the_program_abstain(tests):
    (outcome,) = outcomes(row("def double(x):\n    return 2 * x", tests))
    assert outcome == Abstain(FailureKind.BAD_INPUT, outcome.detail)
    assert "no test calls the program" in outcome.detail


LIAR = """
class Meta(type):
    def __instancecheck__(cls, other): return True
class f(metaclass=Meta):
    def __init__(self, x): pass
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 1
    def __contains__(self, item): return True
    def __bool__(self): return True
    def __lt__(self, other): return True
    def __sub__(self, other): return 0
"""


def test_objects_that_lie_about_themselves_earn_nothing():
    asserts = [
        "f(1) == 2",
        "2 == f(1)",
        "f(1)",
        "3 in f(1)",
        "f(1) == f(2)",
        "isinstance(f(1), int)",
        "f(1) < 2",
        "abs(f(1) - 2) < 1e-6",
    ]
    options = QUICK | {"credit": "share"}
    assert values(outcomes(row(LIAR, [f"assert {each}" for each in asserts]), options=options)) == [
        0
    ]


def test_a_test_that_uses_builtins_alone_beside_the_function_keeps_them():
    program = "def double(x):\n    return 2 * x"
    tests = [
        "assert list(map(double, [1, 2])) == [2, 4]",
        "assert sorted([2, 1], key=double) == [1, 2]",
    ]
    assert values(outcomes(row(program, tests))) == [1.0]


def test_a_test_for_an_error_of_the_programs_own_abstains():
    program = "class Bad(Exception): pass\ndef f(x):\n    raise Bad(x)"
    (outcome,) = outcomes(row(program, "try:\n    f(1)\n    assert False\nexcept Bad:\n    pass\n"))
    assert isinstance(outcome, Abstain)
    assert "an error of the program's own" in outcome.detail


def test_a_setup_that_fails_by_what_the_program_returned_is_a_zero():
    tests = {"assert_case": ["assert x == 1"], "setup_code": "x = f(1)[0]"}
    assert values(outcomes(row("def f(x):\n    return x", tests))) == [0.0]


def test_whole_numbers_of_thousands_of_digits_are_printed():
    tests = {"inputs": ["1" * 6000], "outputs": ["1" * 5999 + "2"]}
    assert values(outcomes(row("print(int(input()) + 1)", tests))) == [1.0]


def test_an_interpreter_that_is_no_python_abstains():
    (found,) = outcomes(row(SOUND), options={"python": "/bin/true"})
    assert isinstance(found, Abstain)
    assert found.kind is FailureKind.CRASHED


def test_rules_go_on_while_programs_run():
    """Programs have their own places: a rule in the worker pool does not wait for them."""
    limits = {"concurrency": 1, "time_limit_s": 100}
    config = {
        "components": {
            "code": {"scorer": "code", "sources": ["apps"], **limits},
            "form": {"scorer": "regex", "pattern": "x", "sources": ["r"]},
        },
        "cache": "off",
    }
    with zerowait.open(config) as rewards:
        slow = Sample("", "import time\ntime.sleep(100)", DOUBLE, data_source="apps")
        programs = [rewards.submit(slow) for _ in range(2)]
        rule = rewards.submit(Sample("", "x", data_source="r"))
        assert rule.result(60).value == 1.0
        assert not any(program.done() for program in programs)


def test_by_data_source_runs_programs():
    with zerowait.open({"components": {"a": {"scorer": "by_data_source"}}}) as rewards:
        reward = rewards.score([Sample("", SOUND, DOUBLE, data_source="taco")])[0]
    assert reward.value == 1.0


def test_a_cancelled_row_ends_its_program(nothing_left):
    async def cancel():
        async with scoring() as code:
            sleeper = row("import time\ntime.sleep(60)")
            call = code.outcome(sleeper, {}, component="code", concurrency=1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.5)
            began = time.monotonic()
            again = await code.outcome(row(SOUND), {}, component="code", concurrency=1)
            assert again.value == 1.0
            assert time.monotonic() - began < 30

    asyncio.run(cancel())


KILLED = """
import asyncio, os, sys
from zerowait.engine.sandbox.local import LocalSandbox
from zerowait.scorers.code.program import Program

async def main():
    sandbox = LocalSandbox()
    await sandbox.run(Program(source="print(1)"))
    print("ready", flush=True)
    await sandbox.run(Program(source="import time\\ntime.sleep(60)", wall_s=60))

asyncio.run(main())
"""


def test_a_killed_engine_leaves_no_process():
    before = _servers()
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as engine:
        assert engine.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        engine.send_signal(signal.SIGKILL)
    ends = time.monotonic() + 30
    while _servers() != before and time.monotonic() < ends:
        time.sleep(0.05)
    assert _servers() == before


def test_a_server_that_is_killed_is_started_again(nothing_left):
    async def kill():
        async with scoring() as code:
            first = await code.outcome(row(SOUND), {}, component="code", concurrency=1)
            os.kill(int(_servers()[-1]), signal.SIGKILL)
            second = await code.outcome(row(SOUND), {}, component="code", concurrency=1)
            return first.value, second.value

    assert asyncio.run(kill()) == (1.0, 1.0)


def test_programs_leave_no_memory_in_the_engine():
    async def grow():
        async with scoring() as code:

            async def some(count):
                for _ in range(count):
                    await code.outcome(
                        row("print('x' * 2**20)"), {}, component="code", concurrency=1
                    )

            await some(5)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await some(20)
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert asyncio.run(grow()) < 8 * 1024


class FakeFusion(BaseHTTPRequestHandler):
    """SandboxFusion's `/run_code`: runs Python programs in plain processes; faults come first."""

    faults: list
    seen: list

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((asked, self.headers.get("Authorization")))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, int):
            return self.answer(fault, {"error": "busy"})
        if fault is not None:
            return self.answer(200, fault)
        run = subprocess.run(
            [sys.executable, "-c", asked["code"]],
            input=asked["stdin"].encode(),
            capture_output=True,
            check=False,
        )
        result = {
            "status": "Finished",
            "execution_time": 0.1,
            "return_code": run.returncode,
            "stdout": run.stdout.decode(),
            "stderr": run.stderr.decode(),
        }
        status = "Success" if run.returncode == 0 else "Failed"
        body = {"status": status, "message": "", "compile_result": None, "run_result": result}
        return self.answer(200, {**body, "executor_pod_name": None, "files": {}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def fusion():
    handler = type("Handler", (FakeFusion,), {"faults": [], "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    handler.url = f"http://127.0.0.1:{server.server_port}"
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def remote(fusion, **options):
    sandbox = {"url": fusion.url, **options.pop("sandbox", {})}
    code = {"scorer": "code", "sandbox": sandbox, **options}
    return {"components": {"code": code}, "cache": "off", "traffic": {"attempts": 3}}


BROKEN = {"status": "SandboxError", "message": "no pod is free", "compile_result": None, "run_result": None}  # fmt: skip
SLOW = {"status": "Failed", "message": "", "compile_result": None, "run_result": {"status": "TimeLimitExceeded", "execution_time": 12.0, "return_code": None, "stdout": "2", "stderr": ""}}  # fmt: skip
UNCOMPILED = {"status": "Failed", "message": "", "compile_result": {"status": "Finished", "execution_time": 1.0, "return_code": 1, "stdout": "", "stderr": "no main"}, "run_result": None}  # fmt: skip


def test_a_remote_sandbox_runs_all_forms_of_tests(fusion):
    rows = [
        row(*each)
        for name, each in RIGHT.items()
        if name in ("stdin", "function", "asserts", "method, with names that benchmarks assume")
    ]
    wrong = [
        row("print(3)"),
        row("def double(x):\n    return 0", CALLS),
        row(FAKE + "def double(x):\n    return A()", ASSERTS),
    ]
    with zerowait.open(remote(fusion)) as rewards:
        found = [reward.value for reward in rewards.score([*rows, *wrong])]
    assert found == [1.0] * 4 + [0.0] * 3
    asked, _ = fusion.seen[0]
    assert set(asked) == {
        "code",
        "stdin",
        "language",
        "compile_timeout",
        "run_timeout",
        "memory_limit_MB",
        "files",
        "fetch_files",
    }


def test_a_remote_sandbox_that_fails_is_asked_again_and_then_abstains(fusion):
    fusion.faults += [BROKEN, 503]
    only = {"inputs": ["1"], "outputs": ["2"]}
    with zerowait.open(remote(fusion)) as rewards:
        assert rewards.score([row(SOUND, only)])[0].value == 1.0
        assert len(fusion.seen) == 3
        fusion.faults += [BROKEN] * 3
        (reward,) = rewards.score([row(SOUND + "  # again", only)])
    outcome = reward.components["code"]
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.HTTP_ERROR
    assert "no pod is free" in outcome.detail


@pytest.mark.parametrize("answer", [SLOW, UNCOMPILED])
def test_a_program_that_fails_remotely_is_a_zero(fusion, answer):
    fusion.faults.append(answer)
    with zerowait.open(remote(fusion, language="cpp")) as rewards:
        (reward,) = rewards.score([Sample("", "```cpp\nint main() {}\n```", DOUBLE)])
    assert reward.value == 0.0
    assert fusion.seen[0][0]["language"] == "cpp"


def test_equal_programs_are_run_once_and_their_answers_are_cached(fusion, tmp_path):
    config = remote(fusion, sandbox={"api_key_env": "SANDBOX_KEY"}) | {
        "cache": {"path": str(tmp_path / "cache.db")}
    }
    os.environ["SANDBOX_KEY"] = "sk-planted"
    try:
        for _ in range(2):
            with zerowait.open(config) as rewards:
                found = rewards.score([row(SOUND)] * 5)
                assert [reward.value for reward in found] == [1.0] * 5
    finally:
        del os.environ["SANDBOX_KEY"]
    assert [key for _, key in fusion.seen] == ["Bearer sk-planted"] * 3
    with pytest.raises(ConfigError, match="SANDBOX_KEY, which is not set"):
        zerowait.open(config)
