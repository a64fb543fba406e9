"""Shared messages of every version, and files with a heap of shared messages, as h5repack makes them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.file_fields import Widths
from hsparse.hdf5.format.object_header import (
    SHARED_FLAG,
    decode_shared_location,
    encode_shared_location,
)
from tests.format.hdf5.h5py_judge import compare
from tests.format.hdf5.sample_messages import reader

ADDRESS = (800).to_bytes(8, "little")


@pytest.mark.parametrize(
    "data", [encode_shared_location(800), b"\2\2" + ADDRESS, b"\1\0" + bytes(6) + bytes(8) + ADDRESS]
)
def test_versions(data: bytes) -> None:
    assert decode_shared_location(reader(data), Widths()) == 800


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 4"):
        decode_shared_location(reader(b"\4\2" + ADDRESS), Widths())
    with pytest.raises(Corrupt, match="without an address"):
        decode_shared_location(reader(b"\3\2" + b"\xff" * 8), Widths())


LIBRARIES = list((Path(h5py.__file__).parent.parent / "h5py.libs").glob("libhdf5-*"))
ALL = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 0x0B | 1 << 0x0C
"""Every type of message that can be shared, attributes among them, which h5repack leaves out."""
needs_library = pytest.mark.skipif(not LIBRARIES, reason="h5py was not installed with a libhdf5 of its own")


@needs_library
def test_shared_attributes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    library = ctypes.CDLL(str(LIBRARIES[0]))  # h5py has no call for it
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    assert library.H5Pset_shared_mesg_nindexes(ctypes.c_int64(plist.id), 1) == 0
    assert library.H5Pset_shared_mesg_index(ctypes.c_int64(plist.id), 0, ALL, 1) == 0
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist)) as file:
        for name in ("few", "many", "others"):
            file[name] = [1, 2, 3]
            for number in range(1 if name == "few" else 20):
                file[name].attrs[f"a{number}"] = [1.5, 2.5]
    found = compare(path)
    assert {0x0C} <= {one.kind for one in found["/few"].header.messages if one.flags & SHARED_FLAG}
    assert [len(found[name].attributes) for name in ("/few", "/many", "/others")] == [1, 20, 20]
