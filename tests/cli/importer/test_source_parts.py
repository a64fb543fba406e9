"""Scattered elements read as boxes, compared with numpy's indexing: each box is small, or has few gaps."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.plan.virtual_plan import MappedPart
from hsparse.hdf5.importer import source_dataset as source_parts
from hsparse.hdf5.importer.source_dataset import read_part

DATA = np.arange(12 * 15 * 9).reshape(12, 15, 9)


@pytest.mark.parametrize("hull", [0, 100, 1000, 10**6])
@given(draw=st.data(), products=st.booleans())
def test_any_elements(hull: int, draw: st.DataObject, products: bool) -> None:
    boxes: list[int] = []

    def read(start: tuple[int, ...], stop: tuple[int, ...]) -> np.ndarray:
        assert all(0 <= a < b <= length for a, b, length in zip(start, stop, DATA.shape, strict=True))
        boxes.append(prod(b - a for a, b in zip(start, stop, strict=True)))
        return DATA[tuple(map(slice, start, stop))]

    if products:
        lists = [sorted(draw.draw(st.sets(st.integers(0, length - 1), min_size=1))) for length in DATA.shape]
        expected = DATA[np.ix_(*lists)]
    else:
        point = st.tuples(*(st.integers(0, length - 1) for length in DATA.shape))
        points = draw.draw(st.lists(point, min_size=1, max_size=60))
        lists = [list(column) for column in zip(*points, strict=True)]
        expected = DATA[tuple(lists)]
    part = MappedPart((), tuple(np.array(one) for one in lists), products)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_parts, "MAX_HULL_BYTES", hull)
        found = read_part(read, part, 8)
    assert np.array_equal(found, expected)
    if not hull:
        assert sum(boxes) == expected.size or not products


def test_a_source_without_dimensions() -> None:
    for products in (True, False):
        found = read_part(lambda start, stop: np.array(5), MappedPart((), (), products), 8)
        assert found.ravel().tolist() == [5]
