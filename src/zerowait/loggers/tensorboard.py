"""TensorBoard event files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zerowait.config import TensorboardLog
from zerowait.errors import ConfigError

_FLUSH_EVERY_S: Final = 5


class TensorboardLogger:
    """Writes scalars into an event file of its own; needs neither torch nor TensorFlow.

    Args:
        settings: the folder.
        shown: the configuration, shown as text.
    """

    def __init__(self, settings: TensorboardLog, shown: Mapping[str, Any]) -> None:
        named = settings.dir or f"runs/zerowait-{time.strftime('%Y%m%d-%H%M%S')}"
        self._folder = Path(named).expanduser()
        self._shown = shown
        self._writer: Any = None

    def prepare(self) -> None:
        """Make the folder."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"log_to: tensorboard: the folder {self._folder} cannot be made: {error.strerror}"
            ) from None

    def open(self) -> None:
        """Begin the file, with the configuration as a table."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(self._folder), flush_secs=_FLUSH_EVERY_S)
        rows = [f"| {key} | {value} |" for key, value in self._shown.items()]
        table = "\n".join(["| setting | value |", "| --- | --- |", *rows])
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        text = TensorProto(dtype=DT_STRING, string_val=[table.encode()])
        value = Summary.Value(
            tag="zerowait/config", metadata=SummaryMetadata(plugin_data=plugin), tensor=text
        )
        self._add(Summary(value=[value]), 0)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        self._add(Summary(value=values), step)

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._writer.close()

    def _add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
