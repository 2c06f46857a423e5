"""Ray's actors in the process of a test."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest


class LocalActor:
    """What `ray.remote` returns, for an actor that lives in this process."""

    def __init__(self, kind):
        self._kind = kind
        self.actor = None

    def options(self, **_):
        return self

    def remote(self, *arguments):
        if self.actor is None:
            self.actor = self._kind(*arguments)
        return self

    def __getattr__(self, name):
        method = getattr(self.actor, name)
        return SimpleNamespace(remote=lambda *arguments: Reference(method(*arguments)))


class Reference:
    """The reference to the result of an actor's method."""

    def __init__(self, call):
        self._result = Future()
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._settle)

    def _settle(self, task):
        if not self._result.set_running_or_notify_cancel():
            return
        if task.exception() is None:
            self._result.set_result(task.result())
        else:
            self._result.set_exception(task.exception())

    def future(self):
        return self._result


@pytest.fixture
def ray_here(monkeypatch):
    """Ray's actors live in this process, so that one tracer sees both sides of the RPC."""
    ray = pytest.importorskip("ray")
    actors = []

    def remote(kind):
        if not actors:
            actors.append(LocalActor(kind))
        return actors[0]

    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return actors


@pytest.fixture
def reference():
    """Makes of a coroutine what an actor's method returns."""
    return Reference
