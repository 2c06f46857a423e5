"""Detects when an endpoint begins to answer with another model."""

from __future__ import annotations

from typing import Final

from zerowait.judge.reply import ServedModel

_REMEMBERED: Final = 1024
"""Most models kept: some servers name another fingerprint with every reply."""


class ModelChangeDetector:
    """Compares the models that one judge's replies name, fresh and cached ones."""

    def __init__(self) -> None:
        self._last = ServedModel()
        self._seen: dict[ServedModel, None] = {}

    def changed(self, origin: ServedModel) -> tuple[ServedModel, ServedModel] | None:
        """The model before and the new one, when a new one is seen for the first time; else None.

        A field that a reply leaves out is no change. A provider that alternates between two
        machines is reported once for each, not with every reply.

        >>> served = ModelChangeDetector()
        >>> served.changed(ServedModel("m", "fp1")), served.changed(ServedModel("m", ""))
        (None, None)
        >>> served.changed(ServedModel("m", "fp2"))
        (ServedModel(model='m', fingerprint='fp1'), ServedModel(model='m', fingerprint='fp2'))
        >>> served.changed(ServedModel("m", "fp1")), served.changed(ServedModel("m", "fp2"))
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
