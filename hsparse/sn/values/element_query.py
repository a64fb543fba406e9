"""Queries over the elements of a dataset, page by page, in row-major order.

Data nodes send only the elements that match. Elements that were never written match if the fill value matches. If the
fill value does not match, the query skips chunks that were never written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import NANS, extremes_of, is_known
from hsparse.format.fields import as_type, packed_type, pick_fields
from hsparse.format.kinds.chunk_kind import FoundElements, QueryRequest
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.query import ELEMENT, Query, Ranges, bind_query, queried
from hsparse.format.selections.extent import check_countable, ravel
from hsparse.format.selections.points import Boxes, Selection, ascending, coords_at
from hsparse.model.vlen_array import VlenArray, VlenFields, take_elements
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.stored_chunks import Scaled
from hsparse.sn.values.chunk_fanout import (
    MANY_CHUNKS,
    MANY_WHOLE,
    MAX_WRITE_CHUNKS,
    ChunkFanout,
    from_parts,
)

Rows: TypeAlias = tuple[NDArray[np.uint64], Any]
"""Matches of a query: row-major offsets in the extent, (n,) uint64, and elements, (n,)."""

PLACE_BYTES = 8
"""Bytes of each coordinate of a match."""
BOXES_AT_ONCE = 1 << 18
"""The maximum number of elements of boxes whose coordinates are computed at a time."""


class DatasetQuery(Protocol):
    """One query over one dataset. `find` yields at most `limit` matches, a constructor argument (0: no limit)."""

    def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        """Yield pages of matches, in row-major order; the elements have `fields`, or all fields if `fields` is ()."""
        ...

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        """Set `fields` of each match to their values in the element `value`; return the changed elements."""
        ...


class FixedQuery:
    """A `DatasetQuery` over fixed-size elements; the owners of the chunks evaluate it."""

    def __init__(
        self, dataset: StoredDataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
    ) -> None:
        check_queryable(dataset)
        self._dataset = dataset
        self._chunks = chunks
        self._query = bind_query(text, dataset.dtype)
        self._named = queried(text)
        # With an initializer, owners generate the values of chunks that do not exist.
        self._fits_fill = bool(dataset.spec.arange) or self._query.takes(dataset.fill)
        self._limit = limit
        self._room = max(1, page_size // (dataset.dtype.itemsize + PLACE_BYTES * len(dataset.extent)))

    @property
    def fits_fill(self) -> bool:
        """Whether the query may find elements in chunks that were never written."""
        return self._fits_fill

    async def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        """Yield pages of the first `limit` matches, in row-major order; the elements have `fields`, or all fields."""
        left = self._limit
        stored = await self._stored(selection)
        described = await self._candidates(selection)
        candidates = None if described is None else described.scaled
        async for planned in self._pages(selection, candidates):
            offsets, rows = await self._find(planned, stored, left, fields, places_only)
            if self._limit:
                offsets, rows = offsets[:left], rows[:left]
                left -= len(offsets)
            if len(offsets):
                yield offsets, rows
            if self._limit and not left:
                return

    async def _find(
        self,
        planned: Sequence[PlannedChunk],
        stored: set[Scaled] | None,
        limit: int,
        fields: Sequence[str],
        places_only: bool,
    ) -> Rows:
        """Return the matches in planned chunks, row-major; ask owners only for chunks in `stored` if it is given."""
        asked = [chunk for chunk in planned if stored is None or chunk.scaled in stored]
        in_order = len(asked) < 2 or len(self._dataset.extent) == 1
        wanted = QueryRequest(self._query.text, limit, in_order, tuple(fields), places_only)
        replies = await self._chunks.source.find(asked, wanted)
        found: dict[Scaled, FoundElements | None] = dict(
            zip((chunk.scaled for chunk in asked), replies, strict=True)
        )
        answers = [found.get(chunk.scaled) for chunk in planned]
        return await self._made(
            planned, answers, partial(self._ordered, planned, limit, fields, places_only=places_only)
        )

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        """Set `fields` of each match to their values in the element `value`; return the changed elements."""
        if self._fits_fill and count_chunks(selection, self._dataset.grid) > MAX_WRITE_CHUNKS:
            raise TooLarge(f"The query meets more than {MAX_WRITE_CHUNKS} chunks; select less at a time.")
        changed = []
        async for planned in self._pages(selection):
            found = await self._chunks.update(planned, self._query.text, value, fields)
            changed.append(await self._made(planned, found, partial(self._ordered, planned, 0, ())))
        return join_rows(changed, self._dataset.dtype)

    async def _stored(self, selection: Selection) -> set[Scaled] | None:
        """Return the stored chunks that the selection intersects, or None if planning needs no listing of them."""
        few = count_chunks(selection, self._dataset.grid) <= MANY_CHUNKS
        if not self._fits_fill or few or self._dataset.spec.arange:
            return None
        return set(map(tuple, (await self._chunks.existing(selection)).tolist()))

    async def _candidates(self, selection: Selection) -> ChunkRows | None:
        """Return the stored chunks that may contain matches by their statistics.

        Returns None if the statistics do not help, or if there are so few chunks that owners may have them cached.
        """
        spec, dtype = self._dataset.spec, self._dataset.dtype
        names = [name or ELEMENT for name in spec.statistic_columns]
        if self._fits_fill or not self._named.intersection(names):
            return None
        if count_chunks(selection, self._dataset.grid) <= MANY_WHOLE:
            return None
        found: list[ChunkRows] = []
        async for rows in self._chunks.listed(selection):
            ranges = {
                name: Ranges(
                    *extremes_of(rows.statistics[:, column], dtype[name] if dtype.names else dtype),
                    rows.statistics[:, column, NANS] > 0,
                )
                for column, name in enumerate(names)
            }
            possible = self._query.may_find(ranges, len(rows)) | ~is_known(rows.statistics)
            found.append(rows.take(np.flatnonzero(possible & (rows.defined > 0))))
        return ChunkRows.joined(found, len(spec.dims))

    async def _pages(
        self, selection: Selection, candidates: NDArray[np.uint64] | None = None
    ) -> AsyncIterator[tuple[PlannedChunk, ...]]:
        """Yield the planned chunks of each page of the selection, in row-major order; with `candidates`, only these."""
        selection, grid = ascending(selection), self._dataset.grid
        if candidates is None and (self._fits_fill or count_chunks(selection, grid) <= MANY_CHUNKS):
            for page in _small_pages(selection, grid, self._room):
                yield plan(page, grid)
                await asyncio.sleep(0)  # let other requests run
            return
        existing = await self._chunks.existing(selection) if candidates is None else candidates
        for part, some in row_bands(selection, existing, grid, self._room):
            planned = await self._chunks.plan(part, some)
            if planned:
                yield planned
            await asyncio.sleep(0)

    async def _made(
        self,
        planned: Sequence[PlannedChunk],
        found: Sequence[FoundElements | None],
        make: Callable[[Sequence[FoundElements | None]], Rows],
    ) -> Rows:
        """Return `make(found)`, offloaded for many elements; an item of `found` is None if its chunk does not exist."""
        filled = sum([chunk.selection.size for chunk in planned]) if self._fits_fill else 0
        return await from_parts(found, make, filled)

    def _ordered(
        self,
        planned: Sequence[PlannedChunk],
        limit: int,
        fields: Sequence[str],
        found: Sequence[FoundElements | None],
        *,
        places_only: bool = False,
    ) -> Rows:
        """Return the matches of all planned chunks, in row-major order."""
        pieces = self._located(planned, found, limit, fields)
        if places_only:
            pieces = [(offsets, rows[:0]) for offsets, rows in pieces]
        return _sorted(pieces, packed_type(self._dataset.dtype, fields))

    def _located(
        self,
        planned: Sequence[PlannedChunk],
        found: Sequence[FoundElements | None],
        limit: int,
        fields: Sequence[str],
    ) -> list[Rows]:
        """Return `Rows` for each planned chunk: its matches and their offsets in the extent."""
        pairs = zip(planned, found, strict=True)
        return [self._rows(chunk, item, limit, fields) for chunk, item in pairs]

    def _rows(
        self, chunk: PlannedChunk, found: FoundElements | None, limit: int, fields: Sequence[str]
    ) -> Rows:
        """Return the matches of one chunk; `found` is None if the chunk does not exist and has only the fill value."""
        if found is not None:
            positions, rows = found.positions, found.values
        else:
            size = chunk.selection.size * self._fits_fill
            positions = np.arange(min(size, limit) if limit else size, dtype=np.uint32)
            rows = pick_fields(np.broadcast_to(self._dataset.fill, positions.shape), fields)
        coords = coords_at(chunk.selection, positions)
        coords += np.array(self._dataset.grid.origin(chunk.scaled), np.uint64)
        return ravel(coords, self._dataset.extent), rows


class VlenQuery:
    """A `DatasetQuery` over compounds with vlen members, which compares their fixed-size fields.

    The service node reads all selected elements and evaluates the query itself.
    """

    def __init__(
        self, dataset: StoredDataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
    ) -> None:
        check_queryable(dataset)
        self._dataset = dataset
        self._chunks = chunks
        self._query: Query = bind_query(text, dataset.dtype)
        self._queried_fields = VlenFields.named(dataset.spec.datatype.element, sorted(queried(text)))
        self._fits_fill = bool(self._mask(dataset.fill.reshape((1,)))[0])
        self._page_size = page_size
        self._limit = limit

    async def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        left = self._limit
        picked = VlenFields.named(self._dataset.spec.datatype.element, fields) if fields else None
        async for part in self._parts(ascending(selection)):
            first = 0
            async with aclosing(self._chunks.pages(part, (), self._page_size)) as pieces:
                async for values in pieces:
                    piece: Any = values
                    most = left if self._limit else piece.size
                    positions, rows = await from_parts([piece], partial(self._matches, most, picked))
                    left -= len(positions)
                    if len(positions):
                        yield ravel(coords_at(part, first + positions), self._dataset.extent), rows
                    if self._limit and not left:
                        return
                    first += piece.size

    def _matches(
        self, most: int, picked: VlenFields | None, pieces: Sequence[VlenArray]
    ) -> tuple[NDArray[np.intp], VlenArray]:
        """Return a pair: the positions of the piece's first `most` matches, and their elements with `picked` fields."""
        positions = np.flatnonzero(self._mask(pieces[0]))[:most]
        rows = take_elements(pieces, positions)
        return positions, picked.pick(rows) if picked else rows

    def _mask(self, array: VlenArray) -> NDArray[np.bool_]:
        return self._query.mask(self._queried_fields.columns(array))

    async def _parts(self, selection: Selection) -> AsyncIterator[Selection]:
        """Yield the selection whole, or divided by rows of stored chunks if it has many; divide `Boxes` into pages."""
        grid = self._dataset.grid
        if self._fits_fill or count_chunks(selection, grid) <= MANY_CHUNKS:
            parts = iter((selection,))
        else:
            bands = row_bands(selection, await self._chunks.existing(selection), grid, prod(grid.chunk))
            parts = (part for part, _ in bands)
        for part in parts:
            if not isinstance(part, Boxes):
                yield part
                continue
            for page in pages(part, grid, BOXES_AT_ONCE):
                yield page

    async def update(self, selection: Selection, value: NDArray[Any], fields: Sequence[str]) -> Rows:
        raise unchangeable(self._dataset)


def unchangeable(dataset: StoredDataset) -> BadRequest:
    """Return the error for a query that would change vlen elements."""
    return BadRequest(
        f"Elements of {dataset.id} have no fixed size, so a query cannot change them: read the elements that it finds "
        "(GET or POST with the query), and write those."
    )


def dataset_query(
    dataset: StoredDataset, chunks: ChunkFanout, text: str, page_size: int, limit: int = 0
) -> DatasetQuery:
    """Return the query `text` over `dataset` (`limit` 0: no limit); raise `BadRequest` if the query is invalid."""
    query = FixedQuery if dataset.arrays.is_exact else VlenQuery
    return query(dataset, chunks, text, page_size, limit)


def check_queryable(dataset: StoredDataset) -> None:
    """Raise `BadRequest` for a dataset that is scalar or has too many elements for 64-bit offsets."""
    if not dataset.extent:
        raise BadRequest(f"{dataset.id} is scalar: read its one element without a query.")
    check_countable(dataset.extent)


def join_rows(pieces: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    """Concatenate rows, converting their elements to `dtype`."""
    offsets = np.concatenate([piece[0] for piece in pieces] or [np.zeros(0, np.uint64)])
    rows = np.empty(sum(len(piece[1]) for piece in pieces), dtype)
    first = 0
    for _, some in pieces:
        rows[first : first + len(some)] = as_type(some, dtype)
        first += len(some)
    return offsets, rows


def _sorted(pieces: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    offsets, rows = join_rows(pieces, dtype)
    if (offsets[1:] > offsets[:-1]).all():
        return offsets, rows
    order = np.argsort(offsets, kind="stable")  # merges ordered runs
    return offsets[order], rows[order] if len(rows) else rows


def _small_pages(selection: Selection, grid: Grid, room: int) -> Iterator[Selection]:
    """Yield pages of at most `room` elements in at most `MANY_CHUNKS` chunks."""
    for page in pages(selection, grid, room):
        if count_chunks(page, grid) <= MANY_CHUNKS:
            yield page
        else:
            yield from _small_pages(page, grid, page.size // 2)


def row_bands(
    selection: Selection, existing: NDArray[np.uint64], grid: Grid, room: int
) -> Iterator[tuple[Selection, NDArray[np.uint64]]]:
    """Yield pieces of the selection, each with the scaled coordinates of the stored chunks that it overlaps.

    A row of chunks are the chunks with the same first coordinate. A piece covers consecutive rows whose stored chunks
    have at most `room` elements together. If a single row has more, a piece is a page of that row.
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
