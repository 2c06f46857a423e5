"""The page of ``zerowait report``: one HTML file that needs no network and no other file."""

from __future__ import annotations

import base64
import html
import time
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from string import Template
from typing import BinaryIO, Final

import msgspec

from zerowait.observe.page.data import (
    VIEWS,
    Point,
    RecordedRun,
    open_run,
    point,
    points_by_interest,
    view_document,
)
from zerowait.record import open_index

POINT_BYTES: Final = 700_000
"""How much of the page the steps' panels may take; further steps have theirs without groups."""
MAX_PANELS: Final = 400
_CODE: Final = ("charts.js", "report.js")


class Documents(msgspec.Struct, frozen=True):
    """All that a page shows.

    Args:
        views: the document of each view, by its name.
        points: the panel of each step.
        note: what was left out of the panels, in words; empty for nothing.
    """

    views: dict[str, msgspec.Struct]
    points: list[Point]
    note: str = ""


def documents(run: RecordedRun) -> Documents:
    """The documents of all views, and of as many steps as the page has room for."""
    views = {name: view_document(run, name) for name in VIEWS}
    order = points_by_interest(run)
    shown: dict[int, Point] = {}
    left, bare = POINT_BYTES, 0
    falls = run.fall_reader()
    for at in order[:MAX_PANELS]:
        panel = point(run, at, groups_shown=3 if left > 0 else 0, falls=falls)
        left -= len(msgspec.json.encode(panel))
        bare += not (panel.worst or panel.best)
        shown[at] = panel
    notes = []
    if bare:
        notes.append(f"The groups of {bare} steps are left out to keep this page small.")
    if len(order) > MAX_PANELS:
        notes.append(f"Of {len(order)} points {MAX_PANELS} have a panel.")
    return Documents(views, [shown[at] for at in sorted(shown)], " ".join(notes))


def render(run: RecordedRun, now: float) -> str:
    """The page.

    Args:
        run: of the record.
        now: the Unix time to print on it.
    """
    encoded = msgspec.json.encode(documents(run)).decode()
    style, library, code = asset("uplot/uPlot.min.css") + asset("page.css"), _library(), _module()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hashed(library)} {_hashed(code)}; style-src 'unsafe-inline'"
    )
    written = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Template(asset("page.html")).substitute(
        policy=html.escape(policy, quote=True),
        title=html.escape(run.name or "run"),
        written=f"zerowait report, written {written}",
        style=style,
        # "<" ends or begins no tag inside a JSON string when it is written as an escape
        documents=encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        library=library,
        code=code,
    )


def write_page(folder: Path, page: BinaryIO) -> None:
    """Write the page about the record in `folder`.

    Args:
        folder: of the record.
        page: a binary file.

    Raises:
        DataError: nothing was recorded there, or none of its rewards can be read.
    """
    with closing(open_index(folder)) as index:
        run = open_run(index, folder.resolve().name)
        page.write(render(run, time.time()).encode("utf-8", "replace"))


def _module() -> str:
    """Our modules as one: an inline module cannot import a file, and need not."""
    return "\n".join(_without_imports(name) for name in _CODE)


def _without_imports(name: str) -> str:
    return "\n".join(line for line in asset(name).splitlines() if not line.startswith("import {"))


def _library() -> str:
    return asset("uplot/uPlot.iife.min.js")


def _hashed(script: str) -> str:
    """The source expression of a policy that allows exactly this script."""
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"


@cache
def asset(name: str) -> str:
    """The text of a file of the page, such as ``charts.js`` or ``uplot/uPlot.iife.min.js``."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
