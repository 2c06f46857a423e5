"""The command ``zerowait``."""

from __future__ import annotations


def main() -> None:
    """Run the command line; wrong input ends with one line and exit code 2."""
    from zerowait.cli.app import run

    run()


__all__ = ["main"]
