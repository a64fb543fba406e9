"""Datasets: loading one from its record, listing its chunks, and finishing an interrupted shrink."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.bounded_cache import BoundedCache
from hsparse.concurrency.gathering import with_pauses
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

KEYS_AT_ONCE = 9_999
"""Keys in each message of a full listing: one less than ten pages of the store, which saves an eleventh page."""
FIRST_KEYS = 999
"""Keys in the first message of a listing that looks for certain keys only."""
MOST_ASKED, MOST_SOUGHT = 100, 10_000
"""The most chunks that a shrink cuts without a listing, and the most chunks whose keys it looks up in a listing.

For more chunks, a shrink lists all of the dataset's chunks.
"""
SMALL_RECORD = 16 * 1024
"""The maximum number of bytes of JSON of a record whose dataset is cached."""
RECORD_BYTES = 10
"""Bytes of memory that a cached dataset takes for each byte of its record's JSON, without type and fill value."""
KNOWN_BYTES = 64 * 1024 * 1024
MOST_UNKNOWN = 512
AT_ONCE = 64
"""Datasets that are loaded without a pause for other requests."""
ORIGIN = re.compile(r"\[-?[0-9]{1,18}(,-?[0-9]{1,18})*\]")
"""The form of an origin, such as `[-5,0]`, in the request's parameter `places`."""


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset with a simple or scalar dataspace; `extent` is () if scalar, a `SignedExtent` if lower bounds exist."""

    id: str
    record: Record
    extent: tuple[int, ...]
    spec: ChunkSpec
    grid: Grid
    dtype: np.dtype[Any]
    arrays: FixedArrays | VlenArrays
    elsewhere: str = ""
    """The layout class if the data is not in the dataset's own chunk objects (see `OtherData`), otherwise ""."""
    grown_from: tuple[int, ...] = ()
    """The extent before an append, as `ChunkSelection.begins_outside` takes it, or () if no append grew the extent."""
    rights: FileRights | None = None
    """The reader's rights to files that the data may be in, if they are needed."""

    @classmethod
    def of(cls, record: Record, rights: FileRights | None = None) -> StoredDataset:
        """Return the dataset of a record, which must not be modified; raise `BadRequest` for a null dataspace."""
        known = _KNOWN.get(record["id"])
        if known is None or known.record is not record:
            known = cls._parsed(record)
            _remember(known)
        return known if rights is None else replace(known, rights=rights)

    @classmethod
    def _parsed(cls, record: Record) -> StoredDataset:
        shape = record["shape"]
        if shape["class"] == "H5S_NULL":
            raise BadRequest(f"{record['id']} has a null dataspace, so it has no values to read or write.")
        spec = chunk_spec(record)
        extent = tuple(shape.get("dims") or ())
        if lower := lower_of(shape):
            extent = SignedExtent.of(extent, lower, tuple(map(int.__mod__, lower, spec.dims)))
        grid = Grid(extent, spec.dims)
        return cls(
            record["id"], record, extent, spec, grid, spec.dtype, arrays_of(spec), class_elsewhere(record)
        )

    def with_length(self, dim: int, length: int) -> StoredDataset:
        """Return the dataset as if it had `length` elements along a dimension."""
        extent = (*self.extent[:dim], length, *self.extent[dim + 1 :])
        recorded = self.grown_from or self.extent
        grown_from = () if extent == recorded else recorded
        return replace(self, extent=extent, grid=Grid(extent, self.spec.dims), grown_from=grown_from)

    def seen_by(self, places: str | None) -> StoredDataset:
        """Return the dataset with the coordinates that `places` asks for; raise `BadRequest` for an unknown value.

        Coordinates count from the first element (None), are signed (`signed`), or count from an origin like `[-5,0]`.
        """
        if places is None:
            return self
        if places != "signed" and ORIGIN.fullmatch(places) is None:
            raise BadRequest(f"places must be signed, or an origin like [-5,0], not {places[:40]!r}.")
        if not isinstance(self.extent, SignedExtent):
            return self
        origin = () if places == "signed" else tuple(map(int, places.strip("[]").split(",")))
        return replace(self, extent=self.extent.for_request(in_places=True, origin=origin))

    def slab(self, dim: int, count: int) -> StoredDataset:
        """Return the dataset as if it had, along `dim`, only the `count` elements of an append, with indices from 0."""
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

    def reaching(self, dim: int, start: int, stop: int) -> StoredDataset:
        """Return the dataset with its extent grown to contain the signed indices `start` to `stop` of a dimension."""
        if not isinstance(self.extent, SignedExtent):
            return self.with_length(dim, stop)
        shape = self.record["shape"]
        dims, lower = list(shape["dims"]), list(shape["lower"])
        upper = max(stop, lower[dim] + dims[dim])
        lower[dim] = min(start, lower[dim])
        dims[dim] = upper - lower[dim]
        grown = StoredDataset._parsed(self.record | {"shape": {**shape, "dims": dims, "lower": lower}})
        below = (grown.spec.base[dim] - self.spec.base[dim]) * self.spec.dims[dim]
        before = [below if axis == dim and below else length for axis, length in enumerate(self.extent)]
        return replace(grown, grown_from=tuple(before))

    def require_places(self) -> None:
        """Raise `BadRequest` if the dataset has lower bounds and the request lacks the parameter `places`."""
        if isinstance(self.extent, SignedExtent) and not self.extent.in_places:
            raise BadRequest(
                f"{self.id} has the lower bound {list(self.extent.lower)}, so chunks do not begin at multiples of "
                "their dimensions: add places=signed to the request."
            )

    @property
    def fill(self) -> Any:
        """The fill value, as a zero-dimensional array."""
        return self.arrays.fill

    def require_sparse(self) -> None:
        """Raise `BadRequest` if the dataset is dense."""
        if not self.spec.sparse:
            raise not_sparse(self.spec)

    def require_writable(self) -> None:
        """Raise `BadRequest` if the dataset is virtual or its data is in a file; such data is never written."""
        if self.elsewhere == VIRTUAL:
            raise BadRequest(f"{self.id} cannot be written because it is virtual: write to its sources.")
        if self.elsewhere:
            raise BadRequest(f"{self.id} cannot be written: its data is in an HDF5 file. Write to a copy.")


_KNOWN: BoundedCache[str, StoredDataset] = BoundedCache(KNOWN_BYTES)
"""Datasets by id; an entry is valid while the dataset's record is the same object."""
_MET: BoundedCache[str, int] = BoundedCache.of_entries(MOST_UNKNOWN)
"""By dataset id, the `id()` of the record seen last, if its dataset is not cached; negative if it is too large."""


def _remember(dataset: StoredDataset) -> None:
    """Cache a dataset with a small record if the same record object was seen before (data nodes in this process)."""
    this, last = id(dataset.record), _MET.forget(dataset.id) or 0
    if this == last and (nbytes := len(orjson.dumps(dataset.record))) <= SMALL_RECORD:
        _KNOWN.keep(dataset.id, dataset, RECORD_BYTES * nbytes + dataset.spec.nbytes)
        return
    _MET.keep(dataset.id, -this if this == abs(last) else this)


async def load_dataset(request: Request) -> StoredDataset:
    """Load the dataset whose id is in the request's path, from the request's domain."""
    dataset = StoredDataset.of(await request.record("datasets"), request.file_rights())
    return dataset.seen_by(request.arg("places")) if dataset.spec.base else dataset


async def load_datasets(request: Request, ids: Sequence[str]) -> dict[str, StoredDataset]:
    """Return a dict that maps each of `ids` to its dataset in the request's domain."""
    own = [request.domain.member(id, "datasets") for id in ids]
    rights, places = request.file_rights(), request.arg("places")
    found: dict[str, StoredDataset] = {}
    async with aclosing(request.service.owners.read_parts(own)) as parts:
        async for first, outcomes in parts:
            named = zip(ids[first:], outcomes, strict=False)
            async for id, one in with_pauses(named, AT_ONCE):
                dataset = StoredDataset.of(await request.current(one.unwrap()), rights)
                found[id] = dataset.seen_by(places)
    return found


async def until_current(request: Request, work: Callable[[StoredDataset], Awaitable[T]]) -> T:
    """Return `work(dataset)` for the dataset in the path; reload it and retry if a shrink made `work` raise `Moved`."""
    for _ in range(MAX_READ_ATTEMPTS - 1):
        try:
            return await work(await load_dataset(request))
        except Moved:
            continue
    return await work(await load_dataset(request))


async def list_chunks(owners: Owners, dataset: StoredDataset, most: int | None = None) -> NDArray[np.uint64]:
    """Return the scaled coordinates of a dataset's stored chunks, (k, rank) uint64, in key order.

    Chunks below the lower bound's chunk are left out. Raises `TooLarge` if more than `most` chunks are stored.
    """
    return _coordinates(await _stored(owners, dataset, most), dataset)


def scaled_of_keys(dataset: StoredDataset, keys: Iterable[str]) -> NDArray[np.uint64]:
    """Return the scaled coordinates of the chunk keys among `keys`, (k, rank) uint64; other keys are ignored."""
    return _coordinates([scaled for key in keys if (scaled := _scaled_of(dataset, key)) is not None], dataset)


def _coordinates(found: Sequence[tuple[int, ...]], dataset: StoredDataset) -> NDArray[np.uint64]:
    found = [scaled for scaled in found if min(scaled, default=0) >= 0]
    return np.array(found, np.uint64).reshape(len(found), len(dataset.extent))


def _scaled_of(dataset: StoredDataset, key: str) -> tuple[int, ...] | None:
    """Return the scaled coordinates in a chunk's key, or None for other keys."""
    scaled, rank = dataset.spec.scaled_of(key), len(dataset.extent)
    return None if scaled is None or len(scaled) != max(rank, 1) else scaled[:rank]


async def _stored(
    owners: Owners, dataset: StoredDataset, most: int | None = None, sought: Sequence[str] | None = None
) -> list[tuple[int, ...]]:
    """Return the scaled coordinates of all stored chunks in key order, or at least of stored chunks with keys `sought`.

    After each page the listing resumes at the next sought key, so it takes at most one page for each sought key.
    """
    found: list[tuple[int, ...]] = []
    marker, limit = "", KEYS_AT_ONCE if sought is None else FIRST_KEYS
    while sought is None or (at := bisect_right(sought, marker)) < len(sought):
        marker = marker if sought is None else max(marker, _before(sought[at]))
        message = ListKeys(chunk_prefix(dataset.id), start_after=marker, limit=limit)
        listing = await owners.ask_any(message)
        for key in listing.keys:
            if (scaled := _scaled_of(dataset, key)) is not None:
                found.append(scaled)
        if most is not None and len(found) > most:
            raise TooLarge(f"{dataset.id} has more than {most} stored chunks; request pages of chunks.")
        if not listing.more:
            break
        marker, limit = listing.keys[-1], min(2 * limit, KEYS_AT_ONCE)
    return found


def _before(key: str) -> str:
    """Return a marker from which a listing begins at this chunk's key: it sorts after all smaller chunk keys."""
    return f"{key[:-1]}{'.012345678'[int(key[-1])]}~"


async def finish_trim(owners: Owners, record: Record) -> None:
    """Erase the elements outside the extent in `record`, then remove `trim` from the record; durable on return.

    First, a message makes every data node refuse later writes that were planned for the larger extent (a fence), and
    make earlier writes durable, so that the listing finds their chunks. `Moved` is ignored, because another request
    has then finished the shrink or shrunk the dataset further.
    """
    dataset = StoredDataset.of(record)
    with suppress(Moved):
        await _trim(owners, dataset)


async def change_extent(owners: Owners, change: SetExtent | AbandonAppends) -> Record:
    """Change the extent and durably erase the elements outside of it; return the changed record."""
    record = (await owners.apply(change)).unwrap()
    if is_trimmed(record):
        await finish_trim(owners, record)
    return record


def _cut(dataset: StoredDataset) -> tuple[list[range], list[range]]:
    """Return a pair of lists with one range of scaled coordinates per dimension, which tell what a shrink cuts.

    A shrink cuts a chunk whose coordinates are all in the first ranges, unless they are all in the second ranges.
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
    """Return the scaled coordinates of the chunks that a shrink cuts (see `_cut`), None for more than `MOST_SOUGHT`."""
    count, kept = (prod(some.stop - some.start for some in ranges) for ranges in (every, whole))
    if count - kept > MOST_SOUGHT:
        return None
    found: list[tuple[int, ...]] = []
    for dim, (some, inner) in enumerate(zip(every, whole, strict=True)):
        if edge := count and [*range(some.start, inner.start), *range(inner.stop, some.stop)]:
            found += product(*whole[:dim], edge, *every[dim + 1 :])
    return found


async def _trim(owners: Owners, dataset: StoredDataset) -> None:
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
