"""Which chunks of a dataset are different between two of its states, and in how many elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute, gather_each
from hsparse.errors import NotFound
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.kinds.registry import kind_of
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.wire.message import Record

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of chunks, as they are stored, up to which elements are counted."""
NO_LIMIT = 2**62
AT_ONCE = 4


async def changed_chunks(
    store: ObjectStore,
    record: Record,
    chunks: Sequence[str],
    before: Mapping[str, Entry],
    after: Mapping[str, Entry],
) -> tuple[Sequence[str], int | None]:
    """Return which of some chunks of a dataset are different, and in how many places: the value, or if there is one.

    `before` and `after` are what chunks are read from. All of them, and None, for too many bytes; None places for
    values of variable length.
    """
    stored = [one[rest] for one in (before, after) for rest in chunks if rest in one]
    if record["shape"]["class"] == "H5S_NULL" or sum(entry.size for entry in stored) > MOST_BYTES:
        return chunks, None
    spec = chunk_spec(record)

    async def count(rest: str) -> int:
        old, new = [await _data(store, one.get(rest)) for one in (before, after)]
        if old == new or spec.is_vlen:
            return int(old != new)
        return await compute(len(old or b"") + len(new or b""), _different, spec, old, new)

    counts = await gather_each(count, chunks, AT_ONCE)
    different = [rest for rest, places in zip(chunks, counts, strict=True) if places]
    return different, None if spec.is_vlen else sum(counts)


async def _data(store: ObjectStore, entry: Entry | None) -> bytes | None:
    if entry is None:
        return None
    try:
        return (await store.get(entry.key)).data
    except NotFound:  # deleted meanwhile
        return None


def _different(spec: ChunkSpec, old: bytes | None, new: bytes | None) -> int:
    """Return in how many places two chunks are different; None is one that is not there."""
    (places, values), (others, theirs) = _elements(spec, old), _elements(spec, new)
    same, at, there = np.intersect1d(places, others, assume_unique=True, return_indices=True)
    changed = int(np.count_nonzero((values[at] != theirs[there]).any(axis=1)))
    return changed + len(places) + len(others) - 2 * len(same)


def _elements(spec: ChunkSpec, data: bytes | None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the places of a chunk's elements, and the bytes of each: all of a dense one, or those that are defined."""
    kind, whole, size = kind_of(spec), Orthogonal.all(spec.dims), spec.dtype.itemsize
    if spec.sparse:
        found = None
        if data is not None:
            found = kind.defined(kind.decode(data), whole, False, NO_LIMIT, True)
        if found is None or isinstance(found, int):
            return np.empty(0, np.uint32), np.empty((0, size), np.uint8)
        places, values = found.offsets, found.values
    else:
        count = int(np.prod(spec.dims, dtype=np.int64))
        values = np.full(count, spec.fill_value, spec.dtype)
        if data is not None:
            read: Any = kind.read(kind.decode(data), whole, (), NO_LIMIT)
            values = np.asarray(read, spec.dtype)
        places = np.arange(count, dtype=np.uint32)
    assert isinstance(values, np.ndarray)
    return places, np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(-1, size)
