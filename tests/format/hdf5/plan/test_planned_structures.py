"""Planned headers and global heaps, read again."""

from __future__ import annotations

import pytest

from hsparse.errors import TooLarge
from hsparse.hdf5.format.file_fields import Addressed, Widths
from hsparse.hdf5.format.fractal_heap import read_global_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.object_header import read_object_header
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, plan_file
from hsparse.hdf5.format.plan.planned_structures import (
    FULL_COLLECTION,
    GlobalHeapPlan,
    PlannedMessage,
    plan_object_header,
)
from tests.format.hdf5.file_walk import FileBytes


@pytest.mark.parametrize("size", [0, 200, 60_000, 65_535])
@pytest.mark.parametrize("ordered", [False, True])
def test_messages_come_back(size: int, ordered: bool) -> None:
    messages = [
        PlannedMessage(1, Addressed(bytes(size), ()), 4, 3),
        PlannedMessage(5, Addressed(bytes(8), ((0, "a"),))),
    ]
    piece = plan_object_header("header", messages, attribute_order=ordered)
    assert piece.make is not None
    data = piece.make({"a": 96}.__getitem__)
    assert len(data) == piece.size
    header = FileBytes(data).run(read_object_header(Hdf5File(len(data), 0, Widths(), 0, 2), 0))
    found = [(message.kind, bytes(message.data), message.flags, message.order) for message in header.messages]
    assert found == [
        (1, bytes(size), 4, 3 if ordered else None),
        (5, b"\x60" + bytes(7), 0, 0 if ordered else None),
    ]
    assert header.attribute_order == ordered


def test_a_message_that_is_too_long() -> None:
    with pytest.raises(TooLarge, match="0x01 has 65536 bytes; a file takes 65535"):
        plan_object_header("header", [PlannedMessage(1, Addressed(bytes(65536)))])


def test_objects_are_found_where_they_were_put() -> None:
    heap = GlobalHeapPlan()
    objects = [b"x" * (number % 300) for number in range(3000)] + [b"large" * FULL_COLLECTION, b"last"]
    places = [heap.add(Addressed(data)) for data in objects]
    plan = plan_file([PlannedGroup("root")], "root", heap.pieces())
    source = FileBytes(plan.read(0, plan.size))
    file = source.open()
    collections = {key for key, _ in places}
    assert len(collections) > 3
    found = {
        key: source.run(read_global_heap(file.walk("heap"), plan.address_of(key))) for key in collections
    }
    assert [bytes(found[key][number]) for key, number in places] == objects
    assert max(piece.size for piece in heap.pieces()) < 6 * FULL_COLLECTION


def test_many_small_objects_have_several_collections() -> None:
    heap = GlobalHeapPlan("name")
    numbers = [heap.add(Addressed(b""))[1] for _ in range(70_000)]
    assert max(numbers) <= 65_535
    assert all(piece.size <= FULL_COLLECTION + 32 for piece in heap.pieces())


def test_objects_may_have_addresses() -> None:
    heap = GlobalHeapPlan()
    key, number = heap.add(Addressed(bytes(8), ((0, "other"),)))
    plan = FilePlan([*heap.pieces(), FilePiece("other", 8, lambda _: bytes(8))], "other")
    start = plan.address_of(key) + 16 + 16
    assert number == 1
    assert int.from_bytes(plan.read(start, start + 8), "little") == plan.address_of("other")
