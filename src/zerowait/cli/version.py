"""``zerowait version``."""

from __future__ import annotations

import zerowait
from zerowait.cli.app import app


@app.command()
def version() -> None:
    """Print the version."""
    print(zerowait.__version__)
