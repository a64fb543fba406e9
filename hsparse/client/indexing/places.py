"""Places in datasets with a lower bound: they may be negative, and none counts from the end.

An extent with lower bounds is a `SignedExtent`. Inside the client, coordinates count from its first element, as those
of any other extent do; a request says by its parameter `places` at which place that is. So an answer is right, or an
error, whatever the lower bound is by then.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import OutOfRange
from hsparse.format.selections.signed_extent import SignedExtent


def placed(lengths: Sequence[int], lower: Sequence[int]) -> tuple[int, ...]:
    """Return the extent of so many elements in each dimension, whose first one is at the place `lower`."""
    return SignedExtent.of(lengths, lower, (0,) * len(lengths), in_places=True)


def has_lower_bounds(record: dict[str, Any]) -> bool:
    """Say whether a dataset's record is of one with lower bounds."""
    shape = record["shape"]
    return isinstance(shape, dict) and bool(shape.get("lower"))


def same_kind(extent: tuple[int, ...], lengths: Sequence[int]) -> tuple[int, ...]:
    """Return an extent of other lengths, which has the lower bounds of `extent` if that has some."""
    return placed(lengths, extent.lower) if isinstance(extent, SignedExtent) else tuple(lengths)


def lower_bounds(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of the first element in each dimension."""
    return extent.lower if isinstance(extent, SignedExtent) else (0,) * len(extent)


def places_along(extent: tuple[int, ...], dim: int) -> range:
    """Return the places that a dimension has."""
    first = lower_bounds(extent)[dim]
    return range(first, first + extent[dim])


def grown_to(extent: tuple[int, ...], dim: int, new: slice) -> tuple[int, ...]:
    """Return an extent that also has the places of a slice along a dimension."""
    own = places_along(extent, dim)
    start, stop = min(own.start, new.start), max(own.stop, new.stop)
    lengths = (*extent[:dim], stop - start, *extent[dim + 1 :])
    if not isinstance(extent, SignedExtent):
        return lengths
    return placed(lengths, (*extent.lower[:dim], start, *extent.lower[dim + 1 :]))


def slab_extent(extent: tuple[int, ...], dim: int, count: int) -> tuple[int, ...]:
    """Return the extent of what is appended along a dimension, in which that counts from 0."""
    lengths = (*extent[:dim], count, *extent[dim + 1 :])
    if not isinstance(extent, SignedExtent):
        return lengths
    return placed(lengths, (*extent.lower[:dim], 0, *extent.lower[dim + 1 :]))


def as_places(extent: tuple[int, ...], coords: NDArray[Any]) -> NDArray[Any]:
    """Return coordinates inside an extent, (n, rank), as places: int64 if it has lower bounds."""
    return extent.places(coords) if isinstance(extent, SignedExtent) else coords


def places_param(extent: tuple[int, ...]) -> str | None:
    """Return what a request has as `places` so that 0 is the first element of an extent; None for no such parameter."""
    return f"[{','.join(map(str, extent.lower))}]" if isinstance(extent, SignedExtent) else None


def place_from(place: int, dim: int, extent: tuple[int, ...], *, is_stop: bool = False) -> int:
    """Return a place as it counts from the first element; `OutOfRange` names both bounds."""
    own = places_along(extent, dim)
    if not own.start <= place < own.stop + is_stop:
        raise OutOfRange(
            f"Place {place} of dimension {dim} is outside the dataset: its lower bound is {own.start}, its upper bound "
            f"{own.stop}, and no place counts from the end."
        )
    return place - own.start


def slice_from(cut: slice, dim: int, extent: tuple[int, ...]) -> slice:
    """Return a slice of places as it counts from the first element.

    What is above the upper bound is cut off, as numpy does it. `OutOfRange` for a bound below the lower one: there may
    have been elements once, and elsewhere a negative number counts from the end.
    """
    upper = places_along(extent, dim).stop

    def moved(end: Any) -> int | None:
        if end is None:
            return None
        return place_from(min(operator.index(end), upper), dim, extent, is_stop=True)

    return slice(moved(cut.start), moved(cut.stop), cut.step)


def key_at_places(key: Any, extent: tuple[int, ...]) -> Any:
    """Return a key of an array, in which 0 is the first element and nothing counts from the end, as one of places."""
    if not isinstance(extent, SignedExtent):
        return key
    items = key if isinstance(key, tuple) else (key,)
    moved: list[Any] = []
    for item in items:
        if isinstance(item, EllipsisType):
            moved += [slice(None)] * (len(extent) - len(items) + 1)
            continue
        first = extent.lower[len(moved)]
        if isinstance(item, slice):
            start, stop = (None if end is None else end + first for end in (item.start, item.stop))
            moved.append(slice(start, stop, item.step))
        else:
            array = np.asarray(item)
            moved.append(
                item if array.dtype.kind == "b" else array + first if array.ndim else int(array) + first
            )
    return tuple(moved)
