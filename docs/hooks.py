"""MkDocs hook: writes the options of every command into the page `reference/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from zerowait.cli import app

MARKER = "<!-- the site lists every option of every command here -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page, with the marker replaced by one section for each command."""
    if MARKER not in markdown:
        return markdown
    app.add_commands("")
    sections = (_section(name, command) for name, command in _commands("zerowait", _root()))
    return markdown.replace(MARKER, "\n\n".join(sections))


def _root() -> Any:
    return typer.main.get_command(app.app)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Each command that can be run, with its whole name."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for part in sorted(below):
        yield from _commands(f"{name} {part}", below[part])


def _section(name: str, command: Any) -> str:
    """Heading, purpose and a table of the arguments and options of one command."""
    summary = (command.help or "").strip().partition("\n\n")[0].replace("\n", " ")
    lines = [f"### {name}", "", summary, ""]
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    if shown:
        lines += ["| argument or option | default | meaning |", "| --- | --- | --- |"]
    for parameter in shown:
        default = parameter.default
        given = "" if default is None or callable(default) or default == "" else f"`{default}`"
        meaning = (getattr(parameter, "help", None) or "").replace("|", r"\|")
        lines.append(f"| {_words(parameter)} | {given} | {meaning} |")
    return "\n".join(lines)


def _words(parameter: Any) -> str:
    """`FILE` for an argument, `--out`, `-o` for an option."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
