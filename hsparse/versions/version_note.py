"""The note of a domain: one object that lists the domain's snapshots and is changed only by conditional puts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from hsparse.errors import Conflict, Corrupt, NotFound, PreconditionFailed
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.version_keys import note_key, tree_root

UNSEALED_SECONDS = 600.0
"""Seconds after which a snapshot that is not sealed counts as abandoned."""


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """A snapshot; `root` is the root group's id in its tree. It can be read from when it is sealed until it is ending.

    The copies of an ending snapshot are kept until no node reads the snapshot any more.
    """

    number: int
    root: str
    time: float
    author: str = ""
    message: str = ""
    sealed: bool = False
    ending: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot's JSON for clients."""
        shown = {"snapshot": self.number, "time": self.time, "author": self.author}
        return {**shown, "message": self.message, "root": self.root}


@dataclass(frozen=True, slots=True)
class Pin:
    """A clone that needs a snapshot; `domain` is the clone's path."""

    domain: str
    root: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class VersionNote:
    """The snapshots of the domain of `root`; `epoch` is the number of the last snapshot that was ever begun.

    `token` names the series: after all snapshots are deleted, a new series begins with number 1. `etag` is the stored
    note's etag, or empty if the note is not stored.
    """

    root: str
    token: str
    epoch: int = 0
    snapshots: tuple[SnapshotNote, ...] = ()
    pins: tuple[Pin, ...] = ()
    etag: str = ""

    def find(self, number: int) -> SnapshotNote:
        """Return the snapshot with this number; raise `NotFound` if no such snapshot can be read."""
        for one in self.snapshots:
            if one.number == number and one.sealed:
                return one
        known = ", ".join(str(one.number) for one in self.snapshots if one.sealed) or "none"
        raise NotFound(f"There is no snapshot {number}; there are {known}.")

    def begun(self, time: float, author: str, message: str) -> VersionNote:
        """Return the note with a new, unsealed snapshot and without abandoned snapshots."""
        number = self.epoch + 1
        new = SnapshotNote(number, tree_root(self.root, self.token, number), time, author, message)
        kept = tuple(one for one in self.snapshots if one.sealed or time - one.time < UNSEALED_SECONDS)
        return replace(self, epoch=number, snapshots=(*kept, new))

    def sealed(self, tree: str, time: float) -> VersionNote:
        """Return the note with the snapshot of root `tree` sealed; raise `Conflict` if it was abandoned or deleted."""
        if all(one.root != tree or one.ending for one in self.snapshots):
            raise Conflict(
                "The snapshot took too long and was given up, or it was deleted; take another one."
            )
        changed = (
            replace(one, sealed=True, time=time) if one.root == tree else one for one in self.snapshots
        )
        return replace(self, snapshots=tuple(changed))

    def abandoned(self, tree: str) -> VersionNote:
        """Return the note without the snapshot of root `tree`; a sealed snapshot stays."""
        kept = tuple(one for one in self.snapshots if one.root != tree or one.sealed)
        return replace(self, snapshots=kept)

    def ended(self, number: int, time: float) -> VersionNote:
        """Return the note with a snapshot marked as ending; raise `Conflict` if a clone needs it, or `NotFound`."""
        if any(one.number == number and one.ending for one in self.snapshots):
            return self
        gone = self.find(number)
        self.check_unpinned(number)
        ending = replace(gone, sealed=False, ending=True, time=time)
        return replace(self, snapshots=tuple(ending if one is gone else one for one in self.snapshots))

    def pinned(self, pin: Pin) -> VersionNote:
        """Return the note with the clone `pin` added; raise `NotFound` if the snapshot that it needs does not exist."""
        self.find(pin.snapshot)
        return self if pin in self.pins else replace(self, pins=(*self.pins, pin))

    def unpinned(self, root: str) -> VersionNote:
        """Return the note without the clone that has this root group."""
        return replace(self, pins=tuple(pin for pin in self.pins if pin.root != root))

    def check_unpinned(self, number: int | None = None) -> None:
        """Raise `Conflict` if a clone needs the snapshot or, without a number, any snapshot."""
        for pin in self.pins:
            if number in (None, pin.snapshot):
                raise Conflict(
                    f"A clone needs snapshot {pin.snapshot}: delete the clone first, or copy its shared objects by "
                    "hsparse clone --materialize. If the clone was created a moment ago, try again."
                )

    def encode(self) -> bytes:
        """Return the note's JSON."""
        return orjson.dumps(
            {
                "root": self.root,
                "token": self.token,
                "epoch": self.epoch,
                "snapshots": [asdict(one) for one in self.snapshots],
                "pins": [asdict(one) for one in self.pins],
            }
        )


async def read_note(store: ObjectStore, root: str) -> VersionNote | None:
    """Return the note of a root group's domain, or None if it has no note; raise `Corrupt` if the note is damaged."""
    key = note_key(root)
    try:
        stored = await store.get(key)
    except NotFound:
        return None
    try:
        found = orjson.loads(stored.data)
        return VersionNote(
            found["root"],
            found["token"],
            found["epoch"],
            tuple(SnapshotNote(**one) for one in found["snapshots"]),
            tuple(Pin(**one) for one in found["pins"]),
            stored.etag,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"The object {key} is not a valid note of snapshots: {error!r}; restore it from a copy."
        ) from error


async def put_note(store: ObjectStore, note: VersionNote) -> VersionNote | None:
    """Store a changed note and return it with its etag, or None if the note from which it was derived has changed."""
    key = note_key(note.root)
    try:
        if note.etag:
            etag = await store.put_if_match(key, note.encode(), note.etag)
        else:
            etag = await store.put_if_absent(key, note.encode())
    except PreconditionFailed:
        return None
    return replace(note, etag=etag)
