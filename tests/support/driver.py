"""What drives a dataset under test: the protocol `Driver`, whether above HTTP or below it, and what it is told."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from hsparse.model.dataspace import UNLIMITED
from hsparse.model.vlen_array import VlenArray
from tests.testing.sparse_model import Bounds, Coord, element_bytes

ElementValues: TypeAlias = NDArray[Any] | VlenArray
Found: TypeAlias = dict[Coord, bytes]
"""Defined elements: one element's bytes by coordinates."""


class NotDone(Exception):
    """An operation failed, as the store did: it may have been applied, in part too."""


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A dataset to create: its HDF5/JSON type, extent (unlimited), chunk and creation properties.

    `fill` is one element's bytes, `most` the largest extent a test gives a dimension. `flags` are the structured
    chunk's, if the layout is not the one that `sparse` means. The chunks are in `stripes`. With `lower` the dataset
    has these lower bounds, without a limit, and its coordinates are places between both bounds.
    """

    type: Any
    extent: Coord
    chunk: Coord
    most: int
    fill: bytes = b""
    filters: list[Any] = field(default_factory=list)
    sparse: bool = True
    flags: tuple[str, ...] = ()
    stripes: int | list[str] = 1
    lower: Coord = ()

    @property
    def dataspace(self) -> dict[str, Any]:
        """Shape and limits, as a request has them."""
        rank = len(self.extent)
        found: dict[str, Any] = {"shape": list(self.extent), "maxdims": [0] * rank}
        return found | ({"lower": list(self.lower), "minlower": [UNLIMITED] * rank} if self.lower else {})

    @property
    def layout(self) -> dict[str, Any]:
        flags = list(self.flags) or (["H5D_SPARSE_DATA"] if self.sparse else [])
        form: dict[str, Any] = (
            {"class": "H5D_STRUCT_CHUNK", "flags": flags} if flags else {"class": "H5D_CHUNKED"}
        )
        return form | {"dims": list(self.chunk), "stripes": self.stripes}


@dataclass(frozen=True, slots=True)
class Place:
    """Some elements: `points` in any order, with repeats, or a box of (start, stop, step) a dimension."""

    points: tuple[Coord, ...] | None = None
    box: tuple[tuple[int, int, int], ...] = ()

    @property
    def coords(self) -> list[Coord]:
        """The coordinates, in the order in which values are given."""
        if self.points is not None:
            return list(self.points)
        return list(itertools.product(*(range(*edges) for edges in self.box)))

    @property
    def select(self) -> str:
        """The box as a select string."""
        return f"[{','.join(f'{start}:{stop}:{step}' for start, stop, step in self.box)}]"


@dataclass(frozen=True, slots=True)
class Slab:
    """New elements at the upper end of dimension `dim`, or `below` the lower one, `count` along it."""

    dim: int
    count: int
    below: bool = False

    def new(self, bounds: Bounds) -> tuple[int, int]:
        """Return where they begin and end along their dimension."""
        low, high = bounds[self.dim]
        return (low - self.count, low) if self.below else (high, high + self.count)

    def after(self, bounds: Bounds) -> Bounds:
        """Return the bounds of a dataset that has grown."""
        (low, high), (start, stop) = bounds[self.dim], self.new(bounds)
        return (*bounds[: self.dim], (min(low, start), max(high, stop)), *bounds[self.dim + 1 :])

    def alone(self, bounds: Bounds) -> Bounds:
        """Return the bounds of the new elements, which count from 0 along their dimension."""
        return (*bounds[: self.dim], (0, self.count), *bounds[self.dim + 1 :])

    def moved(self, coord: Coord, bounds: Bounds) -> Coord:
        """Return where a place in the new elements is in a dataset of these bounds that has grown."""
        return (*coord[: self.dim], self.new(bounds)[0] + coord[self.dim], *coord[self.dim + 1 :])


class Driver(Protocol):
    """What a machine does to datasets, by id; each method raises `NotDone` when the store fails."""

    async def create(self, kind: DatasetSpec) -> str:
        """Create a dataset and return its id."""
        ...

    async def write(self, id: str, place: Place, values: ElementValues, drop_fill: bool) -> None:
        """Write `values: (n,)`, one an element of the place; durable when it returns."""
        ...

    async def erase(self, id: str, place: Place) -> None:
        """Make elements undefined; durable when it returns."""
        ...

    async def resize(self, id: str, bounds: Bounds) -> None:
        """Set the bounds; durable when it returns. Lower ones that are not 0 are of datasets that have them."""
        ...

    async def extend(self, id: str, slab: Slab) -> None:
        """Grow by undefined elements; durable when it returns."""
        ...

    async def append(self, id: str, slab: Slab, place: Place, values: ElementValues, drop_fill: bool) -> None:
        """Grow, and write `values: (n,)` to a place in the new elements alone; durable when it returns."""
        ...

    async def bounds(self, id: str) -> Bounds:
        """Return the bounds."""
        ...

    async def count(self, id: str, place: Place | None = None) -> int:
        """Return how many elements are defined, in a box or in all."""
        ...

    async def defined(self, id: str, place: Place | None = None) -> list[Coord]:
        """Return which elements are defined, in a box or in all, in the order told."""
        ...

    async def read_sparse(self, id: str, place: Place | None = None) -> Found:
        """Return the defined elements, of a place or of all."""
        ...

    async def read_dense(self, id: str, place: Place | None = None) -> bytes:
        """Return values with the fill value where undefined, packed, of a place or of all."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


def found_elements(coords: NDArray[Any], values: ElementValues) -> Found:
    """Return coordinates `(n, rank)` and values `(n,)` as a dict; none may come twice."""
    places = [tuple(coord) for coord in coords.tolist()]
    found = dict(zip(places, element_bytes(values), strict=True))
    assert len(found) == len(places), "a defined element was told twice"
    return found
