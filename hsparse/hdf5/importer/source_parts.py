"""Scattered elements of a dataset, read as boxes: of limited size, and not much larger than what is wanted of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.plan.virtual_plan import Indices, MappedPart
from hsparse.hdf5.importer.file_data import Dims

HULL = 32 * 1024 * 1024
"""The most bytes of a box of which some elements are not wanted."""
ReadBox: TypeAlias = Callable[[Dims, Dims], NDArray[Any]]


def read_part(read: ReadBox, part: MappedPart, size: int) -> NDArray[Any]:
    """Return the elements of the source of a part, of `size` bytes each, in the shape of its index lists.

    `read` returns a box of the source, from its start to before its stop.
    """
    return _product(read, part.source, size) if part.products else _points(read, part.source, size)


def _hull(lists: tuple[Indices, ...]) -> tuple[Dims, Dims, Dims]:
    """Return start, stop and lengths of the box around indices."""
    start = tuple(int(one.min()) for one in lists)
    stop = tuple(int(one.max()) + 1 for one in lists)
    return start, stop, tuple(b - a for a, b in zip(start, stop, strict=True))


def _product(read: ReadBox, lists: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(lists)
    counts = tuple(map(len, lists))
    if lengths == counts:
        return read(start, stop)
    if prod(lengths) * size <= HULL:
        inside = (one - a for one, a in zip(lists, start, strict=True))
        return read(start, stop)[np.ix_(*inside)]
    # Where the gaps are; a box is divided until it has none, or is small.
    dim = max(range(len(counts)), key=lambda dim: lengths[dim] / counts[dim] if counts[dim] > 1 else 0)
    half = counts[dim] // 2
    parts = (lists[dim][:half], lists[dim][half:])
    return np.concatenate(
        [_product(read, (*lists[:dim], part, *lists[dim + 1 :]), size) for part in parts], dim
    )


def _points(read: ReadBox, coords: tuple[Indices, ...], size: int) -> NDArray[Any]:
    start, stop, lengths = _hull(coords)
    count = len(coords[0]) if coords else 1
    if prod(lengths) in (1, count) or prod(lengths) * size <= HULL:
        found = read(start, stop)
        return found[tuple(one - a for one, a in zip(coords, start, strict=True))].reshape(
            count, *found.shape[len(coords) :]
        )
    parts = ([one[: count // 2] for one in coords], [one[count // 2 :] for one in coords])
    return np.concatenate([_points(read, tuple(part), size) for part in parts])
