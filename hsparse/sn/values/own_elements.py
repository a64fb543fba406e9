"""The elements of a dataset whose chunks are objects of the store: asked of the chunks' owners, one message each.

Tests: tests/sn/values/test_values.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection, PlannedChunk
from hsparse.model.ids import chunk_key
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes import Owners
from hsparse.sn.records.dataset import Dataset, list_chunks
from hsparse.wire.chunk_message import FindElements, ReadChunks, ReadDefined


class OwnElements:
    """`ElementSource` of one dataset."""

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
            planned, self.key, lambda some: ReadChunks(spec, parts_of(some), fields, limit)
        )

    async def read_defined(
        self, planned: Sequence[PlannedChunk], places_only: bool, limit: int
    ) -> list[DefinedElements | int | None]:
        spec = self._dataset.spec
        return await self._owners.gather(
            planned, self.key, lambda some: ReadDefined(spec, parts_of(some), places_only, limit)
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
            lambda some: FindElements(spec, parts_of(some), query, limit, in_order, fields, places_only),
        )

    def key(self, chunk: PlannedChunk) -> str:
        """Return the name by which a chunk's owner is found."""
        return chunk_key(self._dataset.id, chunk.scaled)


def parts_of(planned: Sequence[PlannedChunk]) -> tuple[ChunkSelection, ...]:
    """Return what a message to read says of planned chunks."""
    return tuple(ChunkSelection(chunk.scaled, chunk.selection, chunk.full) for chunk in planned)
