"""What a data node must be told to decode and encode a dataset's chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.filter import Filter
from hsparse.model.initializer import initial_values
from hsparse.model.variable_array import VariableArray


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """A dataset's chunks: taken from its record by the service node, sent with every chunk message.

    `type` is the HDF5/JSON type item. `dims` are the chunk's dimensions in elements, `fill` is one
    element's bytes in the file type, in counted form where their number varies (empty: all zero).
    `filters` has one pipeline a section: one for a dense chunk, two for a sparse one (selection, fixed-size
    values), three for a structured one of a variable-length type, sparse or dense (with the heap).
    `generation` rises when a shrink of the dataset's extent begins, and when it is finished.
    `arange` is what unwritten elements are instead of the fill value (`hsparse.model.initializer`).
    """

    dataset: str
    type: Any
    dims: tuple[int, ...]
    sparse: bool
    fill: bytes
    filters: tuple[tuple[Filter, ...], ...]
    generation: int = 0
    arange: tuple[float, ...] = ()

    @property
    def datatype(self) -> Datatype:
        """The type of an element as it is stored."""
        return parse_type(self.type)

    @property
    def structured(self) -> bool:
        """Say whether chunks are structured chunks: sparse ones are, and dense ones may be."""
        return self.sparse or len(self.filters) > 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of an element as it is stored."""
        return self.datatype.stored

    @property
    def fill_value(self) -> NDArray[Any]:
        """The fill value of a fixed-size type, an array of no dimensions; `Unsupported` of another type."""
        dtype = self.dtype
        if dtype.hasobject:
            raise Unsupported("This is not supported for elements of variable length; read them as they are.")
        if not self.fill:
            return np.zeros((), dtype)
        return np.frombuffer(self.fill, np.uint8).view(dtype).reshape(())

    def fill_of(self, scaled: tuple[int, ...]) -> NDArray[Any]:
        """Return what is where nothing was written in a chunk, of no dimensions or the chunk's."""
        if not self.arange:
            return self.fill_value
        (count,) = self.dims
        return initial_values(self.arange, scaled[0] * count, count, self.dtype)

    @property
    def variable_fill(self) -> VariableArray:
        """The fill value of a variable-length type, an array of no dimensions."""
        return VariableArray.of([self.fill or bytes(self.datatype.element.least)], ())
