"""Every form of selection as a region, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.client.indexing.select import ArrayKey, Region, Select, select_region
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.points import Boxes, Orthogonal, Points, StridedSpan, gather, scatter
from hsparse.format.selections.select_syntax import format_select, parse_select

EXTENT = (4, 5, 6)
ARRAY = np.arange(120).reshape(EXTENT)


def check(select: Select, wanted: np.ndarray) -> Region:
    region = select_region(select, EXTENT)
    assert region.shape == wanted.shape
    assert region.extent == EXTENT
    assert np.array_equal(region.arrange(gather(ARRAY, region.selection)), wanted)
    coords = region.selection.coords()
    placed, values = region.place(list(coords.T), ARRAY[tuple(coords.T.astype(int))])
    assert np.array_equal(wanted[tuple(column.astype(int) for column in placed)], values)
    back, again = region.locate(placed, values)
    assert np.array_equal(ARRAY[tuple(column.astype(int) for column in back)], again)
    result = ARRAY.copy()
    scatter(result, region.selection, region.collect(-wanted))
    assert np.array_equal(result, np.where(np.isin(ARRAY, wanted), -ARRAY, ARRAY))
    return region


def axis_texts(length: int) -> Any:
    index = st.integers(0, length - 1)
    ends = st.tuples(index, index, st.integers(1, 3)).map(sorted)
    return st.one_of(
        index.map(str),
        st.tuples(index, index, st.integers(1, 3)).map(lambda t: f"{min(t[:2])}:{max(t[:2])}:{t[2]}"),
        ends.map(lambda _: ":"),
        st.lists(index, min_size=3, max_size=3).map(lambda some: f"[{','.join(map(str, some))}]"),
    )


@settings(max_examples=100)
@given(st.tuples(*map(axis_texts, EXTENT)))
def test_a_select_string_selects_what_the_server_reads(pieces: tuple[str, ...]) -> None:
    text = f"[{','.join(pieces)}]"
    selection = parse_select(text, EXTENT)
    check(text, gather(ARRAY, selection))
    check(selection, gather(ARRAY, selection))


def test_products_points_and_boxes() -> None:
    rows, columns = np.array([3, 0, 2], np.uint64), np.array([4, 4, 1], np.uint64)
    product = Orthogonal(EXTENT, (rows, StridedSpan(0, 3, 2, 2), columns))
    check(product, ARRAY[np.ix_([3, 0, 2], [0, 1, 3, 4], [4, 4, 1])])
    assert parse_select(format_select(product, orthogonal=True), EXTENT, orthogonal=True) == product
    points = Points(EXTENT, np.array([[3, 1, 1], [0, 0, 0], [3, 1, 1], [2, 4, 5]]), (2, 2))
    check(points, ARRAY[[3, 0, 3, 2], [1, 0, 1, 4], [1, 0, 1, 5]].reshape(2, 2))
    boxes = Boxes(EXTENT, np.array([[0, 0, 2], [1, 3, 0]]), np.array([[1, 2, 4], [3, 4, 1]]))
    region = check(boxes, gather(ARRAY, boxes))
    assert region.size == 6
    with pytest.raises(BadRequest, match="5 values for 6 elements"):
        region.collect(np.zeros(5))
    assert region.collect(np.array(7)).tolist() == [7] * 6


def test_all_and_nothing_else() -> None:
    for select in (None, "", "[...]", ..., ArrayKey(...)):
        assert check(select, ARRAY).selection.is_all
    scalar = Points((), np.zeros((1, 0), np.uint64))
    for select in (None, "[...]", scalar, ()):
        region = select_region(select, ())
        assert region.arrange(np.array([7])).tolist() == 7
    with pytest.raises(IndexError):
        select_region(ArrayKey("[0:1,:,:]"), EXTENT)
    with pytest.raises(BadRequest, match="beyond the extent 4"):
        select_region("[0:5,:,:]", EXTENT)


def test_lists_of_a_string_are_paired_whatever_a_slice_spans() -> None:
    extent = (2**20, 2**40, 2**4)
    region = select_region("[[3,1],:,[0,1]]", extent)
    assert (region.shape, region.selection.size) == ((2, 2**40), 2**41)
    with pytest.raises(TooLarge):
        select_region(Points((2**40, 2**40), np.zeros((1, 2), int)), (2**40, 2**40))
