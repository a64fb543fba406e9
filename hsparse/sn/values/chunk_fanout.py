"""Operations on a dataset's chunks: plan the chunks, send one message to each owner, and assemble the results.

A plan cuts a selection into one part for each chunk (`PlannedChunk`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import MAX_INLINE_BYTES, compute
from hsparse.errors import TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements, QueryRequest
from hsparse.format.plan.chunk_plan import (
    ChunkSelection,
    PlannedChunk,
    chunk_selections,
    count_chunks,
    plan,
    run_of,
    selection_intersects,
)
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.extent import coordinate_columns
from hsparse.format.selections.points import Boxes, Orthogonal, Selection, ascending
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.known_chunks import stored_chunks
from hsparse.sn.records.stored_chunks import chunk_pages
from hsparse.sn.values.element_source import ElementSource
from hsparse.sn.values.file_data import ReadTable, other_data
from hsparse.wire.chunk_message import (
    NO_LIMIT,
    EraseChunks,
    FindElements,
    ReadChunks,
    ReadDefined,
    ReduceChunks,
    UpdateElements,
    WriteChunks,
)

T = TypeVar("T")
Array = NDArray[Any]
DefinedPiece: TypeAlias = tuple[list[Array], Values]
"""Coordinates of defined elements, one (n,) array for each dimension, and the elements, (n,)."""
CHUNK_OFFSET_BYTES = 4
"""Bytes of the offset of a defined element in a reply."""
MAX_UNDEFINED = 1 << 20
"""A run of chunks that is read at once selects at most this many pages of elements, however few are defined."""
MAX_GROWTH = 16
"""A run of chunks selects at most this many times the elements of the run before, because the density is a guess."""
REPLY_PAGES = 2
"""The maximum of pages in a reply with fixed-size elements: a run guessed to have one page may have two pages."""
MANY_CHUNKS = 1024
"""If a selection has more chunks, only existing chunks are planned, because a listing costs less than missing keys."""
MANY_WHOLE = 64
"""For at least this many whole chunks, chunk footers are listed instead of read; fewer chunks may be in caches."""
MAX_WRITE_CHUNKS = 1 << 17
"""The maximum number of chunks of one write. A short body may write many chunks: it may have one value for all."""
PLAN_WORK = 32
"""The work of planning a chunk, for `compute`, in units of the work on an element."""
MAX_COMPUTED = 1 << 15
"""The maximum of chunks of computed values (`arange`) in one plan, because all values of a chunk are computed."""


@dataclass(frozen=True, slots=True)
class ChunkObjectElements:
    """The `ElementSource` of a dataset with chunk objects. Each owner gets one message for each operation."""

    _owners: Owners
    _dataset: StoredDataset

    async def existing(self) -> NDArray[np.uint64]:
        return await stored_chunks(self._owners, self._dataset)

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...], limit: int
    ) -> list[Values | int | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: ReadChunks(spec, chunk_selections(some), fields, limit)
        )

    async def read_defined(
        self, planned: Sequence[PlannedChunk], *, places_only: bool = False, limit: int = NO_LIMIT
    ) -> list[DefinedElements | int | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: ReadDefined(spec, chunk_selections(some), places_only, limit)
        )

    async def count_defined(self, selection: Selection) -> int | None:
        return None

    async def find(self, planned: Sequence[PlannedChunk], wanted: QueryRequest) -> list[FoundElements | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: FindElements(spec, chunk_selections(some), wanted)
        )

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        spec, rank = self._dataset.spec, len(reduction.shape)
        origins = np.array([chunk.origin for chunk in planned], np.int64).reshape(len(planned), rank)

        def message(some: Sequence[int]) -> ReduceChunks:
            parts = [planned[i] for i in some]
            first, own = 0, codes
            if codes is not None:
                begins = origins[some, reduction.grouped]
                ends = [
                    at + part.selection.shape[reduction.grouped]
                    for at, part in zip(begins, parts, strict=True)
                ]
                first, own = int(begins.min()), codes[int(begins.min()) : int(max(ends))]
            return ReduceChunks(spec, chunk_selections(parts), origins[list(some)], reduction, own, first)

        if not planned:
            return []
        replies = await self._owners.scatter(planned, self.key, message)
        return [part for _, part in sorted(replies, key=lambda reply: reply[0][0])]

    def key(self, chunk: PlannedChunk) -> str:
        """Return the key of a chunk object, which determines its owner."""
        return self._dataset.spec.key(chunk.scaled)


def _intersected(selection: Selection, grid: Grid, scaled: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the chunks of `scaled` that a selection intersects, without chunks outside the grid after a shrink."""
    inside = scaled[(scaled < np.array(grid.counts, np.uint64)).all(axis=1)]
    return inside[selection_intersects(selection, grid, inside)]


class ChunkFanout:
    """Reads and writes the chunks of one dataset: chunk objects, chunks in files, or parts of other datasets."""

    def __init__(self, owners: Owners, dataset: StoredDataset) -> None:
        self.dataset = dataset
        self._owners = owners
        self._existing: NDArray[np.uint64] | None = None

    @cached_property
    def source(self) -> ElementSource:
        """The source of the dataset's elements."""
        kind = self.dataset.elsewhere
        return (other_data(kind).elements if kind else ChunkObjectElements)(self._owners, self.dataset)

    # --- plans --------------------------------------------------------------------------------------

    async def batches(self, selection: Selection) -> AsyncIterator[tuple[PlannedChunk, ...]]:
        """Yield the plan of a read or an erasure in batches; a plan of many chunks has only the chunks that exist."""
        planned = await self.plan(selection)
        if planned is not None:
            yield planned
            return
        existing = await self.existing(selection)
        for first in range(0, len(existing), MANY_CHUNKS):
            yield await self.plan(selection, existing[first : first + MANY_CHUNKS])
            await asyncio.sleep(0)  # let other requests run

    @overload
    async def plan(self, selection: Selection) -> tuple[PlannedChunk, ...] | None: ...

    @overload
    async def plan(self, selection: Selection, existing: NDArray[np.uint64]) -> tuple[PlannedChunk, ...]: ...

    async def plan(
        self, selection: Selection, existing: NDArray[np.uint64] | None = None
    ) -> tuple[PlannedChunk, ...] | None:
        """Return the plan of a selection, or None if it has more than `MANY_CHUNKS` chunks and `existing` is None.

        Only chunks in `existing`, (k, rank) uint64, if given, are planned. Raises `TooLarge` for many computed chunks.
        """
        return await self._with_plan(selection, existing, partial(self._plan, selection, existing))

    async def _with_plan(
        self, selection: Selection, existing: NDArray[np.uint64] | None, make: Callable[[], T], more: int = 0
    ) -> T:
        """Return `make()`; a worker thread calls it if planning the selection and `more` units of work take long."""
        if (
            existing is not None or selection.size > MAX_INLINE_BYTES // PLAN_WORK
        ):  # else there are few chunks
            more += planning_work(selection, self.dataset.grid, existing)
        return await compute(more, make)

    def _plan(
        self, selection: Selection, existing: NDArray[np.uint64] | None
    ) -> tuple[PlannedChunk, ...] | None:
        grid = self.dataset.grid
        if existing is not None:
            return plan(selection, grid, existing)
        count = count_chunks(selection, grid)
        if not self.dataset.spec.arange:
            return plan(selection, grid) if count <= MANY_CHUNKS else None
        # With an initializer, owners generate the values of chunks that do not exist.
        if count > MAX_COMPUTED:
            raise TooLarge(
                f"The selection meets more than {MAX_COMPUTED} computed chunks, the limit: read less at a time."
            )
        return plan(selection, grid)

    async def planned(self, selection: Selection) -> list[PlannedChunk]:
        """Return all batches of `batches` as one list."""
        return [chunk async for batch in self.batches(selection) for chunk in batch]

    async def existing(self, selection: Selection | None = None) -> NDArray[np.uint64]:
        """Return the scaled coordinates, (k, rank) uint64, of chunks that have elements and overlap the selection."""
        if self._existing is None:
            self._existing = await self.source.existing()
        if selection is None:
            return self._existing
        return _intersected(selection, self.dataset.grid, self._existing)

    # --- reading ------------------------------------------------------------------------------------

    async def read(self, selection: Selection, fields: Sequence[str] = ()) -> Any:
        """Return the selected values, in the selection's shape; undefined elements have the fill value.

        If `fields` is not empty, the elements have only these fields, packed, in the given order.
        """
        found = await self.read_within(selection, fields, NO_LIMIT)
        assert not isinstance(found, int)
        return found

    async def read_within(
        self, selection: Selection, fields: Sequence[str] = (), limit: int = NO_LIMIT
    ) -> Values | int:
        """Return the values as `read` does or, if they exceed `limit` bytes, the number of elements to read at a time.

        This number is at most half of the selection's size. The limit applies to vlen elements only, because the size
        of other elements is known before the read.
        """
        arrays = self.dataset.arrays.of_fields(fields)
        limit = NO_LIMIT if arrays.is_exact else limit
        planned = await self.planned(selection)
        parts = await self.source.read(planned, tuple(fields), limit)
        few = self._elements_at_a_time(selection, planned, parts, limit, arrays.nbytes(arrays.fill))
        if few:
            return few
        if len(planned) == 1:
            return arrays.assemble(selection, planned, parts)
        return await from_parts(parts, partial(arrays.assemble, selection, planned), selection.size)

    async def pages(
        self, selection: Selection, fields: Sequence[str], limit: int
    ) -> AsyncGenerator[Values, None]:
        """Yield the selected values in order, about `limit` bytes at a time; larger elements are yielded one by one."""
        size = self.dataset.arrays.guessed_size
        for page in pages(selection, self.dataset.grid, max(1, limit // size)):
            async for piece in self._page(page, fields, limit):
                yield piece

    async def _page(self, page: Selection, fields: Sequence[str], limit: int) -> AsyncGenerator[Values, None]:
        found = await self.read_within(page, fields, limit if page.size > 1 else NO_LIMIT)
        if not isinstance(found, int):
            yield found
            return
        for part in pages(page, self.dataset.grid, found):
            async for piece in self._page(part, fields, limit):
                yield piece

    def _elements_at_a_time(
        self,
        selection: Selection,
        planned: Sequence[PlannedChunk],
        parts: Sequence[Values | int | None],
        limit: int,
        fill: int,
    ) -> int:
        """Return 0 if all parts are complete and within `limit`, otherwise the number of elements to read at a time."""
        if limit == NO_LIMIT:
            return 0
        nbytes = self.dataset.arrays.nbytes
        total = fill * (selection.size - sum(chunk.selection.size for chunk in planned))
        known = selection.size
        complete = True
        for chunk, part in zip(planned, parts, strict=True):
            if isinstance(part, int):
                complete = False
                total += part
                known -= 0 if part else chunk.selection.size
            else:
                total += fill * chunk.selection.size if part is None else nbytes(part)
        if complete and total <= limit:
            return 0
        return max(1, min(selection.size // 2, limit * max(1, known) * 3 // (4 * total)))

    def listed(self, selection: Selection) -> AsyncIterator[ChunkRows]:
        """Yield pages of a sparse dataset's stored chunks that a selection intersects, with data from their footers."""
        return chunk_pages(self._owners, self.dataset, selection)

    # --- changing -----------------------------------------------------------------------------------

    async def update(
        self, planned: Sequence[PlannedChunk], query: str, value: NDArray[Any], fields: Sequence[str]
    ) -> list[FoundElements]:
        """Set `fields` to `value` in the elements that a query finds, see `UpdateElements`; durable on return."""
        self.dataset.require_writable()
        spec, names = self.dataset.spec, tuple(fields)
        return await self._owners.gather(
            planned,
            self.key,
            lambda some: UpdateElements(spec, chunk_selections(some), query, value, names),
        )

    def check_write(self, selection: Selection, nbytes: int, most: int) -> int:
        """Return `check_size(...)`; raise `BadRequest` if the dataset is not writable, `TooLarge` for many chunks."""
        if self.dataset.elsewhere:
            self.dataset.require_writable()
        if selection.size > MAX_WRITE_CHUNKS:
            self._check_count(selection)
        return self.check_size(selection, nbytes, most)

    def check_size(self, selection: Selection, nbytes: int, most: int) -> int:
        """Return the approximate bytes a write changes (dense chunks count whole); raise `TooLarge` beyond `most`."""
        spec, grid = self.dataset.spec, self.dataset.grid
        if not spec.sparse and self.dataset.arrays.is_exact:
            chunk = prod(grid.chunk) * self.dataset.dtype.itemsize
            nbytes = max(nbytes, count_chunks(selection, grid) * chunk)
        if nbytes > most:
            raise TooLarge(
                f"The write changes {nbytes} bytes of values and chunks; the limit is {most} (max_write_size). Write "
                "less at a time."
            )
        return nbytes

    def _check_count(self, selection: Selection) -> None:
        if count_chunks(selection, self.dataset.grid) > MAX_WRITE_CHUNKS:
            raise TooLarge(f"The selection meets more than {MAX_WRITE_CHUNKS} chunks; write less at a time.")

    async def write(
        self, selection: Selection, values: Values, *, drop_fill: bool = False, fields: Sequence[str] = ()
    ) -> None:
        """Durably write `values` (of the selection's shape, or one value for all); `fields` names packed fields."""
        count, spec, grown_from = selection.size, self.dataset.spec, self.dataset.grown_from
        if not count:
            return
        cut, work = partial(self._cut, selection, values), 0 if self.dataset.arrays.is_exact else count
        planned, written, parts = await self._with_plan(selection, None, cut, work)
        await self._owners.scatter(
            planned,
            self.key,
            lambda some: WriteChunks(
                spec,
                tuple([written[i] for i in some]),
                tuple([parts[i] for i in some]),
                drop_fill,
                tuple(fields),
                grown_from,
            ),
        )

    def _cut(
        self, selection: Selection, values: Values
    ) -> tuple[Sequence[PlannedChunk], Sequence[ChunkSelection], Sequence[Values]]:
        """Return a triple of lists, with an item for each chunk of a write: planned chunk, chunk selection, values."""
        grid = self.dataset.grid
        if selection.size > MAX_WRITE_CHUNKS:
            self._check_count(selection)
        planned = plan(selection, grid)
        # A chunk at the edge is not full: part of it is outside of the extent.
        written = [
            ChunkSelection(chunk.scaled, chunk.selection, chunk.full and not grid.is_edge(chunk.scaled))
            for chunk in planned
        ]
        return planned, written, self.dataset.arrays.cut(selection, planned, values)

    async def erase(self, selection: Selection) -> None:
        """Make the selected elements undefined; durable on return."""
        async for planned in self.batches(selection):
            await self._erase(planned)

    async def _erase(self, planned: Sequence[PlannedChunk]) -> None:
        spec = self.dataset.spec
        await self._owners.scatter(
            planned,
            self.key,
            lambda some: EraseChunks(spec, chunk_selections([planned[i] for i in some])),
        )

    def key(self, chunk: PlannedChunk) -> str:
        """Return the key of a chunk object, which determines its owner."""
        return self.dataset.spec.key(chunk.scaled)


async def from_parts(parts: Sequence[Any], make: Callable[[Any], T], least: int = 0) -> T:
    """Return `make(parts)`. A worker thread calls it if `least` or the parts' number of elements is large."""
    return await compute(max(least, sum(map(_size, parts))), make, parts)


def _size(part: Any) -> int:
    if isinstance(part, DefinedElements):
        return len(part.offsets)
    return len(part.positions) if isinstance(part, FoundElements) else getattr(part, "size", 0)


@dataclass(frozen=True, slots=True)
class DefinedRead:
    """Reads the defined elements of a selection, chunk after chunk, in row-major order inside each chunk.

    If `places_only`, the values are empty. If `form` is given, `pieces` yields `form(coordinates, values)`.
    """

    chunks: ChunkFanout
    page_size: int
    _: KW_ONLY
    places_only: bool = False
    form: Callable[[list[Array], Values], Any] | None = None

    @property
    def dataset(self) -> StoredDataset:
        return self.chunks.dataset

    async def pieces(self, selection: Selection) -> AsyncGenerator[Any, None]:
        """Yield the defined elements, about a page at a time, as `DefinedPiece` or as results of `form`.

        An element larger than a page is yielded alone.
        """
        async for planned in self.chunks.batches(selection):
            async for piece in self._pieces(planned):
                yield piece

    async def _pieces(self, planned: Sequence[PlannedChunk]) -> AsyncIterator[Any]:
        """Yield the elements of planned chunks in runs of about a page; only chunks of vlen elements are split."""
        arrays = self.chunks.dataset.arrays
        cut = not arrays.is_exact and not self.places_only
        page = max(1, self.page_size // (arrays.guessed_size + (0 if cut else CHUNK_OFFSET_BYTES)))
        limit = self.page_size if cut else REPLY_PAGES * self.page_size
        room, first = page, 0
        while first < len(planned):
            until = run_of(planned, first, room)
            found = await self.chunks.source.read_defined(
                planned[first:until], places_only=self.places_only, limit=limit
            )
            # If a chunk was too large for the reply, the chunks after it are read again: the pieces stay in order.
            good = next((n for n, item in enumerate(found) if isinstance(item, int)), len(found))
            pairs = zip(planned[first : first + good], found, strict=False)
            there = [(chunk, item) for chunk, item in pairs if isinstance(item, DefinedElements)]
            if there:
                chunks, elements = zip(*there, strict=True)
                yield await from_parts(list(elements), partial(self._piece, list(chunks)))
            if good < len(found):
                room = page
                too_much = found[good]
                if cut and not good and isinstance(too_much, int):
                    async for piece in self._split(planned[first], too_much):
                        yield piece
                    good = 1
            elif until < len(planned):
                # The number of defined elements is not known in advance; the last run is the best guess.
                selected = sum([chunk.selection.size for chunk in planned[first:until]])
                guess = page * selected // max(1, sum([len(item.offsets) for _, item in there]))
                room = max(page, min(guess, room * MAX_GROWTH, page * MAX_UNDEFINED))
            first += good

    async def _split(self, chunk: PlannedChunk, nbytes: int) -> AsyncIterator[Any]:
        """Yield the elements of a chunk, which have `nbytes` bytes in total, in parts of about a page."""
        dims = self.chunks.dataset.spec.dims
        # An ascending selection has each element once, so that no element is in two pages.
        selection = chunk.selection if isinstance(chunk.selection, Boxes) else ascending(chunk.selection)
        size = selection.size
        few = max(1, min(size // 2, size * self.page_size * 3 // (4 * max(1, nbytes))))
        for part in pages(selection, Grid(dims, dims), few):
            async for piece in self._pieces([replace(chunk, selection=part)]):
                yield piece

    def _piece(self, planned: Sequence[PlannedChunk], there: Sequence[DefinedElements]) -> Any:
        """Return the coordinates and values of the elements `there`, as `DefinedPiece` or as the result of `form`."""
        extent, dims = self.chunks.dataset.extent, self.chunks.dataset.spec.dims
        total = sum([len(item.offsets) for item in there])
        places: list[Array] = [np.empty(total, np.uint32 if n <= 2**32 else np.uint64) for n in extent]
        at = 0
        for chunk, item in zip(planned, there, strict=True):
            until = at + len(item.offsets)
            for dim, column in enumerate(coordinate_columns(item.offsets, dims)):
                # The origin has the coordinates' type: 32-bit chunk offsets would wrap beyond 2^32.
                origin = places[dim].dtype.type(chunk.scaled[dim] * dims[dim])
                np.add(column, origin, out=places[dim][at:until], casting="unsafe")
            at = until
        values = self.chunks.dataset.arrays.join([] if self.places_only else [item.values for item in there])
        return (places, values) if self.form is None else self.form(places, values)


def planning_work(selection: Selection, grid: Grid, existing: NDArray[np.uint64] | None) -> int:
    """Return the approximate work of planning a selection, to pass to `compute`."""
    points = 0 if isinstance(selection, Orthogonal) else selection.size
    scattered = len(selection.starts) if isinstance(selection, Boxes) else points
    if existing is not None:
        return scattered + PLAN_WORK * len(existing)
    return scattered + (PLAN_WORK * count_chunks(selection, grid) if scattered <= MAX_INLINE_BYTES else 0)


def table_reader(owners: Owners) -> ReadTable:
    """Return a function that reads a selection of a chunk table (a dataset that locates chunks in files)."""

    async def read(table: StoredDataset, selection: Selection) -> Any:
        return await ChunkFanout(owners, table).read(selection)

    return read
