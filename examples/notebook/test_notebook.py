"""The notebook runs from its first to its last cell, and shows what is stored in it."""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "agent.ipynb"


def shown(notebook: Any) -> list[list[str]]:
    """What each cell with code shows."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[output.get("data", output).get("text/plain", str(output)) for output in cell.outputs] for cell in cells]


def test_the_notebook_shows_what_is_stored_in_it() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    run = NotebookClient(nbformat.read(NOTEBOOK, as_version=4), timeout=120, kernel_name="python3").execute()
    assert shown(run) == shown(stored)
