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
    finally:
        import signal

        # What was begun is closed: Python would show where in its own end an interrupt found it
        signal.signal(signal.SIGINT, signal.SIG_DFL)


__all__ = ["main"]
