"""Messages that libhdf5 wrote, from the object headers of a file with everything in it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py

from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.object_header import SHARED_FLAG
from tests.format.hdf5.file_walk import walk
from tests.format.hdf5.parse.test_parsed_object import LIBVERS, write_everything

__all__ = ["LIBVERS", "messages", "reader", "same"]


@lru_cache
def messages(kind: int, track_order: bool = False) -> list[bytes]:
    """Return the different messages of a type that libhdf5's versions write, but for those kept elsewhere."""
    found: set[bytes] = set()
    for libver in LIBVERS:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "f.h5"
            with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
                write_everything(file, track_order)
            headers = [one.header for one in walk(path).values()]
        for header in headers:
            found |= {
                bytes(one.data) for one in header.messages if one.kind == kind and not one.flags & SHARED_FLAG
            }
    return sorted(found)


def same(encoded: bytes, data: bytes) -> bool:
    """Say whether bytes are a message of libhdf5, which headers of version 1 fill up with zeros."""
    return data.startswith(encoded) and len(data) - len(encoded) < 8 and not any(data[len(encoded) :])


def reader(data: bytes) -> ByteReader:
    return ByteReader(memoryview(data), subject="test")
