"""The H5Sencode image around a selection, against libhdf5's own."""

from __future__ import annotations

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import decode_image, encode_image

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


@given(st.lists(st.integers(0, 2**63 - 1), max_size=32), st.sampled_from([1, 2]))
def test_round_trip(dims: list[int], version: int) -> None:
    found, reader = decode_image(bytearray(encode_image(dims, None, ALL, version)))
    assert found == tuple(dims)
    assert bytes(reader.take(len(ALL), "selection")) == ALL
    reader.done("selection")


@pytest.mark.parametrize("version", [1, 2])
def test_libhdf5_reads_both_versions(version: int) -> None:
    space = h5py.h5s.decode(encode_image((3, 4), (3, 2**64 - 1), ALL, version))
    assert space.get_simple_extent_dims() == (3, 4)
    assert space.get_simple_extent_dims(maxdims=True) == (3, h5py.h5s.UNLIMITED)


def test_without_maximum_dimensions() -> None:
    data = bytes.fromhex("01 00 08 10 00 00 00  01 01 00 00 00 00 00 00  05 00 00 00 00 00 00 00")
    assert decode_image(data)[0] == (5,)


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
