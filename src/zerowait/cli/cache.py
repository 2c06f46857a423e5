"""``zerowait cache``: what a cache holds, pruning it, and moving its entries to another file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from zerowait.cache import CacheLimits, shard_files, upkeep
from zerowait.cache.ledger import SPEND_FILE, accounts
from zerowait.cache.limits import file_bytes
from zerowait.cache.open import limits_of
from zerowait.cache.upkeep import Selection
from zerowait.cli.app import app
from zerowait.cli.tables import show
from zerowait.cli.targets import refuse_special
from zerowait.client import NANO_USD
from zerowait.config import Cache, load_config
from zerowait.engine import Progress
from zerowait.errors import ConfigError

cache = typer.Typer(
    help="Look into the cache of judged replies, prune it, copy it.", no_args_is_help=True
)
app.add_typer(cache, name="cache")

_SQLITE = b"SQLite format 3\0"
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS_BYTES = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_UNITS_BYTES |= {f"{unit}I": 1024**power for power, unit in enumerate("KMGT", start=1)}
_MOST_BYTES = 2.0**63

Where = Annotated[str, typer.Argument(help="The cache's file, reward.yaml, or recipe.yaml#reward.")]
JudgeOption = Annotated[str | None, typer.Option(help="Only entries of this judge.")]
ModelOption = Annotated[str | None, typer.Option(help="Only entries of this served model.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


@cache.command("stats")
def stats(where: Where) -> int:
    """Show how many replies there are, of which judges and models, how big and how old.

    And what was spent, where a budget is kept beside the cache.
    """
    path, _ = _locate(where)
    for file in _files(path):
        _show_contents(file)
    for budget in accounts(path.with_name(SPEND_FILE)):
        print(
            f"budget {budget.name}: ${budget.spent / NANO_USD:.4f} spent, "
            f"${budget.reserved / NANO_USD:.4f} reserved"
        )
    return 0


def _show_contents(file: Path) -> None:
    with upkeep.opened(file) as connection:
        found = upkeep.contents(connection)
    print(
        f"{file}: {found.entries} entries, {_size(found.used_bytes)} in use, "
        f"file {_size(found.file_bytes)}"
    )
    rows = [("judge", "model", "entries", "bytes", "oldest", "newest")]
    for share in found.shares:
        ages = (_moment(share.oldest), _moment(share.newest))
        rows.append((share.judge, share.model, str(share.entries), _size(share.size_bytes), *ages))
    show(rows if found.shares else [])


@cache.command("prune")
def prune(
    where: Where,
    *,
    older_than: Annotated[
        str | None, typer.Option(help="Only entries older than this: 30d, 12h, 2w.")
    ] = None,
    judge: JudgeOption = None,
    model: ModelOption = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Drop the oldest until this much is left: 500MB, 2GiB.")
    ] = None,
    quiet: QuietOption = False,
) -> int:
    """Drop entries, the oldest first; running jobs may go on using the file.

    Options narrow one another. Without any the limits of the configuration apply.
    """
    path, limits = _locate(where)
    rules = _rules(limits_of(limits))
    if older_than or judge or model or max_bytes:
        before = None if older_than is None else time.time() - _seconds(older_than)
        chosen = Selection(judge=judge, model=model, before=before)
        rules = [(chosen, None if max_bytes is None else _bytes(max_bytes))]
    if not rules:
        raise ConfigError("say what to prune: --older-than, --judge, --model or --max-bytes")
    files = _files(path)
    for file in files:
        _prune(file, rules, parts=len(files), quiet=quiet)
    return 0


def _prune(
    file: Path, rules: list[tuple[Selection, int | None]], *, parts: int, quiet: bool
) -> None:
    """Apply the rules to a file that is one of `parts`."""
    entries = size_bytes = 0
    with upkeep.opened(file) as connection:
        for chosen, left in rules:
            total = upkeep.count(connection, chosen)
            with Progress(total, shown=not quiet, what="pruning") as bar:
                most = None if left is None else left // parts
                dropped = upkeep.prune(connection, chosen, max_bytes=most, progress=bar.advance)
            entries += dropped[0]
            size_bytes += dropped[1]
        left_bytes = file_bytes(connection)
    print(f"{file}: dropped {entries} entries ({_size(size_bytes)}), file {_size(left_bytes)}")


def _rules(limits: CacheLimits) -> list[tuple[Selection, int | None]]:
    """What a configuration's limits drop: what is too old, then what is too much."""
    rules: list[tuple[Selection, int | None]] = []
    if limits.max_age_s is not None:
        rules.append((Selection(before=time.time() - limits.max_age_s), None))
    if limits.max_bytes is not None:
        rules.append((Selection(), limits.max_bytes))
    return rules


@cache.command("export")
def export(
    where: Where,
    file: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    judge: JudgeOption = None,
    model: ModelOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write entries as JSON, one a line; running jobs may go on using the cache."""
    path, _ = _locate(where)
    for kept in (Path(where.partition("#")[0]).expanduser(), *_files(path)):
        if file.exists() and kept.exists() and file.samefile(kept):
            raise ConfigError(f"{file}: is what is exported, which would be lost")
    refuse_special(str(file), file)
    chosen = Selection(judge=judge, model=model)
    _refuse_database(file)
    partial = file.with_name(f".{file.name}.partial")
    entries = 0
    try:
        with _private(partial) as out:
            for part in _files(path):
                entries += _export(part, out, chosen, quiet=quiet)
        partial.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):  # where nothing can be written there is nothing
            partial.unlink(missing_ok=True)
    print(f"{file}: {entries} entries of {path}")
    return 0


def _export(file: Path, out: BinaryIO, chosen: Selection, *, quiet: bool) -> int:
    entries = 0
    with upkeep.opened(file) as connection:
        total = upkeep.count(connection, chosen)
        with Progress(total, shown=not quiet, what="writing") as bar:
            for line in upkeep.export_lines(connection, chosen):
                out.write(line + b"\n")
                entries += 1
                bar.advance()
    return entries


@cache.command("import")
def import_(
    where: Where,
    file: Annotated[Path, typer.Argument(help="A JSONL file that export wrote.")],
    quiet: QuietOption = False,
) -> int:
    """Add the entries of an export, where the cache has no newer ones.

    Running jobs may go on using the cache. Interrupted, it can simply be run again.
    """
    path, _ = _locate(where)
    try:
        total = file.stat().st_size
        source = file.open("rb")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    with (
        source,
        upkeep.opened(path, make=True) as connection,
        Progress(total, shown=not quiet, what="reading bytes") as bar,
    ):
        kept, passed = upkeep.import_lines(
            connection, _lines(source), name=str(file), progress=bar.advance
        )
    print(f"{path}: {kept} entries imported, {passed} there already")
    return 0


def _locate(where: str) -> tuple[Path, Cache]:
    """The cache's file, and what the configuration says of it."""
    name = where.partition("#")[0]
    if "://" in name:
        raise ConfigError("only cache files can be looked into; Redis has tools of its own")
    if Path(name).suffix not in (".yaml", ".yml", ".json"):
        return Path(where).expanduser(), Cache()
    config = load_config(where)
    if config.cache.url is not None:
        config.fail(("cache", "url"), "is a Redis, which has tools of its own; this is for files")
    if config.cache.path is None:
        config.fail(("cache",), "says that there is no cache file")
    return Path(config.cache.path), config.cache


def _files(path: Path) -> list[Path]:
    """The cache's file, or those of the shards of a hub that is spread over several processes."""
    return [file for _, file in shard_files(path)] or [path]


def _refuse_database(file: Path) -> None:
    """Keeps a slip from putting an export in the place of another cache, or of a ledger."""
    try:
        with file.open("rb") as there:
            is_database = there.read(len(_SQLITE)) == _SQLITE
    except OSError:  # it is not there, or the writing of it tells what is wrong
        return
    if is_database:
        raise ConfigError(f"{file}: is a database, which would be lost")


def _private(path: Path) -> BinaryIO:
    """A new file for its owner only, as the cache is."""
    try:
        path.unlink(missing_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"{path.parent}: cannot be written to: {error.strerror}") from None


def _lines(source: BinaryIO) -> Iterator[bytes]:
    yield from source


def _seconds(text: str) -> float:
    """The seconds of a span such as ``30d``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise ConfigError(f"--older-than {text}: write a number and s, m, h, d or w, such as 30d")
    return float(match[1]) * _UNITS_S[match[2]]


def _bytes(text: str) -> int:
    """The bytes of a size such as ``500MB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS_BYTES:
        raise ConfigError(f"--max-bytes {text}: write a size such as 500MB or 2GiB")
    size = float(match[1]) * _UNITS_BYTES[match[2]]
    if size >= _MOST_BYTES:
        raise ConfigError(f"--max-bytes {text}: is more than any disk holds")
    return int(size)


def _size(count: int) -> str:
    """The bytes for people."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _moment(unix_s: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s))
    except (OverflowError, ValueError, OSError):
        return "?"
