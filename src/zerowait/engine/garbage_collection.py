"""Settings of Python's garbage collector for processes that only judge."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (20_000, 10, 10)


def collect_rarely() -> None:
    """Let Python's garbage collector run rarely in this process, for good.

    A batch of 20,000 judgements is a few million objects that all live until the batch ends. By
    default Python visits every live object each time their number has grown by a quarter:
    `benchmarks/batch_time.py` spent two fifths of its CPU time there, in pauses of 0.1 s in which
    no request is sent. What was imported so far is never visited again, and judgements leave few
    reference cycles behind.

    It is a setting of the whole process, so only processes that zerowait owns use it (the hub's
    actor, ``zerowait serve``, ``zerowait score``, ``zerowait replay``), never an engine that is
    opened in a user's trainer.

    Reference: Python's ``gc`` module, ``set_threshold`` and ``freeze``.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
