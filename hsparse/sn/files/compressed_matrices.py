"""The compressed arrays of matrices in a file: their chunks, and before the file is planned the sizes of these."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from math import prod

import numpy as np

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.plan.file_form import FileForm, FileLayout
from hsparse.format.hdf5.plan.matrix_bands import MatrixColumn, MatrixPart, check_bands
from hsparse.format.hdf5.plan.matrix_chunks import column_spec, encode_column_chunk
from hsparse.format.hdf5.plan.matrix_encoding import MatrixEncoding
from hsparse.format.hdf5.plan.matrix_plan import CompressedMatrix, array_names, plan_bands
from hsparse.format.hdf5.plan.planned_chunks import PlannedChunks, Uint64Column
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.files.domain_state import DomainState
from hsparse.sn.files.matrix_pieces import BandCache, MatrixPieces
from hsparse.sn.service_settings import ServiceSettings

MAX_COMPRESSED = 256 * 1024 * 1024
"""The most bytes of arrays that are compressed in one file: planning it compresses them once."""
MAX_KNOWN = 64
"""The most matrices whose sizes are kept, so that only changed ones are compressed again."""


@dataclass(frozen=True, slots=True)
class _MatrixState:
    """A dataset as one state of it becomes a matrix; `digest` is of its record and chunks."""

    id: str
    encoding: MatrixEncoding
    digest: bytes


class CompressedMatrices:
    """Measures matrices; `answers` is the memory budget for reading, `bands` the cache of their bands."""

    def __init__(
        self, owners: Owners, settings: ServiceSettings, answers: MemoryBudget, bands: BandCache
    ) -> None:
        self._settings = settings
        self._answers = answers
        self._matrices = MatrixPieces(owners, settings.page_size, bands)
        self._known: OrderedDict[_MatrixState, Mapping[MatrixPart, Uint64Column]] = OrderedDict()

    async def of(
        self, state: DomainState, chunks: Mapping[str, PlannedChunks], form: FileForm
    ) -> dict[str, CompressedMatrix]:
        """Return the matrices that are compressed in the file, by id: those of the layout `auto`, up to a limit.

        `TooLarge` where a band takes too much memory, `Moved` if a chunk has changed.
        """
        found: dict[str, CompressedMatrix] = {}
        left = MAX_COMPRESSED
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
            sizes = await self._sizes(_matrix_state(state, chunks[id], id, encoding), columns)
            found[id] = CompressedMatrix(bands, sizes)
        return found

    async def _sizes(
        self, state: _MatrixState, columns: list[MatrixColumn]
    ) -> Mapping[MatrixPart, Uint64Column]:
        known = self._known.pop(state, None)
        if known is None:
            known = {column.part: await self._measured(column) for column in columns}
        self._known[state] = known
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known

    async def _measured(self, column: MatrixColumn) -> Uint64Column:
        if not column.size:
            return np.zeros(0, np.uint64)
        spec = column_spec(column)
        rows = range(-(-column.entries // spec.dims[0]))
        bands = column.bands.memory(column.part, 0, column.entries, self._settings.page_size)
        async with self._answers.hold(bands + chunk_memory(spec)):
            parts = compressed_chunks(self._matrices, column, spec, rows)
            async with aclosing(parts):
                return np.array([len(part) async for part in parts], np.uint64)


def chunk_memory(spec: ChunkSpec) -> int:
    """Return the most bytes of memory that compressing chunks takes, one after the other."""
    return 4 * prod(spec.dims) * spec.dtype.itemsize


async def compressed_chunks(
    matrices: MatrixPieces, column: MatrixColumn, spec: ChunkSpec, rows: range
) -> AsyncGenerator[Buffer, None]:
    """Yield some chunks of an array as the file has them; `Moved` if a chunk of the dataset has changed."""
    size = spec.dims[0] * column.width
    pending = bytearray()
    parts = matrices.read(column, rows.start * size, min(rows.stop * size, column.size))
    async with aclosing(parts):
        async for part in parts:
            at, view = 0, memoryview(part)
            while at < len(view):
                taken = view[at : at + size - len(pending)]
                pending += taken
                at += len(taken)
                if len(pending) == size:
                    yield await asyncio.to_thread(encode_column_chunk, spec, pending)
                    pending = bytearray()
    if pending:
        yield await asyncio.to_thread(encode_column_chunk, spec, pending)


def _matrix_state(
    state: DomainState, chunks: PlannedChunks, id: str, encoding: MatrixEncoding
) -> _MatrixState:
    digest = blake2b(state.digests[id] + chunks.scaled.tobytes() + chunks.digest.tobytes(), digest_size=16)
    return _MatrixState(id, encoding, digest.digest())
