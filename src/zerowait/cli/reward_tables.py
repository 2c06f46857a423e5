"""Tables of two rewards of the same samples, for ``zerowait replay`` and ``zerowait diff``."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, shorten
from typing import Final

from zerowait.cli.tables import counted, printable, show
from zerowait.observe import ADVANTAGE, Disagreement, RewardComparison, ValueComparison

_WIDTH: Final = 78
_MOST_CHANGES: Final = 12


def show_changes(changes: Sequence[str] | None) -> None:
    """Print what differs between two configurations; nothing where that is not known.

    Args:
        changes: in words; None where one of them was not kept.
    """
    if changes is None:
        return
    if not changes:
        print("configuration: the same components, judges and policies")
    for line in changes[:_MOST_CHANGES]:
        print(shorten(f"changed: {line}", _WIDTH))
    if len(changes) > _MOST_CHANGES:
        print(f"changed: {len(changes) - _MOST_CHANGES} keys more")


def show_comparison(comparison: RewardComparison, a: str, b: str) -> None:
    """Print the tables.

    Args:
        comparison: of the rewards.
        a: what the first side is called.
        b: what the second side is called.
    """
    reward = comparison.reward
    known = reward.both + reward.only_a, reward.both + reward.only_b
    show(
        [
            ("", f"A: {a}", f"B: {b}"),
            ("rows with a reward", *map(str, known)),
            ("mean, where both have one", _number(reward.mean_a), _number(reward.mean_b)),
        ]
    )
    header = ("", "both", "same", "mean B-A", "max diff", "rho", "tau", "only A", "only B")
    rows = [_row("reward", reward)]
    rows += [_row(name, each) for name, each in comparison.components.items()]
    show([header, *rows])
    print("both: rows with a value on both sides; rho: Spearman's; tau: Kendall's\n")
    _show_signs(comparison)
    for number, each in enumerate(comparison.worst, start=1):
        _show_disagreement(number, each, reward.both)


def _row(name: str, each: ValueComparison) -> tuple[str, ...]:
    share = f"{each.same / each.both:.1%}" if each.both else "-"
    return (
        _short_name(name),
        str(each.both),
        share,
        _signed(each.mean_difference),
        _number(each.largest_difference),
        _number(each.spearman),
        _number(each.kendall),
        str(each.only_a),
        str(each.only_b),
    )


def _short_name(name: str) -> str:
    """A component's name, cut to what a table of 80 columns has room for."""
    return name if len(name) <= 14 else f"{name[:11]}..."


def _show_signs(comparison: RewardComparison) -> None:
    signs = comparison.signs
    if not signs.groups:
        print("advantages: no prompt group has two rows with a reward on both sides\n")
        return
    share = f" ({signs.flipped / signs.rows:.2%})" if signs.rows else ""
    print(
        f"advantages: {signs.flipped} of {signs.rows} change their sign{share}, {signs.vanished} "
        f"become 0, {signs.appeared} are 0 no more"
    )
    print(
        f"  in {counted(signs.groups, 'prompt group')}; without any advantage: {signs.flat_a} "
        f"before, {signs.flat_b} after"
    )
    print(fill(ADVANTAGE, _WIDTH, initial_indent="  ", subsequent_indent="  "), "\n", sep="")


def _show_disagreement(number: int, each: Disagreement, count: int) -> None:
    if number == 1:
        print("worst disagreements, by rank (1 is the lowest reward)")
    flipped = "; its advantage changes its sign" if each.flipped else ""
    print(f"{number}. A {_number(each.a)}, B {_number(each.b)}{_ranks(each, count)}{flipped}")
    names = {"step": each.step, "group": each.group, "id": each.id}
    lines = [
        ", ".join(f"{name} {value}" for name, value in names.items() if value not in {None, ""})
    ]
    lines += each.changed
    lines += [f"both: {', '.join(each.unchanged)}"] if each.unchanged else []
    lines += [f"prompt: {each.prompt}", f"response: {each.response}"]
    for line in lines:
        if line.strip():
            print(f"   {shorten(printable(line), _WIDTH - 3)}")


def _ranks(each: Disagreement, count: int) -> str:
    if each.rank_a is None or each.rank_b is None:
        return ""
    return f"; rank {each.rank_a:g} -> {each.rank_b:g} of {count}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"
