"""The driver below HTTP: it calls what the service node's handlers call."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from hsparse.clock import SystemClock
from hsparse.concurrency.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.selections.points import Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.signed_extent import places_of, points_of
from hsparse.model.dataspace import lower_of, parse_bounds, parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.ids import new_id, new_root_id
from hsparse.model.layout import parse_layout
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.values.append import Append, AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.sn.values.defined_read import count_defined, read_whole
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, CreateObject, SetExtent
from tests.support.driver import DatasetSpec, ElementValues, Found, NotDone, Place, Slab, found_elements
from tests.testing.sparse_model import Bounds, Coord

T = TypeVar("T")
LIMIT = 2**30


class DirectDriver:
    """A `Door` over `ChunkFanout` and `Owners`. Sparse answers are read in pieces of `page_size` bytes."""

    def __init__(self, owners: Owners, *, page_size: int = 256) -> None:
        self._owners = owners
        self._page_size = page_size

    async def create(self, kind: DatasetSpec) -> str:
        record = dataset_record(kind)
        await self._owners.apply(CreateObject(record["id"], record))
        return str(record["id"])

    async def write(self, id: str, place: Place, values: ElementValues, drop_fill: bool) -> None:
        async def write(dataset: StoredDataset) -> None:
            selection = _selection(place, dataset.extent)
            shaped = values.reshape(selection.shape)
            await ChunkFanout(self._owners, dataset).write(selection, shaped, drop_fill=drop_fill)

        await self._do(id, write)

    async def erase(self, id: str, place: Place) -> None:
        await self._do(
            id,
            lambda dataset: ChunkFanout(self._owners, dataset).erase(_selection(place, dataset.extent)),
        )

    async def resize(self, id: str, bounds: Bounds) -> None:
        async def resize(dataset: StoredDataset) -> None:
            lower = tuple(low for low, _ in bounds) if lower_of(dataset.record["shape"]) else ()
            lengths = tuple(high - low for low, high in bounds)
            await self._set_extent(dataset, SetExtent(id, lengths, lower=lower))

        await self._do(id, resize)

    async def extend(self, id: str, slab: Slab) -> None:
        token = SystemClock().token(8).hex()
        change = SetExtent(id, (slab.count,), slab.dim, token=token, below=slab.below)
        await self._do(id, lambda dataset: self._set_extent(dataset, change))

    async def _set_extent(self, dataset: StoredDataset, change: SetExtent) -> None:
        await change_extent(self._owners, AbandonAppends(dataset.id))
        if "trim" in dataset.record:
            await finish_trim(self._owners, dataset.record)
        await change_extent(self._owners, change)

    async def append(self, id: str, slab: Slab, place: Place, values: ElementValues, drop_fill: bool) -> None:
        @asynccontextmanager
        async def prepare(dataset: StoredDataset) -> AsyncIterator[tuple[Selection, ElementValues]]:
            selection = _selection(place, dataset.extent)
            yield selection, values.reshape(selection.shape)

        async def write(dataset: StoredDataset, selection: Selection, shaped: ElementValues) -> None:
            await ChunkFanout(self._owners, dataset).write(selection, shaped, drop_fill=drop_fill)

        async def append(dataset: StoredDataset) -> None:
            groups = AppendGroups(self._owners, SystemClock())
            await groups.apply(Append(slab.count, slab.dim, slab.below), load, prepare, write)

        async def load() -> StoredDataset:
            return await self._load(id)

        await self._do(id, append)

    async def bounds(self, id: str) -> Bounds:
        async def bounds(dataset: StoredDataset) -> Bounds:
            shape = dataset.record["shape"]
            lower = lower_of(shape) or (0,) * len(shape["dims"])
            return tuple((low, low + n) for low, n in zip(lower, shape["dims"], strict=True))

        return await self._do(id, bounds)

    async def count(self, id: str, place: Place | None = None) -> int:
        return await self._do(
            id,
            lambda dataset: count_defined(self._owners, dataset, _selection(place, dataset.extent)),
        )

    async def defined(self, id: str, place: Place | None = None) -> list[Coord]:
        coords, _ = await self._whole(id, place, places_only=True)
        return [tuple(coord) for coord in coords.tolist()]

    async def read_sparse(self, id: str, place: Place | None = None) -> Found:
        return found_elements(*await self._whole(id, place, places_only=False))

    async def read_dense(self, id: str, place: Place | None = None) -> bytes:
        async def read(dataset: StoredDataset) -> bytes:
            selection = _selection(place, dataset.extent)
            pages = ChunkFanout(self._owners, dataset).pages(selection, (), self._page_size)
            return b"".join([bytes(dataset.arrays.to_bytes(values)) async for values in pages])

        return await self._do(id, read)

    async def close(self) -> None:
        """Hold nothing."""

    async def _whole(self, id: str, place: Place | None, *, places_only: bool) -> tuple[Any, ElementValues]:
        async def read(dataset: StoredDataset) -> tuple[Any, ElementValues]:
            chosen = _selection(place, dataset.extent)
            chunks = ChunkFanout(self._owners, dataset)
            read = DefinedRead(chunks, self._page_size, places_only=places_only)
            found = await read_whole(read, chosen, LIMIT)
            assert found is not None
            return places_of(dataset.extent, found[0].coords()), found[1]

        return await self._do(id, read)

    async def _load(self, id: str) -> StoredDataset:
        return StoredDataset.of(await self._owners.record(id)).seen_by("signed")

    async def _do(self, id: str, work: Callable[[StoredDataset], Awaitable[T]]) -> T:
        try:
            for _ in range(MAX_READ_ATTEMPTS):
                with suppress(Moved):
                    return await work(await self._load(id))
            return await work(await self._load(id))
        except HsparseError as error:
            if error.kind in (ErrorKind.STORE_FAILED, ErrorKind.BUSY):
                raise NotDone(error.message) from error
            raise


def dataset_record(kind: DatasetSpec) -> Record:
    """Return the record of a new dataset, as the service node makes it, in a domain of its own."""
    clock = SystemClock()
    root = new_root_id(clock)
    properties: Record = {"filters": kind.filters}
    if kind.fill:
        properties |= {"fillValue": base64.b64encode(kind.fill).decode(), "fillValue_encoding": "base64"}
    datatype = parse_type(kind.type)
    shape = parse_bounds(kind.dataspace, parse_shape(kind.dataspace))
    layout = parse_layout(
        kind.layout, shape, datatype, filtered=bool(kind.filters), min_bytes=1, max_bytes=2**20
    )
    record: Record = {
        "id": new_id("datasets", root, clock),
        "root": root,
        "created": 1.0,
        "lastModified": 1.0,
    }
    return record | {"type": datatype.item, "shape": shape} | layout.fields(properties, "hsparse")


def _selection(place: Place | None, extent: Coord) -> Selection:
    if place is None or place.points is None:
        return parse_select(place and place.select, extent)
    return points_of(extent, np.array(place.points, np.int64).reshape(-1, len(extent)))
