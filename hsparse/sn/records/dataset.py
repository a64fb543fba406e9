"""A dataset of a request: load it from its record, list its chunks, finish an interrupted shrink."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from hsparse.compute import with_pauses
from hsparse.errors import BadRequest, Moved, TooLarge
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.kinds.dense import not_sparse
from hsparse.format.kinds.registry import arrays_of
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.signed_extent import SignedExtent, first_of
from hsparse.format.value_arrays import FixedArrays, VlenArrays
from hsparse.model.dataset_state import is_trimmed
from hsparse.model.dataspace import lower_of
from hsparse.model.ids import chunk_prefix
from hsparse.model.layout import VIRTUAL, class_elsewhere
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.request import FileRights, Request
from hsparse.wire.chunk_message import TrimChunks
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, EndTrim, ListKeys, SetExtent

T = TypeVar("T")

ATTEMPTS = 8
"""Attempts at an operation before its `Moved` is raised."""
KEYS_AT_ONCE = 10_000
SMALL_RECORD = 16 * 1024
"""Bytes of the JSON of the largest record whose dataset is remembered."""
MOST_KNOWN = 512
AT_ONCE = 64
"""Datasets that are loaded before other requests run."""
ORIGIN = re.compile(r"\[-?[0-9]{1,18}(,-?[0-9]{1,18})*\]")
"""A place from which a request counts, as its parameter `places` has it."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset with a simple or scalar dataspace: `extent` is `()` for a scalar one, and may be a `SignedExtent`."""

    id: str
    record: Record
    extent: tuple[int, ...]
    spec: ChunkSpec
    grid: Grid
    dtype: np.dtype[Any]
    arrays: FixedArrays | VlenArrays
    elsewhere: str = ""
    """The class of its layout if its data is in no chunk objects of its own, see `OtherData`; else empty."""
    grown_from: tuple[int, ...] = ()
    """The extent in the record, if that was changed here, as `ChunkSelection.begins_outside` has it; else empty."""
    rights: FileRights | None = None

    @classmethod
    def of(cls, record: Record, rights: FileRights | None = None) -> Dataset:
        """Make it from a stored record; `BadRequest` for a null dataspace.

        `rights` are the reader's rights to files that the data may be in. What was made of a small record that came
        twice, and must not be modified, is remembered.
        """
        known = _KNOWN.get(record["id"])
        if known is None or known.record is not record:
            known = cls._parsed(record)
            _remember(known)
        return known if rights is None else replace(known, rights=rights)

    @classmethod
    def _parsed(cls, record: Record) -> Dataset:
        shape = record["shape"]
        if shape["class"] == "H5S_NULL":
            raise BadRequest(f"{record['id']} has a null dataspace: it has no values.")
        spec = chunk_spec(record)
        extent = tuple(shape.get("dims") or ())
        if lower := lower_of(shape):
            extent = SignedExtent.of(extent, lower, tuple(map(int.__mod__, lower, spec.dims)))
        grid = Grid(extent, spec.dims)
        return cls(
            record["id"], record, extent, spec, grid, spec.dtype, arrays_of(spec), class_elsewhere(record)
        )

    def with_length(self, dim: int, length: int) -> Dataset:
        """Return the dataset as if it had so many elements along a dimension."""
        extent = (*self.extent[:dim], length, *self.extent[dim + 1 :])
        recorded = self.grown_from or self.extent
        grown_from = () if extent == recorded else recorded
        return replace(self, extent=extent, grid=Grid(extent, self.spec.dims), grown_from=grown_from)

    def seen_by(self, places: str | None) -> Dataset:
        """Return the dataset as a request counts it whose parameter `places` this is.

        That is from 0, in signed places, or from an origin: `[-5,0]`.
        """
        if places is None:
            return self
        if places != "signed" and ORIGIN.fullmatch(places) is None:
            raise BadRequest(f"places must be signed, or an origin like [-5,0], not {places[:40]!r}.")
        if not isinstance(self.extent, SignedExtent):
            return self
        origin = () if places == "signed" else tuple(map(int, places.strip("[]").split(",")))
        return replace(self, extent=self.extent.for_request(in_places=True, origin=origin))

    def slab(self, dim: int, count: int) -> Dataset:
        """Return the dataset as if it had only `count` elements along a dimension, from 0 on, as what is appended."""
        extent = self.extent
        if not isinstance(extent, SignedExtent):
            return self.with_length(dim, count)
        lengths, lower = (
            [value if axis == dim else old for axis, old in enumerate(values)]
            for values, value in ((extent.lengths, count), (extent.lower, 0))
        )
        origin = [0 if axis == dim else old for axis, old in enumerate(extent.origin)]
        new = SignedExtent.of(lengths, lower, (0,) * len(extent), in_places=extent.in_places, origin=origin)
        return replace(self, extent=new, grid=Grid(new, self.spec.dims))

    def reaching(self, dim: int, start: int, stop: int) -> Dataset:
        """Return the dataset as if it also had the places from `start` to `stop` along a dimension."""
        if not isinstance(self.extent, SignedExtent):
            return self.with_length(dim, stop)
        shape = self.record["shape"]
        dims, lower = list(shape["dims"]), list(shape["lower"])
        upper = max(stop, lower[dim] + dims[dim])
        lower[dim] = min(start, lower[dim])
        dims[dim] = upper - lower[dim]
        grown = Dataset._parsed(self.record | {"shape": {**shape, "dims": dims, "lower": lower}})
        below = (grown.spec.base[dim] - self.spec.base[dim]) * self.spec.dims[dim]
        before = [below if axis == dim and below else length for axis, length in enumerate(self.extent)]
        return replace(grown, grown_from=tuple(before))

    def require_places(self) -> None:
        """Raise `BadRequest` if the dataset has a lower bound and the request counts from 0: chunks do not."""
        if isinstance(self.extent, SignedExtent) and not self.extent.in_places:
            raise BadRequest(
                f"{self.id} has the lower bound {list(self.extent.lower)}, with which chunks do not begin at multiples "
                "of their dimensions: ask with places=signed."
            )

    @property
    def fill(self) -> Any:
        """The fill value, an array of no dimensions."""
        return self.arrays.fill

    def require_sparse(self) -> None:
        """Raise `BadRequest` if the dataset is dense."""
        if not self.spec.sparse:
            raise not_sparse(self.spec)

    def require_writable(self) -> None:
        """Raise `BadRequest` if the data is elsewhere: files and the sources of a dataset are never written by it."""
        if self.elsewhere == VIRTUAL:
            raise BadRequest(f"{self.id} cannot be written: it is virtual, write to its sources.")
        if self.elsewhere:
            raise BadRequest(f"{self.id} cannot be written: its data stays in a file that it is linked to.")


_KNOWN: dict[str, Dataset] = {}
"""By id, the oldest first; each for as long as its record is the same object."""
_MET: dict[str, int] = {}
"""The identity of each dataset's last record that is not remembered, once measured with a minus."""


def _remember(dataset: Dataset) -> None:
    """Remember a dataset whose record comes again, as that of a data node in this process does, if it is small.

    A record is measured once: a node elsewhere sends a new one each time, which none is.
    """
    this, last = id(dataset.record), _MET.pop(dataset.id, 0)
    if this == last and len(orjson.dumps(dataset.record)) <= SMALL_RECORD:
        _put(_KNOWN, dataset.id, dataset)
    else:
        _put(_MET, dataset.id, -this if this == abs(last) else this)


def _put(table: dict[str, T], id: str, item: T) -> None:
    """Put an item into a table, in place of the oldest one if that is full."""
    table[id] = item
    if len(table) > MOST_KNOWN:
        table.pop(next(iter(table)), None)


async def load_dataset(request: Request) -> Dataset:
    """Load the dataset that the request's path names, in the request's domain."""
    dataset = Dataset.of(await request.record("datasets"), request.file_rights())
    return dataset.seen_by(request.arg("places")) if dataset.spec.base else dataset


async def load_datasets(request: Request, ids: Sequence[str]) -> dict[str, Dataset]:
    """Load the datasets of these ids, all in the request's domain."""
    own = [request.domain.member(id, "datasets") for id in ids]
    rights, places = request.file_rights(), request.arg("places")
    found: dict[str, Dataset] = {}
    async with aclosing(request.service.owners.read_parts(own)) as parts:
        async for first, outcomes in parts:
            named = zip(ids[first:], outcomes, strict=False)
            async for id, one in with_pauses(named, AT_ONCE):
                dataset = Dataset.of(await request.current(one.unwrap()), rights)
                found[id] = dataset.seen_by(places)
    return found


async def until_current(request: Request, work: Callable[[Dataset], Awaitable[T]]) -> T:
    """Return `work(dataset)` of the dataset in the path; call it again if a shrink makes the plan stale (`Moved`)."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await work(await load_dataset(request))
        except Moved:
            continue
    return await work(await load_dataset(request))


async def list_chunks(owners: Owners, dataset: Dataset, most: int | None = None) -> NDArray[np.uint64]:
    """Return the scaled coordinates of a dataset's stored chunks, (k, rank) uint64, in key order.

    Those below the first chunk of a signed dataset are not among them. `TooLarge` if there are more than `most`.
    """
    found = [scaled for scaled in await _stored(owners, dataset, most) if min(scaled, default=0) >= 0]
    return np.array(found, np.uint64).reshape(len(found), len(dataset.extent))


async def _stored(owners: Owners, dataset: Dataset, most: int | None = None) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    marker = ""
    rank = len(dataset.extent)
    while True:
        message = ListKeys(chunk_prefix(dataset.id), start_after=marker, limit=KEYS_AT_ONCE)
        listing = await owners.ask_any(message)
        for key in listing.keys:
            scaled = dataset.spec.scaled_of(key)
            if scaled is not None and len(scaled) == max(rank, 1):
                found.append(scaled[:rank])
        if most is not None and len(found) > most:
            raise TooLarge(f"{dataset.id} has more than {most} stored chunks; ask for pages of them.")
        if not listing.more:
            return found
        marker = listing.keys[-1]


async def finish_trim(owners: Owners, record: Record) -> None:
    """Erase what lies outside the extent in `record`, then remove `trim` from the record; durable on return.

    A fence on every data node comes first: later writes with a plan for the larger extent are refused, and earlier ones
    are stored, so that the listing finds their chunks. After `Moved` nothing is left to do: another request has
    finished the shrink or shrunk the dataset further.
    """
    dataset = Dataset.of(record)
    with suppress(Moved):
        await _trim(owners, dataset)


async def change_extent(owners: Owners, change: SetExtent | AbandonAppends) -> Record:
    """Return the changed record; what the change leaves outside the extent is erased, durably."""
    record = (await owners.apply(change)).unwrap()
    if is_trimmed(record):
        await finish_trim(owners, record)
    return record


async def _trim(owners: Owners, dataset: Dataset) -> None:
    spec, extent = dataset.spec, dataset.extent
    first = first_of(extent)
    await owners.ask_all(TrimChunks(spec, extent, ()))
    outside = [
        scaled
        for scaled in await _stored(owners, dataset)
        if any(
            i * dim < begin or (i + 1) * dim > length
            for i, dim, begin, length in zip(scaled, spec.dims, first, extent, strict=True)
        )
    ]
    await owners.scatter(
        outside,
        spec.key,
        lambda some: TrimChunks(spec, extent, tuple(outside[i] for i in some), first),
    )
    await owners.apply(EndTrim(dataset.id, spec.generation))
