"""Points against numpy's dense arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.workloads.points import PointData, dense_rows, from_offsets


@st.composite
def cases(draw: st.DrawFn) -> tuple[PointData, tuple[int, ...], np.ndarray]:
    extent = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    size = int(np.prod(extent))
    offsets = np.array(sorted(draw(st.sets(st.integers(0, size - 1)))), dtype=np.int64)
    values = np.arange(1, len(offsets) + 1, dtype=np.uint16)
    dense = np.zeros(size, dtype=np.uint16)
    dense[offsets] = values
    return from_offsets(offsets, extent, values), extent, dense.reshape(extent)


@given(cases(), st.data())
def test_dense_rows_are_the_rows_of_the_dense_array(case: tuple, data: st.DataObject) -> None:
    points, extent, dense = case
    start = data.draw(st.integers(0, extent[0]))
    stop = data.draw(st.integers(start, extent[0]))
    assert np.array_equal(dense_rows(points, extent, start, stop), dense[start:stop])
    assert len(points.rows(start, stop)) == np.count_nonzero(dense[start:stop])
    moved = points.rows(start, stop).from_row(start)
    assert np.array_equal(dense_rows(moved, (stop - start, *extent[1:]), 0, stop - start), dense[start:stop])


@given(cases(), st.data())
def test_points_inside_a_box_are_the_defined_elements_of_its_slice(case: tuple, data: st.DataObject) -> None:
    points, extent, dense = case
    start = tuple(data.draw(st.integers(0, size)) for size in extent)
    stop = tuple(data.draw(st.integers(low, size)) for low, size in zip(start, extent, strict=True))
    piece = dense[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]
    inside = points.inside(start, stop)
    assert np.array_equal(inside.values, piece[piece > 0])
    assert inside.total() == piece.sum()
    for column, low, places in zip(inside.coords, start, np.nonzero(piece), strict=True):
        assert np.array_equal(column, places + low)
