"""Queries over a dataset's elements: page by page, answered in row-major order.

Tests: tests/sn/values/test_element_query.py, tests/sn/values/test_vlen_query.py.

Only what is found travels. The fill value counts as a value like any other; where it does not answer the
query, chunks that were never written are not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import as_type, packed_type, pick_fields
from hsparse.format.kinds.chunk_kind import FoundElements
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan
from hsparse.format.plan.grid import Grid
from hsparse.format.plan.pages import pages
from hsparse.format.query import Query, bind_query, queried
from hsparse.format.selections.extent import check_countable, ravel
from hsparse.format.selections.selection import Orthogonal, Points, Selection, ascending, coords_at
from hsparse.model.vlen_array import VlenArray, take_elements
from hsparse.model.vlen_fields import VlenFields
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import MANY_CHUNKS, MOST_CHUNKS, ChunkFanout

Scaled: TypeAlias = tuple[int, ...]
Rows: TypeAlias = tuple[NDArray[np.uint64], Any]
"""Row-major offsets in the extent, (n,), and elements, (n,)."""

OFFSET_BYTES = 8
INLINE = 1 << 16
"""Up to so many elements are put in order at once, more in a thread."""


class DatasetQuery(Protocol):
    """One query over one dataset."""

    def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        """Yield what is found, page by page and in row-major order, with these fields; at most `limit`."""
        ...

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        """Set these fields of what is found to those of `value`, one element; return what was changed."""
        ...


class ElementQuery:
    """`DatasetQuery` of elements of a fixed size: their owners find them."""

    def __init__(
        self, dataset: Dataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
    ) -> None:
        check_queryable(dataset)
        self._dataset = dataset
        self._chunks = chunks
        self._query = bind_query(text, dataset.dtype)
        # With an initializer chunks that are not there have values, which their owners make.
        self._takes_fill = bool(dataset.spec.arange) or self._query.takes(dataset.fill)
        self._limit = limit
        self._room = max(1, page_size // (dataset.dtype.itemsize + OFFSET_BYTES))

    async def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        """Yield what is found, page by page and in row-major order, with these fields; at most `limit`."""
        left = self._limit
        stored = await self._stored(selection)
        async for shares in self._pages(selection):
            offsets, rows = await self._find(shares, stored, left, fields, places_only)
            if self._limit:
                offsets, rows = offsets[:left], rows[:left]
                left -= len(offsets)
            if len(offsets):
                yield offsets, rows
            if self._limit and not left:
                return

    async def _find(
        self,
        shares: Sequence[PlannedChunk],
        stored: set[Scaled] | None,
        limit: int,
        fields: Sequence[str],
        places_only: bool,
    ) -> Rows:
        """Return what is found in some shares, in row-major order."""
        asked = [share for share in shares if stored is None or share.scaled in stored]
        in_order = len(asked) < 2 or len(self._dataset.extent) == 1
        replies = await self._chunks.find(
            asked, self._query.text, limit=limit, in_order=in_order, fields=fields, places_only=places_only
        )
        found: dict[Scaled, FoundElements | None] = dict(
            zip((share.scaled for share in asked), replies, strict=True)
        )
        pieces = [self._piece(share, found.get(share.scaled), limit, fields) for share in shares]
        if places_only:
            pieces = [(offsets, rows[:0]) for offsets, rows in pieces]
        return await self._ordered(pieces, packed_type(self._dataset.dtype, fields))

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        """Set these fields of what is found to those of `value`, one element; return what was changed."""
        if self._takes_fill and count_chunks(selection, self._dataset.grid) > MOST_CHUNKS:
            raise TooLarge(f"The query meets more than {MOST_CHUNKS} chunks; select less at a time.")
        changed = []
        async for shares in self._pages(selection):
            found = await self._chunks.update(shares, self._query.text, value, fields)
            pieces = [self._piece(share, item, 0, ()) for share, item in zip(shares, found, strict=True)]
            changed.append(await self._ordered(pieces, self._dataset.dtype))
        return joined(changed, self._dataset.dtype)

    async def _stored(self, selection: Selection) -> set[Scaled] | None:
        """Return which chunks are stored, where a selection of many may meet as many that are not."""
        few = count_chunks(selection, self._dataset.grid) <= MANY_CHUNKS
        if not self._takes_fill or few or self._dataset.spec.arange:
            return None
        return set(map(tuple, (await self._chunks.existing()).tolist()))

    async def _pages(self, selection: Selection) -> AsyncIterator[tuple[PlannedChunk, ...]]:
        """Yield the shares of one piece of the selection after the other, in row-major order of the pieces."""
        assert isinstance(selection, Orthogonal | Points)
        selection, grid = ascending(selection), self._dataset.grid
        if self._takes_fill or count_chunks(selection, grid) <= MANY_CHUNKS:
            for page in _small_pages(selection, grid, self._room):
                yield plan(page, grid)
                await asyncio.sleep(0)  # others have their turn between
            return
        for part, some in bands(selection, await self._chunks.existing(), grid, self._room):
            shares = plan(part, grid, some)
            if shares:
                yield shares
            await asyncio.sleep(0)

    def _piece(
        self, share: PlannedChunk, found: FoundElements | None, limit: int, fields: Sequence[str]
    ) -> Rows:
        """Return what was found in a share; of a chunk that is not there all is fill value, and answers or not."""
        if found is not None:
            positions, rows = found.positions, found.values
        else:
            size = share.selection.size * self._takes_fill
            positions = np.arange(min(size, limit) if limit else size, dtype=np.uint32)
            rows = pick_fields(np.broadcast_to(self._dataset.fill, positions.shape), fields)
        coords = coords_at(share.selection, positions)
        coords += np.array(self._dataset.grid.origin(share.scaled), np.uint64)
        return ravel(coords, self._dataset.extent), rows

    async def _ordered(self, pieces: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
        if sum(len(offsets) for offsets, _ in pieces) <= INLINE:
            return _sorted(pieces, dtype)
        return await asyncio.to_thread(_sorted, pieces, dtype)


class VlenQuery:
    """`DatasetQuery` of compounds with parts of variable length: on their fields of fixed size.

    The elements are read and looked at here: their owners tell how many bytes they are, not what they hold.
    """

    def __init__(
        self, dataset: Dataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
    ) -> None:
        check_queryable(dataset)
        self._dataset = dataset
        self._chunks = chunks
        self._query: Query = bind_query(text, dataset.dtype)
        self._looked_at = VlenFields.named(dataset.spec.datatype.element, sorted(queried(text)))
        self._takes_fill = bool(self._mask(dataset.fill.reshape((1,)))[0])
        self._page_size = page_size
        self._limit = limit

    async def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        left = self._limit
        picked = VlenFields.named(self._dataset.spec.datatype.element, fields) if fields else None
        assert isinstance(selection, Orthogonal | Points)
        async for part in self._parts(ascending(selection)):
            first = 0
            async with aclosing(self._chunks.pages(part, (), self._page_size)) as pieces:
                async for values in pieces:
                    piece: Any = values
                    positions = np.flatnonzero(await offload(piece.size, self._mask, piece))
                    if self._limit:
                        positions = positions[:left]
                        left -= len(positions)
                    if len(positions):
                        offsets = ravel(coords_at(part, first + positions), self._dataset.extent)
                        rows = await offload(piece.size, take_elements, [piece], positions)
                        yield offsets, await offload(rows.size, picked.pick, rows) if picked else rows
                    if self._limit and not left:
                        return
                    first += piece.size

    def _mask(self, array: VlenArray) -> NDArray[np.bool_]:
        return self._query.mask(self._looked_at.columns(array))

    async def _parts(self, selection: Orthogonal | Points) -> AsyncIterator[Selection]:
        """Yield the selection or, of many chunks, what lies in rows of chunks that are stored."""
        grid = self._dataset.grid
        if self._takes_fill or count_chunks(selection, grid) <= MANY_CHUNKS:
            yield selection
            return
        for part, _ in bands(selection, await self._chunks.existing(), grid, prod(grid.chunk)):
            yield part

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        raise unchangeable(self._dataset)


def unchangeable(dataset: Dataset) -> BadRequest:
    """Return the error for a change by a query where elements have no fixed size."""
    return BadRequest(
        f"Elements of {dataset.id} have no fixed size, so that no query changes them: read which they are "
        "(POST or GET with the query), and write those."
    )


def query_of(
    dataset: Dataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
) -> DatasetQuery:
    """Return a query over one dataset's elements; `limit` 0 is none. `BadRequest` when it does not fit them."""
    query = ElementQuery if dataset.arrays.is_exact else VlenQuery
    return query(dataset, chunks, text, page_size, limit)


def check_queryable(dataset: Dataset) -> None:
    """Raise `BadRequest` for a dataset whose elements no query can number."""
    if not dataset.extent:
        raise BadRequest(f"{dataset.id} is scalar: it has one element, and no query.")
    check_countable(dataset.extent)


def joined(pieces: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    """Return what was found as one; `dtype` is the elements' type, whatever they travelled as."""
    offsets = np.concatenate([piece[0] for piece in pieces] or [np.zeros(0, np.uint64)])
    rows = np.empty(sum(len(piece[1]) for piece in pieces), dtype)
    first = 0
    for _, some in pieces:
        rows[first : first + len(some)] = as_type(some, dtype)
        first += len(some)
    return offsets, rows


def _sorted(pieces: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    offsets, rows = joined(pieces, dtype)
    if (offsets[1:] > offsets[:-1]).all():
        return offsets, rows
    order = np.argsort(offsets, kind="stable")  # merges the runs of the pieces
    return offsets[order], rows[order] if len(rows) else rows


def _small_pages(selection: Selection, grid: Grid, room: int) -> Iterator[Selection]:
    """Yield pages that have room, and do not meet too many chunks either."""
    for page in pages(selection, grid, room):
        if count_chunks(page, grid) <= MANY_CHUNKS:
            yield page
        else:
            yield from _small_pages(page, grid, page.size // 2)


def bands(
    selection: Orthogonal | Points, existing: NDArray[np.uint64], grid: Grid, room: int
) -> Iterator[tuple[Selection, NDArray[np.uint64]]]:
    """Yield pieces of the selection with the stored chunks they meet.

    A piece is a range of whole rows of chunks with at most `room` elements in the stored ones or, where a
    single row has more, a page of it.
    """
    rows, counts = np.unique(existing[:, 0], return_counts=True)
    order = np.argsort(existing[:, 0], kind="stable")
    ends = np.cumsum(counts)
    dims, limits = np.array(grid.chunk, object), np.array(grid.extent, object)
    most = room // int(np.prod(dims))
    first = done = 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, done + most, "right")))
        some = existing[order[done : ends[last - 1]]]
        start = some.min(axis=0).astype(object) * dims
        stop = np.minimum((some.max(axis=0).astype(object) + 1) * dims, limits)
        part = selection.clip(start.tolist(), stop.tolist())
        for page in [part] if len(some) <= most else pages(part, grid, room):
            yield page, some
        first, done = last, int(ends[last - 1])
