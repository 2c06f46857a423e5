"""Tables and counts on the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(0, "row"), counted(2, "entry", "entries")
    ('1 row', '0 rows', '2 entries')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def printable(text: str) -> str:
    r"""The text without characters that move a terminal's cursor or turn its direction.

    >>> print(printable("\x1b[2J gone"))
    \x1b[2J gone
    """
    return _CONTROL.sub(
        lambda found: found[0].encode("unicode_escape").decode(), text.replace("\t", "    ")
    )


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first row is its header; nothing for no rows."""
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, cell in enumerate(rows[0]):
        table.add_column(cell, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    # A pipe has no width; 200 columns keep rich from cutting cells for `zerowait ... | less -S`
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print()
