"""The notebooks run, and print and show what they have stored: their pictures are drawn again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.notebook import code_cells, read_notebook, stored_output

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = {"anndata.ipynb": 3, "detector.ipynb": 2}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with copies of the notebooks, run in one process: half of its time are imports."""
    folder = tmp_path_factory.mktemp("notebooks")
    for path in NOTEBOOKS:
        (folder / path.name).write_bytes(path.read_bytes())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.examples.notebook", str(folder / "root")),
            *(str(folder / path.name) for path in NOTEBOOKS),
        ],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_gives_what_it_has_stored(path: Path, copies: Path) -> None:
    copy = copies / path.name
    pictures = 0
    for wanted, found in zip(code_cells(read_notebook(path)), code_cells(read_notebook(copy)), strict=True):
        before, after = stored_output(wanted), stored_output(found)
        assert after.text == before.text, "".join(wanted["source"])
        assert len(after.pictures) == len(before.pictures)
        assert all(one.startswith(PNG) and len(one) > 2000 for one in (*before.pictures, *after.pictures))
        pictures += len(after.pictures)
    assert pictures == PICTURES[path.name]
    assert wanted["execution_count"] == len(code_cells(read_notebook(path)))
