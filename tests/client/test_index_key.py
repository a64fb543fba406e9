from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsparse.client.index_key import parse_key
from hsparse.client.selected_region import MAX_LISTED, select_region
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection import gather, scatter

numbers = st.integers(-6, 6)
steps = st.one_of(st.none(), st.integers(1, 4))
slices = st.builds(slice, st.none() | numbers, st.none() | numbers, steps)
masks = st.lists(st.booleans(), min_size=1, max_size=5).map(np.array)
squares = st.lists(st.booleans(), min_size=12, max_size=12).map(lambda some: np.array(some).reshape(3, 4))
lists = st.one_of(
    st.lists(numbers, min_size=0, max_size=1),
    st.lists(numbers, min_size=3, max_size=3),
    st.lists(numbers, min_size=2, max_size=2).map(lambda pair: [[one] for one in pair]),
)
items = st.one_of(numbers, slices, slices, lists, lists.map(np.array), st.just(...), masks, squares)
keys = st.one_of(items, st.lists(items, max_size=4).map(tuple))
extents = st.one_of(st.just((3, 4, 5)), st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))


@settings(max_examples=400)
@example((3, 4, 5), (0, slice(None), [1, 2]))
@example((3, 4, 5), ([[0], [1]], slice(None), [1, 2]))
@example((3, 4, 5), (slice(None), [0], ..., [1, 2]))
@example((3, 4, 5), (slice(None), [0], 3))
@example((3, 4, 5), (..., np.ones((4, 5), bool)))
@given(extent=extents, key=keys)
def test_a_key_selects_what_it_selects_in_numpy(extent: tuple[int, ...], key: Any) -> None:
    array = np.arange(np.prod(extent)).reshape(extent)
    try:
        wanted = array[_indices(key)]
    except IndexError:
        with pytest.raises(BadRequest):
            parse_key(key, extent)
        return
    try:
        text, order, is_cut_off = parse_key(key, extent)
    except BadRequest:
        assert not wanted.size, "numpy lets an index pass that is beyond the extent, if nothing is selected"
        return
    slices = [item for item in (key if isinstance(key, tuple) else (key,)) if isinstance(item, slice)]
    assert slices or not is_cut_off
    selection = parse_select(text, extent)
    found = order.arrange(gather(array, selection).reshape(-1))
    assert np.array_equal(found, wanted)
    assert order.shape == wanted.shape

    values = 1000 + np.arange(wanted.size).reshape(wanted.shape)
    expected, result = array.copy(), array.copy()
    expected[_indices(key)] = values
    scatter(result, selection, order.flatten(values).reshape(selection.shape))
    assert np.array_equal(result, expected)


def _indices(key: Any) -> Any:
    """Return the key with empty lists as numpy takes them inside tuples."""
    if isinstance(key, tuple):
        return tuple(_indices(item) for item in key)
    if isinstance(key, list | np.ndarray) and not np.size(key):
        return np.asarray(key, int)
    return key


@pytest.mark.parametrize(
    ("key", "text", "shape"),
    [
        ((slice(0, 10), slice(None)), "[0:6:1,0:5:1,0:4:1]", (6, 5, 4)),
        (-1, "[5,0:5:1,0:4:1]", (5, 4)),
        ((..., 2), "[0:6:1,0:5:1,2]", (6, 5)),
        ((), "[0:6:1,0:5:1,0:4:1]", (6, 5, 4)),
        (([1, 3], slice(1, 3), [0, -1]), "[[1,3],1:3:1,[0,3]]", (2, 2)),
        (np.int8(2), "[2,0:5:1,0:4:1]", (5, 4)),
        (range(2), "[[0,1],0:5:1,0:4:1]", (2, 5, 4)),
        (slice(4, 2), "[4:4:1,0:5:1,0:4:1]", (0, 5, 4)),
        (np.array([7], np.uint8) - 5, "[[2],0:5:1,0:4:1]", (1, 5, 4)),
    ],
)
def test_keys_as_strings(key: Any, text: str, shape: tuple[int, ...]) -> None:
    found, order, _ = parse_key(key, (6, 5, 4))
    assert (found, order.shape) == (text, shape)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (6, "Index 6 of dimension 0 is not within its extent 6"),
        ((0, -6), "Index -6 of dimension 1"),
        ((0, 0, 0, 0), "4 indices; the dataset has 3 dimensions"),
        ((..., 0, ...), "'...' twice"),
        (slice(None, None, -1), "step -1; it must be at least 1, so reverse what is read"),
        (slice(0, 2.5), "The slice of dimension 0"),
        (slice(None, None, 0), "The slice of dimension 0"),
        (None, "no item of a key"),
        ((0, None), "no item of a key"),
        (True, "no item of a key"),
        (2.0, "no item of a key"),
        ((0, "[1]"), "no item of a key"),
        ([slice(1), 2], "one item for each dimension, in a tuple"),
        ([[1], [2, 3]], "lists of one length"),
        (([0, 1], [0, 1, 2]), "use numpy.ix_"),
        (np.ones(5, bool), "mask of shape [5] does not fit dimensions 0 to 0 of [6, 5, 4]"),
        ((0, np.ones((5, 5), bool)), "mask of shape [5, 5] does not fit dimensions 1 to 2"),
    ],
)
def test_what_is_no_key_is_named_with_the_remedy(key: Any, sentence: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_key(key, (6, 5, 4))
    assert sentence in caught.value.message


@pytest.mark.parametrize("shape", [(), (1,), (4,), (6, 1), (1, 1, 6, 4)])
def test_values_are_broadcast(shape: tuple[int, ...]) -> None:
    array = np.zeros((6, 4), int)
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    array[...] = values
    assert parse_key(..., (6, 4))[1].flatten(values).tolist() == array.reshape(-1).tolist()


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"shape \[4, 6\] do not fit a selection of shape \[6, 4\]"):
        parse_key(..., (6, 4))[1].flatten(np.zeros((4, 6)))


@pytest.mark.parametrize(
    ("key", "is_cut_off"),
    [
        (slice(0, 6), False),
        (slice(6, 6), False),
        (slice(0, 7), True),
        ((0, slice(6, None)), True),
        (-1, False),
    ],
)
def test_slices_beyond_the_extent_are_cut_off(key: Any, is_cut_off: bool) -> None:
    assert parse_key(key, (6, 5, 4))[2] == is_cut_off


def test_unions_of_boxes_and_products_of_lists_are_sent_as_points() -> None:
    extent = (2000, 2000)
    starts, stops = np.array([[0, 0], [3, 4]]), np.array([[1, 2], [4, 6]])
    region = select_region(Boxes(extent, starts, stops), extent)
    assert region.text == "[[0,0,3,3],[0,1,4,5]]"
    assert region.order.shape == (4,)
    product = Orthogonal(extent, (np.array([0, 5, 7], np.uint64), np.array([9, 1], np.uint64)))
    region = select_region(product, extent)
    assert region.text == "[[0,0,5,5,7,7],[9,1,9,1,9,1]]"
    assert region.order.shape == (3, 2)
    stops = np.array([[3, 2000], [2000, 2000]])
    with pytest.raises(TooLarge, match=f"at most {MAX_LISTED}; select its boxes one by one"):
        select_region(Boxes(extent, starts, stops), extent)
