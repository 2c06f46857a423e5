"""``log_to``: the loggers that get a run's metrics, and their settings."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from zerowait.config.build import build
from zerowait.config.messages import kind_of
from zerowait.config.source import KeyPath, Source
from zerowait.config.urls import check_url
from zerowait.errors import did_you_mean

_MOST_PORT: Final = 65_535


class WandbLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights & Biases; the key comes from ``wandb login`` or ``WANDB_API_KEY``.

    Args:
        project: of the run.
        entity: whose project it is; none: as the account has it.
        name: of the run; none: W&B invents one.
        group: of the run.
        mode: ``online``, or ``offline`` for a run that ``wandb sync`` uploads later; none: as
            ``WANDB_MODE`` says.
        dir: the folder for its files; none: as ``WANDB_DIR`` says.
    """

    project: str = "zerowait"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    mode: Literal["online", "offline"] | None = None
    dir: str | None = None


class TensorboardLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TensorBoard event files.

    Args:
        dir: their folder; none: ``runs/zerowait-DATE-TIME`` for each run. A relative one is in the
            folder in which the program was started, as it is for TensorBoard itself.
    """

    dir: str | None = None

    def __post_init__(self) -> None:
        if self.dir is not None and not self.dir.strip():
            raise ValueError("dir must be the path of a folder")


class MlflowLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MLflow; its user and password come from ``MLFLOW_TRACKING_USERNAME`` and ``..._PASSWORD``.

    Args:
        tracking_uri: a server or a database; none: as MLflow has it (``MLFLOW_TRACKING_URI``).
        experiment: of the run; it is made where there is none of that name.
        name: of the run; none: MLflow invents one.
    """

    tracking_uri: str | None = None
    experiment: str = "zerowait"
    name: str | None = None

    def __post_init__(self) -> None:
        if self.tracking_uri is not None and "@" in _host(self.tracking_uri):
            raise ValueError(
                "tracking_uri must hold no user name or password: MLflow reads "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the whole of it from "
                "MLFLOW_TRACKING_URI"
            )


class TrackioLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trackio, in its local database, or in a Space of the Hugging Face hub.

    Args:
        project: of the run.
        name: of the run; none: Trackio invents one.
        space_id: ``owner/name`` of a Space; none: as ``TRACKIO_SPACE_ID`` says, else local.
    """

    project: str = "zerowait"
    name: str | None = None
    space_id: str | None = None


class PrometheusLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that Prometheus scrapes: ``/metrics``, as ``zerowait serve`` has it.

    Args:
        port: to listen on; 0 takes any free one, which ``Rewards.metrics_url`` names.
        host: the address to listen on. Clients that reach it can read the metrics.
    """

    port: int = 9464
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORT:
            raise ValueError(f"port must be from 0 to {_MOST_PORT}, not {self.port}")


class OtelLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry, by OTLP over HTTP; keys come from ``OTEL_EXPORTER_OTLP_HEADERS``.

    Args:
        endpoint: base URL of a collector, to which ``/v1/traces`` and ``/v1/metrics`` are added;
            none: the providers of the program where it has set them, else as
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` says, else ``http://localhost:4318``.
        service_name: of the spans and metrics; none: as ``OTEL_SERVICE_NAME`` says, else
            ``zerowait``.
        prompts: whether a span holds what the judge was told and what it replied.
    """

    endpoint: str | None = None
    service_name: str | None = None
    prompts: bool = False

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            if "@" in _host(self.endpoint) or "?" in self.endpoint:
                raise ValueError(
                    "endpoint must hold no password and no query: put keys into "
                    "OTEL_EXPORTER_OTLP_HEADERS"
                )
            check_url("endpoint", self.endpoint)


LoggerSettings: TypeAlias = (
    WandbLog | TensorboardLog | MlflowLog | TrackioLog | PrometheusLog | OtelLog
)


class LogTo(msgspec.Struct, frozen=True, kw_only=True):
    """The loggers of a run, by name; None for one that is not wanted."""

    wandb: WandbLog | None = None
    tensorboard: TensorboardLog | None = None
    mlflow: MlflowLog | None = None
    trackio: TrackioLog | None = None
    prometheus: PrometheusLog | None = None
    otel: OtelLog | None = None

    @property
    def wanted(self) -> dict[str, LoggerSettings]:
        """The settings of those that are wanted, by name."""
        given: dict[str, LoggerSettings | None] = msgspec.structs.asdict(self)
        return {name: settings for name, settings in given.items() if settings is not None}

    def without(self, *names: str) -> LogTo:
        """These loggers without those of `names`, which the caller serves by other means."""
        return msgspec.structs.replace(self, **dict.fromkeys(names))


LOGGER_SETTINGS: Final[dict[str, type[LoggerSettings]]] = {
    "wandb": WandbLog,
    "tensorboard": TensorboardLog,
    "mlflow": MlflowLog,
    "trackio": TrackioLog,
    "prometheus": PrometheusLog,
    "otel": OtelLog,
}
"""The settings of each logger."""


def read_log_to(source: Source, at: KeyPath, tree: Any) -> LogTo:
    """The loggers in a list of names and of ``{name: settings}``.

    Args:
        source: the document.
        at: key path of the list in it.
        tree: the list; None for no loggers.

    Raises:
        ConfigError: names the key that is wrong, and the nearest right one.
    """
    if tree is None:
        return LogTo()
    if not isinstance(tree, list):
        written = f"{tree!r}" if isinstance(tree, str) else kind_of(tree)
        source.fail(at, f"must be a list, such as [tensorboard], not {written}")
    wanted: dict[str, Any] = {}
    for index, entry in enumerate(tree):
        name = _name_of(source, (*at, index), entry)
        if name in wanted:
            source.fail((*at, index), f"names {name} a second time")
        with_settings = isinstance(entry, dict) and entry[name] is not None
        kind = LOGGER_SETTINGS[name]
        wanted[name] = build(source, (*at, index, name), kind) if with_settings else kind()
    return LogTo(**wanted)


def _name_of(source: Source, at: KeyPath, entry: Any) -> str:
    if isinstance(entry, dict) and len(entry) != 1:
        source.fail(at, f"must be one name with its settings; it has {list(entry) or 'none'}")
    name = next(iter(entry)) if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        known = ", ".join(LOGGER_SETTINGS)
        why = f"must be one of {known}, alone or with settings, not {kind_of(entry)}"
        source.fail(at, why)
    if name not in LOGGER_SETTINGS:
        source.fail(at, f"is {name!r}, which is no logger{did_you_mean(name, LOGGER_SETTINGS)}")
    return name


def _host(url: str) -> str:
    """The part of a URL that may hold a password; nothing of one that cannot be read."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""
