"""``zerowait cache``: statistics of a cache of judge replies, pruning, export and import."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from zerowait.cache import CacheLimits, shard_files, upkeep
from zerowait.cache.ledger import SPEND_FILE, accounts
from zerowait.cache.limits import file_bytes
from zerowait.cache.open import limits_of
from zerowait.cache.upkeep import Selection
from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json, refuse_json_beside
from zerowait.cli.output_file import check_output, open_output
from zerowait.cli.row_files import STANDARD_STREAM, file_name, open_input
from zerowait.cli.tables import counted, show
from zerowait.client import NANO_USD
from zerowait.config import Cache, load_config
from zerowait.engine import Progress
from zerowait.errors import ConfigError

cache = typer.Typer(
    help="Show, prune, export and import the cache of judge replies.", no_args_is_help=True
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
def stats(where: Where, *, as_json: JsonOption = False) -> int:
    """Show the number, size and age of the replies of each judge and model, and budgets spent."""
    path, _ = _locate(where)
    files = [_contents(file) for file in _files(path)]
    budgets = [
        {
            "name": budget.name,
            "spent_usd": budget.spent / NANO_USD,
            "reserved_usd": budget.reserved / NANO_USD,
        }
        for budget in accounts(path.with_name(SPEND_FILE))
    ]
    if as_json:
        print_json({"files": files, "budgets": budgets})
        return 0
    for found in files:
        _show_contents(found)
    for budget in budgets:
        spent, reserved = budget["spent_usd"], budget["reserved_usd"]
        print(f"budget {budget['name']}: ${spent:.4f} spent, ${reserved:.4f} reserved")
    return 0


def _contents(file: Path) -> dict[str, Any]:
    with upkeep.opened(file) as connection:
        found = upkeep.contents(connection)
    return {
        "path": str(file),
        "entries": found.entries,
        "used_bytes": found.used_bytes,
        "file_bytes": found.file_bytes,
        "models": [
            {
                "judge": share.judge,
                "model": share.model,
                "entries": share.entries,
                "bytes": share.size_bytes,
                "oldest_unix_s": share.oldest,
                "newest_unix_s": share.newest,
            }
            for share in found.shares
        ],
    }


def _show_contents(found: Mapping[str, Any]) -> None:
    used, whole = _size(found["used_bytes"]), _size(found["file_bytes"])
    entries = counted(found["entries"], "entry", "entries")
    print(f"{found['path']}: {entries}, {used} in use, file {whole}")
    rows = [
        (
            share["judge"],
            share["model"],
            str(share["entries"]),
            _size(share["bytes"]),
            _local_time(share["oldest_unix_s"]),
            _local_time(share["newest_unix_s"]),
        )
        for share in found["models"]
    ]
    if rows:
        show([("judge", "model", "entries", "bytes", "oldest", "newest"), *rows])


@cache.command("prune")
def prune(  # noqa: PLR0913 - typer reads options from parameters
    where: Where,
    *,
    older_than: Annotated[
        str | None, typer.Option(help="Only entries older than this: 30d, 12h, 2w.")
    ] = None,
    judge: JudgeOption = None,
    model: ModelOption = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Delete the oldest until this much is left: 500MB, 2GiB.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Delete entries, the oldest first; running jobs may keep using the file.

    An entry must match all options. Without any, the limits of the configuration apply.
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
    pruned = [_prune(file, rules, parts=len(files), quiet=quiet) for file in files]
    if as_json:
        print_json({"files": pruned})
        return 0
    for each in pruned:
        size, left = _size(each["dropped_bytes"]), _size(each["file_bytes"])
        dropped = counted(each["dropped_entries"], "entry", "entries")
        print(f"{each['path']}: dropped {dropped} ({size}), file {left}")
    return 0


def _prune(
    file: Path, rules: list[tuple[Selection, int | None]], *, parts: int, quiet: bool
) -> dict[str, Any]:
    """Apply the rules to one file of a cache; how much was deleted.

    Args:
        file: the file.
        rules: which entries to delete, and the bytes that all files together may keep of them;
            None deletes all of them.
        parts: the number of files of the cache, which share the bytes equally.
        quiet: no progress bar.
    """
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
    return {
        "path": str(file),
        "dropped_entries": entries,
        "dropped_bytes": size_bytes,
        "file_bytes": left_bytes,
    }


def _rules(limits: CacheLimits) -> list[tuple[Selection, int | None]]:
    """The limits of a configuration as rules for `_prune`: first by age, then by size."""
    rules: list[tuple[Selection, int | None]] = []
    if limits.max_age_s is not None:
        rules.append((Selection(before=time.time() - limits.max_age_s), None))
    if limits.max_bytes is not None:
        rules.append((Selection(), limits.max_bytes))
    return rules


@cache.command("export")
def export(
    where: Where,
    file: Annotated[Path, typer.Argument(help="The JSONL file to write; - for standard output.")],
    *,
    judge: JudgeOption = None,
    model: ModelOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Write entries as JSON Lines; running jobs may keep using the cache."""
    refuse_json_beside(file, as_json=as_json)
    path, _ = _locate(where)
    for kept in (Path(where.partition("#")[0]).expanduser(), *_files(path)):
        if file.exists() and kept.exists() and file.samefile(kept):
            raise ConfigError(f"{file}: is what is exported, which would be lost")
    check_output(str(file), file)
    _refuse_database(file)
    chosen = Selection(judge=judge, model=model)
    try:
        with open_output(file, mode=0o600) as out:  # for its owner only, as the cache is
            entries = sum(_export(part, out, chosen, quiet=quiet) for part in _files(path))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"file": str(file), "cache": str(path), "entries": entries})
    elif file != STANDARD_STREAM:
        print(f"{file}: {counted(entries, 'entry', 'entries')} of {path}")
    return 0


def _export(file: Path, out: BinaryIO, chosen: Selection, *, quiet: bool) -> int:
    """Write the chosen entries of one cache file; their number."""
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
    file: Annotated[
        Path, typer.Argument(help="A JSONL file that export wrote; - for standard input.")
    ],
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Add the entries of an export, unless the cache has a newer one for the same key.

    Running jobs may keep using the cache. After an interrupt, run the same command again.
    """
    path, _ = _locate(where)
    total = file.stat().st_size if file.is_file() else 0
    with (
        open_input(file) as source,
        upkeep.opened(path, make=True) as connection,
        Progress(total, shown=not quiet and total > 0, what="reading bytes") as bar,
    ):
        imported, present = upkeep.import_lines(
            connection, iter(source), name=file_name(file), progress=bar.advance
        )
    if as_json:
        print_json({"cache": str(path), "imported": imported, "already_there": present})
    else:
        print(f"{path}: {counted(imported, 'entry', 'entries')} imported, {present} there already")
    return 0


def _locate(where: str) -> tuple[Path, Cache]:
    """The cache's file, and its settings where `where` is a configuration.

    Raises:
        ConfigError: the cache is a Redis, or the configuration has none.
    """
    name = where.partition("#")[0]
    if "://" in name:
        raise ConfigError(
            "zerowait cache works on files; use the tools of Redis for a cache in Redis"
        )
    if Path(name).suffix not in (".yaml", ".yml", ".json"):
        return Path(where).expanduser(), Cache()
    config = load_config(where)
    if config.cache.url is not None:
        config.fail(
            ("cache", "url"), "is a Redis: zerowait cache works on files; use the tools of Redis"
        )
    if config.cache.path is None:
        config.fail(("cache",), "has no cache file")
    return Path(config.cache.path), config.cache


def _files(path: Path) -> list[Path]:
    """The files of a cache: one, or one for each shard of a hub with several processes."""
    return [file for _, file in shard_files(path)] or [path]


def _refuse_database(file: Path) -> None:
    """Raise a ConfigError where an export would overwrite a cache or the ledger of a budget."""
    try:
        with file.open("rb") as there:
            is_database = there.read(len(_SQLITE)) == _SQLITE
    except OSError:  # it does not exist, or writing it will report what is wrong
        return
    if is_database:
        raise ConfigError(f"{file}: is a database, which would be lost")


def _seconds(text: str) -> float:
    """The seconds in a duration such as ``30d``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise ConfigError(f"--older-than {text}: write a number and s, m, h, d or w, such as 30d")
    return float(match[1]) * _UNITS_S[match[2]]


def _bytes(text: str) -> int:
    """The bytes in a size such as ``500MB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS_BYTES:
        raise ConfigError(f"--max-bytes {text}: write a size such as 500MB or 2GiB")
    size = float(match[1]) * _UNITS_BYTES[match[2]]
    if size >= _MOST_BYTES:
        raise ConfigError(f"--max-bytes {text}: is more than any disk holds")
    return int(size)


def _size(count: int) -> str:
    """A number of bytes for people.

    >>> _size(999), _size(1_500_000)
    ('999 B', '1.5 MB')
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _local_time(unix_s: float) -> str:
    """A Unix time in this machine's time zone; ``?`` where no calendar has it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s))
    except (OverflowError, ValueError, OSError):
        return "?"
