"""Objects of variable length of a planned file."""

from __future__ import annotations

from hsparse.format.hdf5.addressed import Addressed
from hsparse.format.hdf5.file_plan import FilePlan, Piece
from hsparse.format.hdf5.global_heap import read_global_heap
from hsparse.format.hdf5.heap_plan import FULL, HeapPlan
from hsparse.format.hdf5.planned_object import PlannedGroup, plan_file
from tests.format.hdf5.file_walk import FileBytes


def test_objects_are_found_where_they_were_put() -> None:
    heap = HeapPlan()
    objects = [b"x" * (number % 300) for number in range(3000)] + [b"large" * FULL, b"last"]
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
    assert max(piece.size for piece in heap.pieces()) < 6 * FULL


def test_many_small_objects_have_several_collections() -> None:
    heap = HeapPlan("name")
    numbers = [heap.add(Addressed(b""))[1] for _ in range(70_000)]
    assert max(numbers) <= 65_535
    assert all(piece.size <= FULL + 32 for piece in heap.pieces())


def test_objects_may_have_addresses() -> None:
    heap = HeapPlan()
    key, number = heap.add(Addressed(bytes(8), ((0, "other"),)))
    plan = FilePlan([*heap.pieces(), Piece("other", 8, lambda _: bytes(8))], "other")
    start = plan.address_of(key) + 16 + 16
    assert number == 1
    assert int.from_bytes(plan.read(start, start + 8), "little") == plan.address_of("other")
