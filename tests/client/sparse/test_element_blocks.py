from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.client.sparse.element_blocks import element_blocks
from hsparse.format.selections.selection import Orthogonal, gather

extents = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@settings(max_examples=100)
@given(extent=extents, chunk=st.integers(1, 4), most=st.integers(1, 20), seed=st.integers(0, 99))
def test_blocks_have_each_element_once_and_few_of_them(
    extent: tuple[int, ...], chunk: int, most: int, seed: int
) -> None:
    is_defined = np.random.default_rng(seed).random(extent) < 0.4
    asked: list[Orthogonal] = []

    def count(selection: Orthogonal) -> int:
        asked.append(selection)
        return int(np.count_nonzero(gather(is_defined, selection)))

    blocks = list(element_blocks(extent, (chunk,) * len(extent), count, most))
    assert len(asked) <= max(1, 2 * is_defined.size)
    seen = np.zeros(extent, int)
    for block in blocks:
        inside = gather(is_defined, block)
        assert 0 < np.count_nonzero(inside) <= most
        seen[block.index()] += 1
    assert (seen[is_defined] == 1).all()
    assert seen.max() <= 1


@pytest.mark.parametrize("most", [1, 7, 40, 100])
def test_blocks_are_of_whole_chunks_if_chunks_are_small(most: int) -> None:
    blocks = list(element_blocks((10, 10), (3, 4), lambda selection: min(selection.size, most), most))
    assert blocks == [Orthogonal.all((10, 10))]
    parts = list(element_blocks((10, 10), (3, 4), lambda selection: selection.size, 40))
    starts = [tuple(axis.start for axis in part.axes if not isinstance(axis, np.ndarray)) for part in parts]
    assert all(row % 3 == 0 and column % 4 == 0 for row, column in starts)
    assert sum(part.size for part in parts) == 100


def test_nothing_is_no_block() -> None:
    assert list(element_blocks((10, 10), (3, 4), lambda selection: 0, 1)) == []


def test_what_others_write_meanwhile_hides_nothing() -> None:
    growing = iter([10, 30])

    def count(selection: Orthogonal) -> int:
        return next(growing, 5)

    blocks = list(element_blocks((8,), (4,), count, 5))
    assert sum(block.size for block in blocks) == 8
