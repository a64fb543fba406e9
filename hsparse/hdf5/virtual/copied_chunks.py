"""Virtual datasets in files that have their values: as if these were stored in chunks, which are made on request.

A chunk is read from the sources and encoded each time it is asked for, so that no more than one is in memory. What it
is made of decides its etag: a file that was planned of other elements is not completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import prod
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from hsparse.compute import compute, gather_each
from hsparse.dn.chunk_bytes import footer_columns
from hsparse.errors import TooLarge
from hsparse.format.chunk_map import ChunkRows
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.fields import as_type
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.structured.container import unseal
from hsparse.hdf5.virtual.layouts import mapped
from hsparse.hdf5.virtual.sources import NestedRights, Sources, current_record
from hsparse.model.layout import CHUNKED, MAPPED, SPARSE_DATA, STRUCTURED, VIRTUAL
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import FileRights
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect
from hsparse.wire.message import Message, Record

T = TypeVar("T")
MOST = 1 << 20
"""The most elements, defined or not, of a chunk."""
MAX_VLEN = 64 * 1024 * 1024
"""The most bytes of elements of variable length of a chunk."""
MAX_COPIED = 1 << 28
"""The most elements of a dataset: all are read to plan a file, and again for its bytes."""
AT_ONCE = 2
REMEDY = "export its sources, concatenate with --copy, or keep a dense one as HDF5's own (virtual=kept)"


class AsksOwners(Protocol):
    """Sends messages to the owner of a name, as `Owners` does."""

    async def ask_owner(self, name: str, message: Message[T]) -> T: ...


class CopiedChunks:
    """The chunks of one virtual dataset, for a reader with `rights`; `record` is that of a dataset that stores them."""

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
        self._dataset = Dataset.of(read, rights)
        self._fan = ChunkFanout(owners, self._dataset)

    @property
    def memory(self) -> int:
        """About how much memory making a chunk takes, in bytes: places, values, both in order, and encoded."""
        spec = self._spec
        if spec.is_vlen:
            return 4 * MAX_VLEN
        each = 3 * spec.dtype.itemsize + (24 * len(spec.dims) + 16 if spec.sparse else 0)
        return prod(spec.dims) * each

    async def rows(self, take: Callable[[int], None]) -> ChunkRows:
        """Return the rows of all chunks with elements; `take` counts them and raises beyond a limit."""
        dataset, extent = self._dataset, self._dataset.extent
        count = prod(extent)
        if dataset.spec.sparse:
            count = await self._fan.source.count_defined(Orthogonal.all(extent)) or 0
        if count > MAX_COPIED:
            raise TooLarge(
                f"{dataset.id} is virtual, and has {count} elements; a file has the values of at most {MAX_COPIED} of "
                f"such: {REMEDY}."
            )
        cells = [tuple(cell) for cell in (await self._fan.existing()).tolist()]
        found = await gather_each(self.read, cells, AT_ONCE)
        there = [one.row for one in found if one is not None]
        take(len(there))
        return ChunkRows.joined(there, len(extent))

    async def read(self, scaled: tuple[int, ...]) -> DirectChunk | None:
        """Return a chunk as a data node answers `ReadDirect`, None for one without elements."""
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
        return await compute(MOST, self._encoded, scaled, chunk)

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
            f"{self._dataset.id} is virtual, and a part of it has {nbytes} bytes; a file has at most {MAX_VLEN} of "
            f"such: {REMEDY}, or give the layout smaller dims."
        )


class CopyingOwners:
    """`AsksOwners` that answers for virtual datasets, by their ids, to a reader; for all else the owners do."""

    def __init__(self, owners: Owners, virtual: Mapping[str, Record], rights: NestedRights | None) -> None:
        self._owners = owners
        self._copied = {id: CopiedChunks(owners, record, rights) for id, record in virtual.items()}
        self._turns = asyncio.Semaphore(AT_ONCE)

    @property
    def memory(self) -> int:
        """About how much memory making chunks takes, in bytes."""
        return AT_ONCE * max((one.memory for one in self._copied.values()), default=0)

    async def ask_owner(self, name: str, message: Message[T]) -> T:
        """See `Owners`."""
        if not isinstance(message, ReadDirect) or message.spec.dataset not in self._copied:
            return await self._owners.ask_owner(name, message)
        async with self._turns:
            return cast("T", await self._copied[message.spec.dataset].read(message.scaled))


async def copied_chunks(owners: Owners, record: Record, rights: NestedRights | None) -> CopiedChunks:
    """Return the chunks of a virtual dataset, of the extent that its sources give it now."""
    current = record if rights is None else await current_record(owners, record, rights)
    return CopiedChunks(owners, current, rights)


async def require_sources(owners: Owners, virtual: Iterable[Record], rights: FileRights | None) -> None:
    """Raise `Forbidden` if a source of virtual datasets, or of a virtual source, may not be read.

    What others were planned or cached for is not for all.
    """
    for record in virtual:
        sources = Sources(owners, record, rights)
        layout = await mapped(record, sources.dims)
        found = await sources.find_all(layout.name(number) for number in range(len(layout)))
        for one in found.values():
            if one is not None and one.dataset.elsewhere == VIRTUAL:
                await require_sources(one.owners, [one.dataset.record], one.dataset.rights)


def _divided(dims: tuple[int, ...]) -> list[int]:
    """Return dimensions with at most `MOST` elements, the first ones halved."""
    found = list(dims)
    for dim in range(len(found)):
        while prod(found) > MOST and found[dim] > 1:
            found[dim] = -(-found[dim] // 2)
    return found
