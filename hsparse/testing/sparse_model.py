"""The trivially right model of a dataset: a dict of coordinates to values, and bounds.

It knows nothing of chunks, selections or stores. Values are one element's bytes, so that NaN equals
itself and -0.0 is not 0.0.
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
    """Return each element's bytes."""
    if isinstance(values, VlenArray):
        return list(values)
    return [value.tobytes() for value in values.reshape(-1, 1)]


class SparseModel:
    """A dataset as HDF5 has it: an element is defined once written, until erased or shrunk away.

    Of a dense dataset (`sparse=False`) the same holds, without queries for defined elements.
    `fill` is one element's bytes, which must be given for a variable-length type. Coordinates are between `bounds`:
    they begin at 0, or at `lower`.
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
        """Define elements, H5Dwrite; of one given twice the last value wins.

        `values` has one element a coordinate, or one for all. With `drop_fill` those equal to the fill
        value are left as they are.
        """
        for coord, value in self._paired(coords, values):
            if not (drop_fill and value == self.fill):
                self.elements[coord] = value

    def erase(self, coords: Iterable[Coord]) -> None:
        """Make elements undefined, H5Derase."""
        for coord in coords:
            self.elements.pop(self._checked(coord), None)

    def resize(self, extent: Coord) -> None:
        """Set the extent, H5Dset_extent; what falls outside is undefined should the dataset grow again."""
        self.move(tuple((low, low + n) for (low, _), n in zip(self.bounds, extent, strict=True)))

    def move(self, bounds: Bounds) -> None:
        """Set both bounds of each dimension; what falls outside is undefined from then on."""
        self.bounds = bounds
        self.elements = {coord: value for coord, value in self.elements.items() if self._inside(coord)}

    def defined(self, coords: Iterable[Coord] | None = None) -> list[Coord]:
        """Return the defined elements, those among `coords` when given, in row-major order, each once."""
        chosen = self.elements if coords is None else {coord for coord in coords if coord in self.elements}
        return sorted(chosen)

    def read(self, coords: Iterable[Coord] | None = None) -> NDArray[Any]:
        """Return values `(n,)`, H5Dread: the fill value where undefined; all in row-major order by default."""
        return np.frombuffer(self.packed(coords), np.uint8).view(self.dtype)

    def packed(self, coords: Iterable[Coord] | None = None) -> bytes:
        """Return the same as the elements' bytes, one after the other."""
        chosen = self.coords if coords is None else coords
        return b"".join(self.elements.get(coord, self.fill) for coord in chosen)

    def copy(self) -> SparseModel:
        """Return an independent copy, to apply an operation to."""
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
