"""A sparse chunk of a variable-length type: the places of its defined elements and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.sparse_chunk import Offsets, SparseChunk
from hsparse.model.layout import MAX_CHUNK_BYTES, MAX_REFERENCES
from hsparse.model.variable_array import VariableArray, take, taken_sizes


@dataclass(frozen=True, slots=True, eq=False)
class SparseVariableChunk:
    """The defined elements of a chunk of dimensions `dims`; never modified in place.

    `offsets: (n,) uint32` are row-major places in the chunk, strictly ascending; `values` has shape (n,). Their
    arrays are made read-only.
    """

    dims: tuple[int, ...]
    offsets: Offsets
    values: VariableArray

    def __post_init__(self) -> None:
        for array in (self.offsets, self.values.offsets, self.values.heap):
            array.flags.writeable = False

    @classmethod
    def empty(cls, dims: tuple[int, ...]) -> SparseVariableChunk:
        """Return a chunk with nothing defined."""
        return cls(dims, np.empty(0, np.uint32), VariableArray.of([]))

    @property
    def nbytes(self) -> int:
        """The memory the columns take, in bytes."""
        return self.offsets.nbytes + self.values.nbytes

    def merge(self, offsets: NDArray[Any], values: VariableArray, references: int = 1) -> SparseVariableChunk:
        """Define elements: `offsets: (m,)` in any order, `values` one each or one for all; of a repeated offset
        the last wins.

        What no element has any more is left out. `BadRequest` when an offset is outside the chunk, `TooLarge` when
        the values would have more bytes than a chunk may have or, with so many `references` an element, more of
        these.
        """
        if not len(offsets):
            return self
        count = len(self.offsets)
        new = np.arange(len(offsets)) if values.size == len(offsets) else np.zeros(len(offsets), np.intp)
        numbers = SparseChunk(self.dims, self.offsets, np.arange(count)).merge(offsets, count + new)
        parts = [self.values, values]
        nbytes = int(taken_sizes(parts, numbers.values).sum(dtype=np.int64))
        if nbytes > MAX_CHUNK_BYTES or len(numbers.offsets) * references > MAX_REFERENCES:
            raise TooLarge(
                f"A chunk would have {nbytes} bytes and {len(numbers.offsets) * references} strings and sequences; "
                f"the limits are {MAX_CHUNK_BYTES} and {MAX_REFERENCES}: make the dataset's chunks smaller."
            )
        return SparseVariableChunk(self.dims, numbers.offsets, take(parts, numbers.values))

    def select(self, mask: NDArray[np.bool_]) -> SparseVariableChunk:
        """Return the chunk with only the elements where `mask: (n,)` is set."""
        return SparseVariableChunk(self.dims, self.offsets[mask], self.values[mask])
