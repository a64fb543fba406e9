"""Compute the sizes of chunks in a domain's file, and read stored chunks for a planned file.

`SizedChunks` reads chunks only if it cannot compute their sizes otherwise. Reading a chunk that has changed since the
file was planned raises `Moved`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import UNFILTERED, digests
from hsparse.format.chunk_spec import ChunkSpec, chunk_name, chunk_spec
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.filters_json import is_hsds_frame
from hsparse.hdf5.format.file_fields import Key
from hsparse.hdf5.format.messages.file_type import file_type, has_addresses
from hsparse.hdf5.format.plan.dataset_plan import check_transcoded, chunk_form
from hsparse.hdf5.format.plan.domain_plan import STOCK, known_key
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout
from hsparse.hdf5.format.plan.planned_chunks import (
    TRANSCODING_MEMORY,
    ChunkForm,
    PlannedChunks,
)
from hsparse.hdf5.format.plan.shifted_chunks import sized_chunks
from hsparse.hdf5.format.plan.transcoded_chunk import (
    check_sections,
    packed_sizes,
    resize_references,
    transcode_sections,
    transcoded_size,
)
from hsparse.hdf5.virtual_dataset.copied_chunks import AsksOwners
from hsparse.hdf5.virtual_file.domain_state import DomainState
from hsparse.hdf5.virtual_file.file_backed_pieces import detected_filters, read_piece
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect

T = TypeVar("T")

CHANGED_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.MOVED)
CHUNKS_AT_ONCE = 16
"""The maximum number of chunks that are read concurrently."""


async def read_planned(owners: AsksOwners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> memoryview:
    """Return the stored bytes of a chunk; raises `Moved` if the chunk has changed since the plan."""
    return byte_view((await read_direct_chunk(owners, spec, chunks, row)).data)


async def read_direct_chunk(
    owners: AsksOwners, spec: ChunkSpec, chunks: PlannedChunks, row: int
) -> DirectChunk:
    """Return the stored bytes of a chunk and its listing row; raises `Moved` if it has changed since the plan."""
    scaled = tuple(chunks.scaled[row].tolist())
    try:
        found = await owners.ask_owner(spec.key(scaled), ReadDirect(spec, scaled))
    except HsparseError as error:
        if error.kind not in CHANGED_KINDS:
            raise
        raise _changed(spec, scaled) from error
    if found is None or digests(found.row.etags)[0] != chunks.digest[row]:
        raise _changed(spec, scaled)
    return found


def _changed(spec: ChunkSpec, scaled: tuple[int, ...]) -> Moved:
    return Moved(f"The chunk {chunk_name(scaled)} of {spec.dataset} was changed since the file was planned.")


READS_AT_ONCE = 8
MAX_PACKED = 4 * 1024 * 1024 * 1024
"""The maximum size in bytes of all sparse chunks that one file deflates. Planning a file deflates them once."""


class SizedChunks:
    """Computes the sizes of chunks in files; `answers` is the memory budget for reading chunks."""

    def __init__(self, owners: AsksOwners, settings: ServiceSettings, answers: MemoryBudget) -> None:
        self._owners = owners
        self._settings = settings
        self._answers = answers

    async def of(self, state: DomainState, form: FileForm) -> dict[str, PlannedChunks]:
        """Return a dict that maps dataset ids to chunks with their sizes in the file; vlen chunks are read for this."""
        found = dict(state.chunks)
        left = MAX_PACKED
        ids = frozenset(state.records)
        for id, chunks in state.chunks.items():
            encoded = form.encoding(state.records[id]) is not None
            if chunks.shifted is not None:
                spec = chunk_spec(state.records[id])
                check_transcoded(spec, STOCK, self._settings.max_request_size)
                found[id] = sized_chunks(spec, chunks, encoded=encoded)
                continue
            if encoded:
                continue
            spec = chunk_spec(state.records[id])
            chunks = await self._with_actual_filters(spec, chunks)
            if chunks.backing is not None:
                found[id] = chunks
                continue
            check_transcoded(spec, form, self._settings.max_request_size)
            kind = chunk_form(spec, form, foreign=chunks.foreign)
            if kind is ChunkForm.TRANSCODED_SECTIONS:
                found[id] = await self._converted(spec, chunks, form.revision)
            elif kind is not ChunkForm.TRANSCODED:
                continue
            elif spec.datatype.is_vlen:
                found[id] = await self._measured(spec, chunks, ids)
            elif (nbytes := _packable(spec, chunks, form)) and nbytes <= left:
                left -= nbytes
                found[id] = await self._packed(spec, chunks, ids)
            else:
                found[id] = chunks.sized(prod(spec.dims) * file_type(spec.datatype.item).size)
        return found

    async def _with_actual_filters(self, spec: ChunkSpec, chunks: PlannedChunks) -> PlannedChunks:
        """Set `foreign` or, for file-backed datasets, the actual filters; the first chunk decides for all chunks."""
        if (places := chunks.backing) is not None:
            if places.contiguous or not len(chunks):
                return chunks
            nbytes = prod(places.spec.dims) * places.spec.dtype.itemsize
            return await self._of_chunk(int(chunks.size[0]) + nbytes, spec, chunks, 0, detected_filters)
        if spec.sparse or not spec.filters[0] or not len(chunks):
            return chunks
        async with self._answers.hold(int(chunks.size[0])):
            first = await read_planned(self._owners, spec, chunks, 0)
        return replace(chunks, foreign=is_hsds_frame(first, spec.filters[0]))

    async def _converted(
        self, spec: ChunkSpec, chunks: PlannedChunks, revision: FormatRevision
    ) -> PlannedChunks:
        """Return the chunks with the sizes of their transcoded sections."""
        check_sections(spec)
        chunks = chunks.take(chunks.defined > 0)
        if not spec.datatype.is_vlen:
            return resize_references(spec, chunks)

        async def convert(row: int) -> NDArray[np.uint64]:
            memory = TRANSCODING_MEMORY * int(chunks.sections[row, :, UNFILTERED].sum())
            rest = revision, lambda _: None
            sections, _ = await self._of_chunk(memory, spec, chunks, row, transcode_sections, *rest)
            return sections

        found = await gather_each(convert, range(len(chunks)), READS_AT_ONCE)
        return chunks.with_sections(np.array(found, np.uint64).reshape(chunks.sections.shape))

    async def _packed(self, spec: ChunkSpec, chunks: PlannedChunks, ids: frozenset[str]) -> PlannedChunks:
        """Return sparse chunks with the sizes of their deflated elements and booleans."""
        chunks = chunks.take(chunks.defined > 0)

        def key_of(name: str) -> Key | None:
            return known_key(name, ids)

        async def measure(row: int) -> tuple[int, int]:
            full = prod(spec.dims) * (1 + file_type(spec.datatype.item).size)
            memory = 2 * (int(chunks.sections[row, :, UNFILTERED].sum()) + full)
            return await self._of_chunk(memory, spec, chunks, row, packed_sizes, key_of)

        sizes = await gather_each(measure, range(len(chunks)), READS_AT_ONCE)
        packed = np.array(sizes, np.uint64).reshape(len(chunks), 2)
        return replace(chunks.sized(packed[:, 0]), packed=packed)

    async def _measured(self, spec: ChunkSpec, chunks: PlannedChunks, ids: frozenset[str]) -> PlannedChunks:
        def key_of(name: str) -> Key | None:
            return known_key(name, ids)

        async def measure(row: int) -> int:
            stored = int(chunks.size[row]) + prod(spec.dims) * file_type(spec.datatype.item).size
            return await self._of_chunk(2 * stored, spec, chunks, row, transcoded_size, key_of)

        sizes = await gather_each(measure, range(len(chunks)), READS_AT_ONCE)
        return chunks.sized(np.array(sizes, np.uint64))

    async def _of_chunk(
        self,
        memory: int,
        spec: ChunkSpec,
        chunks: PlannedChunks,
        row: int,
        function: Callable[..., T],
        *rest: Any,
    ) -> T:
        """Read a chunk and compute `function` of its bytes, while holding `memory` bytes of the budget."""
        async with self._answers.hold(memory):
            given: tuple[Any, ...]
            if chunks.backing is not None:
                given = chunks, await read_piece(self._owners, chunks, row)
            else:
                given = spec, await read_planned(self._owners, spec, chunks, row), chunks.sections[row], *rest
            return await compute(LONG_WORK_BYTES, function, *given)


def _packable(spec: ChunkSpec, chunks: PlannedChunks, form: FileForm) -> int:
    """Return the bytes of the elements and booleans of sparse chunks that may be deflated, or 0 if none may be.

    Elements with addresses are not deflated, because addresses are known only after the sizes of all chunks. Layouts
    other than `auto` do not deflate chunks, so that programs can read stored chunks by a map.
    """
    kind = file_type(spec.datatype.item)
    if form.layout is not FileLayout.AUTO or not spec.sparse or spec.arange or has_addresses(kind):
        return 0
    return int((chunks.defined > 0).sum()) * prod(spec.dims) * (1 + kind.size)
