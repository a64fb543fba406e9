"""Split uploads into requests, because servers limit the size of bodies, and join small appends into one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.orthogonal import Axis, StridedSpan, bounds, take
from hsparse.format.selections.points import Orthogonal, Selection

REQUEST_BYTES = 32 << 20
"""The maximum number of bytes of values in a request; servers accept bodies of 100 MiB by default."""
MAX_WHOLE_BYTES = 96 << 20
"""The maximum number of bytes of an append that is sent as one request, so that it is one change."""
COORDINATE_TEXT = 21
"""The maximum number of bytes of a coordinate in JSON."""
Array: TypeAlias = NDArray[Any]
Send: TypeAlias = Callable[[Selection, Array], None]


@dataclass(frozen=True, slots=True)
class Slab:
    """`count` new rows to append: `values` are all elements of the rows, or (n,) elements at `coords: (n, rank)`.

    Coordinates count from 0 along the dimension that grows, and from the lower bound along other dimensions.
    """

    count: int
    values: NDArray[Any]
    coords: NDArray[Any] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the values and coordinates."""
        return self.values.nbytes + (0 if self.coords is None else self.coords.nbytes)

    def copy(self) -> Slab:
        """Return a copy with its own arrays."""
        return Slab(self.count, self.values.copy(), None if self.coords is None else self.coords.copy())


def join_slabs(slabs: Sequence[Slab], dim: int) -> Slab:
    """Join slabs along `dim`, in order; either all of them have coordinates or none has."""
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
    """Call `send` with a selection and its values, or with parts of them that fit into a request.

    `values` have the selection's shape; `nbytes` is the approximate size of an element in a request. Parts end at chunk
    edges if possible. A part that is estimated too large, or that the server rejects as too large, is halved.
    """
    if selection.size * nbytes <= REQUEST_BYTES or selection.size <= 1:
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
    """Return the dimension and the position at which to cut, a chunk edge if the axes touch several chunks."""
    for dim, (axis, length) in enumerate(zip(axes, chunks, strict=True)):
        found = bounds(take(axis, axis.size // 2, axis.size // 2 + 1))
        edge = 0 if found is None else found[0] // length * length
        for position in (_below(axis, edge), _below(axis, edge + length)):
            if 0 < position < axis.size:
                return dim, position
    dim = next(dim for dim, axis in enumerate(axes) if axis.size > 1)
    return dim, axes[dim].size // 2


def _below(axis: Axis, bound: int) -> int:
    """Return the number of indices of an ascending axis that are below a bound."""
    if isinstance(axis, StridedSpan):
        return int(axis.below(np.array([bound], np.int64))[0])
    return int(np.searchsorted(axis, np.uint64(bound)))
