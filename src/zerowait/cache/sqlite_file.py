"""Opens an SQLite file of ours: checks its place, its kind and its owner, and migrates it."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from zerowait.cache.limits import pragma
from zerowait.errors import ConfigError

APPLICATION_ID: Final = 0x7A77_6A64
"""Marks a file as ours, so that the database of another program is never written to."""

SCHEMA: Final[Sequence[str]] = (
    # a rowid table with an index beside it: keys are random, and only the small index suffers
    """
    CREATE TABLE replies (
        key BLOB NOT NULL,
        reply BLOB NOT NULL,
        verdict BLOB NOT NULL,
        judge TEXT NOT NULL,
        model TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE UNIQUE INDEX replies_by_key ON replies (key);
    """,
    "CREATE INDEX replies_by_age ON replies (created)",
)
"""Step n turns a file of version n into one of version n + 1."""


class FileSchema(NamedTuple):
    """What kind of file it is, and how errors speak of it."""

    noun: str
    application_id: int
    schema: Sequence[str]
    if_damaged: str


CACHE: Final = FileSchema(
    noun="the cache",
    application_id=APPLICATION_ID,
    schema=SCHEMA,
    if_damaged="delete it, since everything in it can be asked for again",
)

_NETWORK: Final = re.compile(
    r"afs|beegfs|ceph|cifs|coda|gfs2|glusterfs|gpfs|juicefs|lustre|ncpfs|nfs4?|ocfs2|orangefs"
    r"|panfs|pvfs2|smb3|smbfs|wekafs"
    r"|fuse\.(?:alluxio|beegfs|blobfuse|ceph|cvmfs|davfs|gcsfuse|geesefs|gluster|goofys|hdfs"
    r"|juicefs|lizardfs|mfs|moosefs|rclone|s3fs|seaweed|smbnetfs|sshfs|wekafs).*"
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_PAUSE_S: Final = 0.02
_PRIMARY: Final = 0xFF  # of an error code, without what SQLite adds to it


def open_database(
    path: Path,
    *,
    busy_timeout_s: float,
    form: FileSchema = CACHE,
    schema: Sequence[str] | None = None,
    mounts: Path = Path("/proc/mounts"),
) -> sqlite3.Connection:
    """A connection to the file at `path`, created or migrated if need be.

    The file has mode 0600; several processes may have it open.

    Args:
        path: where it lies.
        busy_timeout_s: how long a statement waits for other processes.
        form: what kind of file it is.
        schema: instead of the form's.
        mounts: the system's table of filesystems.

    Raises:
        ConfigError: the path is on a network filesystem, cannot be created, or holds something
            else, or something newer.
    """
    form = form if schema is None else form._replace(schema=schema)
    _refuse_network(path, mounts, form)
    if path.is_dir():
        raise ConfigError(f"{form.noun} {path} is a folder: name a file in it")
    try:
        _make_private(path)
    except OSError as error:
        raise ConfigError(
            f"{form.noun} {path} cannot be made ({error.strerror}): set cache.path to a place "
            "that you may write to, or cache: off"
        ) from error
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        _refuse_foreign(connection, path, form)
        _close_to_others(path)
        # counts only while the file is empty: pages of dropped entries can then go back to the disk
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _use_wal(connection, busy_timeout_s)
        _migrate(connection, form)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, sqlite3.Error):
            raise
        raise ConfigError(f"{form.noun} {path} {_why_not(error, form)}") from error
    return connection


def _why_not(error: sqlite3.Error, form: FileSchema) -> str:
    """What keeps a file from being opened, and what to do; a file that is whole is not blamed."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    match code:
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                f"cannot be written to ({error}), which also reading needs: make it and its folder "
                "writable, or work on a copy"
            )
        case sqlite3.SQLITE_FULL:
            return f"cannot be opened ({error}): make room on its disk"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"cannot be opened ({error}): wait for the program that holds it"
        case _:
            return (
                f"cannot be opened ({error}): see whether it is the right file; if it is and is "
                f"damaged, {form.if_damaged}; or set cache.path to another file"
            )


def filesystem(path: Path, mounts: str) -> str:
    r"""The type of the filesystem that holds `path`, by the text of ``/proc/mounts``.

    >>> filesystem(Path("/data/my disk/x.db"), "a / ext4 rw 0 0\nb /data/my\\040disk nfs4 rw 0 0")
    'nfs4'
    """
    found, depth = "", -1
    for _, where, kind, *_ in map(str.split, filter(str.strip, mounts.splitlines())):
        at = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), where))
        if path.is_relative_to(at) and len(at.parts) >= depth:
            found, depth = kind, len(at.parts)
    return found


def _refuse_network(path: Path, mounts: Path, form: FileSchema) -> None:
    try:
        text = mounts.read_text(errors="replace")
    except OSError:
        return
    kind = filesystem(path.resolve(), text)
    if _NETWORK.fullmatch(kind):
        raise ConfigError(
            f"{form.noun} {path} would lie on a network filesystem ({kind}), where SQLite can "
            "lose or damage it: set cache.path to a local disk"
        )


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # only a new file is opened here: closing a descriptor of a file that SQLite has open in
        # this process would drop SQLite's locks on it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return


def _close_to_others(path: Path) -> None:
    """For a file that is known to be ours: it may have been copied or made with another mode."""
    for name in ("", "-wal", "-shm"):  # SQLite gives its own files the mode of the first
        file = path.with_name(path.name + name)
        with suppress(FileNotFoundError, PermissionError):  # another user's file
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _refuse_foreign(connection: sqlite3.Connection, path: Path, form: FileSchema) -> None:
    known = len(form.schema)
    version = pragma(connection, "user_version")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if pragma(connection, "application_id") != form.application_id and (version or tables):
        raise ConfigError(
            f"{path} is the database of another program: set cache.path to a file of its own"
        )
    if version > known:
        raise ConfigError(
            f"{form.noun} {path} was written by a newer zerowait (schema {version}, this one knows "
            f"{known}): upgrade zerowait, or set cache.path to another file"
        )


def _use_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Write-ahead log; committed means safe from a kill, not from a power cut."""
    connection.execute("PRAGMA synchronous = NORMAL")
    give_up = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself here when another process switches at the same time
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _migrate(connection: sqlite3.Connection, form: FileSchema) -> None:
    schema = form.schema
    if pragma(connection, "user_version") == len(schema):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # read again under the lock: another process may have done it by now
        for step in schema[pragma(connection, "user_version") :]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {form.application_id}")
        connection.execute(f"PRAGMA user_version = {len(schema)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
