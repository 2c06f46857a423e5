"""A program for the sandbox, and what became of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RunEnding(StrEnum):
    """How a program ended."""

    FINISHED = "finished"
    FAILED = "failed"
    OUT_OF_TIME = "out of time"
    TOO_MUCH_OUTPUT = "too much output"


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program, its input and its limits.

    Args:
        source: its text.
        stdin: its whole standard input.
        language: it is written in.
        is_harness: whether it is our own harness, which may start one process.
        cpu_s: processor time of each process.
        wall_s: time until it is ended.
        memory_bytes: address space of each process.
        output_bytes: of its standard output; a longer one is an ending of its own.
        folder_bytes: of its working folder.
    """

    source: str
    stdin: bytes = b""
    language: str = "python"
    is_harness: bool = False
    cpu_s: float = 6.0
    wall_s: float = 25.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 8 << 20
    folder_bytes: int = 64 << 20


class Run(msgspec.Struct, frozen=True):
    """What became of a program.

    Args:
        ending: how it ended.
        stdout: its output, one byte more than allowed at most.
        stderr: the beginning of it.
        code: its exit code; negative for a signal.
        cpu_s: processor time that it took.
    """

    ending: RunEnding
    stdout: bytes
    stderr: str = ""
    code: int = 0
    cpu_s: float = 0.0
