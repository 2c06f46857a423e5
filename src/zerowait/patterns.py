"""Regular expressions that are compiled at their first use, so that imports are quick.

Compiling all that read verdicts and answers would take half as long as importing them.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """What ``re.compile(text, flags)`` gives, compiled at its first use; a mistake shows then.

    >>> lazy_pattern(r"[0-9]+").findall("7 of 10")
    ['7', '10']
    """
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    """Has the methods of `re.Pattern`, which are the compiled pattern's own after their first use.

    Args:
        text, flags: as of `re.compile`.
    """

    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # hooks that copy and pickle look for
            raise AttributeError(name)
        found = getattr(self._compiled, name)
        setattr(self, name, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return lazy_pattern, (self.pattern, self._flags)
