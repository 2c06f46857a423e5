"""The command ``zerowait``."""

from __future__ import annotations


def main() -> None:
    """Run the command line; wrong input ends with one line and exit code 2."""
    try:
        from zerowait.cli.app import run

        run()
    except KeyboardInterrupt:  # while the modules were being loaded
        import sys

        print("zerowait: interrupted", file=sys.stderr)
        sys.exit(130)


__all__ = ["main"]
