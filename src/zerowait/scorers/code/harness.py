"""Calls a program's functions for its tests; a script of its own, run inside the sandbox.

Two processes: the program's, and the tester's, which started it before it read any test. The tester
asks for a call and gets plain data back, never an object of the program's. So no ``==`` of the
program's is ever called, and neither its stack, nor its memory, nor a patched builtin shows or
changes a test. A program that ends its process fails what is left.

Input: two pieces of JSON, each after its length (8 bytes in hexadecimal): first ``{"program": ...,
"cpu_s": ..., "wall_s": ...}``, then one of:

- ``{"calls": [[name, args], ...]}``: each result is printed, to be compared outside;
- ``{"asserts": [code, ...], "setup": code, "entry_point": name}``: each piece of code is executed
  in the tester, with the program's functions as proxies, and passes unless it raises.

Output: ``{"loaded": null or error, "results": [...]}``. A result is ``["value",
data]``, ``["passed"]``, ``["failed", why]``, ``["late", why]`` or ``["unusable", why]``: the test
itself is at fault.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import json
import os
import select
import signal
import struct
import sys
import time
import types

_DEEPEST = 60
_MOST_ITEMS = 2_000_000
_MOST_BYTES = 64 << 20
_KINDS = {tuple: "t", set: "s", frozenset: "f"}
_BUILTINS = frozenset(globals().get("builtin_names") or dir(builtins))


class Unsendable(TypeError):  # noqa: N818 - what it is
    """A value that is no plain data."""


class Reference:
    """An object that stays in the program's process; it can only be handed back to it."""

    def __init__(self, number: int, channel: Channel) -> None:
        self._number = number
        self._channel = channel

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._channel.ask("attribute", self._number, name)

    def __call__(self, *args: object, **named: object) -> object:
        return self._channel.call(self, args, named)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise AssertionError("the program returned an object that is no plain data")


def pack(value: object, keep: object = None, depth: int = 0) -> object:
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
        return {"i": hex(value)} if abs(int.__index__(value)) >> 53 else int.__index__(value)  # type: ignore[arg-type]
    if issubclass(kind, float):
        return {"d": float.__repr__(value)}  # type: ignore[arg-type]
    if issubclass(kind, str):
        return str.__str__(value)
    return _pack_other(value, keep, depth)


def _pack_other(value: object, keep: object, depth: int) -> object:
    kind = type(value)
    if issubclass(kind, bytes | bytearray):
        return {"b": bytes(value).hex()}  # type: ignore[call-overload]
    if issubclass(kind, complex):
        return {"c": [float.__repr__(value.real), float.__repr__(value.imag)]}  # type: ignore[attr-defined]
    if issubclass(kind, list):
        return [pack(each, keep, depth + 1) for each in list.__iter__(value)]  # type: ignore[arg-type]
    for base, name in _KINDS.items():
        if issubclass(kind, base):
            return {name: [pack(each, keep, depth + 1) for each in base.__iter__(value)]}  # type: ignore[attr-defined]
    if issubclass(kind, dict):
        items = list(dict.items(value))  # type: ignore[arg-type]
        return {"m": [[pack(k, keep, depth + 1), pack(v, keep, depth + 1)] for k, v in items]}
    return _pack_rare(value, keep, depth)


def _pack_rare(value: object, keep: object, depth: int) -> object:
    module, name = type(value).__module__, type(value).__name__
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if (module, name) == ("collections", "deque"):
        return {"q": [pack(each, keep, depth + 1) for each in value]}  # type: ignore[attr-defined]
    if (module, name) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return {name: str(value)}
    if module == "numpy" and hasattr(value, "tolist"):
        return {"n": pack(value.tolist(), keep, depth + 1)}
    if isinstance(value, types.ModuleType):
        return {"module": value.__name__}
    if hasattr(value, "__next__") and depth == 0:
        found = []
        for each in value:  # type: ignore[attr-defined]
            found.append(pack(each, keep, depth + 1))
            if len(found) > _MOST_ITEMS:
                raise Unsendable("an endless iterator")
        return {"iter": found}
    if keep is None:
        raise Unsendable(f"a {name} is no plain data")
    return {"r": keep(value)}  # type: ignore[operator]


def unpack(data: object, known: object) -> object:
    """The value that `pack` made `data` of.

    Args:
        data: as it came.
        known: gives the object for the number of a reference.
    """
    if isinstance(data, list):
        return [unpack(each, known) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind in ("t", "s", "f", "q", "iter"):
        items = [unpack(each, known) for each in content]
        return _COLLECTIONS[kind](items)
    if kind == "m":
        return {unpack(k, known): unpack(v, known) for k, v in content}
    if kind == "r":
        return known(content)  # type: ignore[operator]
    return _unpack_leaf(kind, content, known)


def _deque(items: list[object]) -> object:
    import collections

    return collections.deque(items)


_COLLECTIONS: dict[str, object] = {"t": tuple, "s": set, "f": frozenset, "q": _deque, "iter": iter}


def _unpack_leaf(kind: str, content: object, known: object) -> object:
    import decimal
    import fractions

    leaves = {
        "i": lambda: int(str(content), 16),
        "d": lambda: float(str(content)),
        "b": lambda: bytes.fromhex(str(content)),
        "c": lambda: complex(float(content[0]), float(content[1])),  # type: ignore[index]
        "n": lambda: unpack(content, known),
        "range": lambda: range(*content),  # type: ignore[misc]
        "Decimal": lambda: decimal.Decimal(str(content)),
        "Fraction": lambda: fractions.Fraction(str(content)),
        "module": lambda: _module(str(content)),
    }
    return leaves[kind]()


def _module(name: str) -> object:
    """A module that the program has imported, as the tester's own."""
    if name.partition(".")[0] in sys.stdlib_module_names or name == "numpy":
        return importlib.import_module(name)
    raise AssertionError(f"the program's module {name} is not the standard library's")


# ---- the channel between the two processes -------------------------------------------------------


def write_message(file: int, message: object) -> None:
    """Write `message` as JSON with its length in front."""
    data = json.dumps(message).encode("ascii")
    view = memoryview(struct.pack("Q", len(data)) + data)
    while view:
        view = view[os.write(file, view) :]


def read_message(file: int, until: float | None = None) -> object:
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
                raise TimeoutError
        part = os.read(file, min(size, 1 << 20))
        if not part:
            raise EOFError("the program ended its process")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# ---- the program's process -----------------------------------------------------------------------


class OutOfTime(BaseException):  # noqa: N818 - what it is
    """The program has used the processor time of one call."""


def _out_of_time(_: int, __: object) -> None:
    raise OutOfTime


class ProgramProcess:
    """Loads the program and answers calls."""

    def __init__(self, reader: int, writer: int, cpu_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._cpu_s = cpu_s
        self._space: dict[str, object] = {}
        self._kept: list[object] = []

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

    def _answer(self, message: object) -> list[object]:
        verb, *rest = message  # type: ignore[misc]
        if verb == "name":
            return self._timed(lambda: self._named(rest[0]))
        if verb == "attribute":
            return self._timed(lambda: getattr(self._kept[rest[0]], rest[1]))
        target, args, named = (unpack(each, self._kept.__getitem__) for each in rest)
        function = self._named(target) if isinstance(target, str) else target
        reply = self._timed(lambda: function(*args, **named))  # type: ignore[operator, misc, arg-type]
        if reply[0] == "value":
            reply.append([self._packed(each) for each in args])  # type: ignore[attr-defined]
        return reply

    def _named(self, name: str) -> object:
        if name in self._space:
            return self._space[name]
        solution = self._space.get("Solution")
        if solution is not None:
            return getattr(solution(), name)  # type: ignore[operator]
        raise NameError(f"the program defines no {name}")

    def _timed(self, work: object) -> list[object]:
        """``["value", data]``, ``["failed", why]`` or ``["late", why]``."""
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)
        try:
            return ["value", self._packed(work())]  # type: ignore[operator]
        except OutOfTime:
            return ["late", f"{self._cpu_s:g} s of processor time are over"]
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            return ["failed", _words(error), *_builtin_bases(error)]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _packed(self, value: object) -> object:
        return pack(value, self._keep)

    def _keep(self, value: object) -> int:
        self._kept.append(value)
        return len(self._kept) - 1


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
    """

    def __init__(self, pid: int, reader: int, writer: int, wall_s: float) -> None:
        self._pid = pid
        self._reader = reader
        self._writer = writer
        self._wall_s = wall_s
        self._gone = ""

    def loaded(self) -> str:
        """Empty once the program has been loaded, else why it could not be."""
        try:
            return str(self._reply() or "")
        except CallFailed as error:
            return str(error)

    def call(self, target: object, args: tuple[object, ...], named: dict[str, object]) -> object:
        """Call a function of the program; lists, sets and dicts that it changes are changed."""
        sent = [pack(each) for each in args]
        message = ["call", pack(target), sent, pack(named)]
        reply = self._ask(message)
        if len(reply) > 2:
            for given, before, after in zip(args, sent, reply[2], strict=False):  # type: ignore[call-overload]
                if before != after:
                    _change(given, unpack(after, self._known))
        return unpack(reply[1], self._known)

    def ask(self, *message: object) -> object:
        """The value of a name or an attribute in the program."""
        return unpack(self._ask(list(message))[1], self._known)

    def _known(self, number: int) -> object:
        return Reference(number, self)

    def _ask(self, message: list[object]) -> list[object]:
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
        return reply

    def _reply(self) -> object:
        try:
            return read_message(self._reader, time.monotonic() + self._wall_s)
        except TimeoutError:
            kind = "late"
            why = f"no answer within {self._wall_s:g} s"
            if _starved_s(self._pid) > self._wall_s / 2:
                kind, why = "starved", "the machine gave the program no processor"
            os.kill(self._pid, signal.SIGKILL)
            self._gone = why
            raise call_failed(kind, why) from None
        except (EOFError, OSError, ValueError) as error:
            self._gone = str(error) or "the program ended its process"
            raise call_failed("failed", self._gone) from None


def _change(given: object, after: object) -> None:
    if isinstance(given, list) and isinstance(after, list):
        given[:] = after
    elif isinstance(given, set) and isinstance(after, set):
        given.clear()
        given.update(after)
    elif isinstance(given, dict) and isinstance(after, dict):
        given.clear()
        given.update(after)


def _starved_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/schedstat") as file:  # noqa: PTH123
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Names(dict[str, object]):
    """The names that tests see: their own, builtins, and the program's as proxies."""

    def __init__(self, channel: Channel, entry_point: str) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self._channel = channel
        if entry_point:
            self["candidate"] = _proxy(channel, entry_point)

    def __missing__(self, name: str) -> object:
        # The tester's own come first: the program must not redefine `abs` or `math` for a test.
        if name in _BUILTINS or isinstance(getattr(builtins, name, None), types.ModuleType):
            raise KeyError(name)
        try:
            value = self._channel.ask("name", name)
        except CallFailed as error:
            if "defines no" in str(error):
                raise KeyError(name) from None
            raise
        if isinstance(value, Reference):
            value = _proxy(self._channel, name)
        self[name] = value
        return value


def _proxy(channel: Channel, name: str) -> object:
    def function(*args: object, **named: object) -> object:
        return channel.call(name, args, named)

    function.__name__ = name
    return function


def run_tests(channel: Channel, tests: dict[str, object]) -> list[list[object]]:
    """The result of each test."""
    if "calls" in tests:
        return [_called(channel, name, args) for name, args in tests["calls"]]  # type: ignore[attr-defined]
    entry_point = str(tests.get("entry_point") or "")
    names = Names(channel, entry_point)
    solution = types.ModuleType("solution")
    solution.__getattr__ = names.__getitem__  # type: ignore[method-assign, assignment]
    sys.modules["solution"] = solution
    try:
        exec(compile(str(tests.get("setup") or ""), "setup", "exec"), names)  # noqa: S102
    except CallFailed as error:
        return [[error.kind, f"setup: {error}"] for _ in tests["asserts"]]  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001 - the row's own code
        why = f"the tests' setup raised {_words(error)}"
        return [["unusable", why] for _ in tests["asserts"]]  # type: ignore[attr-defined]
    return [_asserted(code, names) for code in tests["asserts"]]  # type: ignore[attr-defined]


def _called(channel: Channel, name: str, args: list[object]) -> list[object]:
    try:
        return ["value", pack(channel.call(name, tuple(args), {}))]
    except CallFailed as error:
        return [error.kind, str(error)]
    except Exception as error:  # noqa: BLE001 - the program's process may send anything
        return ["failed", f"the result cannot be read: {_words(error)}"]


def _asserted(code: str, names: Names) -> list[object]:
    try:
        exec(compile(code, "test", "exec"), names)  # noqa: S102 - the row's own test
    except CallFailed as error:
        return [error.kind, str(error)]
    except (SyntaxError, Unsendable) as error:
        return ["unusable", f"the test cannot be run: {_words(error)}"]
    except BaseException as error:  # noqa: BLE001 - a test fails by raising
        return ["failed", _words(error)]
    return ["passed"]


def main() -> None:
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
    """The next piece of the input, and not one byte more: what follows is not for the program's process."""
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


def _be_the_program(reader: int, writer: int, settings: dict[str, object]) -> None:
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
        ProgramProcess(reader, writer, float(str(settings["cpu_s"]))).serve(str(settings["program"]))
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
    main()
