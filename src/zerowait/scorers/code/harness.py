"""Calls a program's functions for its tests; a script of its own, run inside the sandbox.

Two processes: the program's, and the tester's, which started it before it read any test. The tester
asks for a call and gets plain data back, never an object of the program's. So no ``==`` of the
program's is ever called, and neither its stack, nor its memory, nor a patched builtin shows or
changes a test. A program that ends its process fails what is left.

Input: two pieces of JSON, each after its length (8 bytes in hexadecimal): first ``{"program": ...,
"cpu_s": ..., "wall_s": ...}``, then one of:

- ``{"calls": [[name, args], ...]}``: each result is printed, to be compared outside;
- ``{"asserts": [code, ...], "setup": code, "entry_point": name, "shadows": [name, ...]}``: each
  piece of code is executed in the tester, with the program's functions as proxies, and passes
  unless it raises. A name of a builtin is the builtin, unless it is among the `shadows`.

Output: ``{"loaded": null or error, "results": [...]}``. A result is ``["value",
data]``, ``["passed"]``, ``["failed", why]``, ``["late", why]`` or ``["unusable", why]``: the test
itself is at fault.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import json
import operator
import os
import select
import signal
import struct
import sys
import time
import types
from collections.abc import Callable
from typing import Any

_DEEPEST = 60
_MOST_STARVED = 8
_LEAST_S = 0.02
_MOST_ITEMS = 2_000_000
_MOST_BYTES = 64 << 20
_KINDS: dict[Any, str] = {
    tuple: "t",
    set: "s",
    frozenset: "f",
    type({}.keys()): "dict_keys",
    type({}.values()): "dict_values",
    type({}.items()): "dict_items",
}
_NO_ERROR_TYPE = ("catching classes that do not inherit", "Expected a BaseException type")
"""What Python and pytest say where a test expects an error class that stays in the program."""
_BUILTINS = frozenset(globals().get("builtin_names") or dir(builtins))


class Unsendable(TypeError):  # noqa: N818 - what it is
    """A value that is no plain data."""


class Reference:
    """An object that stays in the program's process; it can only be handed back to it."""

    def __init__(self, number: int, channel: Channel) -> None:
        self._number = number
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in {"__name__", "__doc__"}:
            raise AttributeError(name)
        return self._channel.ask("attribute", self._number, name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The result of calling the object."""
        return self._channel.call(self, args, named)

    def __eq__(self, other: object) -> bool:
        """Whether it is the very same object; no ``==`` of the program's is called."""
        return isinstance(other, Reference) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __instancecheck__(self, instance: object) -> bool:
        """Whether an object of the program's is one of this class of its own."""
        if not isinstance(instance, Reference):
            return False
        return self._channel.ask("is one of", instance._number, self._number) is True  # noqa: SLF001 - of ours

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_number", "_channel"):
            super().__setattr__(name, value)
        else:
            self._channel.ask("set attribute", self._number, name, encode_value(value))

    def _operate(self, name: str, *operands: Any) -> Any:
        return self._channel.ask("operate", name, *map(encode_value, (self, *operands)))

    def __iter__(self) -> Any:
        return iter(self._operate("iter"))

    def __len__(self) -> int:
        return int(self._operate("len"))

    def __str__(self) -> str:
        """What the program says of the object."""
        return str(self._operate("str"))

    def __repr__(self) -> str:
        return str(self._operate("repr"))

    def __getitem__(self, key: Any) -> Any:
        return self._operate("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._operate("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._operate("delitem", key)

    def _combine(self, name: str, other: Any) -> Any:
        """A result for two objects of the program's: it must not take part in `f() - 3`."""
        return self._operate(name, other) if isinstance(other, Reference) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._combine("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._combine("sub", other)

    def __mul__(self, other: Any) -> Any:
        return self._combine("mul", other)

    def __bool__(self) -> bool:
        raise AssertionError("the program returned an object that is no plain data")


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "iter": list,
    "len": len,
    "str": str,
    "repr": repr,
    **{
        name: getattr(operator, name)
        for name in ["getitem", "setitem", "delitem", "add", "sub", "mul"]
    },
}
"""What a test may do with an object of the program's.

Its ``==`` and the like are left out: a program must not say whether it is right.
"""
_DATE_TYPES = ("date", "datetime", "time", "timedelta")


def encode_value(value: Any, keep: Any = None, depth: int = 0) -> Any:
    """`value` as JSON: lists are lists, all that JSON has not is ``{"kind": ...}``.

    Args:
        value: plain data, or with `keep` anything.
        keep: gives a number for an object that is no plain data; None: that is an error.
        depth: of nesting so far.
    """
    if depth > _DEEPEST:
        raise Unsendable("nested too deeply")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Reference):
        return {"r": value._number}  # noqa: SLF001 - of ours
    kind = type(value)
    if issubclass(kind, int):
        return {"i": hex(value)} if abs(int.__index__(value)) >> 53 else int.__index__(value)
    if issubclass(kind, float):
        return {"d": float.__repr__(value)}
    if issubclass(kind, str):
        return str.__str__(value)
    return _pack_other(value, keep, depth)


def _pack_other(value: Any, keep: Any, depth: int) -> Any:
    kind = type(value)
    if issubclass(kind, bytes | bytearray):
        return {"b": bytes(value).hex()}
    if issubclass(kind, complex):
        return {"c": [float.__repr__(value.real), float.__repr__(value.imag)]}
    if issubclass(kind, list):
        return [encode_value(each, keep, depth + 1) for each in list.__iter__(value)]
    for base, name in _KINDS.items():
        if issubclass(kind, base):
            items = [encode_value(each, keep, depth + 1) for each in base.__iter__(value)]
            fields = getattr(kind, "_fields", None) if base is tuple else None
            return {name: items} if fields is None else {"named": [[*map(str, fields)], items]}
    if issubclass(kind, dict):
        items = list(dict.items(value))
        return {
            "m": [
                [encode_value(k, keep, depth + 1), encode_value(v, keep, depth + 1)]
                for k, v in items
            ]
        }
    return _pack_rare(value, keep, depth)


def _pack_rare(value: Any, keep: Any, depth: int) -> Any:
    module, name = type(value).__module__, type(value).__name__
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if (module, name) == ("collections", "deque"):
        return {"q": [encode_value(each, keep, depth + 1) for each in value]}
    if (module, name) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return {name: str(value)}
    if module == "numpy" and hasattr(value, "tolist"):
        return {"n": encode_value(value.tolist(), keep, depth + 1)}
    if isinstance(value, types.ModuleType):
        return {"module": value.__name__}
    return _pack_object(value, keep, depth)


def _of_date(value: Any) -> list[int]:
    """The numbers of a date, a time or a duration."""
    if getattr(value, "tzinfo", None) is not None:
        raise Unsendable("a time with a time zone is no plain data")
    names = (
        "days seconds microseconds"
        if type(value).__name__ == "timedelta"
        else "year month day hour minute second microsecond"
    )
    return [int(getattr(value, each)) for each in names.split() if hasattr(value, each)]


def _pack_object(value: Any, keep: Any, depth: int) -> Any:
    if hasattr(value, "__next__") and depth == 0:
        found = []
        for each in value:
            found.append(encode_value(each, keep, depth + 1))
            if len(found) > _MOST_ITEMS:
                raise Unsendable("an endless iterator")
        return {"iter": found}
    kind = type(value)
    if kind.__module__ == "datetime" and kind.__name__ in _DATE_TYPES:
        return {kind.__name__: _of_date(value)}
    if keep is None:
        raise Unsendable(f"a {type(value).__name__} is no plain data")
    return {"r": keep(value)}


def decode_value(data: Any, known: Any) -> Any:
    """The value that `encode_value` made `data` of.

    Args:
        data: as it came.
        known: gives the object for the number of a reference.
    """
    if isinstance(data, list):
        return [decode_value(each, known) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind in _COLLECTIONS:
        items = [decode_value(each, known) for each in content]
        return _COLLECTIONS[kind](items)
    if kind == "m":
        return {decode_value(k, known): decode_value(v, known) for k, v in content}
    if kind == "r":
        return known(content)
    return _unpack_leaf(kind, content, known)


def _deque(items: list[Any]) -> Any:
    import collections

    return collections.deque(items)


_COLLECTIONS: dict[str, Callable[[Any], Any]] = {
    "t": tuple,
    "s": set,
    "f": frozenset,
    "q": _deque,
    "iter": iter,
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}


def _unpack_leaf(kind: str, content: Any, known: Any) -> Any:
    import datetime as dt
    import decimal
    import fractions

    leaves: dict[str, Callable[[], Any]] = {
        "i": lambda: int(str(content), 16),
        "d": lambda: float(str(content)),
        "b": lambda: bytes.fromhex(str(content)),
        "c": lambda: complex(float(content[0]), float(content[1])),
        "n": lambda: decode_value(content, known),
        "range": lambda: range(*content),
        "Decimal": lambda: decimal.Decimal(str(content)),
        "Fraction": lambda: fractions.Fraction(str(content)),
        "module": lambda: _module(str(content)),
        "named": lambda: _named_tuple(content, known),
        **{name: lambda: getattr(dt, kind)(*content) for name in _DATE_TYPES},
    }
    return leaves[kind]()


def _named_tuple(content: Any, known: Any) -> Any:
    import collections

    fields, items = content
    make: Any = collections.namedtuple  # noqa: PYI024 - its fields are the program's
    return make("Named", fields, rename=True)(*(decode_value(each, known) for each in items))


def _module(name: str) -> Any:
    """A module that the program has imported, as the tester's own."""
    if name.partition(".")[0] in sys.stdlib_module_names or name == "numpy":
        return importlib.import_module(name)
    raise AssertionError(f"the program's module {name} is not the standard library's")


# ---- the channel between the two processes -------------------------------------------------------


def write_message(file: int, message: Any) -> None:
    """Write `message` as JSON with its length in front."""
    data = json.dumps(message).encode("ascii")
    view = memoryview(struct.pack("Q", len(data)) + data)
    while view:
        view = view[os.write(file, view) :]


def read_message(file: int, until: float | None = None) -> Any:
    """The next message; raises EOFError at the end, TimeoutError after `until`."""
    (size,) = struct.unpack("Q", _read(file, 8, until))
    if size > _MOST_BYTES:
        raise EOFError("a result is too long")
    return json.loads(_read(file, size, until))


def _read(file: int, size: int, until: float | None) -> bytes:
    parts = []
    while size:
        if until is not None:
            left = max(0, until - time.monotonic())
            if not select.select([file], [], [], left)[0]:
                raise TimeoutError("late")
        part = os.read(file, min(size, 1 << 20))
        if not part:
            raise EOFError("the program ended its process")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# ---- the program's process -----------------------------------------------------------------------


class OutOfTime(BaseException):
    """The program has used the processor time of one call."""


def _out_of_time(_: int, __: Any) -> None:
    raise OutOfTime


class ProgramProcess:
    """Loads the program and answers calls."""

    def __init__(self, reader: int, writer: int, cpu_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._cpu_s = cpu_s
        self._space: dict[str, Any] = {}
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}

    def serve(self, source: str) -> None:
        """Load `source`, then answer until the tester closes the channel."""
        signal.signal(signal.SIGPROF, _out_of_time)
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        self._space = module.__dict__
        error = self._timed(lambda: exec(compile(source, "solution.py", "exec"), self._space))  # noqa: S102
        write_message(self._writer, error[1] if error[0] != "value" else None)
        while True:
            try:
                message = read_message(self._reader)
            except EOFError:
                return
            write_message(self._writer, self._answer(message))

    def _answer(self, message: Any) -> list[Any]:
        verb, *rest = message
        if verb == "name":
            return self._timed(lambda: self._named(rest[0]))
        if verb == "attribute":
            return self._timed(lambda: getattr(self._kept[rest[0]], rest[1]))
        if verb == "set attribute":
            value = decode_value(rest[2], self._kept.__getitem__)
            return self._timed(lambda: setattr(self._kept[rest[0]], rest[1], value))
        if verb == "operate":
            values = [decode_value(each, self._kept.__getitem__) for each in rest[1:]]
            return self._timed(lambda: _OPERATIONS[rest[0]](*values))
        if verb == "is one of":
            return self._timed(lambda: isinstance(*map(self._kept.__getitem__, rest)))
        target, args, named = (decode_value(each, self._kept.__getitem__) for each in rest)
        reply = self._timed(
            lambda: (self._named(target) if isinstance(target, str) else target)(*args, **named)
        )
        if reply[0] == "value":
            reply.append([self._packed(each) for each in args])
        return reply

    def _named(self, name: str) -> Any:
        if name in self._space:
            return self._space[name]
        solution = self._space.get("Solution")
        if solution is not None:
            return getattr(solution(), name)
        raise NameError(f"the program defines no {name}")

    def _timed(self, work: Callable[[], Any]) -> list[Any]:
        """``["value", data]``, ``["failed", why]`` or ``["late", why]``."""
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)
        try:
            return ["value", self._packed(work())]
        except OutOfTime:
            return ["late", f"{self._cpu_s:g} s of processor time are over"]
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            return ["failed", _words(error), *_builtin_bases(error)]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _packed(self, value: Any) -> Any:
        return encode_value(value, self._keep)

    def _keep(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        return number


def _builtin_bases(error: BaseException) -> list[str]:
    """The first builtin class of an error, by which a test may expect it."""
    bases = [each for each in type(error).__mro__ if each.__module__ == "builtins"]
    return [bases[0].__name__] if bases else []


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except BaseException:  # noqa: BLE001 - its __str__ is the program's
        return "an error whose message cannot be read"


# ---- the tester ----------------------------------------------------------------------------------


class CallFailed(Exception):  # noqa: N818 - what it is
    """A call of the program raised an exception, took too long or did not answer."""

    kind = "failed"


def call_failed(kind: str, why: str, raised: str = "") -> CallFailed:
    """The exception for a call that failed.

    It is also an instance of what the program raised, if that is builtin: a test may expect it.

    Args:
        kind: ``failed``, ``late`` or ``starved``.
        why: in words.
        raised: the name of the builtin exception.
    """
    base = getattr(builtins, raised, None)
    error_type: type[CallFailed] = CallFailed
    if isinstance(base, type) and issubclass(base, Exception) and base is not Exception:
        error_type = type(raised, (CallFailed, base), {})
    try:
        error = error_type(why)
    except TypeError:  # it takes other arguments
        error = CallFailed(why)
    error.kind = kind
    return error


class Channel:
    """The tester's end.

    Args:
        pid: of the program's process.
        reader: from it.
        writer: to it.
        wall_s: the longest wait for an answer.

    Attributes:
        is_used: whether a function of the program was called.
        has_answered: whether the program gave anything that it was asked for.
    """

    def __init__(self, pid: int, reader: int, writer: int, wall_s: float) -> None:
        self._pid = pid
        self._reader = reader
        self._writer = writer
        self._wall_s = wall_s
        self._gone = ""
        self.is_used = False
        self.has_answered = False

    def loaded(self) -> str:
        """Empty once the program has been loaded, else why it could not be."""
        try:
            return str(self._reply() or "")
        except CallFailed as error:
            return str(error)

    def call(self, target: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of the program; lists, sets and dicts that it changes are changed."""
        self.is_used = True
        sent = [encode_value(each) for each in args]
        message = ["call", encode_value(target), sent, encode_value(named)]
        reply = self._ask(message)
        if len(reply) > 2:
            for given, before, after in zip(args, sent, reply[2], strict=False):
                if before != after:
                    _change(given, decode_value(after, self._known))
        return decode_value(reply[1], self._known)

    def ask(self, *message: Any) -> Any:
        """The value of a name or an attribute in the program."""
        return decode_value(self._ask(list(message))[1], self._known)

    def _known(self, number: int) -> Any:
        return Reference(number, self)

    def _ask(self, message: list[Any]) -> list[Any]:
        if self._gone:
            raise CallFailed("failed", self._gone)
        try:
            write_message(self._writer, message)
        except OSError:
            self._gone = "the program ended its process"
            raise call_failed("failed", self._gone) from None
        reply = self._reply()
        if not isinstance(reply, list) or reply[0] != "value":
            parts = reply if isinstance(reply, list) else ["failed", "it broke the channel"]
            raise call_failed(*map(str, parts[:3]))
        self.has_answered = True
        return reply

    def _reply(self) -> Any:
        try:
            return self._answer()
        except TimeoutError as error:
            kind, why = str(error), f"no answer within {self._wall_s:g} s"
            if kind == "starved":
                why = "the machine gave the program no processor"
            os.kill(self._pid, signal.SIGKILL)
            self._gone = why
            raise call_failed(kind, why) from None
        except (EOFError, OSError, ValueError) as error:
            self._gone = str(error) or "the program ended its process"
            raise call_failed("failed", self._gone) from None

    def _answer(self) -> Any:
        """The next answer; time in which the program had no core is not the program's."""
        began_s, starved_s = time.monotonic(), _starved_s(self._pid)
        more_s = 0.0
        while True:
            until_s = began_s + self._wall_s + more_s
            if select.select([self._reader], [], [], max(0.0, until_s - time.monotonic()))[0]:
                return read_message(self._reader, until_s + self._wall_s)
            longer_s = _starved_s(self._pid) - starved_s
            if longer_s > _MOST_STARVED * self._wall_s:
                raise TimeoutError("starved")
            if longer_s - more_s < _LEAST_S:
                raise TimeoutError("late")
            more_s = longer_s


def _change(given: Any, after: Any) -> None:
    if isinstance(given, list) and isinstance(after, list):
        given[:] = after
    elif (isinstance(given, set) and isinstance(after, set)) or (
        isinstance(given, dict) and isinstance(after, dict)
    ):
        given.clear()
        given.update(after)


def _starved_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Names(dict[str, Any]):
    """The names that tests see: their own, builtins, and the program's as proxies."""

    def __init__(self, channel: Channel, entry_point: str, shadows: list[str]) -> None:
        super().__init__(__name__="tests", __builtins__=_for_tests())
        self._channel = channel
        if entry_point:
            self["candidate"] = self[entry_point] = _proxy(channel, entry_point)
        for name in shadows:
            self[name] = _proxy(channel, name)

    def of_program(self, name: str) -> Any:
        """What the program calls `name`, for an import of the solution."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._channel.ask("name", name)

    def __missing__(self, name: str) -> Any:
        # The tester's own come first: the program must not redefine `abs` or `math` for a test.
        if name in _BUILTINS or isinstance(getattr(builtins, name, None), types.ModuleType):
            raise KeyError(name)
        try:
            value = self._channel.ask("name", name)
        except CallFailed as error:
            if "defines no" in str(error):
                raise KeyError(name) from None
            raise
        self[name] = value
        return value


def _for_tests() -> dict[str, Any]:
    """The builtins of tests: Python's, and modules.

    Of the names that programs may assume, `gcd` is none: a program that does not define the `gcd`
    of a test has to fail it.
    """
    return {
        name: value
        for name, value in vars(builtins).items()
        if name in _BUILTINS or isinstance(value, types.ModuleType)
    }


def _proxy(channel: Channel, name: str) -> Any:
    def function(*args: Any, **named: Any) -> Any:
        return channel.call(name, args, named)

    function.__name__ = name
    return function


def run_tests(channel: Channel, tests: dict[str, Any]) -> list[list[Any]]:
    """The result of each test."""
    if "calls" in tests:
        return [_called(channel, name, args) for name, args in tests["calls"]]
    entry_point = str(tests.get("entry_point") or "")
    names = Names(channel, entry_point, list(tests.get("shadows") or ()))
    solution = types.ModuleType("solution")
    vars(solution)["__getattr__"] = names.of_program
    sys.modules["solution"] = solution
    problem = _set_up(str(tests.get("setup") or ""), names, channel)
    results = [problem or _asserted(code, names) for code in tests["asserts"]]
    if not channel.has_answered and all(each == ["passed"] for each in results):
        return [["unusable", "no test calls the program"] for _ in results]
    return results


def _set_up(code: str, names: Names, channel: Channel) -> list[Any]:
    """Empty once the tests' setup has been executed, else the result of each test."""
    try:
        exec(compile(code, "setup", "exec"), names)  # noqa: S102
    except CallFailed as error:
        return [error.kind, f"setup: {error}"]
    except BaseException as error:  # noqa: BLE001 - the row's own code
        kind = "failed" if channel.is_used else "unusable"
        return [kind, f"the tests' setup raised {_words(error)}"]
    return []


def _called(channel: Channel, name: str, args: list[Any]) -> list[Any]:
    try:
        return ["value", encode_value(channel.call(name, tuple(args), {}))]
    except CallFailed as error:
        return [error.kind, str(error)]
    except Exception as error:  # noqa: BLE001 - the program's process may send anything
        return ["failed", f"the result cannot be read: {_words(error)}"]


def _asserted(code: str, names: Names) -> list[Any]:
    try:
        exec(compile(code, "test", "exec"), names)  # noqa: S102 - the row's own test
    except CallFailed as error:
        return [error.kind, str(error)]
    except (SyntaxError, Unsendable) as error:
        return ["unusable", f"the test cannot be run: {_words(error)}"]
    except TypeError as error:
        if str(error).startswith(_NO_ERROR_TYPE):
            return ["unusable", f"the test expects an error of the program's own: {error}"]
        return ["failed", _words(error)]
    except BaseException as error:  # noqa: BLE001 - a test fails by raising
        return ["failed", _words(error)]
    return ["passed"]


def _main() -> None:
    """Start the program, then read the tests and run them."""
    report = os.dup(1)
    settings = json.loads(_piece(0))
    program_reader, tester_writer = os.pipe()
    tester_reader, program_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_program(program_reader, program_writer, settings)
    os.close(program_reader)
    os.close(program_writer)
    _hide()
    channel = Channel(pid, tester_reader, tester_writer, settings["wall_s"])
    tests = json.loads(_piece(0))
    problem = channel.loaded()
    results = [] if problem else run_tests(channel, tests)
    write_all(report, json.dumps({"loaded": problem or None, "results": results}).encode())
    os.kill(pid, signal.SIGKILL)
    os._exit(0)


def write_all(file: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _piece(file: int) -> bytes:
    """The next piece of the input, and not one byte more: the program must not see what follows."""
    size = struct.unpack("Q", bytes.fromhex(_exactly(file, 16).decode()))[0]
    return _exactly(file, size)


def _exactly(file: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(file, min(size, 1 << 20))
        if not part:
            raise EOFError("the input ends early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _be_the_program(reader: int, writer: int, settings: dict[str, Any]) -> None:
    """Runs in the program's process; does not return."""
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        confine = globals().get("confine_program")
        _quiet()
        first, second = sorted((reader, writer))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, 1 << 12)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if confine is not None:
            confine()
        ProgramProcess(reader, writer, float(str(settings["cpu_s"]))).serve(
            str(settings["program"])
        )
    finally:
        os._exit(0)


def _quiet() -> None:
    """Drop what the program prints: a function is judged by what it returns."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # nothing can be opened for writing; the run's error output is limited
        null = 2
    os.dup2(null, 1)
    os.dup2(null, 2)


def _hide() -> None:
    """Let no process of the same user read the tester's memory and files."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


if __name__ == "__main__":
    _main()
