"""The numbers of v2 B-trees: libhdf5's own for chunks of two dimensions, trees without room."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.btree2_shape import Btree2Shape


def test_nodes_of_2048_bytes_with_records_of_24() -> None:
    shape = Btree2Shape.of(2048, 24, 2)
    assert shape.most == (84, 61, 57)
    assert shape.totals == (84, 62 * 84 + 61, 58 * (62 * 84 + 61) + 57)
    assert (shape.count_width, shape.total_width(0), shape.total_width(1)) == (1, 0, 2)
    assert shape.used(0, 84) == 10 + 84 * 24
    assert shape.used(1, 61) == 10 + 61 * 24 + 62 * 9
    assert shape.used(2, 57) <= 2048


@pytest.mark.parametrize(("count", "depth"), [(0, 0), (84, 0), (85, 1), (5269, 1), (5270, 2)])
def test_the_lowest_tree_is_chosen(count: int, depth: int) -> None:
    assert Btree2Shape.holding(count, 2048, 24).depth == depth


@pytest.mark.parametrize(
    "sizes", [(0, 24, 0), (33, 24, 0), (40, 24, 1), (2048, 24, 65535), (2**32 - 1, 1, 9)]
)
def test_a_tree_without_room_or_end_is_corrupt(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(Corrupt, match="cannot have nodes"):
        Btree2Shape.of(*sizes)
