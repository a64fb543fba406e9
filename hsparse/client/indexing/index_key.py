"""Parses keys as in numpy, `x[0:10, -1]`, and orthogonal keys, `x.oindex[[1, 3], [0, 5]]`."""

from __future__ import annotations

import numpy as np

from hsparse.client.indexing.indexed_region import IndexedRegion, KeyAxis
from hsparse.client.indexing.key_axes import ListedAxes
from hsparse.client.indexing.key_items import AxisItem, Key, parse_items
from hsparse.client.indexing.sliced_axis import SlicedAxis


def parse_key(key: Key, extent: tuple[int, ...]) -> IndexedRegion:
    """Return the region that a key selects in an array of shape `extent`, as in numpy.

    If the extent has lower bounds, indices are coordinates. A single index removes its dimension; lists and masks are
    paired, and broadcast to one shape. Raises `OutOfRange` if an index is outside the extent, a mask does not fit the
    extent, or the key is invalid.
    """
    items = parse_items(key, extent, orthogonal=False)
    lists = [dim for dim, item in enumerate(items.axes) if isinstance(item, np.ndarray)]
    axes: list[KeyAxis] = []
    for dim, item in enumerate(items.axes):
        if not isinstance(item, np.ndarray):
            axes.append(_sliced(dim, item))
        elif dim == lists[0]:
            found = [one for one in items.axes if isinstance(one, np.ndarray)]
            axes.append(ListedAxes.of(lists, extent, found))
    return IndexedRegion.of(
        extent,
        tuple(axes),
        lists_first=bool(lists) and not items.is_adjacent,
        has_ellipsis=items.has_ellipsis,
        cut_off=items.cut_off,
    )


def parse_orthogonal_key(key: Key, extent: tuple[int, ...]) -> IndexedRegion:
    """Return the region that an orthogonal key selects in an array of shape `extent`.

    Each list or mask applies to its own dimension, as in zarr's `oindex`: lists are one-dimensional and not paired.
    Raises `OutOfRange` for the same reasons as `parse_key`.
    """
    items = parse_items(key, extent, orthogonal=True)
    axes = tuple(
        ListedAxes.of([dim], extent, [item]) if isinstance(item, np.ndarray) else _sliced(dim, item)
        for dim, item in enumerate(items.axes)
    )
    return IndexedRegion.of(
        extent, axes, lists_first=False, has_ellipsis=items.has_ellipsis, cut_off=items.cut_off
    )


def _sliced(dim: int, item: AxisItem) -> SlicedAxis:
    assert isinstance(item, int | range)
    return SlicedAxis(dim, item) if isinstance(item, range) else SlicedAxis(dim, range(item, item + 1), True)
