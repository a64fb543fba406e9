"""A cache of the coordinates of datasets' stored chunks: they are listed once, then updated by changed keys.

Each data node answers the message `GetChunkChanges` with the keys of the chunks that it has put since an earlier
version of its chunks, and with the current version. The version is requested before the chunks are listed, so that a
cached listing, extended by the keys of later versions, has every chunk that was stored before the request began. A node
that is new, was restarted, has lost its lease, or has deleted chunks does not know which keys have changed; then all
chunks are listed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.concurrency.single_flight import SingleFlight
from hsparse.errors import StoreFailed
from hsparse.format.chunk_map import row_names
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, list_chunks, scaled_of_keys
from hsparse.wire.chunk_info_message import GetChunkChanges

Scaled = NDArray[np.uint64]
Versions = tuple[str, ...]
MAX_SEARCHED_KEYS = 32
"""The most new chunks that are looked up one by one, which is faster than sorting all coordinates."""
KNOWN_BYTES = 64 * 1024 * 1024
"""Bytes of cached coordinates: enough for several million chunks."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """A dataset's stored chunks: `scaled: (k, rank) uint64` relative to `base`, and the version of each data node."""

    versions: Versions
    base: tuple[int, ...]
    scaled: Scaled


_KNOWN: BoundedCache[str, _Listing] = BoundedCache(KNOWN_BYTES, KNOWN_BYTES // 2)
"""Listings by dataset id. A dataset with the same id in another bucket has other versions, so it never matches."""
_LISTING: SingleFlight[tuple[str, Versions], Scaled] = SingleFlight()
"""Maps a dataset and the versions at the begin of a listing to the listing that is under way (single flight)."""


async def stored_chunks(owners: Owners, dataset: StoredDataset) -> Scaled:
    """Return the scaled coordinates of a dataset's stored chunks, (k, rank) uint64, in any order."""
    known = _KNOWN.use(dataset.id)
    if known is not None and known.base != dataset.spec.base:
        known = None
    since = () if known is None else known.versions
    try:
        replies = await owners.ask_all(GetChunkChanges(dataset.id, since))
    except StoreFailed:  # a node does not answer: its changes are unknown
        return await list_chunks(owners, dataset)
    versions = tuple(reply.version for reply in replies)
    changed = [reply.changed for reply in replies if reply.changed is not None]
    if known is None or not len(changed) == len(replies) == len(since):
        scaled = await _listed(owners, dataset, versions)
    elif versions == since:
        return known.scaled
    else:
        keys = [key for some in changed for key in some]
        scaled = _with(known.scaled, dataset, keys)
    if versions:
        _KNOWN.keep(dataset.id, _Listing(versions, dataset.spec.base, scaled), scaled.nbytes)
    return scaled


def _with(scaled: Scaled, dataset: StoredDataset, keys: Iterable[str]) -> Scaled:
    """Return the coordinates `scaled`, extended by the coordinates of the chunk keys `keys` that are not in it."""
    more = scaled_of_keys(dataset, dict.fromkeys(keys))
    if len(more) <= MAX_SEARCHED_KEYS:
        is_new = np.array([not (scaled == row).all(axis=1).any() for row in more], np.bool_)
    else:
        is_new = ~np.isin(row_names(more), row_names(scaled))
    return np.concatenate((scaled, more[is_new]))


async def _listed(owners: Owners, dataset: StoredDataset, versions: Versions) -> Scaled:
    """List the chunks; concurrent requests with the same versions share one listing."""
    name = dataset.id, (*versions, *map(str, dataset.spec.base))
    return await _LISTING.run(name, lambda: list_chunks(owners, dataset))
