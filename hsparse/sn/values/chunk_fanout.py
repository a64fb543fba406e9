"""Chunk operations on a dataset: planned here, one message an owner, results put into place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_all
from hsparse.errors import TooLarge
from hsparse.format.fields import as_type, pick_fields
from hsparse.format.kinds.chunk_kind import DefinedElements, Found
from hsparse.format.plan.chunk_plan import ChunkSelection, PlannedChunk, count_chunks, plan
from hsparse.format.selections.selection import Selection
from hsparse.model.linked_layout import is_linked
from hsparse.model.objid import chunk_key, chunk_of_key, chunk_prefix
from hsparse.sn.data_nodes import Owners
from hsparse.sn.linked.linked_question import LinkedQuestion
from hsparse.sn.linked.linked_read import LinkedRead
from hsparse.sn.records.dataset import Dataset
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FindElements,
    ReadChunks,
    ReadDefined,
    UpdateElements,
    WriteChunks,
)
from hsparse.wire.record_message import ListKeys

MANY_CHUNKS = 1024
"""A selection that touches more is planned over the chunks that exist: one listing instead of misses."""
MOST_CHUNKS = 1 << 17
"""The most chunks one write may meet: one value for all is a short body, and each chunk takes a share."""


class ChunkFanout:
    """The chunks of one dataset, wherever their owners are."""

    def __init__(self, owners: Owners, dataset: Dataset) -> None:
        self._owners = owners
        self._dataset = dataset
        self._existing: NDArray[np.uint64] | None = None

    async def batches(self, selection: Selection) -> AsyncIterator[tuple[PlannedChunk, ...]]:
        """Plan a read or an erasure, some chunks at a time: those that certainly do not exist are left out."""
        grid = self._dataset.grid
        # With an initializer chunks that do not exist have values, which their owners make.
        if count_chunks(selection, grid) <= MANY_CHUNKS or self._dataset.spec.arange:
            yield plan(selection, grid)
            return
        existing = await self.existing()
        for first in range(0, len(existing), MANY_CHUNKS):
            yield plan(selection, grid, existing[first : first + MANY_CHUNKS])
            await asyncio.sleep(0)  # others have their turn between

    async def shares(self, selection: Selection) -> list[PlannedChunk]:
        """Plan a read or an erasure whole."""
        return [share async for batch in self.batches(selection) for share in batch]

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the stored chunks, (k, rank) uint64."""
        if self._existing is None:
            linked = self.linked()
            self._existing = (
                await list_chunks(self._owners, self._dataset) if linked is None else await linked.existing()
            )
        return self._existing

    async def read(self, selection: Selection, fields: Sequence[str] = ()) -> NDArray[Any]:
        """Return the selected values, in the selection's shape; fill value where there are none.

        With `fields` the elements have those alone, packed, in that order.
        """
        shares = await self.shares(selection)
        names = tuple(fields)
        parts = await self._read(shares, names)
        fill = pick_fields(self._dataset.fill, names)
        if len(shares) == 1 and parts[0] is not None and parts[0].size == selection.size:
            return as_type(parts[0], fill.dtype).reshape(selection.shape)
        result = np.empty(selection.shape, fill.dtype)
        if sum(share.selection.size for share in shares) < selection.size:
            result[...] = fill
        for share, part in zip(shares, parts, strict=True):
            result[share.place] = fill if part is None else as_type(part, fill.dtype)
        return result

    async def find(
        self,
        shares: Sequence[PlannedChunk],
        query: str,
        *,
        limit: int = 0,
        in_order: bool = False,
        fields: Sequence[str] = (),
        places_only: bool = False,
    ) -> list[Found | None]:
        """Return what a query finds in each share, see `FindElements`."""
        spec, names = self._dataset.spec, tuple(fields)
        linked = self.linked()
        if linked is not None:
            question = LinkedQuestion(query, spec.dtype, limit, names, places_only)
            return [None if part is None else question.answer(part) for part in await linked.read(shares)]
        return await self._owners.gather(
            shares,
            self._key,
            lambda some: FindElements(spec, parts_of(some), query, limit, in_order, names, places_only),
        )

    async def update(
        self, shares: Sequence[PlannedChunk], query: str, value: NDArray[Any], fields: Sequence[str]
    ) -> list[Found]:
        """Change what a query finds in each share, see `UpdateElements`; durable when it returns."""
        self._dataset.require_writable()
        spec, names = self._dataset.spec, tuple(fields)
        return await self._owners.gather(
            shares, self._key, lambda some: UpdateElements(spec, parts_of(some), query, value, names)
        )

    async def _read(
        self, shares: Sequence[PlannedChunk], fields: tuple[str, ...]
    ) -> list[NDArray[Any] | None]:
        """Return each share's values, None where there are none."""
        linked = self.linked()
        if linked is not None:
            whole = await linked.read(shares)
            return [None if part is None else pick_fields(part, fields) for part in whole]
        spec = self._dataset.spec
        return await self._owners.gather(
            shares, self._key, lambda some: ReadChunks(spec, parts_of(some), fields)
        )

    def linked(self) -> LinkedRead | None:
        """Return how the dataset is read when its data stays in a file."""
        if not is_linked(self._dataset.record):
            return None
        return LinkedRead(
            self._owners,
            self._dataset,
            lambda table, selection: ChunkFanout(self._owners, table).read(selection),
        )

    async def read_sparse(
        self, shares: Sequence[PlannedChunk], *, places_only: bool = False
    ) -> list[DefinedElements | None]:
        """Return the defined elements of each share, None where there are none."""
        spec = self._dataset.spec
        return await self._owners.gather(
            shares, self._key, lambda some: ReadDefined(spec, parts_of(some), places_only)
        )

    async def count(self, selection: Selection) -> int:
        """Return how many of the selected elements are defined."""
        spec = self._dataset.spec
        total = 0
        async for shares in self.batches(selection):
            total += sum(
                await self._owners.gather(shares, self._key, lambda some: CountDefined(spec, parts_of(some)))
            )
        return total

    async def write(
        self,
        selection: Selection,
        values: NDArray[Any],
        *,
        drop_fill: bool = False,
        fields: Sequence[str] = (),
    ) -> None:
        """Write `values`, of the selection's shape or one element for all; durable when it returns.

        With `fields` the values have those alone, packed, and the others stay.
        """
        self._dataset.require_writable()
        if selection.size > MOST_CHUNKS and count_chunks(selection, self._dataset.grid) > MOST_CHUNKS:
            raise TooLarge(f"The selection meets more than {MOST_CHUNKS} chunks; write less at a time.")
        shares = plan(selection, self._dataset.grid)
        one = values.size == 1 and selection.size != 1
        await gather_all(
            [
                node.send(
                    WriteChunks(
                        self._dataset.spec,
                        tuple(self._write_part(shares[i]) for i in some),
                        tuple(values.reshape(1) if one else values[(*shares[i].place, ...)] for i in some),
                        drop_fill,
                        tuple(fields),
                    )
                )
                for node, some in self._owners.split(shares, self._key)
            ]
        )

    async def erase(self, selection: Selection) -> None:
        """Make the selected elements undefined; durable when it returns."""
        async for shares in self.batches(selection):
            await gather_all(
                [
                    node.send(EraseChunks(self._dataset.spec, parts_of([shares[i] for i in some])))
                    for node, some in self._owners.split(shares, self._key)
                ]
            )

    def _write_part(self, share: PlannedChunk) -> ChunkSelection:
        """A part is full for the data node only when no element of the chunk lies outside the extent."""
        stops = zip(share.scaled, self._dataset.spec.dims, self._dataset.extent, strict=True)
        inside = all((scaled + 1) * dim <= extent for scaled, dim, extent in stops)
        return ChunkSelection(share.scaled, share.selection, share.full and inside)

    def _key(self, share: PlannedChunk) -> str:
        return chunk_key(self._dataset.id, share.scaled)


def parts_of(shares: Sequence[PlannedChunk]) -> tuple[ChunkSelection, ...]:
    """Return what a message says of shares to read."""
    return tuple(ChunkSelection(share.scaled, share.selection, share.full) for share in shares)


async def list_chunks(owners: Owners, dataset: Dataset, most: int | None = None) -> NDArray[np.uint64]:
    """Return the scaled coordinates of a dataset's stored chunks, (k, rank) uint64, in key order.

    `TooLarge` when there are more than `most`.
    """
    found: list[tuple[int, ...]] = []
    marker = ""
    rank = len(dataset.extent)
    while True:
        listing = await owners.ask_any(ListKeys(chunk_prefix(dataset.id), start_after=marker, limit=10_000))
        for key in listing.keys:
            scaled = chunk_of_key(key)
            if scaled is not None and len(scaled) == max(rank, 1):
                found.append(scaled[:rank])
        if most is not None and len(found) > most:
            raise TooLarge(f"{dataset.id} has more than {most} stored chunks; ask for pages of them.")
        if not listing.more:
            return np.array(found, np.uint64).reshape(len(found), rank)
        marker = listing.keys[-1]
