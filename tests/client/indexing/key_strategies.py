"""Keys and extents at random, and what numpy makes of an orthogonal key."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

numbers = st.integers(-6, 6)
slices = st.builds(
    slice, st.none() | numbers, st.none() | numbers, st.none() | st.integers(1, 4) | st.integers(-4, -1)
)
masks = st.lists(st.booleans(), min_size=1, max_size=5).map(np.array)
squares = st.lists(st.booleans(), min_size=12, max_size=12).map(lambda some: np.array(some).reshape(3, 4))
flat_lists = st.lists(numbers, max_size=4)
lists = st.one_of(
    st.lists(numbers, min_size=0, max_size=1),
    st.lists(numbers, min_size=3, max_size=3),
    st.lists(numbers, min_size=2, max_size=2).map(lambda pair: [[one] for one in pair]),
)
scalars = st.one_of(numbers, numbers.map(np.int8), numbers.map(lambda number: np.array(number)))
items = st.one_of(scalars, slices, slices, lists, lists.map(np.array), st.just(...), masks, squares)
keys = st.one_of(items, st.lists(items, max_size=5).map(tuple))
flat_items = st.one_of(scalars, slices, flat_lists, flat_lists.map(np.array), masks, st.just(...))
orthogonal_keys = st.one_of(flat_items, st.lists(flat_items, max_size=4).map(tuple))
extents = st.one_of(
    st.just((3, 4, 5)), st.just((3, 4)), st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)
)


def numpy_key(key: Any) -> Any:
    """Return the key with empty lists as numpy takes them inside tuples."""
    if isinstance(key, tuple):
        return tuple(numpy_key(item) for item in key)
    if isinstance(key, list | np.ndarray) and not np.size(key):
        return np.asarray(key, int)
    return key


def take_orthogonal(array: np.ndarray, key: Any) -> Any:
    """Return what an orthogonal key selects, one dimension after the other; IndexError as numpy raises it."""
    items = list(numpy_key(key)) if isinstance(key, tuple) else [numpy_key(key)]
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1 or len(items) - len(dots) > array.ndim:
        raise IndexError
    place = dots[0] if dots else len(items)
    items[place : place + 1] = [slice(None)] * (array.ndim - len(items) + len(dots))
    dim = 0
    for item in items:
        found = array[(slice(None),) * dim + (item,)]
        dim += found.ndim - array.ndim + 1
        array = found
    return array
