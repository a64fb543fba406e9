"""Splits a key into an item for each dimension: an index, a slice or a list.

Keys follow https://numpy.org/doc/stable/user/basics.indexing.html, without new axes and field names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import OutOfRange
from hsparse.client.indexing.places import place_from, places_along, slice_from
from hsparse.format.selections.signed_extent import SignedExtent

Indices: TypeAlias = Sequence[Any] | NDArray[Any]
"""A list or array of integers, or a mask (an array or list of booleans), of any rank."""
Item: TypeAlias = int | slice | EllipsisType | Indices
Key: TypeAlias = Item | tuple[Item, ...]
AxisItem: TypeAlias = int | range | NDArray[np.int64]
"""An index, a slice or a list of indices; all indices are inside the extent, and count from its start."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyItems:
    """A key for a given extent: `axes` has one item for each dimension of the extent."""

    axes: tuple[AxisItem, ...]
    is_adjacent: bool
    """Whether lists and single indices are adjacent in the key."""
    cut_off: frozenset[int]
    """The dimensions in which a slice exceeds the extent, or an index counts from the end of the extent."""
    has_ellipsis: bool


def parse_items(key: Key, extent: tuple[int, ...], *, orthogonal: bool) -> KeyItems:
    """Split a key into an item for each dimension of an extent; raise `OutOfRange` if the key does not fit the extent.

    In an orthogonal key each item has one dimension, so lists and masks are one-dimensional.
    """
    given = key if isinstance(key, tuple) else (key,)
    items = tuple(_item(item) for item in given)
    if orthogonal:
        _require_flat(items)
    named = sum(item.ndim if _is_mask(item) else 1 for item in items if item is not Ellipsis)
    if named > len(extent):
        raise OutOfRange(f"The key has {named} indices, but the dataset has only {len(extent)} dimensions.")
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise OutOfRange("The key may have '...' only once: write ':' for each dimension of the other.")
    place = dots[0] if dots else len(items)
    rest = (slice(None),) * (len(extent) - named)
    axes: list[AxisItem] = []
    is_list: list[bool] = []
    cut_off: set[int] = set()
    for item in (*items[:place], *items[place : place + len(dots)], *rest, *items[place + 1 :]):
        is_list.append(not isinstance(item, slice | EllipsisType))
        if item is not Ellipsis:
            if _follows_extent(item, len(axes), extent):
                cut_off.add(len(axes))
            axes += _axes_of(item, len(axes), extent)
    starts = sum(one and not before for before, one in zip([False, *is_list], is_list, strict=False))
    return KeyItems(tuple(axes), starts < 2, frozenset(cut_off), bool(dots))


def _item(item: Any) -> Any:
    """Return an item of a key, as an array if the item is a list; raise `OutOfRange` if the item is invalid."""
    if item is Ellipsis or isinstance(item, slice):
        return item
    if item is None:
        raise OutOfRange("A key cannot add a new axis (None): add the axis to the result instead.")
    try:
        found = np.asarray(item)
    except ValueError as error:
        raise OutOfRange("A list in a key must have integers, or lists of equal lengths.") from error
    if not found.size and found.dtype.kind == "f":
        return found.astype(np.int64)  # an empty list
    if found.dtype.kind in "iu" or (found.dtype.kind == "b" and found.ndim):
        return found if found.ndim else int(found)
    raise OutOfRange(
        f"{str(item)[:40]} is not a valid item of a key: give integers, slices, '...', lists of integers, and masks; "
        "one item for each dimension, in a tuple."
    )


def _require_flat(items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, np.ndarray) and item.ndim > 1:
            raise OutOfRange(
                f"A list or mask in an orthogonal key must have one dimension, but has the shape {list(item.shape)}."
            )


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _follows_extent(item: Any, dim: int, extent: tuple[int, ...]) -> bool:
    """Return whether the item would select other elements if the dimension were longer; False for an open slice."""
    is_signed, upper = isinstance(extent, SignedExtent), places_along(extent, dim).stop
    if isinstance(item, slice):
        return any(
            isinstance(end, int | np.integer) and (end > upper or (end < 0 and not is_signed))
            for end in (item.start, item.stop)
        )
    return bool(np.less(item, 0).any()) if not _is_mask(item) and not is_signed else False


def _axes_of(item: Any, dim: int, extent: tuple[int, ...]) -> list[AxisItem]:
    """Return the items for the dimensions that an item covers, from `dim` on; only a mask covers several."""
    length = extent[dim]
    if isinstance(item, slice):
        try:
            cut = slice_from(item, dim, extent) if isinstance(extent, SignedExtent) else item
            return [range(length)[cut]]
        except (TypeError, ValueError) as error:
            raise OutOfRange(f"The slice of dimension {dim} is invalid: {error}.") from error
    if isinstance(item, int):
        return [int(_from_start(np.array(item), dim, extent))]
    if not _is_mask(item):
        return [_from_start(item, dim, extent)]
    if item.shape != tuple(extent[dim : dim + item.ndim]):
        raise OutOfRange(
            f"A mask of shape {list(item.shape)} must have the lengths of dimensions {dim} to {dim + item.ndim - 1} "
            f"of the extent {list(extent)}."
        )
    return [column.astype(np.int64) for column in item.nonzero()]


def _from_start(indices: NDArray[Any], dim: int, extent: tuple[int, ...]) -> NDArray[np.int64]:
    """Convert indices that may count from the end, or coordinates, to indices that count from the start."""
    length = extent[dim]
    if isinstance(extent, SignedExtent):
        for place in (int(indices.min()), int(indices.max())) if indices.size else ():
            place_from(place, dim, extent)
        return indices.astype(np.int64) - extent.lower[dim]
    wrong = (indices >= length) | (indices < -length)
    if wrong.any():
        raise OutOfRange(
            f"Index {indices[wrong].flat[0]} of dimension {dim} is not within its extent {length}."
        )
    found: NDArray[np.int64] = indices.astype(np.int64)
    return np.where(found < 0, found + length, found)
