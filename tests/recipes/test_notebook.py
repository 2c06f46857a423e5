"""The notebook, run cell by cell in a real Jupyter kernel, prints what it shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "recipes/notebook/rewards.ipynb"
RUN = """
import sys
import nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=240, startup_timeout=240, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def printed(path):
    """The outputs of each cell of code."""
    book = nbformat.read(path, as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [[output.get("text", output) for output in cell.outputs] for cell in cells]


@pytest.mark.timeout(300)
def test_every_cell_prints_what_the_notebook_shows(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(tmp_path / "run.ipynb")],
        cwd=tmp_path,
        env=os.environ | {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = printed(NOTEBOOK)
    assert sum(map(len, shown)) >= 4
    assert printed(tmp_path / "run.ipynb") == shown
