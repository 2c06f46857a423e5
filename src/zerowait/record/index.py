"""The index of a record: its lines in an SQLite file, for commands and pages that query a run.

The lines are the record; the index is made of them and may be deleted at any time. It is
``index.db`` in the run's folder, or in the user's cache where that cannot be written to. Each
`open_index` and `refresh` reads on from where the last one ended. The tables are described in
``docs/reference/record.md``; where the contract of a column needs a word:

* ``rewards.messages`` is an object ``{"prompt": [...], "response": [...]}``, each None where that
  side is plain text; the column is NULL where both are.
* ``events.kind`` is the event's class in `zerowait.events` in lower case: ``limit_changed``,
  ``endpoint_ejected``, ``endpoint_returned``, ``health_alarm``, ``model_changed``,
  ``anchors_measured``, ``judge_drifted``, ``account_exhausted``, ``form_refused``, ...
* ``undone`` names the samples of steps that were trained again after a resume. Their rewards are
  not in ``rewards``; their judgements, which were paid for, are in ``judgements``.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from zerowait.errors import DataError
from zerowait.record.judgements import (
    EVENTS,
    JUDGEMENTS,
    OPINIONS,
    EventLine,
    JudgementLine,
    OpinionLine,
    body_text,
)
from zerowait.record.lines import (
    DAMAGED_SHOWN,
    DamagedLine,
    damage_text,
    decoded_lines,
    parts_of,
    unreadable,
)
from zerowait.record.resume import UNDONE
from zerowait.record.rewards import (
    REWARDS,
    STATS,
    WAITS,
    RewardRecord,
    StatsRecord,
    WaitRecord,
)
from zerowait.record.texts import HASHED, hash_of
from zerowait.types import Abstain, Outcome, Score, prompt_text

INDEX: Final = "index.db"
_VERSION: Final = 2
_CHUNK_BYTES: Final = 8 * 2**20
_UNUSABLE: Final = (OverflowError, UnicodeEncodeError)
"""What SQLite raises for a whole number beyond 64 bits, and for half of a surrogate pair."""
_BUSY_S: Final = 60.0
_CACHE: Final = "~/.cache/zerowait/indexes"

_TABLES: Final = """
CREATE TABLE sources (name TEXT PRIMARY KEY, identity TEXT, offset INTEGER, line INTEGER);
CREATE TABLE rewards (row INTEGER PRIMARY KEY, uid TEXT, id TEXT, ticket TEXT,
  current INTEGER NOT NULL, split TEXT NOT NULL, step INTEGER, prompt_group TEXT, data_source TEXT,
  value REAL, policy TEXT NOT NULL, why TEXT NOT NULL, trained_on REAL, substitute_from TEXT,
  response_tokens INTEGER, response_chars INTEGER NOT NULL, submitted_at REAL, settled_at REAL,
  prompt_hash TEXT, prompt TEXT, response TEXT, ground_truth TEXT, extra TEXT, messages TEXT);
CREATE TABLE components (row INTEGER, component TEXT, outcome TEXT, value REAL, kind TEXT,
  why TEXT, detail TEXT);
CREATE TABLE metrics (row INTEGER, name TEXT, value REAL);
CREATE TABLE judgements (judgement INTEGER PRIMARY KEY, at REAL, judge TEXT, component TEXT,
  question INTEGER, vote INTEGER, key TEXT, source TEXT, outcome TEXT, value REAL, kind TEXT,
  why TEXT, attempts INTEGER, hedges INTEGER, status INTEGER, endpoint TEXT, model TEXT, form TEXT,
  latency_s REAL, queue_s REAL, prompt_tokens INTEGER, completion_tokens INTEGER, cost_usd REAL,
  request INTEGER, reply INTEGER);
CREATE TABLE judgement_rows (judgement INTEGER, uid TEXT);
CREATE TABLE attempts (judgement INTEGER, number INTEGER, at REAL, endpoint TEXT, status INTEGER,
  latency_s REAL, why TEXT, reply INTEGER);
CREATE TABLE texts (text INTEGER PRIMARY KEY, sha256 TEXT UNIQUE, body TEXT);
CREATE TABLE stats (at REAL, hub TEXT, split TEXT, step INTEGER, stats TEXT);
CREATE TABLE waits (step INTEGER PRIMARY KEY, exposed_s REAL);
CREATE TABLE phases (step INTEGER, name TEXT, began_at REAL, ended_at REAL);
CREATE TABLE events (at REAL, kind TEXT, judge TEXT, endpoint TEXT, component TEXT, step INTEGER,
  why TEXT, fields TEXT);
CREATE TABLE opinions (row INTEGER, uid TEXT, up INTEGER, note TEXT, who TEXT, at REAL);
CREATE TABLE undone (uid TEXT, step INTEGER);
CREATE TABLE steps (split TEXT, step INTEGER, rows INTEGER, scored INTEGER, mean_value REAL,
  mean_square REAL, min_value REAL, max_value REAL, mean_chars REAL, mean_tokens REAL,
  groups INTEGER, equal_groups INTEGER);
CREATE TABLE step_components (split TEXT, step INTEGER, component TEXT, outcome TEXT, kind TEXT,
  rows INTEGER, mean_value REAL, mean_square REAL);
CREATE TABLE damaged (file TEXT, line INTEGER, why TEXT);
"""
TABLES: Final = tuple(re.findall(r"CREATE TABLE (\w+)", _TABLES))[1:]
"""The tables of an index that hold what was recorded, in their order."""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS rewards_uid ON rewards (uid);
CREATE INDEX IF NOT EXISTS rewards_ticket ON rewards (ticket) WHERE ticket IS NOT NULL;
CREATE INDEX IF NOT EXISTS rewards_step ON rewards (split, step, current, value, response_chars,
  response_tokens, prompt_group);
CREATE INDEX IF NOT EXISTS rewards_group ON rewards (prompt_group, step, current, value);
CREATE INDEX IF NOT EXISTS rewards_value ON rewards (value);
CREATE INDEX IF NOT EXISTS rewards_prompt ON rewards (prompt_hash, split, current, step, value);
CREATE INDEX IF NOT EXISTS rewards_source ON rewards (data_source);
CREATE INDEX IF NOT EXISTS rewards_filters ON rewards (row, current, split, step, data_source,
  value, prompt_group);
CREATE INDEX IF NOT EXISTS components_row ON components (row, component, outcome, kind, value);
CREATE INDEX IF NOT EXISTS components_kind ON components (component, kind, value, row);
CREATE INDEX IF NOT EXISTS components_failed ON components (component, kind, why)
  WHERE outcome = 'abstain';
CREATE INDEX IF NOT EXISTS components_of_kind ON components (kind, component, row);
CREATE INDEX IF NOT EXISTS components_skipped ON components (component, row)
  WHERE outcome = 'skipped';
CREATE INDEX IF NOT EXISTS components_value ON components (component, value, row);
CREATE INDEX IF NOT EXISTS metrics_row ON metrics (row, name, value);
CREATE INDEX IF NOT EXISTS judgements_key ON judgements (key);
CREATE INDEX IF NOT EXISTS judgements_judge ON judgements (judge, kind, source, outcome,
  latency_s, cost_usd);
CREATE INDEX IF NOT EXISTS judgements_component ON judgements (component);
CREATE INDEX IF NOT EXISTS judgements_at ON judgements (at, judge, model);
CREATE INDEX IF NOT EXISTS judgements_value ON judgements (judge, value);
CREATE INDEX IF NOT EXISTS judgements_source ON judgements (source, judge);
CREATE INDEX IF NOT EXISTS judgement_rows_uid ON judgement_rows (uid);
CREATE INDEX IF NOT EXISTS judgement_rows_judgement ON judgement_rows (judgement);
CREATE INDEX IF NOT EXISTS attempts_judgement ON attempts (judgement);
CREATE INDEX IF NOT EXISTS events_kind ON events (kind);
CREATE INDEX IF NOT EXISTS opinions_uid ON opinions (uid);
CREATE INDEX IF NOT EXISTS undone_uid ON undone (uid);
"""

_NEEDED: Final = (
    "rewards_ticket",
    "rewards_uid",
    "rewards_step",
    "components_row",
    "judgements_key",
)
"""The indexes that reading the lines needs; the others are made when all lines are read."""


class RecordIndex(sqlite3.Connection):
    """A connection to the index of a record; made by `open_index`, read only.

    Attributes:
        folder: of the record.
        file: the SQLite file.
    """

    folder: Path
    file: Path
    _own: TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Close the connection, and remove an index that only this process can use."""
        super().close()
        if self._own is not None:
            self._own.cleanup()


def open_index(folder: str | Path) -> RecordIndex:
    """The index of the record in `folder`, brought up to date; rows are `sqlite3.Row`.

    Close it when it is no longer needed. It may be used from one thread at a time.

    Damaged lines are left out; `damage_in` names them.

    Raises:
        DataError: nothing was recorded there, or none of its rewards can be read.
    """
    folder = Path(folder)
    if not any(parts_of(folder, name) for name in _READERS):
        why = f"none of {', '.join(_READERS)} is there"
        if not folder.is_dir():
            is_what = "it is a file" if folder.exists() else "there is no such folder"
            why = f"{is_what}; name the folder of a run"
        raise DataError(f"{folder} holds no record: {why}")
    own: TemporaryDirectory[str] | None = None
    for place in _places(folder):
        if place is None:
            own = TemporaryDirectory(prefix="zerowait-index-")
            file = Path(own.name) / INDEX
        else:
            file = place
        try:
            _bring_up_to_date(folder, file)
        except (OSError, sqlite3.Error):
            if own is not None:
                own.cleanup()
                raise
            continue
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_BUSY_S,
            check_same_thread=False,
            factory=RecordIndex,
        )
        connection.row_factory = sqlite3.Row
        connection.folder, connection.file, connection._own = folder, file, own  # noqa: SLF001 - ours
        try:
            _check_readable(connection)
        except DataError:
            connection.close()
            raise
        return connection
    raise AssertionError("the last place raises")


def refresh(connection: sqlite3.Connection) -> None:
    """Read what was appended to the record since; the connection's next statement sees it."""
    assert isinstance(connection, RecordIndex)  # noqa: S101 - made by `open_index`
    _bring_up_to_date(connection.folder, connection.file)


def damage_in(connection: sqlite3.Connection) -> str:
    """One line that names the record's damaged lines, which are left out; empty for none.

    Args:
        connection: from `open_index`.
    """
    folder = connection.folder if isinstance(connection, RecordIndex) else Path()
    [count] = connection.execute("SELECT count(*) FROM damaged").fetchone()
    if not count:
        return ""
    return damage_text(folder, _first_damaged(connection), count)


def _first_damaged(connection: sqlite3.Connection, file: str = "") -> list[DamagedLine]:
    found = connection.execute(
        "SELECT file, line, why FROM damaged WHERE ? IN ('', file) ORDER BY rowid LIMIT ?",
        (file, DAMAGED_SHOWN),
    )
    return [DamagedLine(*row) for row in found]


def _check_readable(connection: RecordIndex) -> None:
    """Raise a DataError where there are rewards and none can be read."""
    damaged = _first_damaged(connection, REWARDS)
    if damaged and connection.execute("SELECT 1 FROM rewards LIMIT 1").fetchone() is None:
        raise unreadable(connection.folder, damaged[0])


def _places(folder: Path) -> Iterator[Path | None]:
    """Where the index may be, best first; None is a folder of this process alone."""
    yield folder / INDEX
    name = sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    with suppress(RuntimeError):  # no home
        yield Path(_CACHE).expanduser() / f"{name}.db"
    yield None


def _bring_up_to_date(folder: Path, file: Path) -> None:
    """Read the new lines into the index; made anew where it is damaged or of another version.

    Raises:
        OSError, sqlite3.Error: it cannot be written here.
    """
    if file.parent != folder:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        _update(folder, file)
    except sqlite3.OperationalError:  # locked, no room, not writable: it is no use to begin anew
        raise
    except sqlite3.DatabaseError:
        for name in (file, *(file.with_name(file.name + end) for end in ("-journal", "-wal"))):
            name.unlink(missing_ok=True)
        _update(folder, file)


def _update(folder: Path, file: Path) -> None:
    file.touch(mode=0o600)
    with closing(sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None)) as connection:
        # it is made of the lines and can be made again: it need not survive a power cut
        for pragma in ("synchronous=OFF", "cache_size=-131072", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        _Writer(connection, folder).update()


class _Source(NamedTuple):
    """How far a file of lines was read: up to `offset`, which is `line` lines."""

    identity: str = ""
    offset: int = 0
    line: int = 0


class _Writer:
    """Reads new lines of a record's files into its index.

    Each chunk is a transaction of its own, which begins where the last one of any process ended.
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._db = connection
        self._folder = folder

    def update(self) -> None:
        [version] = self._db.execute("PRAGMA user_version").fetchone()
        files = [(kind, path) for kind in _READERS for path in parts_of(self._folder, kind)]
        if version != _VERSION or not self._is_of_these(files):
            self._begin_anew(files)
        for kind, path in files:
            while self._read_chunk(kind, path):
                pass
        [indexes] = self._db.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchone()
        if indexes < _INDEXES.count(";"):
            self._db.executescript(_INDEXES)

    def _sources(self) -> dict[str, _Source]:
        rows = self._db.execute("SELECT name, identity, offset, line FROM sources")
        return {name: _Source(*rest) for name, *rest in rows}

    def _is_of_these(self, files: Sequence[tuple[str, Path]]) -> bool:
        """Whether what was read still stands where it was read, in every file."""
        paths = {path.name: path for _, path in files}
        for name, source in self._sources().items():
            path = paths.get(name)
            if path is None:
                return False
            with path.open("rb") as file:
                if not _still_holds(file, source):
                    return False
        return True

    def _begin_anew(self, files: Sequence[tuple[str, Path]]) -> None:
        """Drop every table and make it empty; another process may have done it meanwhile."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            [version] = self._db.execute("PRAGMA user_version").fetchone()
            if version != _VERSION or not self._is_of_these(files):
                found = "SELECT name FROM sqlite_master WHERE type = 'table'"
                for [name] in self._db.execute(found).fetchall():
                    self._db.execute(f'DROP TABLE "{name}"')
                for statement in _TABLES.split(";\n"):
                    self._db.execute(statement)
                for statement in _INDEXES.split(";\n"):
                    if any(name in statement for name in _NEEDED):
                        self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _read_chunk(self, kind: str, path: Path) -> bool:
        """Read the next lines of a file; whether there may be more."""
        with path.open("rb") as file:
            source = self._sources().get(path.name, _Source())
            if file.seek(0, 2) == source.offset:
                return False
            self._db.execute("BEGIN IMMEDIATE")
            try:
                source = self._sources().get(path.name, _Source(_identity(file)))
                file.seek(source.offset)
                lines = _whole_lines(file)
                damaged: list[DamagedLine] = []
                decoded = decoded_lines(
                    path.name, lines, _READERS[kind].decode, damaged, before=source.line
                )
                self._insert_usable(kind, path.name, list(decoded), damaged)
                _insert(self._db, "damaged", sorted(damaged))
                read = _Source(
                    source.identity, source.offset + sum(map(len, lines)), source.line + len(lines)
                )
                self._db.execute(
                    "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", (path.name, *read)
                )
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return bool(lines)

    def _insert_usable(
        self, kind: str, name: str, found: Sequence[tuple[int, Any]], damaged: list[DamagedLine]
    ) -> None:
        """Insert records; those with values that no table can hold count as damaged.

        Args:
            kind: of the file.
            name: of the file.
            found: records by the number of their line.
            damaged: lines that cannot be inserted are added here.
        """
        insert = _READERS[kind].insert
        self._db.execute("SAVEPOINT records")
        try:
            insert(self._db, [record for _, record in found])
        except _UNUSABLE as error:
            self._db.execute("ROLLBACK TO records")
            if len(found) == 1:
                damaged.append(DamagedLine(name, found[0][0], str(error)))
                return
            for each in found:
                self._insert_usable(kind, name, [each], damaged)


def _identity(file: BinaryIO) -> str:
    """What tells a file from another one that took its name."""
    number = os.fstat(file.fileno()).st_ino
    file.seek(0)
    return f"{number} {sha256(file.readline(4096)).hexdigest()[:16]}"


def _still_holds(file: BinaryIO, source: _Source) -> bool:
    if _identity(file) != source.identity or file.seek(0, 2) < source.offset:
        return False
    file.seek(max(0, source.offset - 1))
    return source.offset == 0 or file.read(1) == b"\n"


def _whole_lines(file: BinaryIO) -> list[bytes]:
    """The next lines that are complete, about 8 MiB of them."""
    lines = file.readlines(_CHUNK_BYTES)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # it is being written
    return lines


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _outcome(outcome: Outcome) -> tuple[str, float | None, str | None, str]:
    """Outcome, value, kind and reason, as the tables have them."""
    match outcome:
        case Score(value=value, why=why):
            return "score", value, None, why
        case Abstain(kind=kind, detail=why):
            return "abstain", None, kind.value, why
        case skipped:
            return "skipped", None, None, skipped.why


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - of our own


def _next(db: sqlite3.Connection, table: str, column: str) -> int:
    found = db.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()  # noqa: S608
    return int(found[0]) + 1


def _add_rewards(db: sqlite3.Connection, records: Sequence[RewardRecord]) -> None:
    rows, components, metrics, tickets = [], [], [], []
    for row, record in enumerate(records, start=_next(db, "rewards", "row")):
        rows.append(_reward_row(row, record))
        if record.ticket:
            tickets.append((record.ticket, row))
        for name, outcome in record.reward.components.items():
            detail = outcome.detail if isinstance(outcome, Score) else None
            components.append((row, name, *_outcome(outcome), _json(detail) if detail else None))
        metrics += [
            (row, name, value) for name, value in record.reward.metrics.items() if value is not None
        ]
    _insert(db, "rewards", rows)
    _insert(db, "components", components)
    _insert(db, "metrics", metrics)
    steps = {(each.sample.split, each.sample.step) for each in records}
    for ticket, row in tickets:  # of rows with one ticket the last counts
        found = db.execute(
            "SELECT split, step FROM rewards WHERE ticket = ? AND row < ? AND current",
            (ticket, row),
        )
        steps.update((split, step) for split, step in found)
    db.executemany("UPDATE rewards SET current = 0 WHERE ticket = ? AND row < ?", tickets)
    _sum_up(db, steps)


def _sum_up(db: sqlite3.Connection, steps: Collection[tuple[str, int | None]]) -> None:
    """Sum these steps up again, of which rows were added."""
    for table, query in _SUMS.items():
        db.executemany(f"DELETE FROM {table} WHERE split = ? AND step IS ?", steps)  # noqa: S608
        db.executemany(f"INSERT INTO {table} {query}", steps)


def _reward_row(row: int, record: RewardRecord) -> tuple[Any, ...]:
    sample, reward = record.sample, record.reward
    kept = record.response_chars is None
    prompt = prompt_text(sample.prompt)
    chat = None if isinstance(sample.prompt, str) else sample.prompt
    messages = {"prompt": chat, "response": sample.response_messages}
    has_messages = kept and any(each is not None for each in messages.values())
    return (
        row,
        record.uid or None,
        None if sample.id is None else str(sample.id),
        record.ticket or None,
        1,
        sample.split,
        sample.step,
        None if sample.group is None else str(sample.group),
        sample.data_source,
        reward.value,
        reward.policy,
        reward.why,
        record.trained_on,
        record.substitute_from or None,
        sample.response_tokens,
        len(sample.response) if record.response_chars is None else record.response_chars,
        record.submitted_at or None,
        record.settled_at or None,
        hash_of(prompt) if kept else prompt.removeprefix(HASHED) or None,
        prompt if kept else None,
        sample.response if kept else None,
        _json(sample.ground_truth) if kept and sample.ground_truth is not None else None,
        _json(sample.extra) if kept and sample.extra else None,
        _json(messages) if has_messages else None,
    )


def _add_undone(db: sqlite3.Connection, records: Sequence[RewardRecord]) -> None:
    _insert(db, "undone", [(each.uid, each.sample.step) for each in records if each.uid])


def _add_stats(db: sqlite3.Connection, records: Sequence[StatsRecord]) -> None:
    rows = [(each.at, each.hub, each.split, each.step, _json(each.stats)) for each in records]
    _insert(db, "stats", rows)


def _add_waits(db: sqlite3.Connection, records: Sequence[WaitRecord]) -> None:
    for each in records:  # of a repeated step the last line counts
        db.execute("INSERT OR REPLACE INTO waits VALUES (?, ?)", (each.step, each.exposed_s))
        db.execute("DELETE FROM phases WHERE step = ?", (each.step,))
        phases = [(each.step, phase.name, phase.began_at, phase.ended_at) for phase in each.phases]
        _insert(db, "phases", phases)


def _add_judgements(db: sqlite3.Connection, records: Sequence[JudgementLine]) -> None:
    rows, uids, attempts = [], [], []
    texts = _Texts(db)
    for number, record in enumerate(records, start=_next(db, "judgements", "judgement")):
        request = texts.request(record)
        reply = texts.reply(record)
        rows.append((*_judgement_row(number, record), request, reply))
        uids += [(number, uid) for uid in record.uids]
        for each in record.failed:
            shown = (each.endpoint, each.status, each.latency_s, each.why)
            attempts.append((number, each.number, each.at, *shown, texts.number(each.reply)))
    _insert(db, "texts", texts.new)
    _insert(db, "judgements", rows)
    _insert(db, "judgement_rows", uids)
    _insert(db, "attempts", attempts)


class _Texts:
    """The numbers of the texts that lines hold or refer to, in one chunk of lines.

    Attributes:
        new: texts that are not in the table yet.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._next = _next(db, "texts", "text")
        self._numbers: dict[str, int] = {}
        self._latest: dict[tuple[str, str], int] = {}  # by key and column
        self.new: list[tuple[int, str, str | None]] = []

    def request(self, record: JudgementLine) -> int | None:
        """The number of a judgement's request; that of an earlier line of its key where unset."""
        return self._of(record.key, record.request, "request")

    def reply(self, record: JudgementLine) -> int | None:
        """The same of its reply; None where there was none."""
        return self._of(record.key, record.reply, "reply") if record.replied else None

    def number(self, written: msgspec.Raw) -> int | None:
        """The number of a text; None for none."""
        text = body_text(written)
        if text is None:
            return None
        body = None if text.startswith(HASHED) and len(text) == len(HASHED) + 64 else text
        digest = hash_of(text) if body is not None else text.removeprefix(HASHED)
        number = self._numbers.get(digest)
        if number is None:
            found = self._db.execute(
                "SELECT text FROM texts WHERE sha256 = ?", (digest,)
            ).fetchone()
            number = self._numbers[digest] = self._next if found is None else int(found[0])
            if found is None:
                self.new.append((number, digest, body))
                self._next += 1
        return number

    def _of(self, key: str, written: msgspec.Raw, column: str) -> int | None:
        number = self.number(written)
        if number is None and (key, column) not in self._latest:
            found = self._db.execute(
                f"SELECT {column} FROM judgements WHERE key = ? AND {column} IS NOT NULL"  # noqa: S608
                " ORDER BY judgement DESC LIMIT 1",
                (key,),
            ).fetchone()
            number = None if found is None else int(found[0])
        if number is not None:
            self._latest[key, column] = number
        return self._latest.get((key, column))


def _judgement_row(number: int, record: JudgementLine) -> tuple[Any, ...]:
    return (
        number,
        record.at,
        record.judge,
        record.component,
        record.question,
        record.vote,
        record.key,
        record.source,
        *_outcome(record.outcome),
        record.attempts,
        record.hedges,
        record.status or None,
        record.endpoint or None,
        record.model or None,
        record.form or None,
        record.latency_s,
        record.queue_s,
        record.prompt_tokens,
        record.completion_tokens,
        record.cost_usd,
    )


def _add_events(db: sqlite3.Connection, records: Sequence[EventLine]) -> None:
    rows = []
    for each in records:
        named = [each.fields.get(name) for name in ("judge", "endpoint", "component")]
        step = each.fields.get("step", each.step)
        why = each.fields.get("why")
        rows.append((each.at, each.kind, *named, step, why, _json(each.fields)))
    _insert(db, "events", rows)


def _add_opinions(db: sqlite3.Connection, records: Sequence[OpinionLine]) -> None:
    """Of several opinions of one person on one row the last counts; one without `up` ends it."""
    for each in records:
        row: int | None = each.row
        if each.uid:  # rows are counted anew where a run resumes from a checkpoint
            found = db.execute("SELECT row FROM rewards WHERE uid = ?", (each.uid,)).fetchone()
            row = found[0] if found else None
        db.execute(
            "DELETE FROM opinions WHERE row IS ? AND uid IS ? AND who = ?",
            (row, each.uid or None, each.who),
        )
        if each.up is not None:
            shown = (row, each.uid or None, int(each.up), each.note, each.who, each.at)
            _insert(db, "opinions", [shown])


_SUMS: Final = {
    "steps": """
        SELECT split, step, sum(n), sum(scored), sum(total) / sum(scored),
          sum(squares) / sum(scored), min(low), max(high), sum(chars) / sum(n),
          sum(tokens) / sum(with_tokens), count(prompt_group),
          count(prompt_group) FILTER (WHERE scored > 1 AND low = high)
        FROM (SELECT split, step, prompt_group, count(*) AS n, count(value) AS scored,
            total(value) AS total, total(value * value) AS squares, min(value) AS low,
            max(value) AS high, total(response_chars) AS chars, total(response_tokens) AS tokens,
            count(response_tokens) AS with_tokens
          FROM rewards WHERE split = ? AND step IS ? AND current = 1 GROUP BY prompt_group)
        GROUP BY split, step""",
    "step_components": """
        SELECT split, step, component, outcome, kind, count(*), avg(c.value), avg(c.value * c.value)
        FROM rewards r JOIN components c USING (row)
        WHERE split = ? AND step IS ? AND current = 1 GROUP BY component, outcome, kind""",
}


class _Reader(NamedTuple):
    """How the lines of one kind of file are decoded, and inserted into the tables."""

    decode: Callable[[bytes], Any]
    insert: Callable[[sqlite3.Connection, Sequence[Any]], None]


def _reader(kind: Any, insert: Callable[[sqlite3.Connection, Sequence[Any]], None]) -> _Reader:
    return _Reader(msgspec.json.Decoder(kind).decode, insert)


_READERS: Final = {
    REWARDS: _reader(RewardRecord, _add_rewards),
    JUDGEMENTS: _reader(JudgementLine, _add_judgements),
    STATS: _reader(StatsRecord, _add_stats),
    WAITS: _reader(WaitRecord, _add_waits),
    EVENTS: _reader(EventLine, _add_events),
    OPINIONS: _reader(OpinionLine, _add_opinions),
    UNDONE: _reader(RewardRecord, _add_undone),
}
"""By the name of the file's first part."""
