"""Uploads cut into requests: a server takes bodies of a bounded size. What is appended, joined into one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.orthogonal import Axis, Span, bounds, take
from hsparse.format.selections.points import Orthogonal, Selection

PIECE = 32 << 20
"""Bytes of values in a request: servers take bodies of 100 MiB, unless they are told otherwise."""
WHOLE = 96 << 20
"""Bytes of the largest body of what must be one change."""
COORDINATE_TEXT = 21
"""Bytes of JSON that a coordinate may have."""
Array: TypeAlias = NDArray[Any]
Send: TypeAlias = Callable[[Selection, Array], None]


@dataclass(frozen=True, slots=True)
class Slab:
    """What is appended: `count` rows or frames, all `values` of them or, with `coords: (n, rank)`, those alone.

    The coordinates are places, but along the dimension that grows they count from 0.
    """

    count: int
    values: NDArray[Any]
    coords: NDArray[Any] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the values and places."""
        return self.values.nbytes + (0 if self.coords is None else self.coords.nbytes)

    def copy(self) -> Slab:
        """Return the same in memory of its own."""
        return Slab(self.count, self.values.copy(), None if self.coords is None else self.coords.copy())


def join_slabs(slabs: Sequence[Slab], dim: int) -> Slab:
    """Return slabs, all with places or none, as one, each behind the one before along `dim`."""
    if len(slabs) == 1:
        return slabs[0]
    counts = [slab.count for slab in slabs]
    places = [slab.coords for slab in slabs if slab.coords is not None]
    if not places:
        return Slab(sum(counts), np.concatenate([slab.values for slab in slabs], dim))
    coords = np.concatenate(places)
    starts = np.cumsum([0, *counts[:-1]]).astype(coords.dtype)
    coords[:, dim] += np.repeat(starts, [len(some) for some in places])
    return Slab(sum(counts), np.concatenate([slab.values for slab in slabs]), coords)


def upload(
    selection: Selection, values: Array, chunks: Sequence[int] | None, nbytes: int, send: Send
) -> None:
    """Call `send` with all of a selection and its values, or with parts of both in the same form.

    `values` have the selection's shape, `nbytes` is about what a request has of an element. Parts end where chunks do,
    if they can. What the server finds too large is halved: before some of it is sent, or between two parts.
    """
    if selection.size * nbytes <= PIECE or selection.size <= 1:
        try:
            send(selection, values)
            return
        except TooLarge:
            if selection.size <= 1:
                raise
    for part, some in _halves(selection, values, chunks or selection.extent):
        upload(part, some, chunks, nbytes, send)


def _halves(selection: Selection, values: Array, chunks: Sequence[int]) -> Iterator[tuple[Selection, Array]]:
    if isinstance(selection, Orthogonal):
        dim, middle = _middle(selection.axes, chunks)
        axis = selection.axes[dim]
        for cut in (slice(0, middle), slice(middle, axis.size)):
            axes = (*selection.axes[:dim], take(axis, cut.start, cut.stop), *selection.axes[dim + 1 :])
            yield Orthogonal.trusted(selection.extent, axes), values[(slice(None),) * dim + (cut,)]
        return
    first, flat = 0, values.reshape(-1)
    for part in pages(selection, Grid(selection.extent, selection.extent), -(-selection.size // 2)):
        yield part, flat[first : first + part.size]
        first += part.size


def _middle(axes: Sequence[Axis], chunks: Sequence[int]) -> tuple[int, int]:
    """Return the dimension to cut, and at which position: between chunks if the axes meet several."""
    for dim, (axis, length) in enumerate(zip(axes, chunks, strict=True)):
        found = bounds(take(axis, axis.size // 2, axis.size // 2 + 1))
        edge = 0 if found is None else found[0] // length * length
        for position in (_below(axis, edge), _below(axis, edge + length)):
            if 0 < position < axis.size:
                return dim, position
    dim = next(dim for dim, axis in enumerate(axes) if axis.size > 1)
    return dim, axes[dim].size // 2


def _below(axis: Axis, bound: int) -> int:
    """Return how many indices of an axis, which ascend, are below a bound."""
    if isinstance(axis, Span):
        return int(axis.below(np.array([bound], np.int64))[0])
    return int(np.searchsorted(axis, np.uint64(bound)))
