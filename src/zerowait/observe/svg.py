"""The parts of our SVG pictures: the frame with its heading, texts, a legend, and two themes."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

import msgspec

WIDTH: Final = 760
"""Width of every picture in px: about that of a README."""
LETTER_PX: Final = 6.6
"""Width in px that is reserved for a letter of a text of the usual size."""
_FONT: Final = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'


class Theme(msgspec.Struct, frozen=True):
    """Colours of background, text, lesser text and lines."""

    background: str
    text: str
    lesser: str
    line: str


THEMES: Final = {
    "light": Theme("#ffffff", "#1f2328", "#59636e", "#d1d9e0"),
    "dark": Theme("#0d1117", "#e6edf3", "#9198a1", "#3d444d"),
}


def picture(heading: str, parts: Iterable[str], theme: Theme, *, height: float) -> str:
    """A whole SVG file: background, heading, and the parts below it.

    Args:
        heading: is also what a screen reader says.
        parts: elements; empty ones are left out.
        theme: its colours.
        height: in px.
    """
    size = f'width="{WIDTH}" height="{height:.0f}"'
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" {size}'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {_FONT} role="img" aria-labelledby="t">',
        f'<title id="t">{html.escape(heading)}</title>',
        f'<rect {size} fill="{theme.background}"/>',
        text(16, 28, heading, theme.text, size=14, weight=600),
        *(part for part in parts if part),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def legend(entries: Iterable[tuple[str, str]], y: float, theme: Theme) -> list[str]:
    """A row of coloured squares with their names.

    Args:
        entries: names with their colours.
        y: the base line of the names.
        theme: colours of the names.
    """
    parts, left = [], 16.0
    for name, colour in entries:
        parts.append(
            f'<rect x="{left:.0f}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}"/>'
        )
        parts.append(text(left + 15, y, name, theme.lesser, size=11))
        left += 34 + len(name) * LETTER_PX * 0.95
    return parts


def text(  # noqa: PLR0913 - what an SVG text has
    x: float,
    y: float,
    words: str,
    colour: str,
    *,
    size: int = 12,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    """One line of text, by default to the right of its point."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}" text-anchor="{anchor}">{html.escape(words)}</text>'
    )
