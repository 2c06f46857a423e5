"""Rubrics: the prompts of judges, read from Markdown and checked before a run starts.

The format of a rubric file::

    ---
    version: 1
    reason: first
    ---
    Notes for people, which are not sent.

    ## System
    What the judge is and how it judges.

    ## User
    {{prompt}}

    {{response}}

    {{reply_format}}

The block between the ``---`` lines is YAML; it may be missing, and so may each of its keys.

- ``version``: a word of yours. A hash of the text is added to it, so that no answer to an earlier
  text is taken from the cache.
- ``reason``: ``first`` (the default: the judge gives its reasons, then its verdict) or ``none``
  (the verdict alone).
- ``judges``: the text that is judged: ``response`` by default, else the ``extra.NAME`` that the
  user section shows.
- ``criteria``: the criteria that the judge gives a verdict on each, by name: a weight, or
  ``{weight: 0.3, ask: what is asked}``. ``{{criteria}}`` is replaced by the list of them.
  ``criteria: row`` takes those of each row, for ``verdict: {rubric: extra.NAME}``.

The headings are exactly ``## System`` and ``## User``, each once; use ``###`` below them.

Placeholders: ``{{prompt}}``, ``{{response}}``, ``{{ground_truth}}`` and ``{{extra.NAME}}`` stand
for the sample's values and belong in the user section, best on lines of their own, since each is
put between marker lines. ``{{conversation}}`` is the prompt and every message behind it,
``{{turns}}`` the messages behind it, with what tools wrote, and ``{{last}}`` the assistant's last
message. ``{{reply_format}}`` is required: it says how to answer, in the form that
the parser reads, and is made from the judge's ``verdict`` setting. A rubric that compares
responses has ``{{responses}}`` in the place of ``{{response}}``: all that are shown, each with its
label. Put it and ``{{reply_format}}`` last: what stands before them is the same in every request
about one prompt, so that a provider that caches prefixes reads it once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
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
    of_row: bool = False
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
    block = _FrontMatterBlock(where, "\n".join(["", *lines[1:end]]))
    return block.front_matter(), end + 1


class _FrontMatterBlock:
    """The parsed YAML of a rubric's settings, all scalars as text, with the line of each node."""

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
        criteria = settings.get("criteria")
        of_row = criteria is not None and getattr(criteria[1], "value", None) == "row"
        return FrontMatter(
            version=self._word(settings.get("version"), ""),
            reason_first=reason == "first",
            criteria=() if of_row else self._criteria(criteria),
            of_row=of_row,
            judges=self._word(settings.get("judges"), "response"),
        )

    def _criteria(self, setting: tuple[Any, Any] | None) -> tuple[Criterion, ...]:
        if setting is None:
            return ()
        key, node = setting
        form = (
            "criteria is a mapping such as {clarity: 0.6, logic: {weight: 0.4, ask: ...}}, or row"
        )
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


BUILT_IN = (
    *("monitor", "pairwise", "quality", "ranking", "reference", "row_rubric"),
    *("row_rubric_whole", "tool_criteria", "tool_reasoning"),
)

REPLY_FORMAT = "reply_format"
CRITERIA = "criteria"
RESPONSES = "responses"
_OURS = (REPLY_FORMAT, CRITERIA)
CONVERSATION = "conversation"
TURNS = "turns"
LAST = "last"
_OF_RESPONSE = ("response", CONVERSATION, TURNS, LAST)
_SAMPLE_NAMES = ("prompt", "ground_truth", *_OF_RESPONSE)
_EXTRA = "extra."
_PLACEHOLDER = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*\}\}")
_MISSPELT = re.compile(  # {response}, ${response}, [[response]], %(response)s
    r"((?<![\\{])(?:\$?\{|%\(|\[\[)[ \t]*"
    r"(prompt|responses?|ground_truth|extra\.[\w.-]+|conversation|turns|last)"
    r"[ \t]*(?:\}|\)s|\]\])(?!\}))",
    re.IGNORECASE,
)
_SECTIONS = ("System", "User")


class Rubric(msgspec.Struct, frozen=True):
    """The prompt of a judge: system and user message with placeholders.

    Args:
        name: for error messages.
        version: changes whenever the text does; part of every cache key.
        system: the system message, with at most ``{{reply_format}}`` and ``{{criteria}}`` in it.
        user: the user message, with placeholders.
        reason_first: whether the judge writes its reasons before its verdict.
        criteria: those with a verdict each; empty for one verdict on the whole.
        of_row: whether ``{{criteria}}`` stands for the criteria of each row.
        listed: those of one row, as the judge reads them.

    Raises:
        ConfigError: a placeholder is unknown, misplaced or missing.
    """

    name: str
    version: str
    system: str
    user: str
    reason_first: bool = True
    criteria: tuple[Criterion, ...] = ()
    of_row: bool = False
    listed: str = ""

    def __post_init__(self) -> None:
        where = f"rubric {self.name!r}"
        sections = {"System": (1, self.system), "User": (1, self.user)}
        _check(where, sections, named=bool(self.criteria), of_row=self.of_row)

    @property
    def needs(self) -> tuple[str, ...]:
        """The placeholders that stand for values of the sample, each once, in order."""
        return _needs(self.user)

    @property
    def shows_messages(self) -> bool:
        """Whether it shows the conversation or its turns, which may be too long for the judge."""
        return not {CONVERSATION, TURNS}.isdisjoint(self.needs)

    @property
    def shows_pictures(self) -> bool:
        """Whether it shows a placeholder whose messages may hold pictures."""
        return not {"prompt", CONVERSATION, TURNS, LAST}.isdisjoint(self.needs)

    @property
    def shares_a_prefix(self) -> bool:
        """Whether ``{{criteria}}`` stands behind every value of the sample, in the user section.

        Requests about different criteria then begin alike, and a provider that caches prompts
        reads the sample once.
        """
        names = _pieces(self.user)[1::2]
        if CRITERIA not in names or CRITERIA in _pieces(self.system)[1::2]:
            return False
        return not any(name not in _OURS for name in names[names.index(CRITERIA) :])

    def listing(self, criteria: str) -> Rubric:
        """This rubric for one row, with its criteria as the judge reads them."""
        return msgspec.structs.replace(self, listed=criteria)

    def with_criteria(self, criteria: Sequence[Criterion]) -> Rubric:
        """This rubric with ``{{criteria}}`` replaced by the list of `criteria`."""
        lines = "\n".join(str(criterion) for criterion in criteria)
        return msgspec.structs.replace(
            self,
            system=_written_out(self.system, lines),
            user=_written_out(self.user, lines),
            criteria=(),
        )


def load_rubric(name_or_path: str, *, base: Path) -> Rubric:
    """The built-in rubric of that name, or the one in the Markdown file at that path.

    Args:
        name_or_path: a built-in name; or a path that ends in ``.md`` or has a folder in it.
        base: the folder that a relative path starts from.

    Raises:
        ConfigError: there is no such rubric, or it is not in the format; names file and line.

    >>> load_rubric("quality", base=Path()).needs
    ('prompt', 'response')
    """
    if name_or_path in BUILT_IN:
        source = resources.files(__package__).joinpath("prompts", f"{name_or_path}.md")
        return read_rubric(source.read_text("utf-8"), name=name_or_path, where=name_or_path)
    if not name_or_path.endswith(".md") and not set(name_or_path) & set("/\\"):
        raise ConfigError(
            f"there is no built-in rubric {name_or_path!r}{did_you_mean(name_or_path, BUILT_IN)}; "
            "a rubric of your own is a path that ends in .md"
            + _suggested_file(base / f"{name_or_path}.md", base)
        )
    path = base / Path(name_or_path).expanduser()
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no rubric {path.resolve()}: a relative path starts at the folder of the "
            f"configuration{_suggested_file(Path(name_or_path), base)}"
        ) from None
    except OSError as error:
        raise ConfigError(f"the rubric {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the rubric {path} is not UTF-8 text: {error}") from error
    return read_rubric(text, name=path.stem, where=str(path))


def _suggested_file(path: Path, base: Path) -> str:
    """A half sentence that suggests a file of that name, or of a similar one; or nothing."""
    if path.is_file():
        meant = os.path.relpath(path.resolve(), base.resolve())
        return f"; there is {path.resolve()}: write {meant}"
    folder = (base / path).parent
    names = [file.name for file in folder.glob("*.md")] if folder.is_dir() else []
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def read_rubric(text: str, *, name: str, where: str) -> Rubric:
    """The rubric written in `text`; `where` names the file in errors.

    Raises:
        ConfigError: the text is not in the format that the module's docstring gives.
    """
    lines = text.splitlines()
    front, start = read_front_matter(lines, where)
    sections = _sections(lines, start, where)
    _check_spelling(where, sections)
    _check(where, sections, named=bool(front.criteria), of_row=front.of_row)
    _check_judged(where, sections, front.judges)
    digest = sha256(text.encode()).hexdigest()[:12]
    return Rubric(
        name=name,
        version=f"{front.version}+{digest}" if front.version else digest,
        system=sections["System"][1].strip(),
        user=sections["User"][1].strip(),
        reason_first=front.reason_first,
        criteria=front.criteria,
        of_row=front.of_row,
    )


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with each placeholder replaced, in one pass: braces in values mean nothing.

    Raises:
        KeyError: a placeholder has no value.

    >>> fill("{{ response }} and {{prompt}}", {"response": "{{prompt}}", "prompt": "p"})
    '{{prompt}} and p'
    """
    pieces = list(_pieces(template))
    pieces[1::2] = map(values.__getitem__, pieces[1::2])
    return "".join(pieces)


@lru_cache(maxsize=256)
def _pieces(template: str) -> tuple[str, ...]:
    """The text and placeholder names of a template, alternating."""
    return tuple(_PLACEHOLDER.split(template))


@lru_cache(maxsize=256)
def _needs(template: str) -> tuple[str, ...]:
    names = dict.fromkeys(_pieces(template)[1::2])
    return tuple(name for name in names if name not in _OURS)


def _written_out(template: str, criteria: str) -> str:
    pieces = _pieces(template)
    return "".join(
        piece if not odd % 2 else criteria if piece == CRITERIA else f"{{{{{piece}}}}}"
        for odd, piece in enumerate(pieces)
    )


def _sections(lines: list[str], start: int, where: str) -> dict[str, tuple[int, str]]:
    """Each section's first line number, counted from 1, and text."""
    found: dict[str, tuple[int, list[str]]] = {}
    current: list[str] = []  # notes before the first heading are for people
    for number, line in enumerate(lines[start:], start=start + 1):
        if not line.startswith("## "):
            current.append(line)
            continue
        title = line[3:].strip()
        if title not in _SECTIONS:
            hint = did_you_mean(title, _SECTIONS)
            raise ConfigError(
                f"{where}:{number}: a rubric has no section {title!r}{hint}; "
                "use ### for a heading inside a section"
            )
        if title in found:
            raise ConfigError(f"{where}:{number}: there is a second section '## {title}'")
        current = []
        found[title] = (number + 1, current)
    for title in _SECTIONS:
        if title not in found:
            raise ConfigError(f"{where}: a rubric needs a section that begins '## {title}'")
        if not any(line.strip() for line in found[title][1]):
            raise ConfigError(f"{where}:{found[title][0] - 1}: the section '## {title}' is empty")
    return {title: (number, "\n".join(body)) for title, (number, body) in found.items()}


def _check(
    where: str, sections: Mapping[str, tuple[int, str]], *, named: bool, of_row: bool
) -> None:
    names = {title: _checked(where, title, *section) for title, section in sections.items()}
    everywhere = names["System"] | names["User"]
    if REPLY_FORMAT not in everywhere:
        raise ConfigError(
            f"{where}: {{{{{REPLY_FORMAT}}}}} is missing; without it the judge is never told "
            "the form in which it has to answer"
        )
    alone = next((name for name in _OF_RESPONSE if name in names["User"]), None)
    if alone is not None and RESPONSES in names["User"]:
        raise ConfigError(
            f"{where}: shows {{{{{alone}}}}} and {{{{{RESPONSES}}}}}: a judge judges one response "
            "or compares several"
        )
    shown = (*_OF_RESPONSE, RESPONSES)
    if not any(name in shown or name.startswith(_EXTRA) for name in names["User"]):
        raise ConfigError(f"{where}: the user section shows no {{{{response}}}} to judge")
    if (named or of_row) and CRITERIA not in everywhere:
        raise ConfigError(
            f"{where}: {{{{{CRITERIA}}}}} is missing; without it the judge is never told the "
            "criteria that the settings name"
        )
    if of_row and CRITERIA in names["System"]:
        raise ConfigError(
            f"{where}: {{{{{CRITERIA}}}}} of the row belongs in the section '## User'; the system "
            "message is for your own words, never for text from a sample"
        )
    if CRITERIA in everywhere and not (named or of_row):
        raise ConfigError(f"{where}: there is {{{{{CRITERIA}}}}} and no 'criteria' in the settings")


def _check_judged(where: str, sections: Mapping[str, tuple[int, str]], judged: str) -> None:
    """Raise a ConfigError unless the user section shows what is judged.

    A judge that never sees the response says the same of all responses to one prompt.
    """
    shown = _shown(sections)
    if judged != "response":
        if judged not in shown or not judged.startswith(_EXTRA):
            raise ConfigError(
                f"{where}: says 'judges: {judged}': it is the extra.NAME of a placeholder "
                f"{{{{{_EXTRA}NAME}}}} that the user section shows"
            )
    elif not shown & {*_OF_RESPONSE, RESPONSES}:
        hint = next((f"; or say 'judges: {n}' above" for n in shown if n.startswith(_EXTRA)), "")
        raise ConfigError(f"{where}: the user section shows no {{{{response}}}} to judge{hint}")


def _check_spelling(where: str, sections: Mapping[str, tuple[int, str]]) -> None:
    """Raise a ConfigError where a placeholder is meant and is not written as one."""
    shown = _shown(sections)
    for first_line, text in sections.values():
        for number, line in enumerate(text.split("\n"), start=first_line):
            for written, name in _MISSPELT.findall(line):
                if name.lower() not in shown:
                    raise ConfigError(
                        f"{where}:{number}: {written} is text that the judge reads as it stands; "
                        f"for the sample's own write {{{{{name.lower()}}}}}"
                    )


def _shown(sections: Mapping[str, tuple[int, str]]) -> set[str]:
    return {name for _, text in sections.values() for name in _needs(text)}


def _checked(where: str, title: str, first_line: int, text: str) -> set[str]:
    """The placeholders of one section, all of them well formed, known and in their place."""
    names: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=first_line):
        at = f"{where}:{number}"
        if "{{" in _PLACEHOLDER.sub("", line):
            raise ConfigError(
                f"{at}: '{{{{' begins a placeholder such as {{{{response}}}}: {line!r}"
            )
        for name in _PLACEHOLDER.findall(line):
            _check_placeholder(at, title, name)
            names.add(name)
    return names


def _check_placeholder(at: str, title: str, name: str) -> None:
    is_extra = name.startswith(_EXTRA) and len(name) > len(_EXTRA)
    known = (*_SAMPLE_NAMES, RESPONSES, *_OURS)
    if not is_extra and name not in known:
        column = name.partition(".")[2] or "NAME"
        hint = did_you_mean(name, (*known, f"{_EXTRA}{column}"))
        raise ConfigError(f"{at}: there is no placeholder {{{{{name}}}}}{hint}")
    if title == "System" and name not in _OURS:
        raise ConfigError(
            f"{at}: {{{{{name}}}}} belongs in the section '## User'; the system message is for "
            "your own words, never for text from a sample"
        )
