"""The command line, ``zerowait`` or ``python -m zerowait``."""

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

        # Everything is closed by now: an interrupt while Python exits must not print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)


__all__ = ["main"]
