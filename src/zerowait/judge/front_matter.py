"""The settings at the top of a rubric file."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import yaml

from zerowait.errors import ConfigError, did_you_mean

_SETTINGS = ("version", "reason", "criteria", "judges")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN = frozenset(
    (
        *("scored", "abstained", "agreement", "spread"),  # metrics
        *("score", "verdict", "reason"),  # labels of something else
        *("think", "thinking", "thought", "thoughts", "reasoning", "analysis"),  # tags of thinking
    )
)


class Criterion(msgspec.Struct, frozen=True):
    """One thing that a judge gives a verdict on.

    Args:
        name: labels the verdict in the reply, in details and in metrics.
        weight: its share in the mean, relative to the others'.
        ask: what the judge is asked; empty where the rubric's text says it.
    """

    name: str
    weight: float
    ask: str = ""

    def __str__(self) -> str:
        """The line that the judge reads.

        >>> print(Criterion("clarity", 0.6, "Is it clear?"))
        - clarity: Is it clear?
        """
        return f"- {self.name}: {self.ask}" if self.ask else f"- {self.name}"


class FrontMatter(msgspec.Struct, frozen=True):
    """A rubric's settings."""

    version: str = ""
    reason_first: bool = True
    criteria: tuple[Criterion, ...] = ()
    judges: str = "response"


def read_front_matter(lines: list[str], where: str) -> tuple[FrontMatter, int]:
    """The settings at the top, and the index of the first line after them.

    Raises:
        ConfigError: the block does not end, is not YAML, or says what no rubric may say.
    """
    if not lines or lines[0].strip() != "---":
        return FrontMatter(), 0
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.strip() == "---"), None)
    if end is None:
        raise ConfigError(f"{where}:1: the settings that begin with '---' need a second '---' line")
    block = _Block(where, "\n".join(["", *lines[1:end]]))
    return block.front_matter(), end + 1


class _Block:
    """The block's YAML, in which every word stays a word; knows the line of each node."""

    def __init__(self, where: str, text: str) -> None:
        self._where = where
        try:
            self._root = yaml.compose(text, Loader=yaml.BaseLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise ConfigError(
                f"{where}:{line}: is not YAML: {error.problem}; text with ? : , or # needs quotes"
            ) from None

    def front_matter(self) -> FrontMatter:
        if self._root is None:
            return FrontMatter()
        settings = self._members(self._root, "the settings are lines such as 'version: 1'")
        for key, node in settings.values():
            if key.value not in _SETTINGS:
                hint = did_you_mean(key.value, _SETTINGS)
                self._fail(key, f"a rubric has no setting {key.value!r}{hint}")
            if isinstance(node, yaml.ScalarNode) and not node.value:
                self._fail(key, f"{key.value} needs a value, such as '{key.value}: 1'")
        reason = self._word(settings.get("reason"), "first")
        if reason not in ("first", "none"):
            self._fail(settings["reason"][0], f"reason is 'first' or 'none', not {reason!r}")
        return FrontMatter(
            version=self._word(settings.get("version"), ""),
            reason_first=reason == "first",
            criteria=self._criteria(settings.get("criteria")),
            judges=self._word(settings.get("judges"), "response"),
        )

    def _criteria(self, setting: tuple[Any, Any] | None) -> tuple[Criterion, ...]:
        if setting is None:
            return ()
        key, node = setting
        form = "criteria is a mapping such as {clarity: 0.6, logic: {weight: 0.4, ask: ...}}"
        members = self._members(node, form)
        if len(members) < 2:
            self._fail(key, "criteria needs at least two; one is what a rubric judges anyway")
        seen: dict[str, str] = {}
        for name, (at, _) in members.items():
            if not _NAME.fullmatch(name):
                self._fail(at, f"{name!r} is no name for a criterion: use letters, digits and _")
            if name.casefold() in _TAKEN:
                self._fail(at, f"a criterion cannot be called {name!r}: the name is taken")
            bare = name.casefold().replace("_", "")
            if bare in seen:
                self._fail(at, f"the criteria {seen[bare]!r} and {name!r} cannot be told apart")
            seen[bare] = name
        return tuple(self._criterion(name, *member) for name, member in members.items())

    def _criterion(self, name: str, key: Any, node: Any) -> Criterion:
        if isinstance(node, yaml.ScalarNode):
            return Criterion(name, self._weight(name, key, node.value))
        parts = self._members(node, f"{name} is a weight, or {{weight: 0.3, ask: what is asked}}")
        for part, _ in parts.values():
            if part.value not in ("weight", "ask"):
                hint = did_you_mean(part.value, ("weight", "ask"))
                self._fail(part, f"the criterion {name!r} has no key {part.value!r}{hint}")
        if "weight" not in parts:
            self._fail(key, f"the criterion {name!r} needs a weight")
        ask = " ".join(self._word(parts.get("ask"), "").split())
        if "{{" in ask:
            self._fail(key, f"the criterion {name!r} asks with placeholders; they belong below")
        return Criterion(name, self._weight(name, key, self._word(parts["weight"], "")), ask)

    def _weight(self, name: str, key: Any, text: str) -> float:
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not (math.isfinite(weight) and weight > 0):
            self._fail(key, f"the weight of {name!r} must be a number greater than 0, not {text!r}")
        return weight

    def _word(self, setting: tuple[Any, Any] | None, default: str) -> str:
        if setting is None:
            return default
        key, node = setting
        if not isinstance(node, yaml.ScalarNode):
            self._fail(key, f"{key.value} is one word, such as '{key.value}: 1'")
        return str(node.value)

    def _members(self, node: Any, form: str) -> dict[str, tuple[Any, Any]]:
        """A mapping's keys and values by name."""
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, form)
        members: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(key, form)
            if key.value in members:
                self._fail(key, f"{key.value} is given twice")
            members[key.value] = (key, value)
        return members

    def _fail(self, node: Any, problem: str) -> Any:
        raise ConfigError(f"{self._where}:{node.start_mark.line + 1}: {problem}")
