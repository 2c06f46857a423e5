"""Prometheus: an address that it scrapes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from zerowait.config import PrometheusLog
from zerowait.errors import ConfigError

_log = logging.getLogger(__name__)


class PrometheusLogger:
    """Serves ``/metrics``; a scrape takes the values of that moment, so there is nothing to log.

    Args:
        settings: the address.
        collector: of `prometheus_client`, asked at each scrape.
    """

    def __init__(self, settings: PrometheusLog, collector: Any) -> None:
        self._settings = settings
        self._collector = collector
        self._server: Any = None
        self.url: str | None = None
        """What Prometheus scrapes, once it is served."""

    def prepare(self) -> None:
        """Serve it."""
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self._collector)
        host, port = self._settings.host, self._settings.port
        try:
            self._server, _ = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise ConfigError(
                f"log_to: prometheus cannot listen on {host} port {port}: {error.strerror}; "
                "port: 0 takes a free one"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"
        _log.info("log_to prometheus: metrics are at %s", self.url)

    def open(self) -> None:
        """It is served since `prepare`."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Nothing: see the class."""

    def close(self) -> None:
        """Serve it no longer."""
        self._server.shutdown()
        self._server.server_close()
