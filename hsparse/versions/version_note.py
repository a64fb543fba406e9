"""The note of a domain's snapshots: one object, changed by conditional puts alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from hsparse.errors import Conflict, Corrupt, NotFound, PreconditionFailed
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.version_keys import note_key, tree_root

UNSEALED = 600.0
"""Seconds after which a snapshot that was not finished counts as given up."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot; `root` is the root group's id in its tree. It can be read once it is `sealed`, until it is `ending`.

    What an ending one shows is kept until no node reads it any more.
    """

    number: int
    root: str
    time: float
    author: str = ""
    message: str = ""
    sealed: bool = False
    ending: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what clients are told."""
        shown = {"snapshot": self.number, "time": self.time, "author": self.author}
        return {**shown, "message": self.message, "root": self.root}


@dataclass(frozen=True, slots=True)
class Pin:
    """A clone, by its path, that needs a snapshot."""

    domain: str
    root: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class VersionNote:
    """The snapshots of the domain of `root`; `epoch` is the number of the last one that was ever begun.

    `token` names the series: once all snapshots are gone a new one begins, with 1. `etag` is that of the stored note,
    empty for one that is not stored.
    """

    root: str
    token: str
    epoch: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    pins: tuple[Pin, ...] = ()
    etag: str = ""

    def find(self, number: int) -> Snapshot:
        """Return a snapshot that can be read; `NotFound` if there is none."""
        for one in self.snapshots:
            if one.number == number and one.sealed:
                return one
        known = ", ".join(str(one.number) for one in self.snapshots if one.sealed) or "none"
        raise NotFound(f"There is no snapshot {number}; there are {known}.")

    def begun(self, time: float, author: str, message: str) -> VersionNote:
        """Return the note with one more snapshot, which is not sealed; those that were given up are gone."""
        number = self.epoch + 1
        new = Snapshot(number, tree_root(self.root, self.token, number), time, author, message)
        kept = tuple(one for one in self.snapshots if one.sealed or time - one.time < UNSEALED)
        return replace(self, epoch=number, snapshots=(*kept, new))

    def sealed(self, tree: str, time: float) -> VersionNote:
        """Return the note with a snapshot, told by its root, that can be read; `Conflict` if it was given up."""
        if all(one.root != tree or one.ending for one in self.snapshots):
            raise Conflict(
                "The snapshot took too long, and was given up, or it was deleted; take another one."
            )
        changed = (
            replace(one, sealed=True, time=time) if one.root == tree else one for one in self.snapshots
        )
        return replace(self, snapshots=tuple(changed))

    def abandoned(self, tree: str) -> VersionNote:
        """Return the note without a snapshot, told by its root, that is not sealed."""
        kept = tuple(one for one in self.snapshots if one.root != tree or one.sealed)
        return replace(self, snapshots=kept)

    def ended(self, number: int, time: float) -> VersionNote:
        """Return the note with a snapshot that is ending; `NotFound`, or `Conflict` if a clone needs it."""
        if any(one.number == number and one.ending for one in self.snapshots):
            return self
        gone = self.find(number)
        self.check_unpinned(number)
        ending = replace(gone, sealed=False, ending=True, time=time)
        return replace(self, snapshots=tuple(ending if one is gone else one for one in self.snapshots))

    def pinned(self, pin: Pin) -> VersionNote:
        """Return the note with a clone of a snapshot; `NotFound` if there is no such snapshot."""
        self.find(pin.snapshot)
        return self if pin in self.pins else replace(self, pins=(*self.pins, pin))

    def unpinned(self, root: str) -> VersionNote:
        """Return the note without the clone that has this root group."""
        return replace(self, pins=tuple(pin for pin in self.pins if pin.root != root))

    def check_unpinned(self, number: int | None = None) -> None:
        """Raise `Conflict` if a clone needs a snapshot; without a number, any of them."""
        for pin in self.pins:
            if number in (None, pin.snapshot):
                raise Conflict(
                    f"The clone {pin.domain} needs snapshot {pin.snapshot}: delete the clone first, or have it copy "
                    "what it shares by hsparse clone --materialize."
                )

    def encode(self) -> bytes:
        """Return the note's bytes."""
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
    """Return the note of a root group's domain, None without one; `Corrupt`."""
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
            tuple(Snapshot(**one) for one in found["snapshots"]),
            tuple(Pin(**one) for one in found["pins"]),
            stored.etag,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"The object {key} has no snapshots in it: {error!r}; restore it from a copy."
        ) from error


async def put_note(store: ObjectStore, note: VersionNote) -> VersionNote | None:
    """Store a changed note in place of the one it was made of; None if that is not there any more."""
    key = note_key(note.root)
    try:
        if note.etag:
            etag = await store.put_if_match(key, note.encode(), note.etag)
        else:
            etag = await store.put_if_absent(key, note.encode())
    except PreconditionFailed:
        return None
    return replace(note, etag=etag)
