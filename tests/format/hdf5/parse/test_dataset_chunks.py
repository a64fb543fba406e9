"""Datasets by their paths, and where their chunks are."""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.errors import NotFound
from hsparse.hdf5.format.file_fields import ByteRange, Reads, run_reads
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.dataset_chunks import find_dataset, read_dataset_chunks
from hsparse.hdf5.format.superblock import read_superblock


def run(data: bytes, reads: Reads[Any]) -> Any:
    def fetch(wanted: tuple[ByteRange, ...]) -> list[bytes]:
        return [data[start : start + size] for start, size in wanted]

    return run_reads(reads, fetch)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_chunks_are_where_h5py_finds_them(libver: str) -> None:
    held = io.BytesIO()
    with h5py.File(held, "w", libver=libver) as file:
        dataset = file.create_dataset(
            "a/b", data=np.arange(1000), chunks=(70,), compression="gzip", maxshape=(None,)
        )
        file["soft"] = h5py.SoftLink("/a/b")
        info = [dataset.id.get_chunk_info(number) for number in range(dataset.id.get_num_chunks())]
    data = held.getvalue()
    opened = run(data, read_superblock(len(data)))
    found = run(data, find_dataset(opened, "/a/b"))
    assert isinstance(found.layout, ChunkedLayout)
    records = run(data, read_dataset_chunks(opened, found, found.layout))
    places = zip(records.scaled[:, 0].tolist(), records.address.tolist(), records.size.tolist(), strict=True)
    assert sorted(places) == sorted((one.chunk_offset[0] // 70, one.byte_offset, one.size) for one in info)
    for path in ("/", "/a", "/none", "/soft", "/a/b/c"):
        with pytest.raises(NotFound):
            run(data, find_dataset(opened, path))
