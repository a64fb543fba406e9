"""The chunk grid of a dataset: which chunk an element lies in, and which block a chunk covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.extent import check_extent


@dataclass(frozen=True, slots=True)
class Grid:
    """Chunks of dimensions `chunk` laid over `extent`, both in elements; edge chunks reach beyond it.

    A chunk is named by its scaled coordinates: its first element's, divided by `chunk`. The scalar's one
    chunk is `()`.
    """

    extent: tuple[int, ...]
    chunk: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", check_extent(self.extent))
        object.__setattr__(self, "chunk", check_extent(self.chunk))
        if len(self.chunk) != len(self.extent):
            raise BadRequest(f"The chunk has {len(self.chunk)} dimensions, the extent {len(self.extent)}.")
        for dim, length in enumerate(self.chunk):
            if length < 1:
                raise BadRequest(f"Dimension {dim} of the chunk is 0; it must be at least 1.")

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks in each dimension."""
        return tuple(-(-length // step) for length, step in zip(self.extent, self.chunk, strict=True))

    @property
    def size(self) -> int:
        """The number of chunks."""
        return math.prod(self.counts)

    def holds(self, scaled: Sequence[int]) -> bool:
        """Return whether there is a chunk at `scaled`: one that intersects the extent."""
        right = len(scaled) == len(self.chunk)
        return right and all(0 <= i < n for i, n in zip(scaled, self.counts, strict=True))

    def origin(self, scaled: Sequence[int]) -> tuple[int, ...]:
        """Return the coordinates of the chunk's first element."""
        return tuple(int(i) * step for i, step in zip(scaled, self.chunk, strict=True))

    def bounds(self, scaled: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the first corner of the chunk and the corner past its last, clipped to the extent."""
        start = self.origin(scaled)
        return start, tuple(map(min, self.extent, map(int.__add__, start, self.chunk)))

    def clipped(self, scaled: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of the part of the chunk inside the extent."""
        return tuple(b - a for a, b in zip(*self.bounds(scaled), strict=True))

    def is_edge(self, scaled: Sequence[int]) -> bool:
        """Return whether the chunk reaches beyond the extent."""
        return self.clipped(scaled) != self.chunk

    def scaled(self, coords: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the scaled coordinates, (n, rank) uint64, of the chunks of elements, (n, rank) uint64."""
        result = np.empty_like(coords)
        for dim, length in enumerate(self.chunk):
            result[:, dim] = divide(coords[:, dim], length)
        return result


def divide(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return `column // length`, by a shift where `length` is a power of two."""
    kind = column.dtype.type
    power = length & (length - 1) == 0
    result: NDArray[Any] = column >> kind(length.bit_length() - 1) if power else column // kind(length)
    return result
