"""The protocol of sources of a dataset's elements: chunk objects (`ChunkObjectElements`), or an extension's source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements, QueryRequest
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.points import Selection
from hsparse.model.json_values import Values
from hsparse.wire.chunk_message import NO_LIMIT


class ElementSource(Protocol):
    """A source of a dataset's elements: its chunk objects, files of the store, or other datasets."""

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks that have elements, (k, rank) uint64."""
        ...

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...], limit: int
    ) -> list[Values | int | None]:
        """Return the values of each planned chunk, or None if all are the fill value; see `ReadChunks`."""
        ...

    async def read_defined(
        self, planned: Sequence[PlannedChunk], *, places_only: bool = False, limit: int = NO_LIMIT
    ) -> list[DefinedElements | int | None]:
        """Return the defined elements of each planned chunk of a sparse dataset, or None for a chunk without any."""
        ...

    async def count_defined(self, selection: Selection) -> int | None:
        """Return the number of defined elements in the selection, or None if chunks must be read to count them."""
        ...

    async def find(self, planned: Sequence[PlannedChunk], wanted: QueryRequest) -> list[FoundElements | None]:
        """Return the elements that a query finds in each planned chunk (`FindElements`), or None if it is missing."""
        ...

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        """Return the partial results of the planned chunks (see `ReduceChunks`); the caller merges them into one.

        `codes: (n,)` has the group of each position of the whole selection along the grouped axis.
        """
        ...
