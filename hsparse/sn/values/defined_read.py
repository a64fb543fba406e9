"""Reading the defined elements of a selection, places and values together, piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.errors import TooLarge
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk, run_of
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import coordinate_columns
from hsparse.format.selections.points import Points, Selection, ascending
from hsparse.model.json_values import Values
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import ChunkFanout

Array = NDArray[Any]
DefinedPiece: TypeAlias = tuple[list[Array], Values]
"""Coordinates, one (n,) array for each dimension, and values (n,)."""
CHUNK_OFFSET_BYTES = 4
MAX_UNDEFINED = 1 << 20
"""The most pages of selected elements in a run of chunks that is read together, however few are defined."""
MAX_GROWTH = 16
"""How many times as many elements as the last run the next one selects at most: their density is a guess."""
REPLY_PAGES = 2
"""Pages of a reply about elements of a fixed size: a run that was guessed to have one is rarely read again."""


class DefinedRead:
    """Reads the defined elements of a selection, chunk after chunk, in row-major order inside each.

    With `places_only` the values are empty.
    """

    def __init__(
        self, dataset: Dataset, chunks: ChunkFanout, page_size: int, *, places_only: bool = False
    ) -> None:
        self._dataset = dataset
        self._arrays = dataset.arrays
        self._chunks = chunks
        self._page_size = page_size
        self._places_only = places_only

    async def pieces(self, selection: Selection) -> AsyncIterator[DefinedPiece]:
        """Yield the defined elements, about a page of bytes at a time; a larger element is yielded alone."""
        async for planned in self._chunks.batches(selection):
            async for piece in self._pieces(planned):
                yield piece

    async def whole(self, selection: Selection, limit: int) -> tuple[Points, Values] | None:
        """Return all defined elements, points and values; None if they have more than `limit` bytes."""
        extent = self._dataset.extent
        places: list[Array] = [np.zeros((0, len(extent)), np.uint64)]
        values: list[Values] = []
        total = 0
        async for columns_, some in self.pieces(selection):
            count = len(columns_[0]) if columns_ else some.size
            total += 8 * len(extent) * count + self._arrays.nbytes(some)
            if total > limit:
                return None
            places.append(coords_of(columns_))
            values.append(some)
        return Points(extent, np.concatenate(places)), self._arrays.join(values)

    def bound(self, selection: Selection, limit: int) -> int:
        """Return an estimate of the most bytes that `whole` returns."""
        places = 8 * len(self._dataset.extent) * selection.size
        values = 0 if self._places_only else self._arrays.expected(selection.size)
        return min(limit, places + values)

    async def _pieces(self, planned: Sequence[PlannedChunk]) -> AsyncIterator[DefinedPiece]:
        """Read runs of chunks, each of about a page; split a chunk whose reply would be too large.

        A chunk of elements of a fixed size is read whole, as its owner has it in memory.
        """
        cut = not self._arrays.is_exact and not self._places_only
        page = max(1, self._page_size // (self._arrays.guessed_size + (0 if cut else CHUNK_OFFSET_BYTES)))
        limit = self._page_size if cut else REPLY_PAGES * self._page_size
        room, first = page, 0
        while first < len(planned):
            until = run_of(planned, first, room)
            found = await self._chunks.read_defined(
                planned[first:until], places_only=self._places_only, limit=limit
            )
            # Chunks after one that was too large are read again, so that pieces stay in order.
            good = next((n for n, item in enumerate(found) if isinstance(item, int)), len(found))
            there = [
                (chunk, item)
                for chunk, item in zip(planned[first : first + good], found, strict=False)
                if isinstance(item, DefinedElements)
            ]
            if there:
                total = sum(len(item.offsets) for _, item in there)
                yield await compute(total, self._piece, there)
            if good < len(found):
                room = page
                too_much = found[good]
                if cut and not good and isinstance(too_much, int):
                    async for piece in self._split(planned[first], too_much):
                        yield piece
                    good = 1
            else:
                # The number of defined elements is not known in advance; the last run is the best guess.
                selected = sum(chunk.selection.size for chunk in planned[first:until])
                guess = page * selected // max(1, sum(len(item.offsets) for _, item in there))
                room = max(page, min(guess, room * MAX_GROWTH, page * MAX_UNDEFINED))
            first += good

    async def _split(self, chunk: PlannedChunk, nbytes: int) -> AsyncIterator[DefinedPiece]:
        """Yield the elements of a chunk that has `nbytes` of them, more than a page."""
        dims = self._dataset.spec.dims
        # Ascending, because an element that a list names twice must not be in two pages.
        selection = chunk.selection if isinstance(chunk.selection, Boxes) else ascending(chunk.selection)
        size = selection.size
        few = max(1, min(size // 2, size * self._page_size * 3 // (4 * max(1, nbytes))))
        for part in pages(selection, Grid(dims, dims), few):
            async for piece in self._pieces([replace(chunk, selection=part)]):
                yield piece

    def _piece(self, there: Sequence[tuple[PlannedChunk, DefinedElements]]) -> DefinedPiece:
        """Return chunk offsets as coordinates of the dataset, with the values."""
        places = coordinates(self._dataset, [(chunk, item.offsets) for chunk, item in there])
        parts = [] if self._places_only else [item.values for _, item in there]
        return places, self._arrays.join(parts)


def defined_too_large(limit: int) -> TooLarge:
    """Return the error for an answer of defined elements that has more than `limit` bytes."""
    return TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or ask for {ARROW_TYPE}, which "
        "is not limited."
    )


def places_too_large(limit: int) -> TooLarge:
    """Return the error for an answer of defined places alone: these have no Arrow form, places with values have."""
    return TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or read /value with sparse=1 "
        f"as {ARROW_TYPE}, which has the places too and is not limited."
    )


def coordinates(dataset: Dataset, there: Sequence[tuple[PlannedChunk, NDArray[np.uint32]]]) -> list[Array]:
    """Return the dataset's coordinates of chunk offsets, one (n,) array for each dimension."""
    extent, dims = dataset.extent, dataset.spec.dims
    total = sum(len(offsets) for _, offsets in there)
    places: list[Array] = [np.empty(total, np.uint32 if n <= 2**32 else np.uint64) for n in extent]
    at = 0
    for chunk, offsets in there:
        until = at + len(offsets)
        for dim, column in enumerate(coordinate_columns(offsets, dims)):
            # In the coordinates' type: chunk offsets have 32 bits and would wrap beyond 2^32.
            origin = places[dim].dtype.type(chunk.scaled[dim] * dims[dim])
            np.add(column, origin, out=places[dim][at:until], casting="unsafe")
        at = until
    return places


def coords_of(places: list[Array]) -> NDArray[np.uint64]:
    """Return coordinates as rows, (n, rank)."""
    return np.stack(places, axis=1).astype(np.uint64) if places else np.zeros((0, 0), np.uint64)
