"""Import hook: run a callback when a module is imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def on_import(name: str, callback: Callable[[], object]) -> None:
    """Call `callback` once, after module `name` was imported; now if it is imported already.

    An exception of the callback is raised by the import.
    """
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _ImportHook(name, callback))


class _ImportHook(importlib.abc.MetaPathFinder):
    """Finds one module through the other finders, and calls back after its code has run."""

    def __init__(self, name: str, callback: Callable[[], object]) -> None:
        self._name = name
        self._callback = callback
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._imported)
        return spec

    def _imported(self) -> None:
        # not in find_spec, which is also called to ask whether the module exists
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _Loader(importlib.abc.Loader):
    """The module's own loader, with a callback after it has run."""

    def __init__(self, real: importlib.abc.Loader, callback: Callable[[], object]) -> None:
        self._real = real
        self._callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        self._callback()
