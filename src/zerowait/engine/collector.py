"""How often a process that only judges looks for reference cycles."""

from __future__ import annotations

import gc
from typing import Final

_EVERY: Final = (20_000, 10, 10)


def collect_rarely() -> None:
    """Make Python's cycle collector rare in this process, for good.

    A batch of 20,000 judgements is a few million objects that all live until the batch ends. By
    default Python goes through everything that is alive each time that it has grown by a quarter:
    `benchmarks/batch_time.py` spent two fifths of its CPU time there, in pauses of a tenth of a
    second in which nothing is sent. What was imported so far is never looked at again, and
    judgements leave few cycles behind.

    It is a setting of the whole process, so only processes that zerowait owns use it (the hub's
    actor, ``zerowait serve``, ``zerowait score``, ``zerowait judge``), and never an engine that
    is opened in somebody's trainer.

    Reference: Python's ``gc`` module, ``set_threshold`` and ``freeze``.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_EVERY)
