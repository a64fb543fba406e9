"""Wrap the store and the ownership of a data node, so that domains have snapshots."""

from __future__ import annotations

from functools import partial

from hsparse.clock import Clock, SystemClock
from hsparse.config import Settings
from hsparse.dn.membership.ownership import Ownership, PartlyTrusted, SoleOwnership
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.snapshot_path import parsed_snapshot
from hsparse.versions.versioned_store import COPY_MEMORY, VersionedStore


class SoleVersions(SoleOwnership):
    """The ownership of a process that owns its store alone; its `always` is True until the store has snapshots."""

    def trusts(self, name: str) -> bool:
        return is_no_snapshot(name)


def is_no_snapshot(name: str) -> bool:
    """Return whether a name is not a snapshot's path, because a snapshot's rights are those of another domain."""
    return "@" not in name or not name.startswith("/") or parsed_snapshot(name) is None


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return a pair: the store and the ownership of a data node whose domains have snapshots."""
    return with_versions(store, ownership, SystemClock(), settings.data.chunk_bytes())


def with_versions(
    store: ObjectStore, ownership: Ownership, clock: Clock, memory: int = COPY_MEMORY
) -> tuple[VersionedStore, Ownership]:
    """Return a pair: a store with snapshots (at most `memory` bytes for copies) and the data node's ownership."""
    versioned = VersionedStore(store, ownership, clock, memory)
    if not ownership.always:
        return versioned, PartlyTrusted(ownership, is_no_snapshot)
    alone = SoleVersions()
    versioned.began = partial(setattr, alone, "always", False)
    return versioned, alone
