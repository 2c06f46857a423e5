"""Train a tiny search agent with a retriever that answers over HTTP, and show what it learned.

python recipes/search/run.py [--output runs/search/run]
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from zerowait.hub import RewardRecord, read_rewards
from zerowait.tiny_models.search import make_search_policy

HERE = Path(__file__).parent
RUNS = Path("runs/search")
ZEROWAIT = [sys.executable, "-c", "from zerowait.cli import main; main()"]


def main() -> int:
    """Run it all; the exit code of the first step that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", default=str(RUNS / "run"))
    given = options.parse_args()
    started = time.monotonic()
    made = make_search_policy(RUNS / "assets")
    zerowait("retriever", "build", made.corpus, str(RUNS / "index"))
    with retriever(RUNS / "index") as url:
        recipe = str(HERE / "recipe.yaml")
        zerowait("train", recipe, f"search.retriever.url={url}", f"--output={given.output}")
    show(list(read_rewards(Path(given.output))))
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    return 0


@contextlib.contextmanager
def retriever(index: Path) -> Iterator[str]:
    """The URL of the retriever, which runs in a process of its own, on a port that is free."""
    process = subprocess.Popen(
        [*ZEROWAIT, "retriever", "serve", str(index), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "are served at" not in line:
            sys.exit("the retriever did not start")
        print(line.strip())
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(10)


def show(records: list[RewardRecord]) -> None:
    """Held-out questions before and after training, and each training step between them."""
    from zerowait.cli.tables import show as table

    steps = sorted({record.sample.step or 0 for record in records})
    rows = [("", "episodes", "that search", "reward", "searches that failed")]
    for step in steps:
        for split in ("train", "validation"):
            chosen = [r for r in records if (r.sample.split, r.sample.step or 0) == (split, step)]
            if chosen:
                name = f"step {step}" if split == "train" else f"held-out, after step {step}"
                rows.append((name, *figures(chosen)))
    table(rows)


def figures(records: list[RewardRecord]) -> tuple[str, str, str, str]:
    """How many episodes there were, how many searched, and what they got."""
    episodes = [record.sample.extra["episode"] for record in records]
    values = [record.reward.value for record in records if record.reward.value is not None]
    return (
        str(len(episodes)),
        f"{mean(episode['searches'] > 0 for episode in episodes):.0%}",
        f"{mean(values):.2f}",
        str(sum(episode["failed_searches"] for episode in episodes)),
    )


def mean(values: Iterable[float]) -> float:
    """The mean of at least one value."""
    known = list(values)
    return sum(known) / len(known)


def zerowait(*arguments: str) -> None:
    """Run the zerowait command; end with its exit code when it fails."""
    code = subprocess.run([*ZEROWAIT, *arguments], check=False).returncode
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
