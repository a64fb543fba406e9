"""Keys and extents: at random, nearly all of them valid, and one of each form that there is."""

from __future__ import annotations

from functools import cache
from math import prod
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


Extent = tuple[int, ...]
ALL = slice(None)
STEPS = (None, 2, -1, -2, 3, 1, -3)


@cache
def slices_of(length: int) -> st.SearchStrategy[slice]:
    """Return slices of a dimension, most of which select something; ends may lie beyond it, or count from its end."""
    ends = [None, *range(-length - 2, length + 3)]
    found = [slice(first, last, step) for step in STEPS for first in ends for last in ends]
    full = st.sampled_from([one for one in found if range(length)[one]])
    return st.integers(0, 9).flatmap(lambda number: st.sampled_from(found) if number == 9 else full)


@cache
def indices_of(length: int) -> st.SearchStrategy[Any]:
    one = st.integers(-length, length - 1)
    return st.one_of(one, one.map(np.int8), one.map(np.array))


@st.composite
def masks_of(draw: st.DrawFn, lengths: Extent, count: int | None) -> Any:
    """Draw a mask of some dimensions, of `count` elements, or of any number."""
    size = prod(lengths)
    least, most = (0, size) if count is None else (count, count)
    chosen = draw(st.lists(st.integers(0, size - 1), unique=True, min_size=least, max_size=most))
    return np.isin(np.arange(size), chosen).reshape(lengths)


@st.composite
def lists_of(draw: st.DrawFn, length: int, shapes: list[Extent]) -> Any:
    """Draw a list of indices of one of some shapes, nested or as an array."""
    shape = draw(st.sampled_from(shapes))
    size = prod(shape)
    drawn = draw(st.lists(st.integers(-length, length - 1), min_size=size, max_size=size))
    found = np.array(drawn, np.int64).reshape(shape)
    return draw(st.sampled_from([found.tolist(), found, found.astype(np.int8)]))


@st.composite
def fitting_keys(draw: st.DrawFn, extent: Extent) -> Any:
    """Draw a key of numpy that is valid in an extent: its lists and masks can be broadcast to one shape."""
    leading, trailing = draw(named_parts(extent))
    forms = [draw(forms_of(part)) for part in (leading, trailing)]
    plan = [*forms[0], *forms[1]]
    count = min(
        [
            draw(st.sampled_from([*(2, 3, 1, 4) * 2, 0])),
            *(prod(some) for form, some in plan if form == "mask"),
        ]
    )
    is_alone = sum(form in ("list", "mask") for form, _ in plan) < 2
    given: list[Any] = []
    for form, lengths in plan:
        if form == "mask":
            given.append(draw(masks_of(lengths, None if is_alone else count)))
        elif form == "list":
            given.append(draw(lists_of(lengths[0], [(count,), (2, count), (2, 1), (1,)])))
        else:
            given.append(draw(slices_of(lengths[0]) if form == "slice" else indices_of(lengths[0])))
    return finished(draw, given, len(forms[0]), needs_dots=bool(trailing))


@st.composite
def fitting_orthogonal_keys(draw: st.DrawFn, extent: Extent) -> Any:
    """Draw a key of `oindex` that is valid in an extent."""
    leading, trailing = draw(named_parts(extent))
    given: list[Any] = []
    for length in (*leading, *trailing):
        flat = lists_of(length, [*((3,), (2,), (1,), (4,)) * 2, (0,)])
        given.append(
            draw(st.one_of(flat, flat, slices_of(length), masks_of((length,), None), indices_of(length)))
        )
    return finished(draw, given, len(leading), needs_dots=bool(trailing))


@st.composite
def named_parts(draw: st.DrawFn, extent: Extent) -> tuple[Extent, Extent]:
    """Draw the dimensions that a key names before `...`, and those behind."""
    rank = len(extent)
    named = draw(st.sampled_from([rank, *range(rank, -1, -1)]))
    before = draw(st.sampled_from([named, named, *range(named)]))
    return extent[:before], extent[rank - (named - before) :]


@st.composite
def forms_of(draw: st.DrawFn, lengths: Extent) -> list[tuple[str, Extent]]:
    """Draw forms of items for dimensions, of masks for several together."""
    found = []
    while lengths:
        form = draw(st.sampled_from(["slice", "slice", "index", "list", "list", "mask"]))
        width = draw(st.integers(1, len(lengths))) if form == "mask" else 1
        found.append((form, lengths[:width]))
        lengths = lengths[width:]
    return found


def finished(draw: st.DrawFn, given: list[Any], before: int, *, needs_dots: bool) -> Any:
    """Return items as a key, with `...` where it is needed or drawn, and one item not always as a tuple."""
    if needs_dots or draw(st.booleans()):
        given.insert(before, ...)
    return given[0] if len(given) == 1 and draw(st.booleans()) else tuple(given)


def mostly(fitting: st.SearchStrategy[Any], others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy that draws one in ten of the others."""
    return st.integers(0, 9).flatmap(lambda number: others if number == 9 else fitting)


@cache
def keys_of(extent: Extent) -> st.SearchStrategy[Any]:
    """Return keys for an extent; one in ten may be of another."""
    return mostly(fitting_keys(extent), keys | st.tuples(items, items))


@cache
def orthogonal_keys_of(extent: Extent) -> st.SearchStrategy[Any]:
    """Return keys of `oindex` for an extent; one in ten may be of another."""
    return mostly(fitting_orthogonal_keys(extent), orthogonal_keys | st.tuples(flat_items, flat_items))


def lists_and_masks(extent: Extent) -> tuple[list[list[int]], list[np.ndarray]]:
    """Return for each dimension a list of 4 indices, some of them twice and from the end, and a mask."""
    return [[n - 1, 0, -1, -n] for n in extent], [np.arange(n) % 2 == 0 for n in extent]


def key_forms(extent: Extent) -> list[Any]:
    """Return a key of each form, with the items that select a part of a dimension at each of them."""
    lists, masks = lists_and_masks(extent)
    found: list[Any] = [0, np.int8(-1), slice(1, -1), slice(None, None, -1), slice(2, 2), [], ..., ()]
    for axis, length in enumerate(extent):
        nested = np.array(lists[axis]).reshape(2, 2)
        items = (-length, slice(None, None, -2), lists[axis], nested, masks[axis])
        found += [((ALL,) * axis + (item,)) for item in items]
    found += [(..., lists[-1]), (slice(-1, 0, -1), ...), (-1,) * len(extent), (..., *(0,) * len(extent))]
    if len(extent) > 1:
        whole = np.arange(prod(extent)).reshape(extent) % 3 == 1
        pair = np.arange(extent[1]) < 2
        found += [
            whole,
            (whole[0], ...) if whole[0].shape == extent[: len(extent) - 1] else (..., whole[0]),
            tuple(lists),
            (lists[0], ..., lists[-1]),
            ([[0], [-1]], ..., lists[-1]),
            (0, ..., lists[-1]),
            (lists[0], ..., slice(None, None, -1)),
            ([0, -1], pair),
            np.ix_([0, 0], [1, 0, 1]),
        ]
    return found


def orthogonal_forms(extent: Extent) -> list[Any]:
    """Return a key of `oindex` of each form."""
    lists, masks = lists_and_masks(extent)
    mixed = [masks[axis] if axis % 2 else lists[axis] for axis in range(len(extent))]
    return [
        -1,
        lists[0],
        masks[0],
        [],
        tuple(lists),
        tuple(masks),
        tuple(mixed),
        (..., lists[-1]),
        (slice(None, None, -2), *lists[1:]),
        (*lists[:-1], slice(None, None, -1)),
        (*lists[:-1], 0),
        (np.array(lists[0], np.int8), ..., masks[-1])[: 2 if len(extent) == 1 else 3],
    ]
