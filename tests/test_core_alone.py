"""The core without its extensions: its own tests pass where none of their folders is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hsparse.extension import BUILT_IN
from tests.support.endurance import ENDURANCE

PROJECT = Path(__file__).parent.parent
SHORT = ("objects/test_link_handlers.py", "domains/test_folders.py", "values/test_sparse.py")
WHOLE = ("objects", "domains", "values")
MAPS = (
    "tests/sn/values/test_selected.py::test_paired_lists_with_slices_are_refused_by_their_bytes",
    "tests/sn/values/test_signed.py::test_chunks_have_signed_coordinates",
    "tests/sn/values/test_signed.py::test_what_counts_from_zero_refuses_it",
)
"""They ask for a map among others, which is an extension's."""
ABSENT = """
import sys

import pytest

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = {"hsparse.client.integrations", *(f"hsparse.{name}" for name in sys.argv.pop(1).split(","))}
sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_the_rest_suite_of_the_core_passes_without_extensions() -> None:
    paths = [f"tests/sn/{path}" for path in (WHOLE if ENDURANCE.full else SHORT)]
    run = [
        sys.executable,
        "-c",
        ABSENT,
        ",".join(BUILT_IN),
        "-x",
        *(f"--deselect={test}" for test in MAPS),
        *paths,
    ]
    done = subprocess.run(run, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
