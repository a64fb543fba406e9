"""The chunks of a dataset with their addresses in the file of its domain.

Reading the stored chunks of a planned file, a few at a time.

The sizes of chunks in a file, if they differ from the stored sizes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import LONG, compute, gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import UNFILTERED, digests, row_names
from hsparse.format.chunk_spec import ChunkSpec, chunk_name, chunk_spec
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.filters_json import is_hsds_frame
from hsparse.hdf5.files.domain_state import DomainState
from hsparse.hdf5.files.file_backed_pieces import detected_filters, read_piece
from hsparse.hdf5.format.file_fields import Key
from hsparse.hdf5.format.messages.file_type import file_type, has_addresses
from hsparse.hdf5.format.plan.dataset_plan import check_transcoded, chunk_form
from hsparse.hdf5.format.plan.domain_plan import STOCK, DomainPlan, known_key
from hsparse.hdf5.format.plan.file_plan import FileForm, FileLayout
from hsparse.hdf5.format.plan.planned_chunks import (
    TRANSCODING_MEMORY,
    ChunkForm,
    ChunkRegion,
    PlannedChunks,
    Uint64Column,
)
from hsparse.hdf5.format.plan.shifted_chunks import sized_chunks
from hsparse.hdf5.format.plan.transcoded_chunk import (
    check_sections,
    packed_sizes,
    resize_references,
    transcode_sections,
    transcoded_size,
)
from hsparse.hdf5.virtual.copied_chunks import AsksOwners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import ROWS_AT_ONCE, ChunkPages, ChunkQuery, Json, Scaled, chunk_place
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect


class FileChunks:
    """The chunks of another `ChunkPages`, each with `file`, for one pass over all pages.

    `file` has `address` and `size` in the file, in bytes, and `stored`, which says whether the bytes are those of the
    object. If not, they are the unfiltered elements of the chunk and the heap collections that these refer to. In the
    stock layout `defined_set` has the address and size of the booleans of a sparse chunk. Chunks without an object come
    last, without a key. A sparse chunk without defined elements has no `file`.

    The pages raise the error that `changed` returns if a chunk has changed since the plan.
    """

    def __init__(
        self,
        dataset: Dataset,
        chunks: ChunkPages,
        plan: DomainPlan,
        changed: Callable[[str], HsparseError],
    ) -> None:
        self._dataset = dataset
        self._chunks = chunks
        self._changed = changed
        self._values = _Places.of(plan, (dataset.id, "chunks"))
        self._defined = _Places.of(plan, ((dataset.id, "defined"), "chunks"))
        self._located = 0
        self.grid = chunks.grid

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        rows, marker = await self._chunks.page(wanted)
        found: list[Json] = []
        for first in range(0, len(rows), ROWS_AT_ONCE):
            found += self._placed(rows[first : first + ROWS_AT_ONCE])
            await asyncio.sleep(0)
        return (found if marker else found + await self._rest()), marker

    def _placed(self, rows: list[Json]) -> list[Json]:
        """Return rows with their places in the file; rows of chunks that are not in the file stay as they are."""
        inside = [number for number, row in enumerate(rows) if row.get("defined", 1)]
        if not inside:
            return rows
        named = np.array([rows[number]["scaled"] for number in inside], np.int64)
        scaled = (named - np.array(self._dataset.spec.base or 0, np.int64)).astype(np.uint64)
        places = self._locate(scaled.reshape(len(inside), -1), [rows[number]["etag"] for number in inside])
        for number, place in zip(inside, places, strict=True):
            rows[number] = {**rows[number], "file": place}
        self._located += len(inside)
        return rows

    def _locate(self, scaled: NDArray[np.uint64], etags: list[str]) -> list[Json]:
        if self._values is None:
            raise self._changed(self._name(scaled[0]))
        names = row_names(scaled)
        places = self._values.find(names)
        chunks = self._values.region.chunks
        wrong = (
            (places < 0) | (chunks.digest[places] != digests(tuple(etags))) | ~chunks.stored[places]
        ).nonzero()[0]
        if len(wrong):
            raise self._changed(self._name(scaled[wrong[0]]))
        stored = self._values.region.form is ChunkForm.STORED
        found: list[Json] = [one | {"stored": stored} for one in self._values.to_json(places)]
        if self._defined is not None:
            for one, defined in zip(found, self._defined.to_json(self._defined.find(names)), strict=True):
                one["defined_set"] = defined
        return found

    async def _rest(self) -> list[Json]:
        """Return the chunks of the file without an object, after all chunks with one."""
        if self._values is None:
            return []
        chunks = self._values.region.chunks
        if int(chunks.stored.sum()) != self._located:
            raise self._changed(self._dataset.id)
        made = np.flatnonzero(~chunks.stored)
        found: list[Json] = []
        for first in range(0, len(made), ROWS_AT_ONCE):
            some = made[first : first + ROWS_AT_ONCE]
            pairs = zip(chunks.scaled[some].tolist(), self._values.to_json(some), strict=True)
            found += [
                chunk_place(self.grid, scaled, self._dataset.spec.base) | {"file": place | {"stored": False}}
                for scaled, place in pairs
            ]
            await asyncio.sleep(0)
        return found

    def _name(self, scaled: NDArray[np.uint64]) -> str:
        return f"The chunk {chunk_name(scaled.tolist())} of {self._dataset.id}"


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """A region of chunks at `address` in its file, and the chunks' names (`row_names`), which ascend."""

    region: ChunkRegion
    address: int
    names: NDArray[np.bytes_]

    @classmethod
    def of(cls, plan: DomainPlan, key: Key) -> _Places | None:
        """Return the places in a region of a plan; None without that region: there are no chunks."""
        region = plan.regions.get(key)
        if region is None:
            return None
        return cls(region, plan.file.base + plan.file.address_of(key), row_names(region.chunks.scaled))

    def find(self, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the row of each name, -1 for an unknown one."""
        rows = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(self.names[rows] == names, rows, -1).astype(np.intp)

    def to_json(self, rows: NDArray[np.intp]) -> list[Json]:
        """Return address and size in the file of the chunks in these rows."""
        addresses = (self.region.starts[rows] + np.uint64(self.address)).tolist()
        sizes = self.region.chunks.size[rows].tolist()
        return [{"address": address, "size": size} for address, size in zip(addresses, sizes, strict=True)]


CHANGED_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.MOVED)
CHUNKS_AT_ONCE = 16
"""The most chunks that are read at once."""


async def read_planned(owners: AsksOwners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> memoryview:
    """Return the stored bytes of a chunk; `Moved` if it has changed since the plan."""
    return byte_view((await read_direct_chunk(owners, spec, chunks, row)).data)


async def read_direct_chunk(
    owners: AsksOwners, spec: ChunkSpec, chunks: PlannedChunks, row: int
) -> DirectChunk:
    """Return the stored bytes of a chunk and its row, with the stored sections; `Moved` as above."""
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


def row_batches(sizes: Uint64Column, rows: range, page: int) -> Iterator[range]:
    """Yield runs of `rows` of at most `page` bytes by `sizes: (len(rows),)`; a larger row is a run alone."""
    first = 0
    while first < len(rows):
        last = first + 1
        room = page - int(sizes[first])
        while last < min(len(rows), first + CHUNKS_AT_ONCE) and int(sizes[last]) <= room:
            room -= int(sizes[last])
            last += 1
        yield rows[first:last]
        first = last


T = TypeVar("T")
READS_AT_ONCE = 8
MAX_PACKED = 4 * 1024 * 1024 * 1024
"""The most bytes of sparse chunks that are deflated in one file: planning it deflates them once."""


class SizedChunks:
    """Determines sizes; `answers` is the memory budget for reading."""

    def __init__(self, owners: AsksOwners, settings: ServiceSettings, answers: MemoryBudget) -> None:
        self._owners = owners
        self._settings = settings
        self._answers = answers

    async def of(self, state: DomainState, form: FileForm) -> dict[str, PlannedChunks]:
        """Return the chunks with their sizes in the file; chunks of variable-length elements are read for it."""
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
        """Return all chunks as foreign if the first one is: usually one program wrote them all."""
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
        """Return chunks with their sections in a file of another form."""
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
        """Return sparse chunks with the sizes that they have when they are deflated."""
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
        """Return what a function makes of the bytes of a chunk, and of its sections, or of a piece, in `memory`."""
        async with self._answers.hold(memory):
            given: tuple[Any, ...]
            if chunks.backing is not None:
                given = chunks, await read_piece(self._owners, chunks, row)
            else:
                given = spec, await read_planned(self._owners, spec, chunks, row), chunks.sections[row], *rest
            return await compute(LONG, function, *given)


def _packable(spec: ChunkSpec, chunks: PlannedChunks, form: FileForm) -> int:
    """Return the bytes of the elements and booleans of sparse chunks that may be deflated, 0 for others.

    Those with addresses may not: they are known when the sizes of all chunks are. The layout `stock` has the chunks as
    they are, for programs that read them by a map.
    """
    kind = file_type(spec.datatype.item)
    if form.layout is not FileLayout.AUTO or not spec.sparse or spec.arange or has_addresses(kind):
        return 0
    return int((chunks.defined > 0).sum()) * prod(spec.dims) * (1 + kind.size)
