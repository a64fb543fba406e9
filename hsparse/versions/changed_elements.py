"""Find the chunks of a dataset that differ between two of its states, and count the elements that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import NotFound
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.kinds.registry import kind_of
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.wire.message import Record

MOST_BYTES = 256 * 1024 * 1024
"""The most bytes of stored chunks whose elements are counted."""
MOST_DECODED = 4 * 1024 * 1024 * 1024
"""The most bytes of decoded dense chunks whose elements are counted, because decoding may enlarge chunks a lot."""
NO_LIMIT = 2**62
AT_ONCE = 4
ELEMENTS_AT_ONCE = 1 << 20
"""The number of elements that are compared at a time."""
DENSE_COPIES = 3
"""Memory for comparing two dense chunks, in multiples of a chunk's bytes; the chunk being decoded counts twice."""
SPARSE_COPIES = 12
"""The approximate memory for comparing sparse chunks, in multiples of the bytes of their elements and offsets."""
Elements = tuple[NDArray[Any], NDArray[Any]]


async def changed_chunks(
    store: ObjectStore,
    record: Record,
    chunks: Sequence[str],
    before: Mapping[str, Entry],
    after: Mapping[str, Entry],
    memory: MemoryBudget,
) -> tuple[Sequence[str], int | None]:
    """Return a pair: the chunks that differ, and the number of elements that differ or are defined in one state only.

    `before` and `after` map chunks to the objects from which they are read. If the objects have too many bytes, return
    all `chunks` and None. The number is also None for variable-length values, and for chunks too large for `memory`.
    """
    stored = [one[rest] for one in (before, after) for rest in chunks if rest in one]
    if record["shape"]["class"] == "H5S_NULL" or sum(entry.size for entry in stored) > MOST_BYTES:
        return chunks, None
    spec = chunk_spec(record)
    dense = 0 if spec.sparse or spec.is_vlen else prod(spec.dims) * spec.dtype.itemsize
    if dense * len(stored) > MOST_DECODED:
        return chunks, None

    async def count(rest: str) -> int | None:
        entries = [one.get(rest) for one in (before, after)]
        nbytes = sum(entry.size for entry in entries if entry is not None)
        async with memory.hold(nbytes + DENSE_COPIES * dense):
            old, new = [await _data(store, entry) for entry in entries]
            if old == new or spec.is_vlen:
                return int(old != new)
            bounds = [0 if data is None else kind_of(spec).decode_bound(data) for data in (old, new)]
            # Dense chunks are decoded one after the other.
            bound = nbytes + (SPARSE_COPIES * sum(bounds) if spec.sparse else dense + max(bounds))
            if bound > memory.limit:
                return None
            if not spec.sparse:
                return await compute(2 * dense, _different_dense, spec, old, new)
        async with memory.hold(bound):  # the decoded size is known now
            return await compute(bound, _different_sparse, spec, old, new)

    counts = await gather_each(count, chunks, AT_ONCE)
    different = [rest for rest, places in zip(chunks, counts, strict=True) if places != 0]
    known = [places for places in counts if places is not None]
    return different, None if spec.is_vlen or len(known) < len(counts) else sum(known)


async def _data(store: ObjectStore, entry: Entry | None) -> bytes | None:
    if entry is None:
        return None
    try:
        return (await store.get(entry.key)).data
    except NotFound:  # deleted meanwhile
        return None


def _different_dense(spec: ChunkSpec, old: bytes | None, new: bytes | None) -> int:
    """Return the number of elements that differ between two dense chunks; None is a missing chunk."""
    one, other = [_dense(spec, data) for data in (old, new)]
    count = prod(spec.dims)
    fill = np.full(min(count, ELEMENTS_AT_ONCE), spec.fill_value, spec.dtype)
    changed = 0
    for first in range(0, count, ELEMENTS_AT_ONCE):
        size = min(ELEMENTS_AT_ONCE, count - first)
        parts = [fill[:size] if data is None else data[first : first + size] for data in (one, other)]
        left, right = (np.ascontiguousarray(part).view(np.uint8).reshape(size, -1) for part in parts)
        changed += int(np.count_nonzero((left != right).any(axis=1)))
    return changed


def _dense(spec: ChunkSpec, data: bytes | None) -> NDArray[Any] | None:
    if data is None:
        return None
    kind = kind_of(spec)
    read: Any = kind.read(kind.decode(data), Orthogonal.all(spec.dims), (), NO_LIMIT)
    return np.asarray(read, spec.dtype).reshape(-1)


def _different_sparse(spec: ChunkSpec, old: bytes | None, new: bytes | None) -> int:
    """Return the number of elements that differ between two sparse chunks; None is a missing chunk."""
    (places, values), (others, theirs) = _defined(spec, old), _defined(spec, new)
    same, at, there = np.intersect1d(places, others, assume_unique=True, return_indices=True)
    changed = int(np.count_nonzero((values[at] != theirs[there]).any(axis=1)))
    return changed + len(places) + len(others) - 2 * len(same)


def _defined(spec: ChunkSpec, data: bytes | None) -> Elements:
    """Return a pair: the offsets of a sparse chunk's elements, (n,), and their bytes, (n, size of an element)."""
    kind, size = kind_of(spec), spec.dtype.itemsize
    found = None
    if data is not None:
        found = kind.defined(kind.decode(data), Orthogonal.all(spec.dims), False, NO_LIMIT, True)
    if found is None or isinstance(found, int):
        return np.empty(0, np.uint32), np.empty((0, size), np.uint8)
    assert isinstance(found.values, np.ndarray)
    return found.offsets, np.ascontiguousarray(found.values).reshape(-1).view(np.uint8).reshape(-1, size)
