"""Keys and selections as regions, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsparse.client.errors import InvalidValue, OutOfRange
from hsparse.client.indexing.index_key import parse_key, parse_orthogonal_key
from hsparse.client.indexing.indexed_region import IndexedRegion
from hsparse.client.indexing.select import ArrayKey, Region, Select, select_region
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.points import Boxes, Orthogonal, Points, StridedSpan, gather, scatter
from hsparse.format.selections.select_syntax import format_select, parse_select
from tests.client.key_strategies import (
    extents,
    fitting_keys,
    fitting_orthogonal_keys,
    key_forms,
    keys,
    numpy_key,
    orthogonal_forms,
    orthogonal_keys,
    take_orthogonal,
)
from tests.support.endurance import repeats

Take = Callable[[np.ndarray, Any], Any]


@settings(max_examples=repeats(300, short=100))
@example((3, 4, 5), (0, slice(None), [1, 2]))
@example((3, 4, 5), ([[0], [1]], slice(None), [1, 2, 1]))
@example((3, 4, 5), ([2, 0, 2], slice(None, None, -2), [1, 2, 1]))
@example((3, 4, 5), (slice(None), [0], ..., [1, 2]))
@example((3, 4, 5), (slice(None), [0], 3))
@example((3, 4, 5), (..., np.ones((4, 5), bool)))
@example((3, 4, 5), (2, slice(None), [3, 3, 0]))
@example((), ())
@example((), ...)
@example((2, 3), (1, 2, ...))
@given(extent=extents, key=keys)
def test_a_key_selects_what_it_selects_in_numpy(extent: tuple[int, ...], key: Any) -> None:
    check(extent, key, take, parse_key)


def take(array: np.ndarray, key: Any) -> Any:
    return array[numpy_key(key)]


@pytest.mark.parametrize("extent", [(11,), (6, 5), (3, 4, 5), (3, 2, 4, 3)])
def test_each_form_of_key_selects_what_it_selects_in_numpy(extent: tuple[int, ...]) -> None:
    for key in key_forms(extent):
        check(extent, key, take, parse_key)
    for key in orthogonal_forms(extent):
        check(extent, key, take_orthogonal, parse_orthogonal_key)


@settings(max_examples=repeats(300, short=60))
@given(data=st.data(), extent=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
def test_a_key_that_fits_selects_what_it_selects_in_numpy(
    data: st.DataObject, extent: tuple[int, ...]
) -> None:
    check(extent, data.draw(fitting_keys(extent)), take, parse_key)
    check(extent, data.draw(fitting_orthogonal_keys(extent)), take_orthogonal, parse_orthogonal_key)


@settings(max_examples=repeats(300, short=100))
@example((3, 4, 5), ([2, 0, 2], slice(None, None, -2), [1, 1]))
@example((3, 4, 5), (0, [1, 0], [1, 1, 2]))
@given(extent=extents, key=orthogonal_keys)
def test_an_orthogonal_key_selects_the_product(extent: tuple[int, ...], key: Any) -> None:
    check(extent, key, take_orthogonal, parse_orthogonal_key)


def check(extent: tuple[int, ...], key: Any, take: Take, parse: Callable[..., IndexedRegion]) -> None:
    """Compare a key's region with what numpy selects, in all that a region does."""
    array = np.arange(np.prod(extent, dtype=int)).reshape(extent)
    try:
        wanted = take(array, key)
    except IndexError:
        with pytest.raises(IndexError):
            parse(key, extent)
        return
    try:
        region = parse(key, extent)
    except IndexError:
        assert not wanted.size, "numpy lets an index pass that is beyond the extent, if nothing is selected"
        return
    assert region.shape == wanted.shape
    if parse is parse_key and not any(
        isinstance(one, np.ndarray) for one in (key if isinstance(key, tuple) else [key])
    ):
        assert region.is_scalar == (not isinstance(wanted, np.ndarray))
    check_selection(region)
    chosen = gather(array, region.selection)
    assert np.array_equal(region.arrange(chosen), wanted)
    check_places(region, array, wanted)
    check_assignment(region, array, wanted)


def check_selection(region: IndexedRegion) -> None:
    """See that the selection is a valid one, ascending and without repeats."""
    offsets = region.selection.offsets()
    assert (offsets[1:] > offsets[:-1]).all()
    match region.selection:
        case Orthogonal(extent, axes):
            Orthogonal(extent, axes)
        case Points(extent, coords, shape):
            Points(extent, coords, shape)
        case Boxes(extent, starts, stops):
            Boxes(extent, starts, stops)


def check_places(region: IndexedRegion, array: np.ndarray, wanted: np.ndarray) -> None:
    """Place every third element, out of order, in columns of a narrow type; and find their coordinates again."""
    coords = region.selection.coords()
    coords = np.random.default_rng(len(coords)).permutation(coords)[::3]
    columns = [coords[:, dim].astype(np.uint8) for dim in range(coords.shape[1])]
    values = array[tuple(columns)].reshape(len(coords))
    placed, found = region.place(columns, values)
    assert len(placed) == len(region.shape)
    some = np.full(region.shape, -1)
    some[tuple(placed)] = found if placed else found.reshape(-1)[0] if len(found) else -1
    there = np.isin(wanted, values)
    assert np.array_equal(some, np.where(there, wanted, -1))
    if placed:
        assert len(np.unique(np.ravel_multi_index([c.astype(int) for c in placed], region.shape))) == len(
            found
        )
    back, again = region.locate(placed, found)
    assert sorted(again.tolist()) == sorted(values.tolist())
    assert np.array_equal(array[tuple(column.astype(int) for column in back)].reshape(len(again)), again)


def check_assignment(region: IndexedRegion, array: np.ndarray, wanted: np.ndarray) -> None:
    """Assign different values to all positions: of an element that is selected twice the last one counts."""
    values = 1000 + np.arange(wanted.size).reshape(wanted.shape)
    expected = array.copy().reshape(-1)
    expected[wanted.reshape(-1)] = values.reshape(-1)
    result = array.copy()
    scatter(result, region.selection, region.collect(values))
    assert np.array_equal(result.reshape(-1), expected)


@pytest.mark.parametrize(
    ("key", "axes", "shape"),
    [
        (
            (slice(0, 10), slice(None)),
            (StridedSpan.range(0, 6), StridedSpan.range(0, 5), StridedSpan.range(0, 4)),
            (6, 5, 4),
        ),
        (-1, (StridedSpan(5), StridedSpan.range(0, 5), StridedSpan.range(0, 4)), (5, 4)),
        ((..., 2), (StridedSpan.range(0, 6), StridedSpan.range(0, 5), StridedSpan(2)), (6, 5)),
        ((), (StridedSpan.range(0, 6), StridedSpan.range(0, 5), StridedSpan.range(0, 4)), (6, 5, 4)),
        (np.s_[::-2, 0, 0], (StridedSpan(1, 2, 3), StridedSpan(0), StridedSpan(0)), (3,)),
        (([3, 1, 3], 0, 0), (np.array([1, 3]), StridedSpan(0), StridedSpan(0)), (3,)),
        (range(2), (np.array([0, 1]), StridedSpan.range(0, 5), StridedSpan.range(0, 4)), (2, 5, 4)),
        (slice(4, 2), (StridedSpan(0, 1, 0), StridedSpan.range(0, 5), StridedSpan.range(0, 4)), (0, 5, 4)),
    ],
)
def test_the_selection_of_a_key(key: Any, axes: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    region = parse_key(key, (6, 5, 4))
    assert (region.selection, region.shape) == (Orthogonal((6, 5, 4), axes), shape)


def test_a_slice_of_any_length_costs_nothing() -> None:
    extent = (2**40, 2**20)
    region = parse_key(np.s_[::-3], extent)
    assert region.selection.size == -(-(2**40) // 3) * 2**20
    placed, _ = region.place([np.array([0, 2**40 - 1]), np.array([5, 6])], np.zeros(2))
    assert [column.tolist() for column in placed] == [[(2**40 - 1) // 3, 0], [5, 6]]
    paired = parse_key(([3, 1], slice(None), [0, 1]), (4, 2**50, 2))
    assert isinstance(paired.selection, Boxes)
    assert (paired.shape, paired.selection.size) == ((2, 2**50), 2**51)
    with pytest.raises(TooLarge, match="omit the step"):
        parse_key(([3, 1], slice(None, None, 2), [0, 1]), (4, 2**50, 2))


@pytest.mark.parametrize("far", [2**30, 10])
def test_lists_find_their_places_in_columns_of_any_type(far: int) -> None:
    region = parse_orthogonal_key([far, 3, far], (2**31 - 1,))
    for dtype in ("u4", "i4", "u8", "i8"):
        (found,), values = region.place([np.array([3, far], dtype)], np.array([1, 2]))
        assert dict(zip(found.tolist(), values.tolist(), strict=True)) == {0: 2, 1: 1, 2: 2}


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (6, "Index 6 of dimension 0 is not within its extent 6"),
        ((0, -6), "Index -6 of dimension 1"),
        (np.array([2**63], np.uint64), "Index 9223372036854775808 of dimension 0"),
        ((0, 0, 0, 0), "4 indices, but the dataset has only 3 dimensions"),
        ((..., 0, ...), "'...' only once"),
        (slice(0, 2.5), "The slice of dimension 0"),
        (slice(None, None, 0), "The slice of dimension 0"),
        (None, "a new axis"),
        ((0, None), "a new axis"),
        (True, "not a valid item of a key"),
        (2.0, "not a valid item of a key"),
        ((0, "[1]"), "not a valid item of a key"),
        ([slice(1), 2], "one item for each dimension, in a tuple"),
        ([[1], [2, 3]], "lists of equal lengths"),
        (([0, 1], [0, 1, 2]), "use oindex or numpy.ix_"),
        (
            np.ones(5, bool),
            "mask of shape [5] must have the lengths of dimensions 0 to 0 of the extent [6, 5, 4]",
        ),
        ((0, np.ones((5, 5), bool)), "mask of shape [5, 5] must have the lengths of dimensions 1 to 2"),
    ],
)
def test_what_is_no_key_is_named_with_the_remedy(key: Any, sentence: str) -> None:
    with pytest.raises(OutOfRange) as caught:
        parse_key(key, (6, 5, 4))
    assert sentence in caught.value.message
    assert isinstance(caught.value, IndexError)
    assert isinstance(caught.value, BadRequest)


def test_orthogonal_keys_have_flat_lists() -> None:
    for key in ([[1], [2]], np.ones((6, 5), bool)):
        with pytest.raises(OutOfRange, match="must have one dimension"):
            parse_orthogonal_key(key, (6, 5, 4))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (6, 1), (1, 1, 6, 4)])
def test_values_are_broadcast(shape: tuple[int, ...]) -> None:
    array = np.zeros((6, 4), int)
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    array[...] = values
    assert np.array_equal(parse_key(..., (6, 4)).collect(values), array)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        InvalidValue, match=r"shape \[4, 6\] must broadcast to the selected shape \[6, 4\]"
    ) as caught:
        parse_key(..., (6, 4)).collect(np.zeros((4, 6)))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("key", "cut_off"),
    [
        (slice(0, 6), set()),
        (slice(6, 6), set()),
        (slice(0, 7), {0}),
        ((0, slice(6, None)), {1}),
        (-1, {0}),
        ((..., -1), {2}),
        ((slice(None), [0, -2]), {1}),
        ((0, slice(-3, None), slice(None, -1)), {1, 2}),
        (slice(None, None, -1), set()),
        (([5, 0], ..., np.array([True, False, True, False])), set()),
    ],
)
def test_what_depends_on_the_extent_is_cut_off(key: Any, cut_off: set[int]) -> None:
    assert parse_key(key, (6, 5, 4)).cut_off == cut_off


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6))
def test_of_a_place_twice_the_last_value_counts(pairs: list[tuple[int, int]]) -> None:
    rows, columns = ([pair[dim] for pair in pairs] for dim in range(2))
    region = parse_key((rows, columns), (3, 4))
    _, values = region.locate([np.arange(len(pairs))], np.arange(len(pairs)))
    assert sorted(values.tolist()) == sorted({pair: number for number, pair in enumerate(pairs)}.values())


EXTENT = (4, 5, 6)
ARRAY = np.arange(120).reshape(EXTENT)


def check_select(select: Select, wanted: np.ndarray) -> Region:
    region = select_region(select, EXTENT)
    assert (region.shape, region.extent) == (wanted.shape, EXTENT)
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
    check_select(text, gather(ARRAY, selection))
    check_select(selection, gather(ARRAY, selection))


def test_products_points_and_boxes() -> None:
    rows, columns = np.array([3, 0, 2], np.uint64), np.array([4, 4, 1], np.uint64)
    product = Orthogonal(EXTENT, (rows, StridedSpan(0, 3, 2, 2), columns))
    check_select(product, ARRAY[np.ix_([3, 0, 2], [0, 1, 3, 4], [4, 4, 1])])
    assert parse_select(format_select(product, orthogonal=True), EXTENT, orthogonal=True) == product
    points = Points(EXTENT, np.array([[3, 1, 1], [0, 0, 0], [3, 1, 1], [2, 4, 5]]), (2, 2))
    check_select(points, ARRAY[[3, 0, 3, 2], [1, 0, 1, 4], [1, 0, 1, 5]].reshape(2, 2))
    boxes = Boxes(EXTENT, np.array([[0, 0, 2], [1, 3, 0]]), np.array([[1, 2, 4], [3, 4, 1]]))
    region = check_select(boxes, gather(ARRAY, boxes))
    assert region.size == 6
    with pytest.raises(BadRequest, match="needs 6 values, not 5"):
        region.collect(np.zeros(5))
    assert region.collect(np.array(7)).tolist() == [7] * 6


def test_all_and_nothing_else() -> None:
    for select in (None, "", "[...]", ..., ArrayKey(...)):
        assert check_select(select, ARRAY).selection.is_all
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
