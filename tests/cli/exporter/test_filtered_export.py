"""An export with filters is whole, or is not there."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt
from tests.cli.exporter.test_refiltered_file import refilter


def test_what_goes_wrong_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(5000), chunks=(500,), compression="gzip")
        place, size = file["d"].id.get_chunk_info(3).byte_offset, file["d"].id.get_chunk_info(3).size
    data = bytearray(path.read_bytes())
    data[place : place + size] = bytes(size)
    path.write_bytes(data)
    (tmp_path / "filtered-f.h5").write_bytes(b"as it was")
    with pytest.raises(Corrupt, match="deflate"):
        refilter(path, "lzf")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f.h5", "filtered-f.h5"]
    assert (tmp_path / "filtered-f.h5").read_bytes() == b"as it was"
