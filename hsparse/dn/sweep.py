"""A sweep of a whole store: finds and removes objects that no domain can reach any more.

A sweep is safe beside servers and other sweeps. Objects younger than `min_age` stay, because they may belong to a
domain or dataset that is being created or deleted. A record is looked for after the objects below it were listed, and
an object is deleted only if it still has its listed etag, so objects written since then stay.

The objects of a root group that no domain names are deleted only after a note claims them and all domains were read
again (`hsparse.dn.deletions`). The objects stay if a damaged domain record may name their root group.

`DomainScan` reads all domains in a store to find the root groups that they name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hsparse.clock import Clock
from hsparse.concurrency.gathering import gather_each
from hsparse.dn.deletions import NOTE_AGE, DeletionNote, Deletions, DeletionState, Resumed, born_of
from hsparse.dn.record_form import RecordCodec, has_checksum
from hsparse.errors import BadRequest, Corrupt, NotFound, PreconditionFailed, Unsupported
from hsparse.model.ids import check_id, is_root, storage_key, tree_of_key
from hsparse.storage.object_store import PROBE_PREFIX, AnsweringStore, Entry, ObjectStore
from hsparse.wire.message import Record

SUFFIX = "/.domain.json"
OBJECTS = "db/"
AFTER_OBJECTS = "db/~"
"""A key after all keys of objects, whose names consist of digits and lower-case letters."""
READS_AT_ONCE = 32
FOLDER_KEYS = frozenset({"owner", "acls", "created", "lastModified", "quota", "schema"})
"""The keys that a folder's record may have."""


@dataclass(frozen=True, slots=True)
class StoredDomain:
    """A domain record that names a root group."""

    path: str
    root: str
    record: Record
    etag: str
    modified: float

    @property
    def is_final(self) -> bool:
        """Whether the domain is marked as dangling already, or must not be changed by this server."""
        return "deleted" in self.record or "schema" in self.record


def _is_root(root: Any) -> bool:
    try:
        return isinstance(root, str) and is_root(check_id(root))
    except (BadRequest, NotFound):
        return False


@dataclass(slots=True)
class DomainScan:
    """The domains of a store, without folders; `unreadable` has the paths of domains whose root is unknown.

    A record without `root` belongs to a folder if it has a checksum or only keys of folders; otherwise it may belong to
    a damaged domain.
    """

    store: ObjectStore
    named: list[StoredDomain] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)

    async def read(self) -> DomainScan:
        """Read every domain and return this scan; a domain that exists during the whole scan is not missed."""
        async for page in self.store.list(""):
            await self._read_page([entry for entry in page.entries if entry.key < OBJECTS])
            if page.entries and page.entries[-1].key >= OBJECTS:
                break
        async for page in self.store.list("", start_after=AFTER_OBJECTS):
            await self._read_page(page.entries)
        return self

    async def _read_page(self, entries: Sequence[Entry]) -> None:
        await gather_each(
            self._read, [entry for entry in entries if entry.key.endswith(SUFFIX)], READS_AT_ONCE
        )

    async def _read(self, entry: Entry) -> None:
        path = f"/{entry.key.removesuffix(SUFFIX)}"
        try:
            stored = await self.store.get(entry.key)
            record = RecordCodec(entry.key).decode(stored.data)
        except NotFound:
            return  # deleted after it was listed
        except (Corrupt, Unsupported):
            self.unreadable.append(path)
            return
        root: Any = record.get("root")
        if "root" not in record and (has_checksum(stored.data) or record.keys() <= FOLDER_KEYS):
            return
        if not _is_root(root):
            self.unreadable.append(path)
            return
        self.roots.add(root)
        self.named.append(StoredDomain(path, root, record, stored.etag, entry.modified))


MIN_AGE = 86400.0

log = logging.getLogger(__name__)


class Waste(StrEnum):
    """The kinds of waste that a sweep finds."""

    DELETION = "interrupted deletion"
    DOMAIN = "objects without a domain"
    LEFTOVERS = "objects without a root group"
    CHUNKS = "chunks without a dataset"
    PROBE = "probe of a store"
    DANGLING = "domain without objects"
    UNREADABLE = "domain that cannot be read"
    KEPT = "objects kept for an extension"


@dataclass(slots=True)
class Finding:
    """Waste found at `name` (an id, a key or a domain's path), with its number of objects and bytes."""

    waste: Waste
    name: str
    objects: int = 0
    nbytes: int = 0

    def add(self, objects: int, nbytes: int) -> None:
        """Add to the number of objects and bytes."""
        self.objects += objects
        self.nbytes += nbytes


@dataclass(slots=True)
class _Tree:
    """The number and bytes of a domain's listed objects; `modified` is the time of the root group's last change."""

    modified: float
    objects: int = 0
    nbytes: int = 0


class Sweep:
    """One sweep of a store. `min_age` is in seconds. With `dry_run` nothing is changed.

    `advance` is called with the number of bytes of the objects that were examined.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        *,
        min_age: float = MIN_AGE,
        dry_run: bool = False,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._min_age = min_age
        self._dry_run = dry_run
        self._advance = advance
        self._deletions = Deletions(store, clock)
        self._found: dict[tuple[Waste, str], Finding] = {}
        self._trees: dict[str, _Tree] = {}
        self._leftovers: dict[tuple[Waste, str], list[Entry]] = {}
        self._dataset: str | None = None
        """The last dataset whose record was listed."""

    async def run(self) -> list[Finding]:
        """Sweep the store; return the waste that was found and, unless `dry_run` is set, removed."""
        unsettled = await self._resume_deletions()
        await self._sweep_objects()
        domains = await DomainScan(self._store).read()
        for name in domains.unreadable:
            self._find(Waste.UNREADABLE, name)
        for root in unsettled.keys() & domains.roots:
            await self._deletions.notes.withdraw(unsettled[root])
        unnamed = sorted({*self._trees, *unsettled} - domains.roots)
        # An unreadable domain may have any of these roots.
        if unnamed and not domains.unreadable:
            await self._sweep_unnamed(unnamed, unsettled)
        for domain in domains.named:
            await self._mark_dangling(domain)
        await self._sweep_extensions()
        return list(self._found.values())

    async def _sweep_extensions(self) -> None:
        """Let the stores of extensions remove their own objects that are no longer needed."""
        if isinstance(self._store, AnsweringStore):
            with suppress(Unsupported):
                asked = {"min_age": self._min_age, "dry_run": self._dry_run}
                for name, (objects, nbytes) in (await self._store.answer("sweep", asked)).items():
                    self._find(Waste.KEPT, name, objects, nbytes)

    async def _resume_deletions(self) -> dict[str, DeletionNote]:
        """Finish interrupted deletions; return a dict of roots to the notes that only a scan of all domains settles."""
        unsettled: dict[str, DeletionNote] = {}
        async for note in self._deletions.notes.older_than(min(NOTE_AGE, self._min_age)):
            if self._dry_run:
                self._find(Waste.DELETION, note.id)
                continue
            outcome = await self._deletions.resume(note)
            if outcome is Resumed.UNSETTLED:
                unsettled[note.id] = note
            else:
                self._find(Waste.DELETION, note.id)
        return unsettled

    async def _sweep_objects(self) -> None:
        """Count all objects and sweep leftovers, in key order: a record comes before the objects below it."""
        async for page in self._store.list(OBJECTS):
            for entry in page.entries:
                self._sort(entry)
            self._advance(sum(entry.size for entry in page.entries))
            for (waste, name), entries in self._leftovers.items():
                await self._sweep_leftovers(waste, name, entries)
            self._leftovers.clear()

    def _sort(self, entry: Entry) -> None:
        """Count a listed object, or add it to the leftovers if the record that it belongs to was not listed."""
        if entry.key.startswith(PROBE_PREFIX):
            self._leave(Waste.PROBE, entry.key, entry)
            return
        place = tree_of_key(entry.key)
        if place is None:
            return
        root, dataset = place
        if entry.key == storage_key(root):
            self._trees[root] = _Tree(entry.modified)
        elif dataset is not None and entry.key == storage_key(dataset):
            self._dataset = dataset
        if root not in self._trees:
            self._leave(Waste.LEFTOVERS, root, entry)
        elif dataset != self._dataset and dataset is not None:
            self._leave(Waste.CHUNKS, dataset, entry)
        else:
            self._trees[root].objects += 1
            self._trees[root].nbytes += entry.size

    def _leave(self, waste: Waste, name: str, entry: Entry) -> None:
        if self._is_old(entry.modified):
            self._leftovers.setdefault((waste, name), []).append(entry)

    async def _sweep_leftovers(self, waste: Waste, name: str, entries: list[Entry]) -> None:
        """Delete listed objects, unless their record exists: it may have been created since, or listed later."""
        if waste is not Waste.PROBE and await self._deletions.exists(name):
            return
        if not self._dry_run:
            done = await self._store.delete_all(entries)
            entries = [entry for entry, deleted in zip(entries, done, strict=True) if deleted]
        if entries:
            self._find(waste, name, len(entries), sum(entry.size for entry in entries))

    async def _sweep_unnamed(self, roots: list[str], unsettled: dict[str, DeletionNote]) -> None:
        """Claim the roots that are old, read all domains again, and delete the roots that still have no domain."""
        old = [root for root in roots if root in unsettled or self._is_old(self._trees[root].modified)]
        old = [root for root in old if not await self._may_be_named(root)]
        if self._dry_run:
            for root in old:
                self._find_tree(root)
            return
        claims = [claim for root in old if (claim := await self._claim(root, unsettled)) is not None]
        domains = await DomainScan(self._store).read()
        for claim in claims:
            named = claim.id in domains.roots or domains.unreadable
            if named or await self._may_be_named(claim.id):
                await self._deletions.notes.withdraw(claim)
            else:
                await self._delete_claimed(claim)

    async def _may_be_named(self, root: str) -> bool:
        """Return whether an unreadable or damaged record may belong to the root group's domain.

        The root group names the domain for which it was created. The result is True if that domain's record is
        unreadable, names this root, or has neither root nor checksum (a folder's record has a checksum). The result is
        also True if the root group itself is unreadable.
        """
        try:
            home = (await self._record(storage_key(root))).get("domain")
            if not isinstance(home, str) or not home.startswith("/"):
                return False
            key = storage_key(home)
            stored = await self._store.get(key)
            named = RecordCodec(key).decode(stored.data).get("root")
        except (NotFound, BadRequest):  # a path that is refused is no domain's
            return False
        except (Corrupt, Unsupported) as error:
            log.warning("The objects of %s belong to no domain but are kept: %s", root, error.message)
            return True
        if named is None and has_checksum(stored.data):
            return False
        if named is None:
            log.warning(
                "The objects of %s are kept: they were created for %s, which has no root.", root, home
            )
        return named in (None, root)

    async def _record(self, key: str) -> Record:
        return RecordCodec(key).decode((await self._store.get(key)).data)

    async def _claim(self, root: str, unsettled: dict[str, DeletionNote]) -> DeletionNote | None:
        """Store and return a claim on a root, or return None if another deletion already has a note for the root."""
        notes, born = self._deletions.notes, await born_of(self._store, root)
        if root in unsettled:
            claim = DeletionNote(root, DeletionState.CLAIMED, born=born)
            return await notes.replace(unsettled[root], claim)
        return await notes.claim(root, born)

    async def _delete_claimed(self, claim: DeletionNote) -> None:
        decided = DeletionNote(claim.id, DeletionState.DECIDED, born=claim.born)
        note = await self._deletions.notes.replace(claim, decided)
        if note is not None:
            await self._deletions.finish(note)
            self._find_tree(claim.id)

    def _find_tree(self, root: str) -> None:
        tree = self._trees.get(root, _Tree(0.0))
        self._find(Waste.DOMAIN, root, tree.objects, tree.nbytes)

    async def _mark_dangling(self, domain: StoredDomain) -> None:
        """Mark a domain as deleted if its root group was deleted through another name; requests then get `Gone`."""
        if domain.root in self._trees or domain.is_final or not self._is_old(domain.modified):
            return
        if await self._deletions.exists(domain.root):
            return
        if not self._dry_run:
            key = storage_key(domain.path)
            record: Record = {**domain.record, "deleted": self._clock.now()}
            try:
                await self._store.put_if_match(key, RecordCodec(key).encode(record), domain.etag)
            except PreconditionFailed:
                return  # changed or deleted since it was read
        self._find(Waste.DANGLING, domain.path, 1)

    def _is_old(self, modified: float) -> bool:
        return self._clock.now() - modified >= self._min_age

    def _find(self, waste: Waste, name: str, objects: int = 0, nbytes: int = 0) -> None:
        self._found.setdefault((waste, name), Finding(waste, name)).add(objects, nbytes)
