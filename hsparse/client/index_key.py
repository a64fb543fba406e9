"""Keys as numpy has them, `x[0:10, -1]`, as `select` strings of the REST API, and the order of their values.

https://numpy.org/doc/stable/user/basics.indexing.html, all of it but negative steps, new axes and field names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest

Indices: TypeAlias = Sequence[Any] | NDArray[Any]
"""Integers, or a mask, nested to any depth."""
Item: TypeAlias = int | slice | EllipsisType | Indices
Key: TypeAlias = Item | tuple[Item, ...]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ValueOrder:
    """How the values of a request, in C order of the shape `sent`, become an array of the shape `shape`.

    `axes` is the permutation between (`numpy.transpose`); `sent` has no axes for single indices.
    """

    sent: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def row_major(cls, shape: tuple[int, ...]) -> ValueOrder:
        return cls(shape, tuple(range(len(shape))), shape)

    def arrange(self, values: Array) -> Array:
        """Return the values (n,) of an answer as an array."""
        return values.reshape(self.sent).transpose(self.axes).reshape(self.shape)

    def flatten(self, values: Array) -> Array:
        """Return what is sent (n,) of values that numpy can broadcast to `shape`; `BadRequest` if it cannot."""
        while values.ndim > len(self.shape) and len(values) == 1:
            values = values[0]
        try:
            whole = np.broadcast_to(values, self.shape)
        except ValueError as error:
            raise BadRequest(
                f"Values of shape {list(values.shape)} do not fit a selection of shape {list(self.shape)}."
            ) from error
        moved = whole.reshape([self.sent[axis] for axis in self.axes])
        return moved.transpose(np.argsort(self.axes)).reshape(-1)


@dataclass(frozen=True, slots=True)
class _Axis:
    """The items of a key for one dimension: a single index, a slice, or a list."""

    index: int | None = None
    cut: range | None = None
    indices: NDArray[np.int64] | None = None
    is_cut_off: bool = False

    @property
    def text(self) -> str:
        if self.index is not None:
            return str(self.index)
        if self.cut is not None:
            return f"{self.cut.start}:{max(self.cut.start, self.cut.stop)}:{self.cut.step}"
        assert self.indices is not None
        return f"[{','.join(map(str, self.indices.reshape(-1).tolist()))}]"


def parse_key(key: Key, extent: Sequence[int]) -> tuple[str, ValueOrder, bool]:
    """Return the `select` string of a key in an array of the shape `extent`, and the order of its values.

    The last of the result says whether a slice goes beyond the extent and is cut off. As in numpy, negative indices
    count from the end, an index takes its dimension away, and lists and masks are paired. `BadRequest` for an index
    beyond the extent, and for what selects nothing in numpy either.
    """
    axes, adjacent = _axes(key if isinstance(key, tuple) else (key,), extent)
    lists = [dim for dim, axis in enumerate(axes) if axis.indices is not None]
    try:
        shape = np.broadcast_shapes(*(axes[dim].indices.shape for dim in lists))  # type: ignore[union-attr]
    except ValueError as error:
        raise BadRequest(
            "The lists of the key have shapes that numpy cannot broadcast to one; use numpy.ix_ to combine each index "
            "of one with each of the other."
        ) from error
    for dim in lists:
        axes[dim] = _Axis(indices=np.broadcast_to(axes[dim].indices, shape))  # type: ignore[arg-type]
    text = f"[{','.join(axis.text for axis in axes)}]" if axes else "[...]"
    return text, _order(axes, lists, shape, adjacent), any(axis.is_cut_off for axis in axes)


def _order(axes: list[_Axis], lists: list[int], shape: tuple[int, ...], adjacent: bool) -> ValueOrder:
    """Return the order of the values: the server has paired lists in the place of the first one.

    numpy does so if all lists and single indices are adjacent, else it has them in front.
    """
    lengths = {dim: len(axis.cut) for dim, axis in enumerate(axes) if axis.cut is not None}
    if not lists:
        return ValueOrder.row_major(tuple(lengths.values()))
    before = tuple(length for dim, length in lengths.items() if dim < lists[0])
    after = tuple(length for dim, length in lengths.items() if dim > lists[0])
    sent = (*before, prod(shape), *after)
    order = list(range(len(sent)))
    if adjacent:
        return ValueOrder(sent, tuple(order), (*before, *shape, *after))
    order.insert(0, order.pop(len(before)))
    return ValueOrder(sent, tuple(order), (*shape, *before, *after))


def _axes(items: tuple[Any, ...], extent: Sequence[int]) -> tuple[list[_Axis], bool]:
    """Return what each dimension has of a key, and whether lists and single indices stand side by side."""
    items = tuple(_item(item) for item in items)
    named = sum(item.ndim if _is_mask(item) else 1 for item in items if item is not Ellipsis)
    if named > len(extent):
        raise BadRequest(f"The key has {named} indices; the dataset has {len(extent)} dimensions.")
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise BadRequest("The key has '...' twice; write ':' for the dimensions of one.")
    place = places[0] if places else len(items)
    rest = (slice(None),) * (len(extent) - named)
    axes: list[_Axis] = []
    runs: list[bool] = []
    for item in (*items[:place], *((Ellipsis,) if places else ()), *rest, *items[place + 1 :]):
        runs.append(not isinstance(item, slice | EllipsisType))
        if item is not Ellipsis:
            axes += _axes_of(item, len(axes), extent)
    starts = sum(one and not before for before, one in zip([False, *runs], runs, strict=False))
    return axes, starts < 2


def _item(item: Any) -> Any:
    """Return an item of a key with its lists as arrays; `BadRequest` for what is no item."""
    if item is Ellipsis or isinstance(item, slice):
        return item
    try:
        found = np.asarray(item)
    except ValueError as error:
        raise BadRequest("A list of a key must have numbers, or lists of one length.") from error
    if not found.size and found.dtype.kind == "f":
        return found.astype(np.int64)  # an empty list
    if found.dtype.kind in "iu" or (found.dtype.kind == "b" and found.ndim):
        return found if found.ndim else int(found)
    raise BadRequest(
        f"{str(item)[:40]} is no item of a key: give integers, slices, '...', lists of integers, and masks; one "
        "item for each dimension, in a tuple."
    )


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _axes_of(item: Any, dim: int, extent: Sequence[int]) -> list[_Axis]:
    """Return what an item of a key selects in the dimensions from `dim`: in one, and a mask in as many as it has."""
    length = extent[dim]
    if isinstance(item, slice):
        cut = _range(item, dim, length)
        return [_Axis(cut=cut, is_cut_off=(item.start or 0) > length or (item.stop or 0) > length)]
    if isinstance(item, int):
        return [_Axis(index=int(_wrapped(np.array(item), dim, length)))]
    if not _is_mask(item):
        return [_Axis(indices=_wrapped(item, dim, length))]
    if item.shape != tuple(extent[dim : dim + item.ndim]):
        raise BadRequest(
            f"A mask of shape {list(item.shape)} does not fit dimensions {dim} to {dim + item.ndim - 1} of "
            f"{list(extent)}."
        )
    return [_Axis(indices=column.astype(np.int64)) for column in item.nonzero()]


def _range(item: slice, dim: int, length: int) -> range:
    try:
        found = range(length)[item]
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The slice of dimension {dim}: {error}.") from error
    if found.step < 1:
        raise BadRequest(
            f"The slice of dimension {dim} has the step {found.step}; it must be at least 1, so reverse what is read."
        )
    return found


def _wrapped(indices: NDArray[Any], dim: int, length: int) -> NDArray[np.int64]:
    """Return indices from the start, of ones that may count from the end; `BadRequest` beyond the extent."""
    wrong = (indices >= length) | (indices < -length)
    if wrong.any():
        raise BadRequest(
            f"Index {indices[wrong].flat[0]} of dimension {dim} is not within its extent {length}."
        )
    found: NDArray[np.int64] = indices.astype(np.int64)
    return np.where(found < 0, found + length, found)
