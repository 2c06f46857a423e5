"""Versions of an index in its folder; the manifest names the current one.

A server memory-maps the files of its version, which are never changed: a build writes a new
version, renames the manifest into place and unlinks the old version. Mapped files stay readable
until the server closes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zerowait.errors import ConfigError

_VERSION: Final = re.compile(r"version-([0-9]+)")


@contextmanager
def next_version(folder: Path) -> Iterator[Path]:
    """A new version folder in `folder` for the files of one build; removed if the build fails.

    Raises:
        ConfigError: another build of this folder is running.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".building").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{folder}: another build of it is running") from None
        version = folder / f"version-{max([0, *_versions(folder).values()]) + 1}"
        version.mkdir()
        try:
            yield version
        except BaseException:
            shutil.rmtree(version, ignore_errors=True)
            raise


def publish(version: Path, manifest: Path, content: bytes) -> None:
    """Replace the manifest atomically and remove every other version.

    Args:
        version: the folder with the new files.
        manifest: the file that names the current version.
        content: of the new manifest.
    """
    draft = version / manifest.name
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(manifest)
    for other in _versions(version.parent):
        if other != version:
            shutil.rmtree(other, ignore_errors=True)


def _versions(folder: Path) -> dict[Path, int]:
    found = {path: _VERSION.fullmatch(path.name) for path in folder.iterdir()}
    return {path: int(name[1]) for path, name in found.items() if name is not None}
