"""The latencies of answers, kept beside the cache, so that hedging is warm after a restart."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from zerowait.cache.shards import Shard, shard_files
from zerowait.config.schema import Cache

_LOG = logging.getLogger(__name__)
_SUFFIX: Final = ".latencies.json"
_MOST_BYTES: Final = 2**22
_MOST_ENDPOINTS: Final = 256


class _Kept(msgspec.Struct):
    latencies_s: dict[str, list[float]] = {}


class LatencyFile:
    """The latencies of each endpoint and model, in a small file beside a cache's.

    It is only a hint: a file that is missing or damaged counts as empty, and one that cannot be
    written is skipped.

    Args:
        path: of the file.
        others: of the same cache's other shards, which know the same endpoints.
    """

    def __init__(self, path: Path, others: Sequence[Path] = ()) -> None:
        self._path = path
        self._others = others

    def load(self) -> dict[str, list[float]]:
        """The latencies in seconds, by endpoint and model."""
        found: dict[str, list[float]] = {}
        for path in (*self._others, self._path):
            found |= _read(path)
        return found

    def save(self, latencies_s: Mapping[str, Sequence[float]]) -> None:
        """Keep these, and what the file holds of other endpoints."""
        kept = _read(self._path)
        for name, values in latencies_s.items():
            kept.pop(name, None)  # the latest last, so that the oldest are dropped
            kept[name] = list(values)
        newest = dict(list(kept.items())[-_MOST_ENDPOINTS:])
        try:
            _write(self._path, msgspec.json.encode(_Kept(newest)))
        except OSError as error:
            _LOG.debug("latencies are not kept in %s: %s", self._path, error)


def latency_file(cache: Cache, shard: Shard) -> LatencyFile | None:
    """The latency file of a `shard` of `cache`; None where the cache has no file."""
    if cache.path is None or cache.url is not None:
        return None
    place = Path(cache.path).expanduser()
    own = shard.file(place)
    others = [file.with_suffix(_SUFFIX) for _, file in shard_files(place) if file != own]
    return LatencyFile(own.with_suffix(_SUFFIX), others)


def _read(path: Path) -> dict[str, list[float]]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept).latencies_s
    except (OSError, msgspec.MsgspecError):
        return {}
    return {name: values for name, values in kept.items() if all(map(_is_latency, values))}


def _is_latency(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _write(path: Path, content: bytes) -> None:
    """Replace the file atomically, so that no process reads half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
