"""Names in local heaps; global heap collections written and read (`test_parsed_object` reads libhdf5's)."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.file_fields import Widths
from hsparse.hdf5.format.fractal_heap import LocalHeap
from hsparse.hdf5.format.global_heap import GlobalHeap, encode_global_heap, read_global_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File
from tests.format.hdf5.file_walk import FileBytes

NAMES = b"\0" * 8 + b"one\0" + "größe".encode() + b"\0end"


def heap() -> LocalHeap:
    return LocalHeap(NAMES, 96, len(NAMES))


def read(data: bytes) -> GlobalHeap:
    file = Hdf5File(len(data), 0, Widths(), 0, 2)
    return FileBytes(data).run(read_global_heap(file.walk("heap"), 0))


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
