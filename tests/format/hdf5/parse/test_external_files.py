"""External data files, against libhdf5's."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.parse.virtual_mapping import parse_external_files
from tests.format.hdf5.file_walk import FileBytes, walk
from tests.format.hdf5.sample_messages import reader


def test_external_files(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "d", (10,), "i4", external=[("one.bin", 4, 20), ("two.bin", 0, h5py.h5f.UNLIMITED)]
        )
    dataset = walk(path)["/d"].dataset
    assert dataset is not None
    assert [(one.name, one.offset, one.size) for one in dataset.external] == [
        ("one.bin", 4, 20),
        ("two.bin", 0, None),
    ]


def test_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    h5py.File(path, "w").close()
    source = FileBytes(path.read_bytes())
    with pytest.raises(Corrupt, match="external files message of version 2"):
        source.run(parse_external_files(source.open(), reader(b"\2" + bytes(15))))
