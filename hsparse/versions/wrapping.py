"""What a data node has instead of its store and its ownership, so that domains have snapshots."""

from __future__ import annotations

from hsparse.clock import Clock, SystemClock
from hsparse.config import Settings
from hsparse.dn.membership.ownership import Ownership, SoleOwnership
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.snapshot_path import parsed_snapshot
from hsparse.versions.versioned_store import VersionedStore


class SoleVersions(SoleOwnership):
    """The ownership of a process that has its store for itself: until it has snapshots nothing needs to be asked."""

    def distrust(self) -> None:
        """Trust what is known of the rights in snapshots no more."""
        self.always = False

    def trusts(self, name: str) -> bool:
        return not is_snapshot(name)


class VersionedOwnership:
    """An `Ownership` that does not trust what is known of the rights in snapshots: those of their domains change."""

    always = False

    def __init__(self, base: Ownership) -> None:
        self._base = base

    @property
    def shared(self) -> bool:
        return self._base.shared

    @property
    def hears_all(self) -> bool:
        return self._base.hears_all

    @property
    def term(self) -> int:
        return self._base.term

    def trusts(self, name: str) -> bool:
        return self._base.trusts(name) and not is_snapshot(name)

    def may_change(self, term: int) -> bool:
        return self._base.may_change(term)


def is_snapshot(name: str) -> bool:
    """Say whether a name is the path of the domain that a snapshot is read as."""
    return "@" in name and name.startswith("/") and parsed_snapshot(name) is not None


def wrapped(settings: Settings, store: ObjectStore, ownership: Ownership) -> tuple[ObjectStore, Ownership]:
    """Return the store and the ownership of a data node whose domains have snapshots."""
    return with_versions(store, ownership, SystemClock())


def with_versions(store: ObjectStore, ownership: Ownership, clock: Clock) -> tuple[VersionedStore, Ownership]:
    """Return a store with snapshots, and the ownership of who has it."""
    versioned = VersionedStore(store, ownership, clock)
    if not ownership.always:
        return versioned, VersionedOwnership(ownership)
    alone = SoleVersions()
    versioned.began = alone.distrust
    return versioned, alone
