"""How data is cut into pieces of work, and into chunks where it had none."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.hdf5.exporter import refiltered_dataset
from hsparse.hdf5.exporter.refiltered_dataset import NEW_CHUNK, default_chunk_dims
from tests.cli.exporter.test_refiltered_file import refilter


def test_small_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiltered_dataset, "MAX_READ_BYTES", 1000)
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", data=np.arange(5000), chunks=(7,))
        file["whole"] = np.arange(5000, dtype="i2")
    with h5py.File(refilter(path, "lzf")) as file:
        assert (file["chunked"][()] == np.arange(5000)).all()
        assert (file["whole"][()] == np.arange(5000)).all()


@pytest.mark.parametrize(
    ("dims", "size", "expected"),
    [
        ((10**7,), 4, (NEW_CHUNK // 4,)),
        ((1000, 1000), 8, (131, 1000)),
        ((50, 10**6), 8, (1, NEW_CHUNK // 8)),
        ((5, 6, 7), 1, (5, 6, 7)),
        ((3, 2), 10**7, (1, 1)),
        ((4, 10, 600, 500), 2, (1, 1, 600, 500)),
    ],
)
def test_chunks_of_what_had_none(dims: tuple[int, ...], size: int, expected: tuple[int, ...]) -> None:
    assert default_chunk_dims(dims, size) == expected
