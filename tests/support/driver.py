"""Drivers: how state machines reach data nodes, by any way or by messages."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.clock import SystemClock
from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.selections.points import Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.signed_extent import places_of, points_of
from hsparse.model.dataspace import UNLIMITED, lower_of, parse_bounds, parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.ids import new_id, new_root_id
from hsparse.model.layout import parse_layout
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.values.append import Append, AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.sn.values.defined_read import count_defined, read_whole
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, CreateObject, SetExtent
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


T = TypeVar("T")
LIMIT = 2**30


class DirectDriver:
    """A `Door` over `ChunkFanout` and `Owners`. Sparse answers are read in pieces of `page_size` bytes."""

    def __init__(self, owners: Owners, *, page_size: int = 256) -> None:
        self._owners = owners
        self._page_size = page_size

    async def create(self, kind: DatasetSpec) -> str:
        record = dataset_record(kind)
        await self._owners.apply(CreateObject(record["id"], record))
        return str(record["id"])

    async def write(self, id: str, place: Place, values: ElementValues, drop_fill: bool) -> None:
        async def write(dataset: StoredDataset) -> None:
            selection = _selection(place, dataset.extent)
            shaped = values.reshape(selection.shape)
            await ChunkFanout(self._owners, dataset).write(selection, shaped, drop_fill=drop_fill)

        await self._do(id, write)

    async def erase(self, id: str, place: Place) -> None:
        await self._do(
            id, lambda dataset: ChunkFanout(self._owners, dataset).erase(_selection(place, dataset.extent))
        )

    async def resize(self, id: str, bounds: Bounds) -> None:
        async def resize(dataset: StoredDataset) -> None:
            lower = tuple(low for low, _ in bounds) if lower_of(dataset.record["shape"]) else ()
            lengths = tuple(high - low for low, high in bounds)
            await self._set_extent(dataset, SetExtent(id, lengths, lower=lower))

        await self._do(id, resize)

    async def extend(self, id: str, slab: Slab) -> None:
        token = SystemClock().token(8).hex()
        change = SetExtent(id, (slab.count,), slab.dim, token=token, below=slab.below)
        await self._do(id, lambda dataset: self._set_extent(dataset, change))

    async def _set_extent(self, dataset: StoredDataset, change: SetExtent) -> None:
        await change_extent(self._owners, AbandonAppends(dataset.id))
        if "trim" in dataset.record:
            await finish_trim(self._owners, dataset.record)
        await change_extent(self._owners, change)

    async def append(self, id: str, slab: Slab, place: Place, values: ElementValues, drop_fill: bool) -> None:
        @asynccontextmanager
        async def prepare(dataset: StoredDataset) -> AsyncIterator[tuple[Selection, ElementValues]]:
            selection = _selection(place, dataset.extent)
            yield selection, values.reshape(selection.shape)

        async def write(dataset: StoredDataset, selection: Selection, shaped: ElementValues) -> None:
            await ChunkFanout(self._owners, dataset).write(selection, shaped, drop_fill=drop_fill)

        async def append(dataset: StoredDataset) -> None:
            groups = AppendGroups(self._owners, SystemClock())
            await groups.apply(Append(slab.count, slab.dim, slab.below), load, prepare, write)

        async def load() -> StoredDataset:
            return await self._load(id)

        await self._do(id, append)

    async def bounds(self, id: str) -> Bounds:
        async def bounds(dataset: StoredDataset) -> Bounds:
            shape = dataset.record["shape"]
            lower = lower_of(shape) or (0,) * len(shape["dims"])
            return tuple((low, low + n) for low, n in zip(lower, shape["dims"], strict=True))

        return await self._do(id, bounds)

    async def count(self, id: str, place: Place | None = None) -> int:
        return await self._do(
            id, lambda dataset: count_defined(self._owners, dataset, _selection(place, dataset.extent))
        )

    async def defined(self, id: str, place: Place | None = None) -> list[Coord]:
        coords, _ = await self._whole(id, place, places_only=True)
        return [tuple(coord) for coord in coords.tolist()]

    async def read_sparse(self, id: str, place: Place | None = None) -> Found:
        return found_elements(*await self._whole(id, place, places_only=False))

    async def read_dense(self, id: str, place: Place | None = None) -> bytes:
        async def read(dataset: StoredDataset) -> bytes:
            selection = _selection(place, dataset.extent)
            pages = ChunkFanout(self._owners, dataset).pages(selection, (), self._page_size)
            return b"".join([bytes(dataset.arrays.to_bytes(values)) async for values in pages])

        return await self._do(id, read)

    async def close(self) -> None:
        """Hold nothing."""

    async def _whole(self, id: str, place: Place | None, *, places_only: bool) -> tuple[Any, ElementValues]:
        async def read(dataset: StoredDataset) -> tuple[Any, ElementValues]:
            chosen = _selection(place, dataset.extent)
            chunks = ChunkFanout(self._owners, dataset)
            read = DefinedRead(chunks, self._page_size, places_only=places_only)
            found = await read_whole(read, chosen, LIMIT)
            assert found is not None
            return places_of(dataset.extent, found[0].coords()), found[1]

        return await self._do(id, read)

    async def _load(self, id: str) -> StoredDataset:
        return StoredDataset.of(await self._owners.record(id)).seen_by("signed")

    async def _do(self, id: str, work: Callable[[StoredDataset], Awaitable[T]]) -> T:
        try:
            for _ in range(MAX_READ_ATTEMPTS):
                with suppress(Moved):
                    return await work(await self._load(id))
            return await work(await self._load(id))
        except HsparseError as error:
            if error.kind in (ErrorKind.STORE_FAILED, ErrorKind.BUSY):
                raise NotDone(error.message) from error
            raise


def dataset_record(kind: DatasetSpec) -> Record:
    """Return the record of a new dataset, as the service node makes it, in a domain of its own."""
    clock = SystemClock()
    root = new_root_id(clock)
    properties: Record = {"filters": kind.filters}
    if kind.fill:
        properties |= {"fillValue": base64.b64encode(kind.fill).decode(), "fillValue_encoding": "base64"}
    datatype = parse_type(kind.type)
    shape = parse_bounds(kind.dataspace, parse_shape(kind.dataspace))
    layout = parse_layout(
        kind.layout, shape, datatype, filtered=bool(kind.filters), min_bytes=1, max_bytes=2**20
    )
    record: Record = {
        "id": new_id("datasets", root, clock),
        "root": root,
        "created": 1.0,
        "lastModified": 1.0,
    }
    return record | {"type": datatype.item, "shape": shape} | layout.fields(properties, "hsparse")


def _selection(place: Place | None, extent: Coord) -> Selection:
    if place is None or place.points is None:
        return parse_select(place and place.select, extent)
    return points_of(extent, np.array(place.points, np.int64).reshape(-1, len(extent)))
