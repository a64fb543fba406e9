"""Virtual datasets: imported and read over HTTP, equal to what h5py reads."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from tests.cli.importer.conftest import Import
from tests.cli.importer.domain_content import domain_differences
from tests.cli.importer.virtual_files import VIRTUAL


@pytest.mark.parametrize("topic", VIRTUAL)
def test_it_is_what_h5py_reads(imported: Import, tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    connection = imported(tmp_path / "v.h5")
    with h5py.File(tmp_path / "v.h5") as file:
        assert domain_differences(file, connection) == []
