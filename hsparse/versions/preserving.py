"""Preserve the objects of a domain with snapshots: before an object changes, it is copied, once in each epoch.

The epoch of a domain is the number of its last snapshot. Two nodes may preserve the same object: the first copy stays,
and each node has stored a copy before its change. The object that a node copies has not changed since the snapshot,
because an earlier change would have made a copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import Gone, NotFound, PreconditionFailed
from hsparse.model.ids import domain_prefix
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.snapshot_trees import SnapshotTrees, TreeBase
from hsparse.versions.version_keys import ABSENT, chunk_of, copy_key, history_prefix, is_kept
from hsparse.versions.version_note import VersionNote

Expected = Callable[[str | None], bool]
MOST_KNOWN = 100_000
"""The most objects of a domain that are remembered as preserved; a forgotten object is preserved again."""
MOST_EXTENTS = 32
"""With more snapshots, a new chunk is marked as `ABSENT` in them without checking whether an extent includes it."""


class Preserved:
    """Preserves the objects of a domain in the epoch of its note; without snapshots nothing is preserved."""

    def __init__(
        self, note: VersionNote | None, store: ObjectStore, below: ObjectStore, trees: SnapshotTrees
    ) -> None:
        """Read objects from `store`, which includes objects that a clone shares, and store copies in `below`."""
        self.note = note
        self._store, self._below, self._trees = store, below, trees
        self._done: BoundedCache[str, None] = BoundedCache.of_entries(MOST_KNOWN)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._bases: tuple[TreeBase, ...] = ()
        if note is not None:
            self._bases = tuple(
                TreeBase(note.root, note.token, one.number, one.root) for one in note.snapshots
            )

    async def keep(
        self, rest: str, is_expected: Expected = lambda etag: True, *, remote: bool = False
    ) -> None:
        """Preserve an object that is about to be changed or, with `remote`, that another node may change.

        Raises `PreconditionFailed` if `is_expected` returns False for the object's etag (None: no object).
        """
        if not self._bases or rest in self._done or not is_kept(rest):
            return
        async with self._locks.setdefault(rest, asyncio.Lock()):
            if rest in self._done:
                return
            if await self._shown(rest):
                await self._copy(rest, is_expected, remote)
            self._done.keep(rest, None)

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
            return  # a node that knows a later snapshot may have changed the object that was read
        prefix = history_prefix(self.note.root, self.note.token)
        with suppress(PreconditionFailed):  # another node has preserved it
            await self._below.put_if_absent(copy_key(prefix, rest, self.note.epoch), data)

    async def _shown(self, rest: str) -> bool:
        """Return whether any snapshot may show an object; a chunk outside the extent is never read.

        The dataset's record is preserved first, so that its extent at the last snapshot cannot change.
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
            except Gone:  # the snapshot is ending: other nodes may still read it
                return True
            if extent is not None and extent.has(chunk[1]):
                return True
        return False


class DomainVersions:
    """A cache of the `Preserved` of domains, by root group; the note of a domain is read on first use."""

    def __init__(self, read: Callable[[str], Awaitable[Preserved]], most: int = 10_000) -> None:
        self._read = read
        self._known: BoundedCache[str, Preserved] = BoundedCache.of_entries(most)
        self._renewals = 0

    async def of(self, root: str, *, confirm: bool = False) -> Preserved:
        """Return the `Preserved` of a domain; with `confirm`, read the domain's note again."""
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
        """Remember the `Preserved` of a domain."""
        self._known.keep(root, known)

    async def renew(self, root: str) -> Preserved:
        """Read the note of a domain again; the results of reads that have already begun are not used."""
        self.forget(root)
        return await self.of(root)

    def forget(self, root: str | None = None) -> None:
        """Forget a domain, or all domains."""
        self._renewals += 1
        if root is None:
            self._known.clear()
        else:
            self._known.forget(root)
