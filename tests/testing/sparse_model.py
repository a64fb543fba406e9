"""A simple reference model of a dataset: a dict from coordinates to values, and bounds.

The model has no chunks, selections or stores. A value is the element's bytes, so that NaN equals itself and -0.0
differs from 0.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

Coord: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""The lower and the upper bound of each dimension."""


def element_bytes(values: Values) -> list[bytes]:
    """Return the bytes of each element."""
    if isinstance(values, VlenArray):
        return list(values)
    return [value.tobytes() for value in values.reshape(-1, 1)]


class SparseModel:
    """A dataset with HDF5's semantics: a written element is defined until it is erased or the extent excludes it.

    A dense dataset (`sparse=False`) has no queries for defined elements. `fill` has the bytes of one element, zeros by
    default; it is required for a variable-length type. The lower bounds of the coordinates are 0, or `lower`.
    """

    def __init__(
        self,
        extent: Coord,
        dtype: np.dtype[Any],
        fill: bytes = b"",
        *,
        sparse: bool = True,
        lower: Coord = (),
    ) -> None:
        starts = lower or (0,) * len(extent)
        self.bounds: Bounds = tuple((low, low + n) for low, n in zip(starts, extent, strict=True))
        self.dtype = dtype
        self.fill = fill or bytes(dtype.itemsize)
        self.sparse = sparse
        self.elements: dict[Coord, bytes] = {}

    @property
    def extent(self) -> Coord:
        """The number of elements along each dimension."""
        return tuple(high - low for low, high in self.bounds)

    @property
    def lower(self) -> Coord:
        """The lower bound of each dimension."""
        return tuple(low for low, _ in self.bounds)

    @property
    def coords(self) -> Iterable[Coord]:
        """All coordinates, in row-major order."""
        return itertools.product(*itertools.starmap(range, self.bounds))

    def write(self, coords: Iterable[Coord], values: Values, *, drop_fill: bool = False) -> None:
        """Define elements (H5Dwrite); the last value of a repeated coordinate wins.

        `values` has one element per coordinate, or one for all. With `drop_fill`, values equal to the fill value
        are not written.
        """
        for coord, value in self._paired(coords, values):
            if not (drop_fill and value == self.fill):
                self.elements[coord] = value

    def erase(self, coords: Iterable[Coord]) -> None:
        """Make elements undefined (H5Derase)."""
        for coord in coords:
            self.elements.pop(self._checked(coord), None)

    def resize(self, extent: Coord) -> None:
        """Set the extent (H5Dset_extent); elements outside of it become undefined for good."""
        self.move(tuple((low, low + n) for (low, _), n in zip(self.bounds, extent, strict=True)))

    def move(self, bounds: Bounds) -> None:
        """Set both bounds of each dimension; elements outside of them become undefined for good."""
        self.bounds = bounds
        self.elements = {coord: value for coord, value in self.elements.items() if self._inside(coord)}

    def defined(self, coords: Iterable[Coord] | None = None) -> list[Coord]:
        """Return the coordinates of defined elements (among `coords` if given), in row-major order, each once."""
        chosen = self.elements if coords is None else {coord for coord in coords if coord in self.elements}
        return sorted(chosen)

    def read(self, coords: Iterable[Coord] | None = None) -> NDArray[Any]:
        """Return the values `(n,)` at `coords` (H5Dread), by default all in row-major order; fill where undefined."""
        return np.frombuffer(self.packed(coords), np.uint8).view(self.dtype)

    def packed(self, coords: Iterable[Coord] | None = None) -> bytes:
        """Return the result of `read` as the concatenated bytes of the elements."""
        chosen = self.coords if coords is None else coords
        return b"".join(self.elements.get(coord, self.fill) for coord in chosen)

    def copy(self) -> SparseModel:
        """Return an independent copy."""
        other = SparseModel(self.extent, self.dtype, self.fill, sparse=self.sparse)
        other.bounds = self.bounds
        other.elements = dict(self.elements)
        return other

    def _paired(self, coords: Iterable[Coord], values: Values) -> Iterable[tuple[Coord, bytes]]:
        places = [self._checked(coord) for coord in coords]
        column = element_bytes(values)
        return zip(places, column * len(places) if len(column) == 1 else column, strict=True)

    def _checked(self, coord: Coord) -> Coord:
        assert self._inside(coord), (
            f"{coord} is not in the extent {self.extent}, whose bounds are {self.bounds}"
        )
        return coord

    def _inside(self, coord: Coord) -> bool:
        return len(coord) == len(self.bounds) and all(
            low <= i < high for i, (low, high) in zip(coord, self.bounds, strict=True)
        )
