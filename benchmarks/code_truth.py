"""What the scorer `code` says of 1,000 programs whose labels are known by construction.

    python benchmarks/code_truth.py

Right, wrong and hostile programs, each in the forms stdin, function call and assert list. A right
program is a reference solution in another shape; a wrong one is it with every result changed; a
hostile one tries to earn without solving. Prints wrong labels, abstentions, what is left behind,
and programs per second beside a plain subprocess per test and verl's prime_code in the same run:
those get no program that could harm the machine. The exit code is 1 for a wrong label or a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zerowait import Abstain, Sample, Score
from zerowait.engine.sandbox.scoring import CodeScoring
from zerowait.types import Outcome

OPTIONS = {"time_limit_s": 1, "memory_mb": 512}


class Problem(NamedTuple):
    """A function from whole numbers to a whole number.

    Args:
        body: of ``def solve(xs)``; `xs` is a list of whole numbers.
        solve: the same as a function of ours.
    """

    body: str
    solve: Callable[[list[int]], int]


def _product(xs: list[int]) -> int:
    total = 1
    for x in xs:
        total = total * (abs(x) + 1) % 1_000_003
    return total


PROBLEMS = [
    Problem("return sum(xs)", sum),
    Problem("return max(xs)", max),
    Problem("return min(xs) * 3", lambda xs: min(xs) * 3),
    Problem("return len(xs) ** 2", lambda xs: len(xs) ** 2),
    Problem("return sorted(xs)[len(xs) // 2]", lambda xs: sorted(xs)[len(xs) // 2]),
    Problem("return sum(x * x for x in xs)", lambda xs: sum(x * x for x in xs)),
    Problem("return len(set(xs))", lambda xs: len(set(xs))),
    Problem("return xs[0] - xs[-1]", lambda xs: xs[0] - xs[-1]),
    Problem("return sum(1 for x in xs if x % 2)", lambda xs: sum(1 for x in xs if x % 2)),
    Problem(
        "t = 1\n    for x in xs:\n        t = t * (abs(x) + 1) % 1000003\n    return t",
        _product,
    ),
]


class Case(NamedTuple):
    """A labelled program.

    Args:
        kind: ``right``, ``wrong`` or ``hostile``, and which.
        form: of the tests.
        program: its text.
        tests: the row's ground truth.
        is_safe: whether it may run without a sandbox.
    """

    kind: str
    form: str
    program: str
    tests: Any
    is_safe: bool = True

    @property
    def label(self) -> float:
        """What it has to earn."""
        return float(self.kind.startswith("right"))


RIGHT = {
    "plain": "def solve(xs):\n    {body}\n",
    "helper": "def helper(xs):\n    {body}\n\ndef solve(xs):\n    return helper(list(xs))\n",
    "typed": "def solve(xs: List[int]) -> int:\n    {body}\n",
    "imports": "import math, collections\nfrom functools import lru_cache\ndef solve(xs):\n    {body}\n",
    "class": "class Solver:\n    def run(self, xs):\n        return _inner(xs)\ndef _inner(xs):\n    {body}\ndef solve(xs):\n    return Solver().run(xs)\n",
}  # fmt: skip
WRONG = {
    "one more": "def inner(xs):\n    {body}\n\ndef solve(xs):\n    return inner(xs) + 1\n",
    "nothing": "def solve(xs):\n    pass\n",
    "raises": "def solve(xs):\n    raise RuntimeError(xs)\n",
    "text": "def inner(xs):\n    {body}\ndef solve(xs):\n    return 'x' + str(inner(xs))\n",
    "syntax": "def solve(xs)\n    {body}\n",
    "last one wrong": "def inner(xs):\n    {body}\nCALLS = []\ndef solve(xs):\n    CALLS.append(1)\n    return inner(xs) + (xs == {last})\n",
}  # fmt: skip
ALWAYS = "class Any_(int):\n    def __eq__(self, other):\n        return True\n    def __ne__(self, other):\n        return False\n    __hash__ = int.__hash__\n    def __sub__(self, other):\n        return self\n    def __lt__(self, other):\n        return True\n    def __str__(self):\n        return 'x'\n    __repr__ = __str__\n"  # fmt: skip
HOSTILE = {  # is it safe without a sandbox?
    "os._exit": ("import os\nos._exit(0)\ndef solve(xs):\n    return 0\n", True),
    "exit in a call": ("import sys\ndef solve(xs):\n    sys.exit(0)\n", True),
    "always equal": (ALWAYS + "def solve(xs):\n    return Any_(0)\n", True),
    "patched builtins": ("import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.abs = lambda x: 0\ndef solve(xs):\n    return None\n", True),
    "reads the stack": ("import sys\ndef solve(xs):\n    frame = sys._getframe()\n    while frame:\n        for name, value in list(frame.f_locals.items()):\n            if isinstance(value, dict) and ('outputs' in value or 'asserts' in value):\n                return (value.get('outputs') or [None])[0]\n        frame = frame.f_back\n    return None\n", True),
    "reads files": ("import glob\ndef solve(xs):\n    found = []\n    for name in glob.glob('/tmp/*') + glob.glob('/proc/*/environ') + ['/proc/self/fd/0', '/proc/1/mem']:\n        try:\n            found.append(open(name, 'rb').read(1000))\n        except OSError:\n            pass\n    return len(found) + 10**9\n", True),
    "endless loop": ("def solve(xs):\n    while True:\n        pass\n", False),
    "sleeps": ("import time\ndef solve(xs):\n    time.sleep(1000)\n", False),
    "fork bomb": ("import os\ndef solve(xs):\n    while True:\n        os.fork()\n", False),
    "output": ("import os\ndef solve(xs):\n    while True:\n        os.write(1, b'x' * 2**20)\n", False),
    "memory": ("def solve(xs):\n    return len(bytearray(10**10))\n", False),
    "deletes": ("import shutil\ndef solve(xs):\n    shutil.rmtree('/tmp', ignore_errors=True)\n    shutil.rmtree('/', ignore_errors=True)\n", False),
    "network": ("import urllib.request\ndef solve(xs):\n    return urllib.request.urlopen('http://127.0.0.1:1').read()\n", True),
}  # fmt: skip
READS = "print(solve(list(map(int, input().split()))))\n"
SHARES = {"right": 0.45, "wrong": 0.35}


def cases(count: int, seed: int) -> Iterator[Case]:
    """Labelled programs."""
    draw = random.Random(seed)
    for number in range(count):
        problem = PROBLEMS[number % len(PROBLEMS)]
        tests = [[draw.randint(-99, 99) for _ in range(draw.randint(2, 8))] for _ in range(4)]
        form = ("stdin", "call", "assert")[number % 3]
        part = draw.random()
        if part < SHARES["right"]:
            kind, template, safe = "right", *_drawn(draw, RIGHT), True
        elif part < sum(SHARES.values()):
            kind, template, safe = "wrong", *_drawn(draw, WRONG), True
        else:
            name = draw.choice(list(HOSTILE))
            kind, template, safe = f"hostile: {name}", *HOSTILE[name]
        program = template.replace("{body}", problem.body).replace("{last}", str(tests[-1]))
        if form == "stdin":
            program += READS
        yield Case(kind, form, program, _ground_truth(form, problem, tests), is_safe=safe)


def _drawn(draw: random.Random, templates: dict[str, str]) -> list[str]:
    return [templates[draw.choice(list(templates))]]


def _ground_truth(form: str, problem: Problem, tests: list[list[int]]) -> Any:
    results = [problem.solve(xs) for xs in tests]
    if form == "stdin":
        inputs = [" ".join(map(str, xs)) + "\n" for xs in tests]
        return {"inputs": inputs, "outputs": [f"{each}\n" for each in results]}
    if form == "call":
        inputs = [json.dumps(xs) for xs in tests]
        return {"fn_name": "solve", "inputs": inputs, "outputs": [str(each) for each in results]}
    return [f"assert solve({xs}) == {each}" for xs, each in zip(tests, results, strict=True)]


async def scored(given: list[Case], concurrency: int) -> list[Outcome]:
    """Our outcome of each."""
    code = CodeScoring()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    code.outcome(
                        Sample("", f"```python\n{each.program}```", each.tests),
                        OPTIONS,
                        component="code",
                        concurrency=concurrency,
                    )
                )
                for each in given
            ]
    finally:
        await code.aclose()
    return [task.result() for task in tasks]


def by_subprocess(case: Case) -> float:
    """A plain subprocess for each test, compared by its output."""
    for given, expected in zip(case.tests["inputs"], case.tests["outputs"], strict=True):
        run = subprocess.run(
            [sys.executable, "-c", f"from typing import *\n{case.program}"],
            input=given.encode(),
            capture_output=True,
            timeout=10,
            check=False,
        )
        if run.returncode or run.stdout.decode().strip() != expected.strip():
            return 0.0
    return 1.0


def by_prime_code(case: Case) -> float:
    """Verl's prime_code."""
    from verl.utils.reward_score import prime_code

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        tests = json.loads(json.dumps(case.tests))
        completion = f"```python\n{case.program}```"
        share, _ = prime_code.compute_score(completion, tests, continuous=True)
    return float(share == 1)


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(what: str, count: int, work: Callable[[], list[float | None]]) -> list[float | None]:
    """The result of `work`; prints its speed."""
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    result = work()
    took_s, took_cpu_s = time.monotonic() - began_s, cpu_s() - began_cpu_s
    print(f"{what:34} {count / took_s:8.1f} {1000 * took_cpu_s / count:12.1f}", end="")
    return result


def left_behind() -> tuple[int, int, list[str]]:
    """Processes of the sandbox, open files, and files in the folders for temporary ones."""
    processes = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            processes += b"sandbox/server.py" in each.read_bytes()
    files = [str(each) for each in Path("/dev/shm").iterdir()]  # noqa: S108 - looked at, not used
    return processes, len(list(Path("/proc/self/fd").iterdir())), files


def main() -> int:
    """Prints the tables; 1 where a label is wrong or something is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--beside", type=int, default=60, help="programs for the comparison")
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    asyncio.run(scored(list(cases(3, 0)), 1))
    before = left_behind()
    labelled = list(cases(given.programs, given.seed))
    began_s = time.monotonic()
    outcomes = asyncio.run(scored(labelled, given.concurrency))
    took_s = time.monotonic() - began_s
    wrong, abstained = [], []
    for case, outcome in zip(labelled, outcomes, strict=True):
        if isinstance(outcome, Abstain):
            abstained.append((case, outcome))
        elif not isinstance(outcome, Score) or outcome.value != case.label:
            wrong.append((case, outcome))
    kinds = Counter(case.kind.partition(":")[0] for case in labelled)
    print(f"{given.programs} programs in {took_s:.0f} s: {dict(kinds)}")
    print(f"wrong labels {len(wrong)}, abstained {len(abstained)}")
    for case, outcome in [*wrong, *abstained][:10]:
        print(f"  {case.kind}, {case.form}: {outcome}")
    after = left_behind()
    print(
        f"left behind: processes, open files, files: {after}"
        if after != before
        else "nothing left behind"
    )
    _compare(labelled, given.beside)
    return int(bool(wrong) or after != before)


def _compare(labelled: list[Case], count: int) -> None:
    usual = [c for c in labelled if c.form == "stdin" and not c.kind.startswith("hostile")][:count]
    print(f"\n{len(usual)} right and wrong programs of the form stdin, one at a time")
    print(f"{'':34} {'per s':>8} {'CPU ms each':>12} {'wrong labels':>14}")
    peers: dict[str, Callable[[], list[float | None]]] = {
        "zerowait": lambda: _values(asyncio.run(scored(usual, 1))),
        "subprocess per test": lambda: [by_subprocess(case) for case in usual],
        "verl's prime_code": lambda: [by_prime_code(case) for case in usual],
    }
    for name, work in peers.items():
        found = timed(name, len(usual), work)
        print(f" {sum(v != c.label for v, c in zip(found, usual, strict=True)):14}")
    calls = [c for c in labelled if c.form == "call" and c.is_safe][:count]
    hostile = sum(case.kind.startswith("hostile") for case in calls)
    print(f"\n{len(calls)} programs of the form call, {hostile} of them hostile")
    for name, work in {
        "zerowait": lambda: _values(asyncio.run(scored(calls, 1))),
        "verl's prime_code": lambda: [by_prime_code(case) for case in calls],
    }.items():
        found = timed(name, len(calls), work)
        print(f" {sum(v != c.label for v, c in zip(found, calls, strict=True)):14}")


def _values(outcomes: list[Outcome]) -> list[float | None]:
    return [each.value if isinstance(each, Score) else None for each in outcomes]


if __name__ == "__main__":
    sys.exit(main())
