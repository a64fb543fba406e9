"""Version 2 B-trees: their shape as libhdf5 computes it, planned trees, damage (`test_parsed_object` reads more)."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.codec_library import lookup3
from hsparse.hdf5.format.btree_v2 import BtreeV2Shape, read_btree_v2, split_records
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, plan_file
from hsparse.hdf5.format.plan.planned_structures import MAX_LEAF, plan_btree_v2
from tests.format.hdf5.file_walk import FileBytes


@pytest.mark.parametrize(("count", "depth"), [(0, 0), (84, 0), (85, 1), (5269, 1), (5270, 2)])
def test_the_lowest_tree_is_chosen(count: int, depth: int) -> None:
    assert BtreeV2Shape.holding(count, 2048, 24).depth == depth


@pytest.mark.parametrize(
    "sizes", [(0, 24, 0), (33, 24, 0), (40, 24, 1), (2048, 24, 65535), (2**32 - 1, 1, 9)]
)
def test_a_tree_without_room_or_end_is_corrupt(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(Corrupt, match="cannot have nodes"):
        BtreeV2Shape.of(*sizes)


KIND = 6


def planned(count: int) -> tuple[bytearray, FilePlan]:
    records = [Addressed(number.to_bytes(15, "big")) for number in range(count)]
    plan = plan_file([PlannedGroup("root")], "root", plan_btree_v2("t", KIND, records))
    return bytearray(plan.read(0, plan.size)), plan


def read(data: bytes, plan: FilePlan, kind: int = KIND) -> list[int]:
    source = FileBytes(data)
    file = source.open()
    records = source.run(read_btree_v2(file.bounds, file.widths, plan.address_of(("t", KIND)), kind))
    return [int.from_bytes(record, "big") for record in split_records(records)]


def sealed(data: bytearray, start: int, size: int) -> bytes:
    """Return the bytes with the checksum at the end of a structure made right."""
    data[start + size - 4 : start + size] = lookup3(bytes(data[start : start + size - 4])).to_bytes(
        4, "little"
    )
    return bytes(data)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (5, 5, "records of type 5"),
        (10, 0, "with records of 0"),
        (13, 1, "depth 256"),
        (24, 9, "10 records of 15 bytes, 9 in its root"),
        (31, 1, "records of 15 bytes, 10 in its root"),
    ],
)
def test_headers_that_are_refused(place: int, value: int, words: str) -> None:
    data, plan = planned(10)
    start = plan.address_of(("t", KIND))
    data[start + place] = value
    with pytest.raises(Corrupt, match=words):
        read(sealed(data, start, 38), plan)


def test_a_tree_without_a_root() -> None:
    data, plan = planned(10)
    start = plan.address_of(("t", KIND))
    data[start + 16 : start + 24] = b"\xff" * 8
    with pytest.raises(Corrupt, match="node without address"):
        read(sealed(data, start, 38), plan)
    data[start + 24 : start + 34] = bytes(10)
    assert read(sealed(data, start, 38), plan) == []


def test_a_child_that_is_there_twice() -> None:
    data, plan = planned(2 * MAX_LEAF + 1)
    start = plan.address_of(("t", KIND, 0))
    pointers = start + 6 + 15
    data[pointers + 10 : pointers + 20] = data[pointers : pointers + 10]
    with pytest.raises(Corrupt, match="twice"):
        read(sealed(data, start, 6 + 15 + 20 + 4), plan)
