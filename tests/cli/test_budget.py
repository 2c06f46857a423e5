"""A budget under ``zerowait score``, with a process that is killed on the way."""

import json
import sqlite3
from concurrent.futures import Future

from zerowait.client import nano_usd
from zerowait.testing import FakeJudge, Latency, Script

BUDGET_USD = 0.5
USD_PER_TOKEN = 0.001


def account(path):
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT spent, reserved FROM budgets").fetchone()
    connection.close()
    return row


class Fatal:
    """Answers every request, and kills the process in `run` while it waits for the 20th answer."""

    def __init__(self):
        self.run = Future()
        self.asked = 0

    def __call__(self, body):
        self.asked += 1
        if self.asked == 20:
            self.run.result(60).kill()
        return "7"


def billed_tokens(path):
    """What each answer in the cache was billed at least."""
    connection = sqlite3.connect(path)
    replies = [json.loads(reply) for (reply,) in connection.execute("SELECT reply FROM replies")]
    connection.close()
    return min(reply["usage"]["completion_tokens"] for reply in replies)


def test_a_killed_and_resumed_run_never_costs_more_than_its_budget(
    tmp_path, start_zerowait, zerowait
):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"prompt": "q", "response": f"a {i}"}) + "\n" for i in range(400))
    )
    fatal = Fatal()
    with FakeJudge(Script(latency=Latency(median_s=0.05)), answer=fatal) as judge:
        config = tmp_path / "reward.yaml"
        endpoint = {"base_url": judge.url, "model": "m"}
        # JSON is YAML
        config.write_text(
            json.dumps(
                {
                    "components": {"quality": {"judge": "q"}},
                    "judges": {
                        "q": {
                            "endpoints": [endpoint],
                            "verdict": {"integer": [1, 10]},
                            "max_tokens": 10,
                        }
                    },
                    "prices": {"m": {"input": 0, "output": USD_PER_TOKEN * 1e6}},
                    "traffic": {"concurrency": 16, "budget_usd": BUDGET_USD},
                    "cache": {"path": "judgements.db"},
                }
            )
        )
        first = start_zerowait("score", rows, "-c", config, "-q")
        fatal.run.set_result(first)
        first.communicate()
        _, lost = account(tmp_path / "spend.db")
        second = zerowait("score", rows, "-c", config, "-q")
        third = zerowait("score", rows, "-c", config, "-q")
        seen = judge.seen
    spent, reserved = account(tmp_path / "spend.db")
    truth = seen.requests * billed_tokens(tmp_path / "judgements.db") * nano_usd(USD_PER_TOKEN)
    assert lost > 0
    assert truth <= spent + reserved <= nano_usd(BUDGET_USD)
    assert seen.requests < 400
    for done in (second, third):
        assert done.returncode == 3, done.stderr
        assert f"of ${BUDGET_USD:.2f} spent" in done.stdout
    kept = [json.loads(line) for line in (tmp_path / "rows.rewards.jsonl").read_text().splitlines()]
    why = {row["reward_why"].partition(": ")[2][:6] for row in kept if row["reward"] is None}
    assert why == {"budget"}
    # everything known is still answered
    assert sum(row["reward"] is not None for row in kept) == seen.distinct_bodies
