"""The rule `math` beside math-verify and verl's scorers: faults and time.

python benchmarks/math_truth.py [--cases] [--kinds]

Every pair of tests/scorers/math_pairs.txt is judged by each: `equal` pairs judged wrong are false
negatives, near misses judged right are false positives. What raises or takes more than a second
counts as no verdict. Times are CPU time in this process, the median of the pairs. The cases of
Math-Verify's and verl's own tests follow, and every one of them on which `math` says otherwise,
with the reason; `--cases` also prints what math-verify itself says of them, `--kinds` the faults of
each kind of answer.
"""

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import FrameType
from typing import NamedTuple

from zerowait.cli.tables import show
from zerowait.scorers import resolve
from zerowait.types import Sample

_TESTS = Path(__file__).parents[1] / "tests" / "scorers"
_CASES = Path(__file__).with_name("math_cases.tsv")
_LONGEST_S = 1.0

sys.path.insert(0, str(_TESTS))
from math_pairs import Pair, pairs  # noqa: E402

_Scorer = Callable[[str, str], bool | None]


class _Case(NamedTuple):
    source: str
    expected: bool
    gold: str
    response: str
    reason: str


class _TooLongError(Exception):
    pass


def main() -> int:
    """Print the tables; the exit code says whether `math` stayed within its bounds."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", action="store_true")
    options.add_argument("--kinds", action="store_true")
    given = options.parse_args()
    labelled = list(pairs())
    rows = [["scorer", "false positives", "false negatives", "no verdict", "µs per pair, median"]]
    faults: dict[str, Counter[str]] = {}
    within = True
    for name, scorer in _scorers().items():
        counts, kinds, took_s = _confusion(scorer, labelled)
        equal = sum(pair.is_equal for pair in labelled)
        rows.append(
            [
                name,
                _share(counts["false positive"], len(labelled) - equal),
                _share(counts["false negative"], equal),
                _share(counts["none"], len(labelled)),
                f"{took_s * 1e6:,.0f}",
            ]
        )
        faults[name] = kinds
        if name == "zerowait math":
            within = (
                counts["false positive"] <= (len(labelled) - equal) / 100
                and counts["false negative"] <= 0.08 * equal
            )
    show(rows)
    if given.kinds:
        _show_kinds(faults)
    return int(not _show_cases(peers=given.cases) or not within)


def _scorers() -> dict[str, _Scorer]:
    """Each as (response, gold) to right, wrong, or None for no verdict."""
    from math_verify.grader import verify
    from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig, parse
    from verl.utils.reward_score import math_dapo, math_reward

    rule = resolve("math")
    targets = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def ours(response: str, gold: str) -> bool | None:
        value = getattr(rule(Sample("", response, gold)), "value", None)
        return None if value is None else value == 1

    def math_verify(response: str, gold: str) -> bool | None:
        golds = parse(rf"\boxed{{{gold}}}", targets, parsing_timeout=None)
        said = parse(response, targets, parsing_timeout=None)
        return bool(verify(golds, said, timeout_seconds=None))

    def dapo(response: str, gold: str) -> bool | None:
        return bool(math_dapo.compute_score(response, gold, strict_box_verify=True)["acc"])

    return {
        "zerowait math": ours,
        # verl's math_verify calls the same with LaTeX alone for the gold, in a process of its own
        "math-verify": math_verify,
        "verl math_reward": lambda response, gold: math_reward.compute_score(response, gold) == 1,
        "verl math_dapo": lambda response, gold: bool(
            math_dapo.compute_score(f"{response}\nAnswer: {_inside(response)}", gold)["acc"]
        ),
        "verl math_dapo, strict box": dapo,
    }


def _inside(response: str) -> str:
    return response.removeprefix(r"$\boxed{").removesuffix("}$")


def _confusion(scorer: _Scorer, labelled: list[Pair]) -> tuple[Counter[str], Counter[str], float]:
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    took_s: list[float] = []
    scorer(r"$\boxed{\sqrt{2}}$", r"\sqrt{2}")  # imports and tables
    for pair in labelled:
        began_s = time.process_time()
        said = _verdict(scorer, rf"$\boxed{{{pair.said}}}$", pair.gold)
        took_s.append(time.process_time() - began_s)
        if said != pair.is_equal:
            counts["none" if said is None else f"false {'positive' if said else 'negative'}"] += 1
            kinds[pair.kind] += 1
    return counts, kinds, median(took_s)


def _verdict(scorer: _Scorer, response: str, gold: str) -> bool | None:
    try:
        with _at_most(_LONGEST_S):
            return scorer(response, gold)
    except Exception:  # noqa: BLE001 - a scorer that raises has no verdict
        return None


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole:,} ({100 * part / whole:.1f} %)"


def _show_kinds(faults: dict[str, Counter[str]]) -> None:
    names = list(faults)
    kinds = sorted({kind for each in faults.values() for kind in each})
    show(
        [
            ["wrong verdicts", *names],
            *([kind, *(str(faults[name][kind]) for name in names)] for kind in kinds),
        ]
    )


def _show_cases(*, peers: bool) -> bool:
    """Print where `math` differs from the cases; whether it has a reason for each of those."""
    cases = list(_cases())
    scorers = _scorers()
    ours = scorers["zerowait math"]
    differ = [case for case in cases if _verdict(ours, case.response, case.gold) != case.expected]
    same = len(cases) - len(differ)
    print(f"\n{same} of {len(cases)} public cases judged as their authors do; the others:")
    rows = [["gold", "response", "they say", "we do not, because"]]
    for case in differ:
        they = "right" if case.expected else "wrong"
        rows.append([case.gold[:40], case.response[-50:], they, case.reason or "NO REASON"])
    show(rows)
    if peers:
        for name, scorer in scorers.items():
            right = sum(
                _verdict(scorer, case.response, case.gold) == case.expected for case in cases
            )
            print(f"{name}: {right} of {len(cases)} as their authors do")
    return all(case.reason for case in differ)


def _cases() -> Iterator[_Case]:
    for line in _CASES.read_text(encoding="utf-8").splitlines():
        if line and line[0] != "#":
            source, expected, gold, response, *reason = line.split("\t")
            yield _Case(
                source, expected == "1", json.loads(gold), json.loads(response), "".join(reason)
            )


if __name__ == "__main__":
    sys.exit(main())
