"""Export virtual datasets by value: present one as a chunked dataset whose chunks are computed on request.

Each request for a chunk reads it from the sources and encodes it, so that memory holds at most `AT_ONCE` chunks. The
etag is a hash of the encoded chunk: an export fails if the elements have changed since it was planned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import prod
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.dn.chunk_bytes import footer_columns
from hsparse.errors import TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.fields import as_type
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.structured.container import unseal
from hsparse.hdf5.virtual_dataset.layouts import mapped
from hsparse.hdf5.virtual_dataset.sources import NestedRights, Sources, current_record
from hsparse.model.layout import CHUNKED, MAPPED, SPARSE_DATA, STRUCTURED, VIRTUAL
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import FileRights
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect
from hsparse.wire.message import Message, Record

T = TypeVar("T")
MAX_CHUNK_ELEMENTS = 1 << 20
"""Most elements of a chunk, including undefined ones."""
MAX_VLEN = 64 * 1024 * 1024
"""Most bytes of a chunk's vlen elements."""
MAX_COPIED = 1 << 28
"""Most elements of a copied dataset, all of which are read to plan a file and again to produce the file's bytes."""
AT_ONCE = 2
REMEDY = "export its sources, concatenate with --copy, or keep a dense dataset virtual (virtual=kept)"


class AsksOwners(Protocol):
    """An object that, like `Owners`, sends a message to the data node that owns a name."""

    async def ask_owner(self, name: str, message: Message[T]) -> T: ...


class CopiedChunks:
    """The chunks of one virtual dataset, read with `rights`; `record` describes the dataset as a chunked one."""

    def __init__(self, owners: Owners, virtual: Record, rights: NestedRights | None) -> None:
        self.virtual = virtual
        grid = _divided(chunk_spec(virtual).dims)
        kind: Record = {"class": CHUNKED, "dims": grid}
        if SPARSE_DATA in virtual["creationProperties"]["layout"].get("flags", ()):
            kind = {"class": STRUCTURED, "dims": grid, "flags": [SPARSE_DATA]}
        properties = virtual["creationProperties"] | {"layout": kind}
        self.record = virtual | {"layout": kind, "creationProperties": properties}
        del self.record[VIRTUAL_DATA]
        self._spec = chunk_spec(self.record)
        read = virtual | {"layout": {"class": MAPPED, "layout": virtual["layout"]["layout"] | {"dims": grid}}}
        self._dataset = StoredDataset.of(read, rights)
        self._fan = ChunkFanout(owners, self._dataset)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory to make a chunk: coordinates, values, sorted copies, and the encoded chunk."""
        spec = self._spec
        if spec.is_vlen:
            return 4 * MAX_VLEN
        each = 3 * spec.dtype.itemsize + (24 * len(spec.dims) + 16 if spec.sparse else 0)
        return prod(spec.dims) * each

    async def rows(self, take: Callable[[int], None]) -> ChunkRows:
        """Return coordinates, sizes and etags of all chunks with elements; `take` gets their number, and may raise."""
        dataset, extent = self._dataset, self._dataset.extent
        count = prod(extent)
        if dataset.spec.sparse:
            count = await self._fan.source.count_defined(Orthogonal.all(extent)) or 0
        if count > MAX_COPIED:
            raise TooLarge(
                f"{dataset.id} is virtual, and has {count} elements; at most {MAX_COPIED} can be copied into a file: "
                f"{REMEDY}."
            )
        cells = [tuple(cell) for cell in (await self._fan.existing()).tolist()]
        found = await gather_each(self.read, cells, AT_ONCE)
        there = [one.row for one in found if one is not None]
        take(len(there))
        return ChunkRows.joined(there, len(extent))

    async def read(self, scaled: tuple[int, ...]) -> DirectChunk | None:
        """Return a chunk as a data node would answer `ReadDirect`, or None if the chunk has no elements."""
        dims, extent = self._spec.dims, self._dataset.extent
        start = [at * dim for at, dim in zip(scaled, dims, strict=True)]
        stop = [min(at + dim, end) for at, dim, end in zip(start, dims, extent, strict=True)]
        if any(low >= high for low, high in zip(start, stop, strict=True)):
            return None
        planned = await self._fan.planned(Orthogonal.box(extent, start, stop))
        chunk: Any
        if self._spec.sparse:
            (defined,) = await self._fan.source.read_defined(planned, limit=MAX_VLEN)
            if isinstance(defined, int):
                raise self._too_long(defined)
            if defined is None or not len(defined.offsets):
                return None
            chunk = self._sparse(defined)
        else:
            (values,) = await self._fan.source.read(planned, (), MAX_VLEN)
            if isinstance(values, int):
                raise self._too_long(values)
            if values is None:
                return None
            at = ChunkSelection(scaled, planned[0].selection, planned[0].full)
            flat = values.reshape((values.size,))
            chunk, _ = kind_of(self._spec).write(at, flat, (), drop_fill=False)(None)
        return await compute(MAX_CHUNK_ELEMENTS, self._encoded, scaled, chunk)

    def _sparse(self, found: DefinedElements) -> SparseChunk | SparseVlenChunk:
        dims, values = self._spec.dims, cast("Any", found.values)
        if self._spec.is_vlen:
            return SparseVlenChunk(dims, found.offsets, values)
        return SparseChunk(dims, found.offsets, as_type(values, self._spec.dtype))

    def _encoded(self, scaled: tuple[int, ...], chunk: Any) -> DirectChunk:
        data = memoryview(kind_of(self._spec).encode(chunk)).cast("B")
        content, footer = (data, None) if not self._spec.structured else unseal(data)
        etag = blake2b(content, digest_size=16).hexdigest()
        row = ChunkRows.of((scaled,), len(scaled), (len(content),), (etag,))
        if footer is not None:
            row = row.described(*footer_columns([footer], self._spec))
        return DirectChunk(np.frombuffer(content, np.uint8), row)

    def _too_long(self, nbytes: int) -> TooLarge:
        return TooLarge(
            f"{self._dataset.id} is virtual, and a chunk of it has {nbytes} bytes; at most {MAX_VLEN} can be copied "
            f"into a file: {REMEDY}, or give the layout smaller dims."
        )


class CopyingOwners:
    """An `AsksOwners` that answers `ReadDirect` for the datasets in `virtual` itself, and forwards other messages."""

    def __init__(self, owners: Owners, virtual: Mapping[str, Record], rights: NestedRights | None) -> None:
        self._owners = owners
        self._copied = {id: CopiedChunks(owners, record, rights) for id, record in virtual.items()}
        self._turns = asyncio.Semaphore(AT_ONCE)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory to make `AT_ONCE` chunks."""
        return AT_ONCE * max((one.memory for one in self._copied.values()), default=0)

    async def ask_owner(self, name: str, message: Message[T]) -> T:
        """Answer a read of a virtual dataset's chunk, or forward the message; see `Owners.ask_owner`."""
        if not isinstance(message, ReadDirect) or message.spec.dataset not in self._copied:
            return await self._owners.ask_owner(name, message)
        async with self._turns:
            return cast("T", await self._copied[message.spec.dataset].read(message.scaled))


async def copied_chunks(owners: Owners, record: Record, rights: NestedRights | None) -> CopiedChunks:
    """Return the chunks of a virtual dataset at its current extent, which may follow the extents of its sources."""
    current = record if rights is None else await current_record(owners, record, rights)
    return CopiedChunks(owners, current, rights)


async def require_sources(owners: Owners, virtual: Iterable[Record], rights: FileRights | None) -> None:
    """Raise `Forbidden` if the reader may not read a source of the virtual datasets, including nested sources.

    Call this before a cached plan or chunk is used, because the plan may have been made for a reader with more rights.
    """
    for record in virtual:
        sources = Sources(owners, record, rights)
        layout = await mapped(record, sources.dims)
        found = await sources.find_all(layout.name(number) for number in range(len(layout)))
        for one in found.values():
            if one is not None and one.dataset.elsewhere == VIRTUAL:
                await require_sources(one.owners, [one.dataset.record], one.dataset.rights)


def _divided(dims: tuple[int, ...]) -> list[int]:
    """Return chunk dimensions with at most `MAX_CHUNK_ELEMENTS` elements, by halving the first dimensions as needed."""
    found = list(dims)
    for dim in range(len(found)):
        while prod(found) > MAX_CHUNK_ELEMENTS and found[dim] > 1:
            found[dim] = -(-found[dim] // 2)
    return found
