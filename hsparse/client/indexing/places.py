"""Places: a place is a coordinate in a dataset with lower bounds; it may be negative, and never counts from the end.

An extent with lower bounds is a `SignedExtent`. Inside the client, coordinates count from the first element of the
extent, as in any extent; the request parameter `places` has the place of the first element. The server's answer is
therefore right, or an error, even if another client has moved the lower bounds.
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
    """Return an extent with these lengths; its first element has the coordinates `lower`."""
    return SignedExtent.of(lengths, lower, (0,) * len(lengths), in_places=True)


def has_lower_bounds(record: dict[str, Any]) -> bool:
    """Return whether the record of a dataset says that the dataset has lower bounds."""
    shape = record["shape"]
    return isinstance(shape, dict) and bool(shape.get("lower"))


def same_kind(extent: tuple[int, ...], lengths: Sequence[int]) -> tuple[int, ...]:
    """Return an extent with the given lengths, and with the lower bounds of `extent` if it has lower bounds."""
    return placed(lengths, extent.lower) if isinstance(extent, SignedExtent) else tuple(lengths)


def lower_bounds(extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coordinate of the first element in each dimension."""
    return extent.lower if isinstance(extent, SignedExtent) else (0,) * len(extent)


def places_along(extent: tuple[int, ...], dim: int) -> range:
    """Return the range of the coordinates of a dimension."""
    first = lower_bounds(extent)[dim]
    return range(first, first + extent[dim])


def grown_to(extent: tuple[int, ...], dim: int, new: slice) -> tuple[int, ...]:
    """Return the extent enlarged along `dim` so that it contains the coordinates of the slice `new`."""
    own = places_along(extent, dim)
    start, stop = min(own.start, new.start), max(own.stop, new.stop)
    lengths = (*extent[:dim], stop - start, *extent[dim + 1 :])
    if not isinstance(extent, SignedExtent):
        return lengths
    return placed(lengths, (*extent.lower[:dim], start, *extent.lower[dim + 1 :]))


def slab_extent(extent: tuple[int, ...], dim: int, count: int) -> tuple[int, ...]:
    """Return the extent of an appended slab of `count` rows; its coordinates along `dim` count from 0."""
    lengths = (*extent[:dim], count, *extent[dim + 1 :])
    if not isinstance(extent, SignedExtent):
        return lengths
    return placed(lengths, (*extent.lower[:dim], 0, *extent.lower[dim + 1 :]))


def as_places(extent: tuple[int, ...], coords: NDArray[Any]) -> NDArray[Any]:
    """Convert (n, rank) indices that count from the first element to places; int64 if the extent has lower bounds."""
    return extent.places(coords) if isinstance(extent, SignedExtent) else coords


def places_param(extent: tuple[int, ...]) -> str | None:
    """Return the request parameter `places`, the coordinates of the first element, or None without lower bounds."""
    return f"[{','.join(map(str, extent.lower))}]" if isinstance(extent, SignedExtent) else None


def place_from(place: int, dim: int, extent: tuple[int, ...], *, is_stop: bool = False) -> int:
    """Convert a place to an index that counts from the first element; raise `OutOfRange` if it is out of bounds."""
    own = places_along(extent, dim)
    if not own.start <= place < own.stop + is_stop:
        raise OutOfRange(
            f"Coordinate {place} of dimension {dim} is outside the dataset: its lower bound is {own.start}, its upper "
            f"bound is {own.stop} (exclusive), and no coordinate counts from the end."
        )
    return place - own.start


def slice_from(cut: slice, dim: int, extent: tuple[int, ...]) -> slice:
    """Convert a slice of places to a slice of indices that count from the first element.

    The part above the upper bound is cut off, as in numpy. Raises `OutOfRange` if the start or stop is below the lower
    bound: such elements may have existed, and in datasets without lower bounds negative numbers count from the end.
    """
    upper = places_along(extent, dim).stop

    def moved(end: Any) -> int | None:
        if end is None:
            return None
        return place_from(min(operator.index(end), upper), dim, extent, is_stop=True)

    return slice(moved(cut.start), moved(cut.stop), cut.step)


def key_at_places(key: Any, extent: tuple[int, ...]) -> Any:
    """Convert a key whose indices count from the first element, and never from the end, to a key of places."""
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
