"""Reading values and places at once: the defined elements of a selection, in any of the three media."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.fields import as_type
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections.extent import columns
from hsparse.format.selections.selection import Points, Selection
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.arrow import ArrowWriter
from hsparse.sn.values.chunk_fanout import ChunkFanout

Array = NDArray[Any]
Piece = tuple[list[Array], Array]
"""Coordinates, one (n,) array a dimension, and values (n,)."""
OFFSET_BYTES = 4
MOST_PAGES = 16
"""A run of chunks read together has at most so many pages of selected elements, however few are defined."""


class SparseRead:
    """The defined elements of a selection, piece by piece: chunk after chunk, row-major inside each."""

    def __init__(self, dataset: Dataset, chunks: ChunkFanout, page_size: int, limit: int) -> None:
        self._dataset = dataset
        self._chunks = chunks
        self._limit = limit
        self._page_size = page_size

    async def pieces(self, selection: Selection, *, places_only: bool = False) -> AsyncIterator[Piece]:
        """Yield the defined elements; a piece comes from chunks whose elements all fit in about a page."""
        page = max(1, self._page_size // (self._dataset.dtype.itemsize + OFFSET_BYTES))
        room = page
        async for shares in self._chunks.batches(selection):
            first = 0
            while first < len(shares):
                until = run_of(shares, first, room)
                found = await self._chunks.read_sparse(shares[first:until], places_only=places_only)
                yield self._piece(shares[first:until], found, places_only)
                # How many elements are defined is not known before; the run just read is the best guess.
                selected = sum(share.selection.size for share in shares[first:until])
                defined = sum(len(item.offsets) for item in found if item is not None)
                guess = page * selected // max(1, defined)
                room, first = max(page, min(guess, room * 4, page * MOST_PAGES)), until

    async def arrow(self, selection: Selection) -> AsyncGenerator[bytes, None]:
        """Yield an Arrow IPC stream."""
        writer = ArrowWriter(self._dataset.extent, self._dataset.dtype)
        async for places, values in self.pieces(selection):
            if len(values):
                yield writer.batch(places, values)
        yield writer.end()

    def bound(self, selection: Selection, *, places_only: bool = False) -> int:
        """Return how many bytes `whole` may return at most."""
        return min(selection.size * self._width(places_only), self._limit)

    async def whole(self, selection: Selection, *, places_only: bool = False) -> tuple[Selection, Array]:
        """Return all of it: points over the extent, and values. `TooLarge` beyond the limit in bytes."""
        places: list[Array] = []
        values: list[Array] = []
        width = self._width(places_only)
        count = 0
        async for columns_, some in self.pieces(selection, places_only=places_only):
            count += len(columns_[0]) if columns_ else len(some)
            if count * width > self._limit:
                raise TooLarge(
                    f"The answer has more than {self._limit} bytes (max_request_size): select less, or ask "
                    "for application/vnd.apache.arrow.stream, which is not limited."
                )
            places.append(coords_of(columns_))
            values.append(some)
        extent = self._dataset.extent
        coords = np.concatenate(places) if places else np.zeros((0, len(extent)), np.uint64)
        column = np.concatenate(values) if values else np.zeros(0, self._dataset.dtype)
        return Points(extent, coords), column.astype(self._dataset.dtype, copy=False)

    def _width(self, places_only: bool) -> int:
        return 8 * len(self._dataset.extent) + (0 if places_only else self._dataset.dtype.itemsize)

    def _piece(
        self, shares: Sequence[PlannedChunk], found: Sequence[DefinedElements | None], places_only: bool
    ) -> Piece:
        """Put chunk offsets into the dataset's coordinates."""
        dtype = self._dataset.dtype
        there = [(share, item) for share, item in zip(shares, found, strict=True) if item is not None]
        places = coordinates(self._dataset, [(share, item.offsets) for share, item in there])
        parts = [] if places_only else [as_type(item.values, dtype) for _, item in there]
        return places, np.concatenate(parts) if parts else np.zeros(0, dtype)


def coordinates(dataset: Dataset, there: Sequence[tuple[PlannedChunk, NDArray[np.uint32]]]) -> list[Array]:
    """Return the dataset's coordinates of chunk offsets, one (n,) array a dimension."""
    extent, dims = dataset.extent, dataset.spec.dims
    total = sum(len(offsets) for _, offsets in there)
    places: list[Array] = [np.empty(total, np.uint32 if n <= 2**32 else np.uint64) for n in extent]
    at = 0
    for share, offsets in there:
        until = at + len(offsets)
        for dim, column in enumerate(columns(offsets, dims)):
            # In the coordinates' own type: a chunk's offsets have 32 bits, and beyond 2^32 they would wrap.
            origin = places[dim].dtype.type(share.scaled[dim] * dims[dim])
            np.add(column, origin, out=places[dim][at:until], casting="unsafe")
        at = until
    return places


def coords_of(places: list[Array]) -> NDArray[np.uint64]:
    """Return coordinates as rows, (n, rank)."""
    return np.stack(places, axis=1).astype(np.uint64) if places else np.zeros((0, 0), np.uint64)


def run_of(shares: Sequence[PlannedChunk], first: int, room: int) -> int:
    """Return the end of the run of shares from `first` that select at most `room` elements, one at least."""
    total = shares[first].selection.size
    until = first + 1
    while until < len(shares) and (total := total + shares[until].selection.size) <= room:
        until += 1
    return until
