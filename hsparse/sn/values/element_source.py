"""Where the elements of a dataset are read, and the source of most datasets: chunk objects, through their owners.

An extension has another one (`FileData`). Each owner gets one message an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.format.kinds.chunk_kind import FoundElements
from hsparse.format.plan.chunk_plan import PlannedChunk, chunk_selections
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset, list_chunks
from hsparse.wire.chunk_message import FindElements, ReadChunks, ReduceChunks


class ElementSource(Protocol):
    """Where the elements of a dataset are read: in its chunk objects, or in files of the store."""

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks that have elements, (k, rank) uint64."""
        ...

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...], limit: int
    ) -> list[Values | int | None]:
        """Return the values of each planned chunk, see `ReadChunks`."""
        ...

    async def find(
        self,
        planned: Sequence[PlannedChunk],
        query: str,
        *,
        limit: int = 0,
        in_order: bool = False,
        fields: Sequence[str] = (),
        places_only: bool = False,
        order_by: str = "",
    ) -> list[FoundElements | None]:
        """Return what a query finds in each planned chunk, see `FindElements`."""
        ...

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        """Return partial results that are together those of all planned chunks, see `ReduceChunks`.

        `codes: (n,)` are the groups of the whole selection's positions along the grouped axis.
        """
        ...


class ChunkObjectElements:
    """`ElementSource` of one dataset with chunk objects."""

    def __init__(self, owners: Owners, dataset: Dataset) -> None:
        self._owners = owners
        self._dataset = dataset

    async def existing(self) -> NDArray[np.uint64]:
        return await list_chunks(self._owners, self._dataset)

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...], limit: int
    ) -> list[Values | int | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: ReadChunks(spec, chunk_selections(some), fields, limit)
        )

    async def find(
        self,
        planned: Sequence[PlannedChunk],
        query: str,
        *,
        limit: int = 0,
        in_order: bool = False,
        fields: Sequence[str] = (),
        places_only: bool = False,
        order_by: str = "",
    ) -> list[FoundElements | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned,
            self.key,
            lambda some: FindElements(
                spec, chunk_selections(some), query, limit, in_order, tuple(fields), places_only, order_by
            ),
        )

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        spec, rank = self._dataset.spec, len(reduction.shape)
        origins = np.array([chunk.origin for chunk in planned], np.int64).reshape(len(planned), rank)

        def message(some: Sequence[int]) -> ReduceChunks:
            parts = [planned[i] for i in some]
            first, own = 0, codes
            if codes is not None:
                begins = origins[some, reduction.grouped]
                ends = [
                    at + part.selection.shape[reduction.grouped]
                    for at, part in zip(begins, parts, strict=True)
                ]
                first, own = int(begins.min()), codes[int(begins.min()) : int(max(ends))]
            return ReduceChunks(spec, chunk_selections(parts), origins[list(some)], reduction, own, first)

        if not planned:
            return []
        replies = await self._owners.scatter(planned, self.key, message)
        return [part for _, part in sorted(replies, key=lambda reply: reply[0][0])]

    def key(self, chunk: PlannedChunk) -> str:
        """Return the key of a chunk object, by which its owner is found."""
        return self._dataset.spec.key(chunk.scaled)
