"""What a change of a domain's objects stores before: the object as it was, once in each epoch.

The epoch of a domain is the number of its last snapshot. Two nodes may preserve the same object: the first copy stays,
and each is stored before the change that it is for. What is there when a copy is made was there since the snapshot, as
all changes since have made a copy first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from hsparse.errors import Gone, NotFound, PreconditionFailed
from hsparse.model.ids import domain_prefix
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.snapshot_trees import Base, SnapshotTrees
from hsparse.versions.version_keys import ABSENT, chunk_of, copy_key, history_prefix, is_kept
from hsparse.versions.version_note import VersionNote

Expected = Callable[[str | None], bool]
MOST_KNOWN = 100_000
"""Objects of a domain that are known to be preserved; another one is preserved in vain once more."""
MOST_EXTENTS = 32
"""Snapshots whose extents are looked at to spare a new chunk its mark."""


class Preserved:
    """What is preserved of a domain, in the epoch of its note; without snapshots nothing is."""

    def __init__(
        self, note: VersionNote | None, store: ObjectStore, below: ObjectStore, trees: SnapshotTrees
    ) -> None:
        """Read from `store`, where objects may be those of a base; store copies in `below`."""
        self.note = note
        self._store, self._below, self._trees = store, below, trees
        self._done: OrderedDict[str, None] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._bases: tuple[Base, ...] = ()
        if note is not None:
            self._bases = tuple(Base(note.root, note.token, one.number, one.root) for one in note.snapshots)

    async def keep(
        self, rest: str, is_expected: Expected = lambda etag: True, *, remote: bool = False
    ) -> None:
        """Preserve an object that is about to be changed or, `remote`, that another node may change.

        `PreconditionFailed` unless its etag, None of one that is not there, is as expected: then it is not changed.
        """
        if not self._bases or rest in self._done or not is_kept(rest):
            return
        async with self._locks.setdefault(rest, asyncio.Lock()):
            if rest in self._done:
                return
            if await self._shown(rest):
                await self._copy(rest, is_expected, remote)
            self._done[rest] = None
            if len(self._done) > MOST_KNOWN:
                self._done.popitem(last=False)

    async def _copy(self, rest: str, is_expected: Expected, remote: bool) -> None:
        assert self.note is not None
        key = domain_prefix(self.note.root) + rest
        etag, data = None, ABSENT
        with suppress(NotFound):
            stored = await self._store.get(key)
            etag, data = stored.etag, stored.data
        if not is_expected(etag):
            raise PreconditionFailed(f"{key} was changed by another node.")
        if remote and await self._trees.copy_of(self._bases[-1], rest) is not None:
            return  # a node that was told of a later snapshot may have changed what was read here
        prefix = history_prefix(self.note.root, self.note.token)
        with suppress(PreconditionFailed):  # preserved before
            await self._below.put_if_absent(copy_key(prefix, rest, self.note.epoch), data)

    async def _shown(self, rest: str) -> bool:
        """Say whether any snapshot may show an object: a chunk outside the extent is never asked for.

        The dataset's record is preserved first, so that its extent at the last snapshot stays what it is.
        """
        chunk = chunk_of(rest)
        if chunk is None:
            return True
        await self.keep(chunk[0], remote=True)
        if len(self._bases) > MOST_EXTENTS:
            return True
        for base in reversed(self._bases):
            self._trees.learn(base)
            try:
                extent = await self._trees.extent(base, chunk[0])
            except Gone:  # it is ending: this node reads it no more, but others may
                return True
            if extent is not None and extent.has(chunk[1]):
                return True
        return False


class DomainVersions:
    """The `Preserved` of each domain, by the half that its ids share; the note is read when it is first asked for."""

    def __init__(self, read: Callable[[str], Awaitable[Preserved]], most: int = 10_000) -> None:
        self._read, self._most = read, most
        self._known: OrderedDict[str, Preserved] = OrderedDict()
        self._renewals = 0

    async def of(self, root: str, *, confirm: bool = False) -> Preserved:
        """Return that of a domain; with `confirm` its note is read again."""
        known = self._known.get(root)
        while known is None or confirm:
            renewals = self._renewals
            found = await self._read(root)
            if renewals != self._renewals:
                known = self._known.get(root)
                continue
            if known is None or known.note != found.note:
                known = found
            self.learn(root, known)
            break
        return known

    def learn(self, root: str, known: Preserved) -> None:
        """Know what is preserved of a domain."""
        self._known[root] = known
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    async def renew(self, root: str) -> Preserved:
        """Read the note of a domain: what is being read of notes by now may be older, and is not used."""
        self.forget(root)
        return await self.of(root)

    def forget(self, root: str | None = None) -> None:
        """Know nothing of a domain any more, or of any."""
        self._renewals += 1
        if root is None:
            self._known.clear()
        else:
            self._known.pop(root, None)
