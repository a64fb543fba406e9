"""Read values directly from the store: the server gives the chunk map, this process fetches and decodes the chunks.

The server reads a chunk that this process cannot read: one that has changed again, is being written, does not decode,
or has a filter that is not installed here. Values and errors are therefore the same as without direct reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import Unreachable
from hsparse.client.integrations.direct.direct_rows import (
    DirectRows,
    allocate_elements,
    cut_elements,
    narrow_elements,
    select_elements,
    write_elements,
)
from hsparse.client.integrations.direct.kept_map import DatasetMap, KeptMap
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectReader,
    ObjectUnavailable,
    ReaderClosed,
    ReadStatistics,
    Take,
)
from hsparse.client.integrations.direct.reader_choice import ReaderChoice
from hsparse.client.memory_limit import ResultLimit
from hsparse.client.progress import ignore, received
from hsparse.client.sources.elements import Elements, ValueSource
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.errors import Corrupt, HsparseError, Misconfigured, NotFound, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.kinds.chunk_columns import ChunkColumns, read_columns
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan, selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Orthogonal, Selection

T = TypeVar("T")
U = TypeVar("U")

MAX_SINGLE = 16
"""The maximum number of chunks that are requested from the server one by one; beyond it, the server reads all."""
NO_LIMIT = 2**62


class NotDirect(Exception):
    """Raised if the server must do the whole read; the message gives the reason."""


@dataclass(slots=True)
class _Failed:
    """Chunks that could not be read: `changed` chunks, whose objects no longer have the map's etag, and `others`."""

    changed: list[PlannedChunk] = field(default_factory=list)
    others: list[PlannedChunk] = field(default_factory=list)


class DirectElements:
    """A `ValueSource` that decodes the objects of a store, and lets `server` read the rest.

    Values have the type `dtype`, the client's view of the stored type. Threads may share an instance. `statistics`
    counts the reads. If `least_part` is not 0, the server does small reads, because it caches decoded chunks: a row of
    a chunk takes a tenth of the time. A read is small if it takes less than the part `least_part` of the elements of
    the chunks that it touches. Once an object reader is chosen, the limits of this reader apply instead.
    """

    def __init__(
        self,
        server: ValueSource,
        kept: KeptMap,
        choice: ReaderChoice,
        dtype: np.dtype[Any],
        statistics: ReadStatistics,
        least_part: float = 0.0,
    ) -> None:
        self.statistics = statistics
        self._server = server
        self._kept = kept
        self._choice = choice
        self._dtype = dtype
        self._least_part = least_part
        self._reader: ObjectReader | None = None
        self._closed = ""
        """Why the server does all further reads; empty while direct reads are possible."""

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """See `ValueSource`."""
        if self._leave_small(selection):
            return self._server.defined_elements(selection, limit)
        try:
            return self._defined(selection, limit)
        except NotDirect as error:
            self.statistics.add(fallbacks=1, reason=str(error))
            return self._server.defined_elements(selection, limit)

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """See `ValueSource`; return None if a chunk cannot be read, because `defined_elements` then asks the server."""
        if not selection.size or self._is_small(selection):
            return None
        try:
            found = self._map(selection)
        except NotDirect:
            return None
        planned, failed = self._planned(found, selection), _Failed()
        defined = _counts(found, planned)
        if limit is not None:
            limit.check(sum(defined))
        rows = DirectRows(selection, planned, defined, self._dtype)

        def add(item: tuple[PlannedChunk, int], data: Buffer) -> None:
            chunk = _columns(found, data)
            if len(chunk) != item[1]:
                raise Corrupt("The chunk has another number of elements than its map says.")
            rows.add(item[0], chunk.view(self._dtype))

        try:
            self._each(found, add, list(zip(planned, defined, strict=True)), failed, lambda item: item[0])
        except NotDirect:
            return None
        return None if failed.changed or failed.others else rows.result()

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """See `ValueSource`; the chunk map has the count. Return None if the map is requested in parts."""
        if not self._kept.is_whole(extent):
            return None
        try:
            found = self._map(Orthogonal.all(extent))
        except NotDirect:
            return None
        return int(found.defined.sum()) if found.extent == extent and found.spec.sparse else None

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`."""
        if self._leave_small(selection):
            return self._server.dense_values(selection)
        try:
            return self._dense(selection)
        except NotDirect as error:
            self.statistics.add(fallbacks=1, reason=str(error))
            return self._server.dense_values(selection)

    # --- defined elements ---------------------------------------------------------------------------

    def _defined(self, selection: Selection, limit: ResultLimit | None) -> Elements:
        def read(found: DatasetMap, planned: Sequence[PlannedChunk]) -> tuple[list[Elements], _Failed]:
            if limit is not None:
                limit.check(sum(_counts(found, planned)))
            return self._read_elements(found, planned, selection.extent)

        def ask(at: Selection) -> list[Elements]:
            return [narrow_elements(self._server.defined_elements(at), selection.extent)]

        pieces = self._read(selection, read, ask)
        return Elements.concatenate(pieces)

    def _read_elements(
        self, found: DatasetMap, planned: Sequence[PlannedChunk], extent: tuple[int, ...]
    ) -> tuple[list[Elements], _Failed]:
        """Return a pair: the elements of some chunks, as few `Elements`, and the chunks that failed.

        The map gives the number of elements of a whole chunk, so threads write its elements to their final place.
        A partly selected chunk is read first; its elements are copied behind the elements of the whole chunks.
        """
        failed, grid = _Failed(), Grid(extent, found.spec.dims)
        whole = [one for one in planned if one.selection.is_all]
        partly = [one for one in planned if not one.selection.is_all]

        def select(one: PlannedChunk, data: Buffer) -> Elements:
            part = select_elements(_columns(found, data), one.selection, grid.origin(one.scaled), extent)
            return Elements(part.columns, part.values.view(self._dtype))

        parts = [part for part in self._each(found, select, partly, failed) if part is not None]
        counts = _counts(found, whole)
        ends = np.cumsum([*counts, *map(len, parts)], dtype=np.int64).tolist()
        stored = allocate_elements(ends[-1] if ends else 0, extent, found.spec.dtype)
        room = Elements(stored.columns, stored.values.view(self._dtype))
        slots = [cut_elements(room, end - count, end) for end, count in zip(ends, counts, strict=False)]
        for part, end in zip(parts, ends[len(counts) :], strict=True):
            slot = cut_elements(room, end - len(part), end)
            for target, column in zip(
                (*slot.columns, slot.values), (*part.columns, part.values), strict=True
            ):
                target[...] = column

        def fill(item: tuple[PlannedChunk, Elements], data: Buffer) -> Elements:
            chunk, slot = _columns(found, data), item[1]
            if len(chunk) != len(slot):
                raise Corrupt("The chunk has another number of elements than its map says.")
            write_elements(chunk, grid.origin(item[0].scaled), slot)
            return slot

        filled = self._each(found, fill, list(zip(whole, slots, strict=True)), failed, lambda item: item[0])
        if None not in filled:
            return [room], failed
        behind = ends[len(counts) - 1]
        good = [slot for slot in filled if slot is not None]
        return [*good, cut_elements(room, behind, ends[-1])], failed

    # --- dense values -------------------------------------------------------------------------------

    def _dense(self, selection: Selection) -> NDArray[Any]:
        result: list[NDArray[Any]] = []

        def read(found: DatasetMap, planned: Sequence[PlannedChunk]) -> tuple[list[None], _Failed]:
            if not result:
                unwritten = np.full(selection.shape, found.spec.fill_value, found.spec.dtype)
                result.append(unwritten.view(self._dtype))
            failed = _Failed()

            def fill(one: PlannedChunk, data: Buffer) -> None:
                values: Any = found.kind.read(found.kind.decode(data), one.selection, (), NO_LIMIT)
                if values is not None:
                    result[0][one.place] = values.view(self._dtype)

            self._each(found, fill, planned, failed)
            return [], failed

        def ask(at: Selection) -> list[NDArray[Any]]:
            return [self._server.dense_values(at)]

        for place, values in self._read(selection, read, ask, places=True):
            result[0][place] = values
        return result[0]

    # --- both ---------------------------------------------------------------------------------------

    def _is_small(self, selection: Selection) -> bool:
        chunk, reader = self._kept.chunks, self._reader
        if not self._least_part or len(chunk) != len(selection.extent):
            return False
        least = self._least_part if reader is None else reader.least_part
        if reader is not None and selection.size < reader.least_size:
            return True
        met = count_chunks(selection, Grid(selection.extent, chunk)) * prod(chunk)
        return selection.size < met * least

    def _leave_small(self, selection: Selection) -> bool:
        """Return whether a read is small, so that the server does it, and count it."""
        is_small = self._is_small(selection)
        self.statistics.add(small=int(is_small))
        return is_small

    def _read(
        self,
        selection: Selection,
        read: Callable[[DatasetMap, Sequence[PlannedChunk]], tuple[list[Any], _Failed]],
        ask: Callable[[Selection], list[Any]],
        places: bool = False,
    ) -> list[Any]:
        """Read the chunks of a selection with `read`, and failed chunks with `ask` from the server; return all results.

        Changed chunks are read once more with a new map. With `places`, each answer of `ask` is paired with its chunk's
        position in the selection. Raise `NotDirect` if more than `MAX_SINGLE` chunks fail.
        """
        found = self._map(selection)
        pieces, failed = read(found, self._planned(found, selection))
        left = failed.others
        if failed.changed:
            found = self._map(selection)
            names = {one.scaled for one in failed.changed}
            again = [one for one in self._planned(found, selection) if one.scaled in names]
            more, failed = read(found, again)
            pieces += more
            left = [*left, *failed.changed, *failed.others]
        if len(left) > MAX_SINGLE:
            raise NotDirect(self.statistics.reason or "many chunks have changed")
        if left:
            self.statistics.add(fallbacks=len(left))
        grid = Grid(selection.extent, found.spec.dims)
        for one in left:
            (answer,) = ask(one.selection.translate(grid.origin(one.scaled), selection.extent))
            pieces.append((one.place, answer.reshape(one.selection.shape)) if places else answer)
        return pieces

    def _map(self, selection: Selection) -> DatasetMap:
        if self._closed:
            raise NotDirect(self._closed)
        try:
            found = self._kept.current(selection)
        except Unreachable:
            raise
        except HsparseError as error:  # such as a corrupt chunk, which this read may not need
            if isinstance(error, Unsupported | NotFound):  # no map of such data, or no maps at all
                self._closed = error.message
            raise NotDirect(error.message) from error
        if self._reader is None:
            self._reader = self._choice.choose(found)
            if self._reader is None and len(found.scaled):
                self._closed = "the store is not on this machine"
                raise NotDirect(self._closed)
        same_rank = len(found.extent) == len(selection.extent)
        if not same_rank or any(
            now < known for now, known in zip(found.extent, selection.extent, strict=True)
        ):
            raise NotDirect("the dataset was shrunk")
        return found

    def _planned(self, found: DatasetMap, selection: Selection) -> Sequence[PlannedChunk]:
        grid = Grid(selection.extent, found.spec.dims)
        inside = (found.scaled < np.array(grid.counts, np.uint64)).all(axis=1)
        if found.spec.sparse:
            inside &= found.defined > 0
        scaled = found.scaled[inside]
        if isinstance(selection, Orthogonal) and not selection.is_all:
            # A plan loops over chunks in Python, so remove the other chunks first.
            scaled = scaled[selection_intersects(selection, grid, scaled)]
        return plan(selection, grid, scaled)

    def _each(
        self,
        found: DatasetMap,
        work: Callable[[U, Buffer], T],
        items: Sequence[U],
        failed: _Failed,
        chunk: Callable[[U], Any] = lambda item: item,
    ) -> list[T | None]:
        """Call `work` with each item and its chunk's bytes, in threads; return the results, or None for a failed item.

        The chunks of failed items are added to `failed`. Raise `NotDirect` if the objects cannot be read any more.
        """
        results: list[T | None] = [None] * len(items)
        sizes: list[int] = []
        advance = received()

        def use(number: int, take: Take) -> None:
            item = items[number]
            try:
                data = take()
                sizes.append(len(data))
                results[number] = work(item, data)
                if advance is not ignore:
                    advance(_expected_bytes(found, chunk(item)))
            except ObjectChanged:
                failed.changed.append(chunk(item))
            except (ObjectUnavailable, HsparseError) as error:
                reason = error.message if isinstance(error, HsparseError) else str(error)
                if isinstance(error, Misconfigured):  # a codec that is not installed: no chunk decodes here
                    self._closed = reason
                self.statistics.add(reason=reason)
                failed.others.append(chunk(item))

        places = [found.place(found.rows[chunk(item).scaled]) for item in items]
        if self._reader is not None:  # without stored chunks there is no reader and no item
            try:
                self._reader.read_each(places, use)
            except ReaderClosed as error:
                self._closed = str(error)
                raise NotDirect(self._closed) from error
            finally:
                self.statistics.add(objects=len(sizes), bytes=sum(sizes))
        return results


def _counts(found: DatasetMap, planned: Sequence[PlannedChunk]) -> list[int]:
    """Return the number of defined elements of each chunk."""
    return [int(found.defined[found.rows[one.scaled]]) for one in planned]


def _expected_bytes(found: DatasetMap, one: PlannedChunk) -> int:
    """Return the approximate number of bytes of the values that a chunk selection takes."""
    size = one.selection.size
    if found.spec.sparse:
        size = int(found.defined[found.rows[one.scaled]]) * size // prod(found.spec.dims)
    return size * found.spec.dtype.itemsize


def _columns(found: DatasetMap, data: Buffer) -> ChunkColumns:
    spec = found.spec
    return read_columns(data, spec.dims, found.dtype, spec.filters)
