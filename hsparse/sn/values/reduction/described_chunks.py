"""Chunks that are reduced by their statistics, without being read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_statistics import is_known, partials_of
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction

Scaled = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedChunks:
    """The rows of the chunks that have statistics, by their coordinates; those of one column, of numbers of `dtype`."""

    places: dict[Scaled, int]
    words: NDArray[np.uint64]
    defined: NDArray[np.uint64]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rows: ChunkRows, column: int, dtype: np.dtype[Any]) -> DescribedChunks:
        """Return those of the rows that have statistics, of this column."""
        known = np.flatnonzero(is_known(rows.statistics))
        places = {tuple(scaled): place for place, scaled in enumerate(rows.scaled[known].tolist())}
        return cls(places, rows.statistics[known, column], rows.defined[known], dtype)

    def split(
        self, planned: Sequence[PlannedChunk], reduction: Reduction
    ) -> tuple[list[PlannedChunk], Partials]:
        """Return the chunks that must be read, and what the others, which are selected whole, reduce to together."""
        rest, there = [], []
        for chunk in planned:
            place = self.places.get(chunk.scaled) if chunk.full else None
            if place is None:
                rest.append(chunk)
            else:
                there.append(place)
        if not there:
            return rest, Partials.empty(1, self.dtype, reduction.columns)
        found = partials_of(self.words[there], self.defined[there], self.dtype, reduction.columns)
        return rest, found.folded()
