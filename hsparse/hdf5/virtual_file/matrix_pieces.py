"""Compute the bytes of a matrix's arrays in a planned file from the bands of chunks that a range overlaps.

A band is one row or one column of the chunk grid; its elements are sorted together. A file has the values, indices and
pointers of a band in different places, so sorted bands are cached.

`CompressedMatrices` computes the sizes of the chunks of compressed arrays, which are needed to plan a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from weakref import WeakSet

import numpy as np

from hsparse.bounded_cache import BoundedCache
from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.concurrency.gathering import gather_all
from hsparse.concurrency.keyed_lock import KeyedLock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.matrix_plan import (
    BandSorter,
    CompressedMatrix,
    MatrixBands,
    MatrixColumn,
    MatrixPart,
    SortedBand,
    add_pointers,
    array_names,
    check_bands,
    column_spec,
    encode_column_chunk,
    encode_entries,
    known_pointers,
    plan_bands,
)
from hsparse.hdf5.format.plan.planned_chunks import PlannedChunks, Uint64Column
from hsparse.hdf5.virtual_dataset.copied_chunks import AsksOwners
from hsparse.hdf5.virtual_file.domain_state import DomainState
from hsparse.hdf5.virtual_file.file_chunks import row_batches
from hsparse.hdf5.virtual_file.sized_chunks import read_planned
from hsparse.model.dataspace import dims_of
from hsparse.sn.service_settings import ServiceSettings

MAX_BAND_BYTES = 64 * 1024 * 1024
"""The maximum size in bytes of all cached bands. A larger band is not cached."""
BandName = tuple[MatrixBands, int]
ENTRIES_AT_ONCE = 32_768
"""The number of entries that are computed in one step (1 ms for pointers)."""


class BandCache:
    """A single-flight cache of sorted bands, by planned matrix and band number."""

    def __init__(self, most: int = MAX_BAND_BYTES) -> None:
        self._cached: BoundedCache[BandName, SortedBand] = BoundedCache(most, most, entry_size=0)
        self._gone: WeakSet[MatrixBands] = WeakSet()
        self._locks = KeyedLock()

    def find(self, bands: MatrixBands, number: int) -> SortedBand | None:
        """Return a cached band, or None."""
        return self._cached.use((bands, number))

    async def get(
        self, bands: MatrixBands, number: int, make: Callable[[], Awaitable[SortedBand]]
    ) -> SortedBand:
        """Return a cached band, or compute the band with `make` and cache it."""
        name = (bands, number)
        async with self._locks.hold(name):
            band = self._cached.use(name)
            if band is None:
                band = await make()
                if bands not in self._gone:
                    self._cached.keep(name, band, band.nbytes)
            return band

    def forget(self, gone: Iterable[MatrixBands]) -> None:
        """Remove the bands of these matrices permanently: a cached band keeps its matrix's chunk list in memory."""
        # A read in progress must not cache more of these bands.
        self._gone.update(gone)
        for name in [name for name in self._cached if name[0] in self._gone]:
            self._cached.forget(name)


class MatrixPieces:
    """Reads the arrays of matrices, about `page` bytes of chunks at a time, and caches sorted bands."""

    def __init__(self, owners: AsksOwners, page: int, cache: BandCache) -> None:
        self._owners = owners
        self._page = page
        self._cache = cache

    async def read(self, column: MatrixColumn, start: int, stop: int) -> AsyncGenerator[Buffer, None]:
        """Yield an array's bytes from `start` to `stop` (exclusive).

        Raises `Moved` if a chunk has changed since the plan.
        """
        first, last = column.span(start, stop)
        at = first * column.width
        parts = self._pointers(column, first, last) if column.part is MatrixPart.POINTERS else None
        entries = self._entries(column, first, last) if parts is None else parts
        async with aclosing(entries):
            async for part in entries:
                data = memoryview(part)
                yield data[max(0, start - at) : stop - at]
                at += len(data)

    async def _entries(self, column: MatrixColumn, first: int, last: int) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes of values or indices from entry `first` to `last` (exclusive)."""
        bands = column.bands
        for some in self._batches(bands, bands.bands_of(column.part, first, last)):
            sorted_bands = await self._bands(bands, some)
            for band, one in zip(some, sorted_bands, strict=True):
                begin = max(first, int(bands.starts[band]))
                end = min(last, int(bands.starts[band + 1]))
                step = ENTRIES_AT_ONCE if column.part is MatrixPart.ALONG else end - begin
                for low in range(begin, end, step):
                    yield encode_entries(bands, band, one, column.part, low, min(end, low + step))

    async def _pointers(self, column: MatrixColumn, first: int, last: int) -> AsyncGenerator[Buffer, None]:
        bands = column.bands
        for low in range(first, last, ENTRIES_AT_ONCE):
            high = min(last, low + ENTRIES_AT_ONCE)
            pointers = known_pointers(bands, low, high)
            for some in self._batches(bands, bands.bands_of(column.part, low, high)):
                for band, one in zip(some, await self._bands(bands, some), strict=True):
                    add_pointers(bands, band, one, pointers, low)
            yield byte_view(pointers.astype(bands.index))

    def _batches(self, bands: MatrixBands, some: range) -> Iterator[range]:
        return row_batches(bands.weights[some.start : some.stop], some, self._page)

    async def _bands(self, bands: MatrixBands, some: range) -> Sequence[SortedBand]:
        # A task costs more than the entries of an almost empty band, so only missing bands have tasks.
        found = [self._cache.find(bands, band) for band in some]
        missing = [band for band, one in zip(some, found, strict=True) if one is None]
        made = iter(await gather_all([self._band(bands, band) for band in missing]))
        return [next(made) if one is None else one for one in found]

    async def _band(self, bands: MatrixBands, band: int) -> SortedBand:
        async def make() -> SortedBand:
            maker = BandSorter(bands, band)
            rows = range(int(bands.rows[band]), int(bands.rows[band + 1]))
            sizes = bands.chunks.size[rows.start : rows.stop]
            while True:
                some = next(row_batches(sizes, rows, self._page), rows)
                found = await gather_all([self._stored(bands, row) for row in some])
                sizes, rows = sizes[len(some) :], rows[len(some) :]
                sorted_band = await compute(LONG_WORK_BYTES, _added, maker, found, not rows)
                if sorted_band is not None:
                    return sorted_band

        return await self._cache.get(bands, band, make)

    async def _stored(self, bands: MatrixBands, row: int) -> memoryview:
        return await read_planned(self._owners, bands.spec, bands.chunks, row)


def _added(maker: BandSorter, found: Sequence[Buffer], is_last: bool) -> SortedBand | None:
    """Add chunks to a band; return the sorted band if these are its last chunks, else None."""
    for data in found:
        maker.add(data)
    return maker.finish() if is_last else None


MAX_COMPRESSED = 256 * 1024 * 1024
"""The maximum size in bytes of all arrays that one file compresses. Planning a file compresses these arrays once."""
MAX_KNOWN = 64
"""The maximum number of matrices whose compressed sizes are cached. Only changed matrices are compressed again."""


@dataclass(frozen=True, slots=True)
class _MatrixState:
    """One state of a dataset and its matrix encoding; `digest` covers the dataset's record and chunks."""

    id: str
    encoding: MatrixEncoding
    digest: bytes


class CompressedMatrices:
    """Computes the sizes of compressed matrices; `answers` is the memory budget for reads, `bands` the band cache."""

    def __init__(self, settings: ServiceSettings, answers: MemoryBudget, bands: BandCache) -> None:
        self._settings = settings
        self._answers = answers
        self._bands = bands
        self._known: BoundedCache[_MatrixState, Mapping[MatrixPart, Uint64Column]] = BoundedCache.of_entries(
            MAX_KNOWN
        )

    async def of(
        self, state: DomainState, chunks: Mapping[str, PlannedChunks], form: FileForm, owners: AsksOwners
    ) -> dict[str, CompressedMatrix]:
        """Return a dict that maps the id of each dataset that the file compresses as a matrix to the matrix.

        Only files with the layout `auto` compress matrices, of up to `MAX_COMPRESSED` bytes in total. Raises `TooLarge`
        if sorting a band takes too much memory, and `Moved` if a chunk has changed.
        """
        found: dict[str, CompressedMatrix] = {}
        left, matrices = MAX_COMPRESSED, MatrixPieces(owners, self._settings.page_size, self._bands)
        for id in sorted(chunks) if form.layout is FileLayout.AUTO else ():
            encoding = form.encoding(state.records[id])
            if encoding is None:
                continue
            bands = plan_bands(state.records[id], chunks[id], encoding)
            check_bands(bands, self._settings.answer_memory)
            columns = [MatrixColumn(bands, part) for part in array_names(encoding)]
            left -= (nbytes := sum(column.size for column in columns))
            if left < 0:
                left += nbytes
                continue
            sizes = await self._sizes(_matrix_state(state, chunks[id], id, encoding), columns, matrices)
            found[id] = CompressedMatrix(bands, sizes)
        return found

    async def _sizes(
        self, state: _MatrixState, columns: list[MatrixColumn], matrices: MatrixPieces
    ) -> Mapping[MatrixPart, Uint64Column]:
        known = self._known.use(state)
        if known is None:
            known = {column.part: await self._measured(column, matrices) for column in columns}
            self._known.keep(state, known)
        return known

    async def _measured(self, column: MatrixColumn, matrices: MatrixPieces) -> Uint64Column:
        if not column.size:
            return np.zeros(0, np.uint64)
        spec = column_spec(column)
        rows = range(-(-column.entries // spec.dims[0]))
        bands = column.bands.memory(column.part, 0, column.entries, self._settings.page_size)
        async with self._answers.hold(bands + chunk_memory(spec)):
            parts = compressed_chunks(matrices, column, spec, rows)
            async with aclosing(parts):
                return np.array([len(part) async for part in parts], np.uint64)


def chunk_memory(spec: ChunkSpec) -> int:
    """Return the maximum memory in bytes for compressing chunks one after the other."""
    return 4 * prod(spec.dims) * spec.dtype.itemsize


async def compressed_chunks(
    matrices: MatrixPieces, column: MatrixColumn, spec: ChunkSpec, rows: range
) -> AsyncGenerator[Buffer, None]:
    """Yield the compressed chunks `rows` of an array; raises `Moved` if a chunk of the dataset has changed."""
    size, end = spec.dims[0] * column.width, min(rows.stop * spec.dims[0] * column.width, column.size)
    pending, left = bytearray(), end - rows.start * size
    parts = matrices.read(column, rows.start * size, end)
    async with aclosing(parts):
        async for part in parts:
            at, view = 0, memoryview(part)
            while at < len(view):
                taken = view[at : at + size - len(pending)]
                pending += taken
                at += len(taken)
                left -= len(taken)
                if len(pending) == size or not left:
                    yield await compute(LONG_WORK_BYTES, encode_column_chunk, spec, pending)
                    pending = bytearray()


def _matrix_state(
    state: DomainState, chunks: PlannedChunks, id: str, encoding: MatrixEncoding
) -> _MatrixState:
    digest = blake2b(state.digests[id] + chunks.scaled.tobytes() + chunks.digest.tobytes(), digest_size=16)
    if id in state.virtual:
        digest.update(str(dims_of(state.records[id]["shape"])).encode())
    return _MatrixState(id, encoding, digest.digest())
