"""Elements of files that are damaged or odd; whole ones: `test_planned_elements`, libhdf5's: `test_stored_object`."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.selection_encoding import encode_points, encode_regular, encode_simple
from hsparse.format.selections.serialized_selection import NONE
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, plan_file
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import to_json
from tests.format.hdf5.file_walk import FileBytes
from tests.model.type_strategies import ID, OBJECT, REGION, text

TEXT = text("H5T_VARIABLE")
TARGET = 0x60
"""The address that every reference leads to."""


def find(address: int) -> ReferenceTarget | None:
    return ReferenceTarget("datasets/" + ID, (1000, 1000)) if address == TARGET else None


class Heap:
    """A file with a global heap of some objects."""

    def __init__(self, *objects: bytes) -> None:
        heap = GlobalHeapPlan()
        for one in objects:
            heap.add(Addressed(one))
        plan: FilePlan = plan_file([PlannedGroup("root")], "root", heap.pieces())
        self.source = FileBytes(plan.read(0, plan.size))
        self.address = plan.address_of(("heap", 0))

    def place(self, number: int, count: int | None = None) -> bytes:
        """Return an element that has an object, of a sequence with its count."""
        head = b"" if count is None else struct.pack("<I", count)
        return head + struct.pack("<QI", self.address, number)

    def read(self, stored: FileType | Any, data: bytes, *dims: int) -> Any:
        stored = stored if isinstance(stored, FileType) else file_type(stored)
        values = self.source.run(parse_elements(self.source.open(), stored, data, dims, find))
        return to_json(values, parse_type(stored.item).element)


def test_one_object_for_all_elements_is_no_more_than_the_file() -> None:
    heap = Heap(bytes(100_000))
    with pytest.raises(Corrupt, match="more bytes together than the file"):
        heap.read(TEXT, heap.place(1, 100_000) * 100, 100)


def test_references() -> None:
    heap = Heap(b"")
    data = struct.pack("<QQQQ", TARGET, 0, 2**64 - 1, 12345)
    assert heap.read(OBJECT, data, 4) == ["datasets/" + ID, "", "", ""]


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        (encode_simple(NONE), Unsupported, "cannot be kept: .*Empty region"),
        (
            encode_regular([StridedSpan(0, 2, 500, 1), StridedSpan(0, 2, 500, 1)]),
            Unsupported,
            "more than 65536 blocks",
        ),
        (encode_points([np.array([1000]), np.array([0])]), Corrupt, "coordinate 1000 in dimension 0"),
        (b"\7" + bytes(20), Corrupt, "selection has type 7"),
        (b"", Corrupt, "region reference ends inside its selection header"),
    ],
)
def test_regions_that_are_refused(selection: bytes, error: type[Exception], words: str) -> None:
    heap = Heap(struct.pack("<Q", TARGET) + selection)
    with pytest.raises(error, match=words):
        heap.read(REGION, heap.place(1))


def test_places_of_another_size() -> None:
    heap = Heap(b"one")
    odd = FileType(file_type(TEXT).item, 20)
    with pytest.raises(Corrupt, match="address of a heap object has 20 bytes"):
        heap.read(odd, bytes(20))
