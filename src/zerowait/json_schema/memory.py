"""What is known of a value while it is held against a schema, so that nothing is checked twice.

Where the branches of a schema lead back to it (a tree whose nodes are one of several kinds),
jsonschema looks at every value once for each way that leads there: the ways double with each level
that a text nests. Here, after a fixed number of steps that tell all there is to tell, every value
is held against every part of the schema once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

_STEPS_TO_TELL: Final = 2_000


class _Known:
    """Which parts of a value fit which parts of the schema."""

    def __init__(self) -> None:
        # The two are kept, so that no other object gets their identity meanwhile.
        self.verdicts: dict[tuple[int, int], tuple[Any, Any, bool]] = {}
        self.steps_to_tell = _STEPS_TO_TELL

    def asks(self, schema: Any, value: Any) -> bool:
        """Whether it is not known yet if `value` fits, or why not can still be told."""
        if not isinstance(value, dict | list):  # nothing below it can be asked again
            return True
        if self.steps_to_tell > 0:
            self.steps_to_tell -= 1
            return True
        return (id(schema), id(value)) not in self.verdicts

    def learns(self, schema: Any, value: Any, *, fits: bool) -> None:
        """Take down whether `value` fits `schema`."""
        self.verdicts[id(schema), id(value)] = schema, value, fits

    def errors(self, schema: Any, value: Any) -> list[Any]:
        """That `value` does not fit, without a reason; empty where it fits."""
        from jsonschema.exceptions import ValidationError

        fits = self.verdicts[id(schema), id(value)][2]
        return [] if fits else [ValidationError("does not fit", instance=value, schema=schema)]


_KNOWN: ContextVar[_Known] = ContextVar("_KNOWN")


def errors_of(validator: Any, value: Any) -> list[Any]:
    """What is wrong with `value` by a validator of a class that `remembers`; empty where it fits.

    It takes time in proportion to the size of the value times the size of the schema.
    """
    token = _KNOWN.set(_Known())
    try:
        return list(validator.iter_errors(value))
    finally:
        _KNOWN.reset(token)


def remembers(kind: Any) -> Any:
    """The validator class `kind` of jsonschema, of our own, changed to ask what is known first."""
    # Neither calls a function that the other could share: Python's stack is what bounds the depth.
    kind.iter_errors, kind.descend = _asking(kind.iter_errors), _asking_below(kind.descend)
    return kind


def _asking(slowly: Any) -> Any:
    def iter_errors(self: Any, instance: Any) -> Iterator[Any]:
        known = _KNOWN.get()
        if not known.asks(self.schema, instance):
            yield from known.errors(self.schema, instance)
            return
        fits = True
        for error in slowly(self, instance):
            if fits:
                known.learns(self.schema, instance, fits=(fits := False))
            yield error
        if fits:
            known.learns(self.schema, instance, fits=True)

    return iter_errors


def _asking_below(slowly: Any) -> Any:
    def descend(  # noqa: PLR0917 - jsonschema calls it so
        self: Any,
        instance: Any,
        schema: Any,
        path: Any = None,
        schema_path: Any = None,
        resolver: Any = None,
    ) -> Iterator[Any]:
        known = _KNOWN.get()
        if not known.asks(schema, instance):
            for error in known.errors(schema, instance):
                error.path.extend(() if path is None else (path,))
                yield error
            return
        fits = True
        for error in slowly(self, instance, schema, path, schema_path, resolver):
            if fits:
                known.learns(schema, instance, fits=(fits := False))
            yield error
        if fits:
            known.learns(schema, instance, fits=True)

    return descend
