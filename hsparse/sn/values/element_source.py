"""Where the elements of a dataset are read, and the source of most datasets: chunk objects, through their owners.

The other source is `FileBackedElements`. Each owner gets one message an operation.

Tests: tests/sn/values/test_chunk_fanout.py, tests/sn/values/test_values.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection, PlannedChunk
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset, list_chunks
from hsparse.wire.chunk_message import FindElements, ReadChunks, ReadDefined


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
        limit: int,
        in_order: bool,
        fields: tuple[str, ...],
        places_only: bool,
    ) -> list[FoundElements | None]:
        """Return what a query finds in each planned chunk, see `FindElements`."""
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

    async def read_defined(
        self, planned: Sequence[PlannedChunk], places_only: bool, limit: int
    ) -> list[DefinedElements | int | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: ReadDefined(spec, chunk_selections(some), places_only, limit)
        )

    async def find(
        self,
        planned: Sequence[PlannedChunk],
        query: str,
        *,
        limit: int,
        in_order: bool,
        fields: tuple[str, ...],
        places_only: bool,
    ) -> list[FoundElements | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned,
            self.key,
            lambda some: FindElements(
                spec, chunk_selections(some), query, limit, in_order, fields, places_only
            ),
        )

    def key(self, chunk: PlannedChunk) -> str:
        """Return the key of a chunk object, by which its owner is found."""
        return self._dataset.spec.key(chunk.scaled)


def chunk_selections(planned: Sequence[PlannedChunk]) -> tuple[ChunkSelection, ...]:
    """Return the chunk selections of planned chunks, as messages have them."""
    return tuple(ChunkSelection(chunk.scaled, chunk.selection, chunk.full) for chunk in planned)
