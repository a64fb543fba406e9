"""What a simulated service node does for a client: the handlers' work. Values are integers; 0 is nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import numpy as np

from hsparse.clock import Clock
from hsparse.concurrency.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import Moved
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.signed_extent import points_of
from hsparse.model.dataset_state import extents_of_change, is_trimmed
from hsparse.model.dataspace import lower_of
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.values.append import Append, AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record
from hsparse.wire.record_message import (
    AbandonAppends,
    CreateObject,
    DeleteObject,
    PutAttributes,
    SetExtent,
)

T = TypeVar("T")
DTYPE = np.dtype("<i8")


class ServiceOperations:
    """A service node's operations on datasets of one dimension and on records, through its `owners`."""

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self.owners = owners
        self._clock = clock
        self._groups = AppendGroups(owners, clock)

    async def write(self, id: str, places: Sequence[int], value: int) -> None:
        """Write `value` to elements."""

        async def write(dataset: StoredDataset) -> None:
            values = np.full(len(places), value, DTYPE)
            await ChunkFanout(self.owners, dataset).write(points(dataset, places), values)

        await self._until_current(id, write)

    async def erase(self, id: str, places: Sequence[int]) -> None:
        """Erase elements."""

        async def erase(dataset: StoredDataset) -> None:
            await ChunkFanout(self.owners, dataset).erase(points(dataset, places))

        await self._until_current(id, erase)

    async def read(self, id: str, places: Sequence[int]) -> list[int]:
        """Return elements."""

        async def read(dataset: StoredDataset) -> list[int]:
            return list(map(int, await ChunkFanout(self.owners, dataset).read(points(dataset, places))))

        return await self._until_current(id, read)

    async def read_all(self, id: str) -> list[int]:
        """Return all elements of the extent."""
        return (await self.read_bounded(id))[1]

    async def read_bounded(self, id: str) -> tuple[int, list[int]]:
        """Return the lower bound, and all elements from there."""

        async def read(dataset: StoredDataset) -> tuple[int, list[int]]:
            (lower,) = lower_of(dataset.record["shape"]) or (0,)
            found = await ChunkFanout(self.owners, dataset).read(parse_select(None, dataset.extent))
            return lower, list(map(int, found))

        return await self._until_current(id, read)

    async def append(self, id: str, count: int, value: int, key: str = "", *, below: bool = False) -> int:
        """Append `count` elements of this value, once for a key, and return where they are."""

        async def load() -> StoredDataset:
            return await self._load(id)

        @asynccontextmanager
        async def prepare(slab: StoredDataset) -> AsyncIterator[tuple[Selection, Values]]:
            yield Orthogonal.all(slab.extent), np.full(count, value, DTYPE)

        async def write(dataset: StoredDataset, selection: Selection, values: Values) -> None:
            await ChunkFanout(self.owners, dataset).write(selection, values)

        select = await self._groups.apply(Append(count, 0, below), load, prepare, write, key)
        return int(select.strip("[]").split(":")[0])

    async def extend(self, id: str, count: int) -> int:
        """Extend by `count` elements, and return where they begin."""
        token = self._clock.token(8).hex()
        record = (await self.owners.apply(SetExtent(id, (count,), 0, token=token))).unwrap()
        extents = extents_of_change(record, token)
        assert extents is not None
        return extents[0][0]

    async def move(self, id: str, low: int, high: int) -> None:
        """Set both bounds of a signed dataset, and erase what falls outside; `Conflict` if others shrink it."""
        change = SetExtent(id, (high - low,), token=self._clock.token(8).hex(), lower=(low,))
        for _ in range(MAX_READ_ATTEMPTS):
            record = await self.owners.record(id)
            if is_trimmed(record):
                await finish_trim(self.owners, record)
            with suppress(Moved):
                await change_extent(self.owners, change)
                return
            await change_extent(self.owners, AbandonAppends(id))
        await change_extent(self.owners, change)

    async def bounds(self, id: str) -> tuple[int, int]:
        """Return the lower bound, 0 of a dataset that has none, and the upper one."""
        shape = (await self.owners.record(id))["shape"]
        (lower,) = lower_of(shape) or (0,)
        return lower, lower + shape["dims"][0]

    async def create(self, id: str, record: Record) -> None:
        """Create a record; `Conflict` if it exists."""
        await self.owners.apply(CreateObject(id, record))

    async def delete(self, id: str) -> None:
        """Delete a record; `NotFound` or `Gone` if it does not exist."""
        await self.owners.apply(DeleteObject(id))

    async def record(self, id: str) -> Record:
        """Return a record; `NotFound` or `Gone` if it does not exist."""
        return await self.owners.record(id)

    async def put_attribute(self, id: str, name: str, value: int) -> None:
        """Set an attribute."""
        attribute = {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": value}
        await self.owners.apply(PutAttributes(id, {name: attribute}, replace=True))

    async def _until_current(self, id: str, work: Callable[[StoredDataset], Awaitable[T]]) -> T:
        for _ in range(MAX_READ_ATTEMPTS):
            with suppress(Moved):
                return await work(await self._load(id))
        return await work(await self._load(id))

    async def _load(self, id: str) -> StoredDataset:
        return StoredDataset.of(await self.owners.record(id)).seen_by("signed")


def points(dataset: StoredDataset, places: Sequence[int]) -> Points:
    """Return elements as a selection."""
    return points_of(dataset.extent, np.array(places, np.int64).reshape(-1, 1))
