"""Whether a judge is still the one it was."""

from __future__ import annotations

from typing import Final

from zerowait.judge.reply import ServedModel

_REMEMBERED: Final = 1024
"""There are servers that name another fingerprint with every reply."""


class ModelChangeDetector:
    """The origins of one judge's replies, fresh and cached, in the order in which they came."""

    def __init__(self) -> None:
        self._last = ServedModel()
        self._seen: dict[ServedModel, None] = {}

    def changed(self, origin: ServedModel) -> tuple[ServedModel, ServedModel] | None:
        """The origin before and the new one, the first time that a different one is seen.

        A field that a reply leaves out is no change. A provider that goes back and forth between
        two machines is told once for each and not with every reply.

        >>> served = Served()
        >>> served.changed(Origin("m", "fp1")), served.changed(Origin("m", ""))
        (None, None)
        >>> served.changed(Origin("m", "fp2"))
        (Origin(model='m', fingerprint='fp1'), Origin(model='m', fingerprint='fp2'))
        >>> served.changed(Origin("m", "fp1")), served.changed(Origin("m", "fp2"))
        (None, None)
        """
        if origin == self._last:
            return None
        last = self._last
        model = origin.model or last.model
        left_out = last.fingerprint if model == last.model else ""
        new = ServedModel(model, origin.fingerprint or left_out)
        other = last.model not in ("", new.model) or (
            last.fingerprint not in ("", new.fingerprint) and new.fingerprint != ""
        )
        first_time = new not in self._seen
        self._last = new
        self._seen[new] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return (last, new) if other and first_time else None
