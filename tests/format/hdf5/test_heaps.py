"""Names in local heaps; global heap collections written and read (`test_parsed_object` reads libhdf5's)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.hdf5.format.file_fields import Widths
from hsparse.hdf5.format.fractal_heap import (
    GlobalHeap,
    LocalHeap,
    collection_size,
    encode_global_heap,
    read_global_heap,
)
from hsparse.hdf5.format.hdf5_file import Hdf5File
from tests.format.hdf5.file_walk import FileBytes

NAMES = b"\0" * 8 + b"one\0" + "größe".encode() + b"\0end"


def heap() -> LocalHeap:
    return LocalHeap(NAMES, 96, len(NAMES))


def test_names() -> None:
    names = heap()
    assert [names.text(8), names.text(12), names.text(0)] == ["one", "größe", ""]


@pytest.mark.parametrize("offset", [len(NAMES) - 3, len(NAMES), 10**9])
def test_a_name_without_an_end(offset: int) -> None:
    with pytest.raises(Corrupt, match=f"heap at address 96 has no name at offset {offset}"):
        heap().text(offset)


def test_names_are_not_longer_together_than_the_heap() -> None:
    names = heap()
    with pytest.raises(Corrupt, match="no name at offset 8"):
        [names.text(8) for _ in range(7)]


def read(data: bytes) -> GlobalHeap:
    file = Hdf5File(len(data), 0, Widths(), 0, 2)
    return FileBytes(data).run(read_global_heap(file.walk("heap"), 0))


@given(st.lists(st.binary(max_size=900), max_size=12))
def test_round_trip(objects: list[bytes]) -> None:
    data = encode_global_heap(objects)
    assert len(data) == collection_size([len(one) for one in objects])
    assert len(data) % 8 == 0
    heap = read(data + b"what follows")
    assert [bytes(heap[number]) for number in range(1, len(objects) + 1)] == objects


def test_an_object_that_is_not_there() -> None:
    with pytest.raises(Corrupt, match="collection at address 0 has no object 2"):
        read(encode_global_heap([b"a"]))[2]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 7, "begins with"),
        (4, 2, "version 2"),
        (16, 2, "two objects 2"),
        (30, 1, "ends inside the object 1"),
        (12, 1, "the file ends at"),
    ],
)
def test_corrupt(place: int, value: int, words: str) -> None:
    data = bytearray(encode_global_heap([b"a" * 8, b"b"]))
    data[place] = value
    with pytest.raises(Corrupt, match=words):
        read(bytes(data))
