"""Do something when a module is imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def on_import(name: str, then: Callable[[], object]) -> None:
    """Call `then` once module `name` has been imported: now, if it is there already.

    What `then` raises is raised by the import.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _ImportHook(name, then))


class _ImportHook(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders do, and is told when it has run."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name = name
        self._then = then
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._imported)
        return spec

    def _imported(self) -> None:
        # not before: somebody may only have asked whether there is such a module
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader, then: Callable[[], object]) -> None:
        self._real = real
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        self._then()
