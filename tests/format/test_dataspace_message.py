"""The H5Sencode image around a selection, against libhdf5's own."""

from __future__ import annotations

from typing import Any

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import (
    ByteReader,
    decode_image,
    decode_shape,
    encode_dataspace,
    encode_image,
    encode_shape,
)

ALL = bytes.fromhex("03000000 01000000 00000000 00000000")
EXAMPLE = bytes.fromhex(
    "01 00 08 18 00 00 00  01 01 01 00 00 00 00 00  05 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00"
)


def test_bytes_of_the_published_example() -> None:
    assert encode_image((5,), None, b"") == EXAMPLE
    assert decode_image(EXAMPLE + ALL)[0] == (5,)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=32), st.booleans())
def test_same_bytes_as_libhdf5(dims: list[int], unlimited: bool) -> None:
    max_dims = [2**64 - 1] * len(dims) if unlimited else dims
    space = h5py.h5s.create_simple(tuple(dims), (h5py.h5s.UNLIMITED,) * len(dims) if unlimited else None)
    assert encode_image(dims, max_dims, ALL) == space.encode()


@pytest.mark.parametrize("version", [1, 2])
def test_libhdf5_reads_both_versions(version: int) -> None:
    space = h5py.h5s.decode(encode_image((3, 4), (3, 2**64 - 1), ALL, version))
    assert space.get_simple_extent_dims() == (3, 4)
    assert space.get_simple_extent_dims(maxdims=True) == (3, h5py.h5s.UNLIMITED)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 2, "begins with 02 00 08"),
        (2, 4, "begins with 01 00 04"),
        (3, 0x19, "followed by 1 bytes"),
        (3, 0x17, "ends inside its maximum dimensions"),
        (3, 0xFF, "ends inside its dataspace message"),
        (7, 3, "version 3"),
        (8, 33, "rank 33"),
        (8, 2, "ends inside"),
        (9, 2, "flags 2"),
    ],
)
def test_corrupt(place: int, value: int, words: str) -> None:
    data = bytearray(EXAMPLE + ALL)
    data[place] = value
    with pytest.raises(Corrupt, match=words):
        decode_image(data)


def test_null_dataspace_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="type 2"):
        decode_image(h5py.h5s.create(h5py.h5s.NULL).encode())


@given(st.integers(0, len(EXAMPLE) - 1))
def test_cut_short(length: int) -> None:
    with pytest.raises(Corrupt, match="ends inside"):
        decode_image(EXAMPLE[:length])


def message(data: bytes) -> ByteReader:
    return ByteReader(memoryview(data), subject="test")


SHAPES = [
    {"class": "H5S_SCALAR"},
    {"class": "H5S_SIMPLE", "dims": [3, 0, 2**40]},
    {"class": "H5S_SIMPLE", "dims": [3, 4], "maxdims": ["H5S_UNLIMITED", 4]},
    {"class": "H5S_SIMPLE", "dims": [3], "maxdims": [7]},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", [1, 2])
def test_shapes(shape: dict[str, Any], version: int) -> None:
    data = encode_shape(shape, version)
    assert data[0] == version
    assert decode_shape(message(data)) == shape
    space = h5py.h5s.decode(b"\1\0\x08" + len(data).to_bytes(4, "little") + data + ALL)
    assert list(space.get_simple_extent_dims()) == shape.get("dims", [])


def test_a_null_dataspace() -> None:
    data = encode_shape({"class": "H5S_NULL"})
    assert data == h5py.h5s.create(h5py.h5s.NULL).encode()[7:11]
    assert decode_shape(message(data)) == {"class": "H5S_NULL"}
    with pytest.raises(BadRequest, match="use version 2"):
        encode_dataspace(None)


def test_narrow_numbers() -> None:
    data = encode_dataspace((3, 4), (2**16 - 1, 4), 1, 2)
    assert decode_shape(message(data), 2) == {
        "class": "H5S_SIMPLE",
        "dims": [3, 4],
        "maxdims": ["H5S_UNLIMITED", 4],
    }


def test_extents_that_no_dataspace_has() -> None:
    with pytest.raises(Corrupt, match="more than 2\\^63-1 elements"):
        decode_shape(message(encode_dataspace((2**40, 2**40))))
    with pytest.raises(Corrupt, match="beyond its maximum"):
        decode_shape(message(encode_dataspace((5,), (4,))))
