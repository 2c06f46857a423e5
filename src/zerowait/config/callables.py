"""Functions given as objects: ``{"scorer": my_function}``, by a name that a configuration can hold.

A function that another process can import is named ``module:function``. A lambda, a
``functools.partial``, a bound method, a notebook's function is kept in this process, under a name
that begins with ``local:``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

LOCAL: Final = "local:"
_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_NUMBERS = itertools.count(1)


def name_of(function: Callable[..., Any]) -> str:
    """``module:function`` where other processes can import it, else ``local:function#1``.

    >>> from json import dumps
    >>> name_of(dumps)
    'json:dumps'
    """
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", "")
    if isinstance(module, str) and _can_be_imported(module, path, function):
        return f"{module}:{path}"
    for name, known in _FUNCTIONS.items():
        if known is function:
            return name
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    shown = getattr(inner, "__qualname__", type(inner).__qualname__).split(".")[-1]
    name = f"{LOCAL}{shown}#{next(_NUMBERS)}"
    _FUNCTIONS[name] = function
    return name


def local_function(name: str) -> Callable[..., Any] | None:
    """The function that `name_of` has named in this process, if it did."""
    return _FUNCTIONS.get(name)


def _can_be_imported(module: str, path: str, function: Callable[..., Any]) -> bool:
    """Whether another process with the same ``sys.path`` finds the function under its name."""
    if module == "__main__" or not path or "<" in path:
        return False
    found: Any = sys.modules.get(module)
    origin = _origin(module)
    if found is None or origin is None or origin != getattr(found, "__file__", ""):
        return False
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is function


def _origin(module: str) -> str | None:
    """The file that an import of `module` would read; None where it would find none."""
    spec, places = None, None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        finders = (finder.find_spec(name, places, None) for finder in sys.meta_path)
        spec = next((each for each in finders if each is not None), None)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec.origin if spec is not None and spec.has_location else ""
