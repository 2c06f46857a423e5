"""Report on a run: its tables for the terminal."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.engine import ALARMS
from zerowait.errors import DataError
from zerowait.observe.fall import Fall, held_out_falls
from zerowait.observe.page.data import open_run
from zerowait.observe.steps import StepSummary, summarise
from zerowait.record import StatsRecord, damage_in, open_index

TableRow = Sequence[str]
_MAX_REASONS = 5
_WAITED: Final = "exposed_reward_s, all steps"
_SUMMED: Final = (
    *("submitted", "settled", "given_up", "abstained", "asked", "cached", "joined"),
    *("requests", "retries"),
    *("hedges", "hedge_wins", "store_failures", "model_changes", "comparisons", "inconsistent"),
    *("prompt_tokens", "completion_tokens", "spent_usd"),
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run's summaries and final counters.

    Args:
        folder: of its records. training, validation: one summary per step.
        stats: the fields of `zerowait.engine.Stats` at the end, summed over the run's hubs.
        falls: the steps worth asking about, and why the reward or a component fell there.
        notes: what goes wrong over a longer time, in words.
        damage: which lines of the record are damaged, in words; empty for none.
    """

    folder: Path
    training: list[StepSummary]
    validation: list[StepSummary]
    stats: dict[str, Any]
    falls: list[Fall] = []
    notes: list[str] = []
    damage: str = ""

    @property
    def before(self) -> StepSummary | None:
        """The first validation, or None with fewer than two."""
        return self.validation[0] if len(self.validation) > 1 else None

    @property
    def after(self) -> StepSummary | None:
        """The last validation, or None with fewer than two."""
        return self.validation[-1] if len(self.validation) > 1 else None


def read_report(folder: Path) -> Report:
    """The report of the run in `folder`.

    Raises:
        DataError: no reward was recorded there.
    """
    with closing(open_index(folder)) as index:
        steps = summarise(index)
        stats = run_stats(_stats(index))
        damage = damage_in(index)
        if not steps:
            raise DataError(f"{folder} has no rewards yet")
        run = open_run(index)
        asked = sorted(at for points in run.falls() for at in points)
        slow = run.slow_fall()
        explained = [run.fall_reader(only=at).explain(at) for at in asked]
        if slow is not None:
            explained.append(run.explain_slow(slow))
        notes = list(held_out_falls(index, run.axis))
    return Report(
        folder=folder,
        training=[step for step in steps if step.split == "train"],
        validation=[step for step in steps if step.split != "train"],
        stats=stats,
        falls=explained,
        notes=notes,
        damage=damage,
    )


def _stats(index: sqlite3.Connection) -> Iterator[StatsRecord]:
    """The last counters of each hub of the run."""
    for row in index.execute(
        "SELECT MAX(at) AS at, hub, split, step, stats FROM stats GROUP BY hub ORDER BY at"
    ):
        counted = json.loads(row["stats"])
        yield StatsRecord(
            at=row["at"], split=row["split"], step=row["step"], stats=counted, hub=row["hub"]
        )


def run_stats(records: Iterable[StatsRecord]) -> dict[str, Any]:
    """A run's counters: those of its last hub, with those of earlier hubs added; {} without any.

    A run has several hubs when it was resumed, or when a hub's process died. Alarms of all hubs are
    listed. Momentary values (limits, latencies, the budget) are the last hub's.

    Args:
        records: the run's rows of ``stats.jsonl``, oldest first.
    """
    last_of_each = {record.hub: record.stats for record in records}
    hubs = list(last_of_each.values())
    if len(hubs) <= 1:
        return dict(hubs[0]) if hubs else {}
    total = dict(hubs[-1])
    total |= {name: sum(hub.get(name, 0) for hub in hubs) for name in _SUMMED}
    abstentions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for hub in hubs:
        abstentions.update(hub.get("abstentions", {}))
        reasons.update(hub.get("reasons", {}))
    total["abstentions"] = dict(sorted(abstentions.items()))
    total["reasons"] = dict(reasons.most_common())
    for name in ("judges", "components", "anchors"):
        if any(name in hub for hub in hubs):
            total[name] = _added_by_name([hub.get(name, {}) for hub in hubs])
    total["alarms"] = [alarm for hub in hubs for alarm in hub.get("alarms", [])]
    total["peak_in_flight"] = max(hub.get("peak_in_flight", 0) for hub in hubs)
    return total


def _added_by_name(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The counts under each name added up; what is no number, such as a drift, is the latest.

    >>> _added_by_name([{"a": {"asked": 1, "last": "x"}}, {"a": {"asked": 2, "last": None}}])
    {'a': {'asked': 3, 'last': 'x'}}
    """
    total: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, counts in part.items():
            known = total.setdefault(name, {})
            for key, count in counts.items():
                if isinstance(count, int | float):
                    known[key] = known.get(key, 0) + count
                elif count is not None or key not in known:
                    known[key] = count
    return total


def comparison(report: Report) -> list[TableRow]:
    """Held-out prompts before and after training: a header and one row per figure."""
    before, after = report.before, report.after
    if before is None or after is None:
        return []
    rows: list[TableRow] = [("held-out prompts", "before", "after")]
    rows.append(("reward", shown_number(before.reward), shown_number(after.reward)))
    rows += [
        (name, shown_number(value), shown_number(after.components.get(name)))
        for name, value in before.components.items()
    ]
    tokens = (shown_number(before.response_tokens, 1), shown_number(after.response_tokens, 1))
    rows.append(("response tokens", *tokens))
    rows.append(("judged", f"{before.scored}/{before.rows}", f"{after.scored}/{after.rows}"))
    return rows


def by_step(report: Report) -> list[TableRow]:
    """Training step by step: a header and one row per step."""
    names = list(report.training[0].components) if report.training else []
    rows: list[TableRow] = [("step", "reward", *names, "tokens", "abstained", "exposed_reward_s")]
    rows += [
        (
            str(step.step),
            shown_number(step.reward),
            *(shown_number(step.components.get(name)) for name in names),
            shown_number(step.response_tokens, 1),
            f"{step.rows - step.scored}/{step.rows}",
            shown_number(step.exposed_s, 2),
        )
        for step in report.training
    ]
    return rows


def traffic(report: Report) -> list[TableRow]:
    """The judges' traffic, cost, cache use and abstentions: a header and one row per figure."""
    stats = report.stats
    if not stats:
        wait = shown_number(_total_wait_s(report), 2)
        return [("judge", ""), ("counters", "none can be read"), (_WAITED, wait)]
    abstentions = stats.get("abstentions", {})
    return [
        ("judge", ""),
        ("asked", str(stats.get("asked", 0))),
        ("cache hits", str(stats.get("cached", 0))),
        ("joined a call in flight", str(stats.get("joined", 0))),
        ("tokens", f"{stats.get('prompt_tokens', 0)} + {stats.get('completion_tokens', 0)}"),
        ("spent", _usd(stats.get("spent_usd", 0.0))),
        ("served model changes", str(stats.get("model_changes", 0))),
        ("retries", str(stats.get("retries", 0))),
        ("peak in flight", str(stats.get("peak_in_flight", 0))),
        ("latency p50 / p99", f"{_s(stats, 'latency_p50_s')} / {_s(stats, 'latency_p99_s')} s"),
        (
            "abstentions",
            ", ".join(f"{kind} {count}" for kind, count in abstentions.items()) or "none",
        ),
        (_WAITED, shown_number(_total_wait_s(report), 2)),
        *_anchors(stats),
    ]


def _total_wait_s(report: Report) -> float | None:
    """Seconds that the trainer waited for rewards in all steps; None if it did not measure it."""
    waited = [step.exposed_s for step in report.training if step.exposed_s is not None]
    return math.fsum(waited) if waited else None


def reasons(report: Report) -> list[str]:
    """The five most frequent reasons of failed judgements, as the endpoints gave them, in lines."""
    counts = list(report.stats.get("reasons", {}).items())
    return [f"not reached, {count} x {reason}" for reason, count in counts[:_MAX_REASONS]]


def _anchors(stats: dict[str, Any]) -> list[TableRow]:
    """The drift and the drift alarms of each judge that has anchors."""
    rows: list[TableRow] = []
    for judge, anchors in stats.get("anchors", {}).items():
        drifts = [
            f"{anchors[key]['mean_abs']:.3f} {words}"
            for key, words in (
                ("since_first", "since the first"),
                ("from_reference", "from the reference"),
            )
            if anchors.get(key)
        ]
        shown = ", ".join(drifts) or "nothing reached"
        alarms = f"; ALARM: drifted {anchors['alarms']} times" if anchors["alarms"] else ""
        rows.append((f"drift of {judge}", f"{shown} ({anchors['measurements']} measured){alarms}"))
    return rows


def falls(report: Report) -> list[str]:
    """Where the reward or a component fell, and the likeliest cause, in lines; empty for nowhere.

    Lines and no table, which would cut the sentences off.
    """
    lines = []
    for fall in report.falls:
        lines.append(f"step {fall.point}: {fall.words}")
        lines.extend(
            f"  likely cause: {cause.title}: {'; '.join(cause.evidence)}"
            for cause in fall.causes[:1]
        )
    return [*lines, *report.notes]


def alarms(report: Report) -> list[TableRow]:
    """The health alarms about the rewards: a header and one row per alarm; empty without any."""
    raised = report.stats.get("alarms", [])
    if not raised:
        return []
    rows: list[TableRow] = [("step", "alarm", "component", "what it says")]
    for each in raised:
        meaning = ALARMS.get(each["kind"], "")
        says = f"{meaning}: {each['why']}" if meaning else each["why"]
        rows.append((str(each["step"]), each["kind"], each["component"] or "reward", says))
    return rows


def shown_number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` decimals; None, a mean over no values, is a dash and never 0.

    >>> shown_number(None), shown_number(0.5)
    ('-', '0.500')
    """
    return "-" if value is None else f"{value:.{digits}f}"


def _usd(spent: float) -> str:
    """The cost in dollars; 0 means that no model has a price, not that it cost nothing."""
    return f"${spent:.4f}" if spent else "nothing that has a price"


def _s(stats: dict[str, Any], name: str) -> str:
    return f"{stats.get(name, 0.0):.2f}"
