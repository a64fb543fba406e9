"""Chunk operations on a dataset: planned here, one message an owner, results put into place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.plan import Share, count_chunks, plan
from hsparse.format.selection import Selection
from hsparse.model.objid import chunk_key, chunk_of_key, chunk_prefix
from hsparse.sn.dataset import Dataset
from hsparse.sn.owners import Owners
from hsparse.wire.gather import gather_all
from hsparse.wire.message import (
    CountDefined,
    EraseChunks,
    ListKeys,
    Part,
    ReadChunks,
    ReadSparse,
    SparseValues,
    WriteChunks,
)

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

    async def batches(self, selection: Selection) -> AsyncIterator[tuple[Share, ...]]:
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

    async def shares(self, selection: Selection) -> list[Share]:
        """Plan a read or an erasure whole."""
        return [share async for batch in self.batches(selection) for share in batch]

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the stored chunks, (k, rank) uint64."""
        if self._existing is None:
            self._existing = await list_chunks(self._owners, self._dataset)
        return self._existing

    async def read(self, selection: Selection) -> NDArray[Any]:
        """Return the selected values, in the selection's shape; fill value where there are none."""
        shares = await self.shares(selection)
        spec = self._dataset.spec
        parts: list[NDArray[Any] | None] = await self._owners.gather(
            shares, self._key, lambda some: ReadChunks(spec, parts_of(some))
        )
        if len(shares) == 1 and parts[0] is not None and parts[0].size == selection.size:
            return self._typed(parts[0]).reshape(selection.shape)
        result = np.empty(selection.shape, self._dataset.dtype)
        if sum(share.selection.size for share in shares) < selection.size:
            result[...] = self._dataset.fill
        for share, part in zip(shares, parts, strict=True):
            result[share.place] = self._dataset.fill if part is None else self._typed(part)
        return result

    async def read_sparse(
        self, shares: Sequence[Share], *, places_only: bool = False
    ) -> list[SparseValues | None]:
        """Return the defined elements of each share, None where there are none."""
        spec = self._dataset.spec
        return await self._owners.gather(
            shares, self._key, lambda some: ReadSparse(spec, parts_of(some), places_only)
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

    async def write(self, selection: Selection, values: NDArray[Any], *, drop_fill: bool = False) -> None:
        """Write `values`, of the selection's shape or one element for all; durable when it returns."""
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

    def _write_part(self, share: Share) -> Part:
        """A part is full for the data node only when no element of the chunk lies outside the extent."""
        stops = zip(share.scaled, self._dataset.spec.dims, self._dataset.extent, strict=True)
        inside = all((scaled + 1) * dim <= extent for scaled, dim, extent in stops)
        return Part(share.scaled, share.selection, share.full and inside)

    def _typed(self, part: NDArray[Any]) -> NDArray[Any]:
        return part if part.dtype == self._dataset.dtype else part.view(self._dataset.dtype)

    def _key(self, share: Share) -> str:
        return chunk_key(self._dataset.id, share.scaled)


def parts_of(shares: Sequence[Share]) -> tuple[Part, ...]:
    """Return what a message says of shares to read."""
    return tuple(Part(share.scaled, share.selection, share.full) for share in shares)


async def list_chunks(owners: Owners, dataset: Dataset) -> NDArray[np.uint64]:
    """Return the scaled coordinates of a dataset's stored chunks, (k, rank) uint64, in key order."""
    found: list[tuple[int, ...]] = []
    marker = ""
    rank = len(dataset.extent)
    while True:
        listing = await owners.ask_any(ListKeys(chunk_prefix(dataset.id), start_after=marker, limit=10_000))
        for key in listing.keys:
            scaled = chunk_of_key(key)
            if scaled is not None and len(scaled) == max(rank, 1):
                found.append(scaled[:rank])
        if not listing.more:
            return np.array(found, np.uint64).reshape(len(found), rank)
        marker = listing.keys[-1]
