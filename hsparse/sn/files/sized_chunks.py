"""The sizes of chunks in a file, if they differ from the stored sizes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.format.chunk_rows import UNFILTERED
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.filters.hsds import is_hsds_frame
from hsparse.format.format_revision import FormatRevision
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.messages.file_type import file_type, has_addresses
from hsparse.format.hdf5.plan.dataset_plan import check_transcoded, chunk_form
from hsparse.format.hdf5.plan.domain_plan import known_key
from hsparse.format.hdf5.plan.file_form import FileForm, FileLayout
from hsparse.format.hdf5.plan.planned_chunks import TRANSCODING_MEMORY, ChunkForm, PlannedChunks
from hsparse.format.hdf5.plan.transcoded_chunk import (
    check_sections,
    packed_sizes,
    resize_references,
    transcode_sections,
    transcoded_size,
)
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.files.chunk_reads import read_planned
from hsparse.sn.files.domain_state import DomainState
from hsparse.sn.files.file_backed_pieces import detect_filters
from hsparse.sn.service_settings import ServiceSettings

READS_AT_ONCE = 8
MAX_PACKED = 4 * 1024 * 1024 * 1024
"""The most bytes of sparse chunks that are deflated in one file: planning it deflates them once."""


class SizedChunks:
    """Determines sizes; `answers` is the memory budget for reading."""

    def __init__(self, owners: Owners, settings: ServiceSettings, answers: MemoryBudget) -> None:
        self._owners = owners
        self._settings = settings
        self._answers = answers

    async def of(self, state: DomainState, form: FileForm) -> dict[str, PlannedChunks]:
        """Return the chunks with their sizes in the file; chunks of variable-length elements are read for it."""
        found = dict(state.chunks)
        left = MAX_PACKED
        ids = frozenset(state.records)
        for id, chunks in state.chunks.items():
            if form.encoding(state.records[id]) is not None:
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
        """Return all chunks as foreign if the first one is: usually one program wrote them all."""
        if (places := chunks.backing) is not None:
            if places.contiguous or not len(chunks):
                return chunks
            nbytes = prod(places.spec.dims) * places.spec.dtype.itemsize
            async with self._answers.hold(int(chunks.size[0]) + nbytes):
                return await detect_filters(self._owners, chunks)
        if spec.sparse or not spec.filters[0] or not len(chunks):
            return chunks
        async with self._answers.hold(int(chunks.size[0])):
            first = await read_planned(self._owners, spec, chunks, 0)
        return replace(chunks, foreign=is_hsds_frame(first, spec.filters[0]))

    async def _converted(
        self, spec: ChunkSpec, chunks: PlannedChunks, revision: FormatRevision
    ) -> PlannedChunks:
        """Return chunks with their sections in a file of another form."""
        check_sections(spec)
        chunks = chunks.take(chunks.defined > 0)
        if not spec.datatype.is_vlen:
            return resize_references(spec, chunks)

        async def convert(row: int) -> NDArray[np.uint64]:
            async with self._answers.hold(
                TRANSCODING_MEMORY * int(chunks.sections[row, :, UNFILTERED].sum())
            ):
                data = await read_planned(self._owners, spec, chunks, row)
                work = partial(transcode_sections, spec, data, chunks.sections[row], revision, lambda _: None)
                sections, _ = await asyncio.to_thread(work)
            return sections

        found = await gather_each(convert, range(len(chunks)), READS_AT_ONCE)
        return chunks.with_sections(np.array(found, np.uint64).reshape(chunks.sections.shape))

    async def _packed(self, spec: ChunkSpec, chunks: PlannedChunks, ids: frozenset[str]) -> PlannedChunks:
        """Return sparse chunks with the sizes that they have when they are deflated."""
        chunks = chunks.take(chunks.defined > 0)

        def key_of(name: str) -> Key | None:
            return known_key(name, ids)

        async def measure(row: int) -> tuple[int, int]:
            full = prod(spec.dims) * (1 + file_type(spec.datatype.item).size)
            async with self._answers.hold(2 * (int(chunks.sections[row, :, UNFILTERED].sum()) + full)):
                data = await read_planned(self._owners, spec, chunks, row)
                return await asyncio.to_thread(packed_sizes, spec, data, chunks.sections[row], key_of)

        sizes = await gather_each(measure, range(len(chunks)), READS_AT_ONCE)
        packed = np.array(sizes, np.uint64).reshape(len(chunks), 2)
        return replace(chunks.sized(packed[:, 0]), packed=packed)

    async def _measured(self, spec: ChunkSpec, chunks: PlannedChunks, ids: frozenset[str]) -> PlannedChunks:
        def key_of(name: str) -> Key | None:
            return known_key(name, ids)

        async def measure(row: int) -> int:
            stored = int(chunks.size[row]) + prod(spec.dims) * file_type(spec.datatype.item).size
            async with self._answers.hold(2 * stored):
                data = await read_planned(self._owners, spec, chunks, row)
                return await asyncio.to_thread(transcoded_size, spec, data, chunks.sections[row], key_of)

        sizes = await gather_each(measure, range(len(chunks)), READS_AT_ONCE)
        return chunks.sized(np.array(sizes, np.uint64))


def _packable(spec: ChunkSpec, chunks: PlannedChunks, form: FileForm) -> int:
    """Return the bytes of the elements and booleans of sparse chunks that may be deflated, 0 for others.

    Those with addresses may not: they are known when the sizes of all chunks are. The layout `stock` has the chunks as
    they are, for programs that read them by a map.
    """
    kind = file_type(spec.datatype.item)
    if form.layout is not FileLayout.AUTO or not spec.sparse or spec.arange or has_addresses(kind):
        return 0
    return int((chunks.defined > 0).sum()) * prod(spec.dims) * (1 + kind.size)
