"""The notebooks run, and print and show what they have stored: their pictures are drawn again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.notebook import code_cells, read_notebook, stored_output

EXAMPLES = Path(__file__).parents[2] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = {"anndata.ipynb": 3, "detector.ipynb": 2}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_gives_what_it_has_stored(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "tests.examples.notebook", str(tmp_path / "root"), str(copy)],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    pictures = 0
    for wanted, found in zip(code_cells(read_notebook(path)), code_cells(read_notebook(copy)), strict=True):
        before, after = stored_output(wanted), stored_output(found)
        assert after.text == before.text, "".join(wanted["source"])
        assert len(after.pictures) == len(before.pictures)
        assert all(one.startswith(PNG) and len(one) > 2000 for one in (*before.pictures, *after.pictures))
        pictures += len(after.pictures)
    assert pictures == PICTURES[path.name]
    assert wanted["execution_count"] == len(code_cells(read_notebook(path)))
