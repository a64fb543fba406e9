"""Operations on the chunks of a dataset: plan, send one message to each owner, put the results into place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import INLINE, compute
from hsparse.errors import TooLarge
from hsparse.format.chunk_map import ChunkRows
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection, PlannedChunk, count_chunks, plan
from hsparse.format.plan.grid import pages
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.points import Boxes, Orthogonal, Selection
from hsparse.hdf5.file_backed.chunk_table import ReadTable
from hsparse.hdf5.file_backed.elements import FileBackedElements
from hsparse.model.file_backed import is_file_backed
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import chunk_pages
from hsparse.sn.values.element_source import ChunkObjectElements, ElementSource, chunk_selections
from hsparse.wire.chunk_message import NO_LIMIT, CountDefined, EraseChunks, UpdateElements, WriteChunks

MANY_CHUNKS = 1024
"""A selection of more chunks is planned over those that exist: one listing costs less than many misses."""
MANY_WHOLE = 64
"""Whole chunks whose elements are counted by their footers: fewer may be in the owners' caches."""
MAX_WRITE_CHUNKS = 1 << 17
"""The most chunks of one write: one value for all elements is a short body, but each chunk adds to the messages."""
PLAN_WORK = 32
"""To plan a chunk takes as long as so many single elements, see `compute`."""
MAX_COMPUTED = 1 << 15
"""The most chunks of computed values (`arange`) of one page of a read: each takes as long as all of its values."""


class ChunkFanout:
    """The chunks of one dataset: chunk objects or pieces of files."""

    def __init__(self, owners: Owners, dataset: Dataset) -> None:
        self._owners = owners
        self._dataset = dataset
        self._objects = ChunkObjectElements(owners, dataset)
        self._source: ElementSource = self._objects
        if is_file_backed(dataset.record):
            self._source = FileBackedElements(owners, dataset, table_reader(owners))
        self._existing: NDArray[np.uint64] | None = None

    # --- plans --------------------------------------------------------------------------------------

    async def batches(self, selection: Selection) -> AsyncIterator[tuple[PlannedChunk, ...]]:
        """Plan a read or an erasure, some chunks at a time, without chunks that are known not to exist."""
        grid, scattered = self._dataset.grid, _scattered(selection)
        count = await compute(scattered, count_chunks, selection, grid)
        # With an initializer, owners generate the values of chunks that do not exist.
        if self._dataset.spec.arange and count > MAX_COMPUTED:
            raise TooLarge(
                f"The selection meets more than {MAX_COMPUTED} computed chunks; read less at a time."
            )
        if count <= MANY_CHUNKS or self._dataset.spec.arange:
            yield await compute(scattered + PLAN_WORK * count, plan, selection, grid)
            return
        existing = await self.existing()
        for first in range(0, len(existing), MANY_CHUNKS):
            some = existing[first : first + MANY_CHUNKS]
            yield await compute(scattered + PLAN_WORK * len(some), plan, selection, grid, some)
            await asyncio.sleep(0)  # let other requests run

    async def planned(self, selection: Selection) -> list[PlannedChunk]:
        """Return all batches as one list."""
        return [chunk async for batch in self.batches(selection) for chunk in batch]

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks that have elements, (k, rank) uint64."""
        if self._existing is None:
            self._existing = await self._source.existing()
        return self._existing

    # --- reading ------------------------------------------------------------------------------------

    async def read(self, selection: Selection, fields: Sequence[str] = ()) -> Any:
        """Return the selected values, in the selection's shape; undefined elements have the fill value.

        With `fields` the elements have only those, packed, in that order.
        """
        found = await self.read_within(selection, fields, NO_LIMIT)
        assert not isinstance(found, int)
        return found

    async def read_within(
        self, selection: Selection, fields: Sequence[str] = (), limit: int = NO_LIMIT
    ) -> Values | int:
        """Return the same or, if the values have more than `limit` bytes, how many elements to read at a time.

        That number is at most half of the selection's. The limit is for variable-length elements only: the size of
        others is known before.
        """
        arrays = self._dataset.arrays.of_fields(fields)
        limit = NO_LIMIT if arrays.is_exact else limit
        planned = await self.planned(selection)
        parts = await self._source.read(planned, tuple(fields), limit)
        few = self._elements_at_a_time(selection, planned, parts, limit, arrays.nbytes(arrays.fill))
        if few:
            return few
        work = arrays.work(selection.size) if len(planned) != 1 else 0
        return await compute(work, arrays.assemble, selection, planned, parts)

    async def pages(
        self, selection: Selection, fields: Sequence[str], limit: int
    ) -> AsyncGenerator[Values, None]:
        """Yield the selected values in order, about `limit` bytes at a time; a larger element is yielded alone."""
        size = self._dataset.arrays.guessed_size
        for page in pages(selection, self._dataset.grid, max(1, limit // size)):
            async for piece in self._page(page, fields, limit):
                yield piece

    async def _page(self, page: Selection, fields: Sequence[str], limit: int) -> AsyncGenerator[Values, None]:
        found = await self.read_within(page, fields, limit if page.size > 1 else NO_LIMIT)
        if not isinstance(found, int):
            yield found
            return
        for part in pages(page, self._dataset.grid, found):
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
        """Return 0 if all parts are complete and within `limit`, else how many elements to read at a time."""
        if limit == NO_LIMIT:
            return 0
        nbytes = self._dataset.arrays.nbytes
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

    async def read_defined(
        self, planned: Sequence[PlannedChunk], *, places_only: bool = False, limit: int = NO_LIMIT
    ) -> list[DefinedElements | int | None]:
        """Return the defined elements of each planned chunk, see `ReadDefined`."""
        return await self._objects.read_defined(planned, places_only, limit)

    async def count(self, selection: Selection) -> int:
        """Return how many of the selected elements are defined; many whole chunks are not read for that."""
        spec, grid = self._dataset.spec, self._dataset.grid
        is_all = isinstance(selection, Orthogonal) and selection.is_all
        if is_all and count_chunks(selection, grid) >= MANY_WHOLE:
            return await self._count_listed(selection)
        total: int = 0
        whole: list[tuple[int, ...]] = []
        async for planned in self.batches(selection):
            full = [chunk.scaled for chunk in planned if chunk.full]
            if len(full) < MANY_WHOLE:
                full = []
            parts = [chunk for chunk in planned if not (full and chunk.full)]
            whole += full
            counts: list[int] = await self._owners.gather(
                parts, self._objects.key, lambda some: CountDefined(spec, chunk_selections(some))
            )
            total += sum(counts)
        return total + (await self._count_whole(selection, whole) if whole else 0)

    async def _count_listed(self, selection: Selection) -> int:
        """Return how many elements all chunks have together, none of which is planned: their footers say so."""
        return sum([int(rows.defined.sum()) async for rows in self.listed(selection)])

    async def _count_whole(self, selection: Selection, chunks: Sequence[tuple[int, ...]]) -> int:
        """Return how many elements chunks have that a selection takes whole: their footers say so."""
        wanted = set(chunks)
        total: int = 0
        async for rows in self.listed(selection):
            pairs = zip(rows.scaled.tolist(), rows.defined.tolist(), strict=True)
            total += sum(defined for scaled, defined in pairs if tuple(scaled) in wanted)
        return total

    def listed(self, selection: Selection) -> AsyncIterator[ChunkRows]:
        """Yield the stored chunks of a sparse dataset that a selection intersects, with what their footers say."""
        return chunk_pages(self._owners, self._dataset, selection)

    async def find(
        self,
        planned: Sequence[PlannedChunk],
        query: str,
        *,
        limit: int = 0,
        in_order: bool = False,
        fields: Sequence[str] = (),
        places_only: bool = False,
        order_by: str = "",
    ) -> list[FoundElements | None]:
        """Return what a query finds in each planned chunk, see `FindElements`."""
        return await self._source.find(
            planned,
            query,
            limit=limit,
            in_order=in_order,
            fields=tuple(fields),
            places_only=places_only,
            order_by=order_by,
        )

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        """Return partial results of planned chunks of an orthogonal selection, see `ElementSource.reduce`."""
        return await self._source.reduce(planned, reduction, codes)

    # --- changing -----------------------------------------------------------------------------------

    async def update(
        self, planned: Sequence[PlannedChunk], query: str, value: NDArray[Any], fields: Sequence[str]
    ) -> list[FoundElements]:
        """Change what a query finds in each planned chunk, see `UpdateElements`; durable on return."""
        self._dataset.require_writable()
        spec, names = self._dataset.spec, tuple(fields)
        return await self._owners.gather(
            planned,
            self._objects.key,
            lambda some: UpdateElements(spec, chunk_selections(some), query, value, names),
        )

    def check_write(self, selection: Selection) -> None:
        """Raise `BadRequest` for a file-backed dataset, `TooLarge` for a write of too many chunks."""
        self._dataset.require_writable()
        if (
            selection.size > MAX_WRITE_CHUNKS
            and count_chunks(selection, self._dataset.grid) > MAX_WRITE_CHUNKS
        ):
            raise TooLarge(f"The selection meets more than {MAX_WRITE_CHUNKS} chunks; write less at a time.")

    async def write(
        self, selection: Selection, values: Values, *, drop_fill: bool = False, fields: Sequence[str] = ()
    ) -> None:
        """Write `values`, of the selection's shape or one element for all; durable on return.

        With `fields` the values have only those, packed, and the other fields keep theirs.
        """
        self.check_write(selection)
        if not selection.size:
            return
        arrays, spec = self._dataset.arrays, self._dataset.spec
        work = _scattered(selection) + arrays.work(selection.size)
        if selection.size > INLINE // PLAN_WORK:  # or there are fewer chunks
            work += PLAN_WORK * await compute(work, count_chunks, selection, self._dataset.grid)

        def cut() -> tuple[Sequence[PlannedChunk], list[ChunkSelection], list[Values]]:
            planned = plan(selection, self._dataset.grid)
            written = [self._written_selection(chunk) for chunk in planned]
            return planned, written, arrays.cut(selection, planned, values)

        planned, written, parts = await compute(work, cut)
        await self._owners.scatter(
            planned,
            self._objects.key,
            lambda some: WriteChunks(
                spec,
                tuple(written[i] for i in some),
                tuple(parts[i] for i in some),
                drop_fill,
                tuple(fields),
                self._dataset.grown_from,
            ),
        )

    async def erase(self, selection: Selection) -> None:
        """Make the selected elements undefined; durable on return."""
        async for planned in self.batches(selection):
            await self._erase(planned)

    async def _erase(self, planned: Sequence[PlannedChunk]) -> None:
        spec = self._dataset.spec
        await self._owners.scatter(
            planned,
            self._objects.key,
            lambda some: EraseChunks(spec, chunk_selections([planned[i] for i in some])),
        )

    def _written_selection(self, chunk: PlannedChunk) -> ChunkSelection:
        """Return the chunk selection of a write: full only if the whole chunk is inside the extent."""
        stops = zip(chunk.scaled, self._dataset.spec.dims, self._dataset.extent, strict=True)
        inside = all((scaled + 1) * dim <= extent for scaled, dim, extent in stops)
        return ChunkSelection(chunk.scaled, chunk.selection, chunk.full and inside)


def _scattered(selection: Selection) -> int:
    """Return how many points or boxes a selection has, each of which is looked at to plan it."""
    if isinstance(selection, Orthogonal):
        return 0
    return len(selection.starts) if isinstance(selection, Boxes) else selection.size


def table_reader(owners: Owners) -> ReadTable:
    """Return the function that reads a chunk table: a table is a dataset like any other."""

    async def read(table: Dataset, selection: Selection) -> Any:
        return await ChunkFanout(owners, table).read(selection)

    return read
