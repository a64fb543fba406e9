"""What a data node has instead of its store and its ownership, so that domains have snapshots."""

from __future__ import annotations

from functools import partial

from hsparse.clock import Clock, SystemClock
from hsparse.config import Settings
from hsparse.dn.membership.ownership import Ownership, PartlyTrusted, SoleOwnership
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.snapshot_path import parsed_snapshot
from hsparse.versions.versioned_store import VersionedStore


class SoleVersions(SoleOwnership):
    """The ownership of a process that has its store for itself: `always` until there are snapshots."""

    def trusts(self, name: str) -> bool:
        return is_no_snapshot(name)


def is_no_snapshot(name: str) -> bool:
    """Say whether a name is not the path of the domain that a snapshot is read as: its rights are another domain's."""
    return "@" not in name or not name.startswith("/") or parsed_snapshot(name) is None


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return the store and the ownership of a data node whose domains have snapshots."""
    return with_versions(store, ownership, SystemClock())


def with_versions(store: ObjectStore, ownership: Ownership, clock: Clock) -> tuple[VersionedStore, Ownership]:
    """Return a store with snapshots, and the ownership of who has it."""
    versioned = VersionedStore(store, ownership, clock)
    if not ownership.always:
        return versioned, PartlyTrusted(ownership, is_no_snapshot)
    alone = SoleVersions()
    versioned.began = partial(setattr, alone, "always", False)
    return versioned, alone
