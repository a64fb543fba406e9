"""A dataset of a request: load it from its record, list its chunks, finish an interrupted shrink."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
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
from hsparse.format.selections.signed_extent import SignedExtent, corner_of, first_of
from hsparse.format.value_arrays import FixedArrays, VlenArrays
from hsparse.model.dataset_state import is_trimmed, trimmed_bounds
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
KEYS_AT_ONCE = 9_999
"""Keys asked for at a time where all are: one fewer than ten pages of a listing have, which spares one more."""
FIRST_KEYS = 999
MOST_ASKED, MOST_SOUGHT = 100, 10_000
"""So many chunks a shrink cuts without asking which are stored, and so many it looks for where they are listed."""
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


async def _stored(
    owners: Owners, dataset: Dataset, most: int | None = None, sought: Sequence[str] | None = None
) -> list[tuple[int, ...]]:
    """Return the scaled coordinates of all stored chunks or, at least, of those with the keys `sought`, in order.

    Behind each page the listing goes on at the next key that is sought: it has no more pages than such keys, or than
    that of all.
    """
    found: list[tuple[int, ...]] = []
    marker, limit = "", KEYS_AT_ONCE if sought is None else FIRST_KEYS
    rank = len(dataset.extent)
    while sought is None or (at := bisect_right(sought, marker)) < len(sought):
        marker = marker if sought is None else max(marker, _before(sought[at]))
        message = ListKeys(chunk_prefix(dataset.id), start_after=marker, limit=limit)
        listing = await owners.ask_any(message)
        for key in listing.keys:
            scaled = dataset.spec.scaled_of(key)
            if scaled is not None and len(scaled) == max(rank, 1):
                found.append(scaled[:rank])
        if most is not None and len(found) > most:
            raise TooLarge(f"{dataset.id} has more than {most} stored chunks; ask for pages of them.")
        if not listing.more:
            break
        marker, limit = listing.keys[-1], min(2 * limit, KEYS_AT_ONCE)
    return found


def _before(key: str) -> str:
    """Return a key that sorts before that of a chunk, and after those of all others before."""
    return f"{key[:-1]}{'.012345678'[int(key[-1])]}~"


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


def _cut(dataset: Dataset) -> tuple[list[range], list[range]]:
    """Return the coordinates of all chunks that a shrink may have to do with, and of those that it cuts nothing from.

    It cuts a chunk whose coordinates are in the former of each dimension, unless all are in the latter, too.
    """
    every, whole = list[range](), list[range]()
    corner, first, last = corner_of(dataset.extent), first_of(dataset.extent), dataset.extent
    for dim, (size, bounds) in enumerate(zip(dataset.spec.dims, trimmed_bounds(dataset.record), strict=True)):
        low, high = (place - corner[dim] for place in bounds)
        every.append(range(low // size, -(-high // size)))
        begin = low // size if low >= first[dim] else -(-first[dim] // size)
        end = -(-high // size) if high <= last[dim] else last[dim] // size
        whole.append(range(begin, max(begin, end)))
    return every, whole


def _places(every: list[range], whole: list[range]) -> list[tuple[int, ...]] | None:
    """Return the coordinates of the chunks that a shrink cuts; None if they are too many to be looked for."""
    count, kept = (prod(some.stop - some.start for some in ranges) for ranges in (every, whole))
    if count - kept > MOST_SOUGHT:
        return None
    found: list[tuple[int, ...]] = []
    for dim, (some, inner) in enumerate(zip(every, whole, strict=True)):
        if edge := count and [*range(some.start, inner.start), *range(inner.stop, some.stop)]:
            found += product(*whole[:dim], edge, *every[dim + 1 :])
    return found


async def _trim(owners: Owners, dataset: Dataset) -> None:
    spec, extent = dataset.spec, dataset.extent
    first = first_of(extent)
    await owners.ask_all(TrimChunks(spec, extent, ()))
    every, whole = _cut(dataset)
    outside = _places(every, whole)
    if outside is None or len(outside) > MOST_ASKED:
        sought = None if outside is None else sorted(map(spec.key, outside))
        stored = await _stored(owners, dataset, sought=sought)
        outside = [at for at in stored if _is_in(at, every) and not _is_in(at, whole)]
    await owners.scatter(
        outside,
        spec.key,
        lambda some: TrimChunks(spec, extent, tuple(outside[i] for i in some), first),
    )
    await owners.apply(EndTrim(dataset.id, spec.generation))


def _is_in(scaled: tuple[int, ...], ranges: list[range]) -> bool:
    return all(at in some for at, some in zip(scaled, ranges, strict=True))
