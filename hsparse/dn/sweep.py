"""A sweep of a whole store: finds what no domain can reach any more, and removes it.

It is safe beside servers, and beside other sweeps. What is younger than `min_age` stays: it may belong to a domain or
dataset that is being created or deleted right now. A record is looked for after the objects below it were listed, and
these are deleted on their etags; so what was written since stays.

Objects of a root group that no domain names are deleted only once a note claims them, and all domains were read again
after that (`hsparse.dn.deletions`). They stay as long as a record that is damaged may be that of their domain.

A scan of all domains in a store: which root groups they name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hsparse.clock import Clock
from hsparse.compute import gather_each
from hsparse.dn.deletions import NOTE_AGE, DeletionNote, Deletions, DeletionState, Resumed, born_of
from hsparse.dn.record_form import RecordCodec, has_checksum
from hsparse.errors import BadRequest, Corrupt, NotFound, PreconditionFailed, Unsupported
from hsparse.model.ids import check_id, is_root, storage_key, tree_of_key
from hsparse.storage.object_store import PROBE_PREFIX, AnsweringStore, Entry, ObjectStore
from hsparse.wire.message import Record

SUFFIX = "/.domain.json"
OBJECTS = "db/"
AFTER_OBJECTS = "db/~"
"""What sorts after all keys of objects, whose names are of digits and lower-case letters."""
READS_AT_ONCE = 32
FOLDER_KEYS = frozenset({"owner", "acls", "created", "lastModified", "quota", "schema"})
"""What a folder's record may have."""


@dataclass(frozen=True, slots=True)
class StoredDomain:
    """A domain that names a root group."""

    path: str
    root: str
    record: Record
    etag: str
    modified: float

    @property
    def is_final(self) -> bool:
        """Whether it was marked as dangling before, or must not be changed here."""
        return "deleted" in self.record or "schema" in self.record


def _is_root(root: Any) -> bool:
    try:
        return isinstance(root, str) and is_root(check_id(root))
    except (BadRequest, NotFound):
        return False


@dataclass(slots=True)
class DomainScan:
    """The domains of a store, folders excluded; `unreadable` are the paths of those whose root is not known.

    A record without `root` is a folder's only if it has a checksum, or all its keys are those of folders: else it may
    be a domain's, damaged.
    """

    store: ObjectStore
    named: list[StoredDomain] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)

    async def read(self) -> DomainScan:
        """Read every domain; one that exists all the while is not missed."""
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
            return  # deleted since it was listed
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
    """What a sweep finds."""

    DELETION = "interrupted deletion"
    DOMAIN = "objects without a domain"
    LEFTOVERS = "objects without a root group"
    CHUNKS = "chunks without a dataset"
    PROBE = "probe of a store"
    DANGLING = "domain without objects"
    UNREADABLE = "domain that cannot be read"
    KEPT = "what was kept for an extension"


@dataclass(slots=True)
class Finding:
    """What was found at `name` (an id, a key or a domain's path), and how much it is."""

    waste: Waste
    name: str
    objects: int = 0
    nbytes: int = 0

    def add(self, objects: int, nbytes: int) -> None:
        """Count more objects."""
        self.objects += objects
        self.nbytes += nbytes


@dataclass(slots=True)
class _Tree:
    """What was listed of a domain's objects; `modified` is the time of the root group's last change."""

    modified: float
    objects: int = 0
    nbytes: int = 0


class Sweep:
    """One sweep of a store; `min_age` is in seconds. With `dry_run` it only looks.

    `advance` is called with the bytes of the objects that were looked at.
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
        """Sweep; return what was found and, but for a dry run, removed."""
        unsettled = await self._resume_deletions()
        await self._sweep_objects()
        domains = await DomainScan(self._store).read()
        for name in domains.unreadable:
            self._find(Waste.UNREADABLE, name)
        for root in unsettled.keys() & domains.roots:
            await self._deletions.notes.withdraw(unsettled[root])
        unnamed = sorted({*self._trees, *unsettled} - domains.roots)
        # A domain that cannot be read may have any of these roots.
        if unnamed and not domains.unreadable:
            await self._sweep_unnamed(unnamed, unsettled)
        for domain in domains.named:
            await self._mark_dangling(domain)
        await self._sweep_extensions()
        return list(self._found.values())

    async def _sweep_extensions(self) -> None:
        """Have extensions' stores remove what nothing needs of what they have stored themselves."""
        if isinstance(self._store, AnsweringStore):
            with suppress(Unsupported):
                asked = {"min_age": self._min_age, "dry_run": self._dry_run}
                for name, (objects, nbytes) in (await self._store.answer("sweep", asked)).items():
                    self._find(Waste.KEPT, name, objects, nbytes)

    # --- deletions that have a note ---------------------------------------------------------------

    async def _resume_deletions(self) -> dict[str, DeletionNote]:
        """Finish interrupted deletions; return the notes of which it is not known whether they stand, by root."""
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

    # --- objects that have lost what they belong to -----------------------------------------------

    async def _sweep_objects(self) -> None:
        """List all objects once, in order of their keys: a record comes before what is below it."""
        async for page in self._store.list(OBJECTS):
            for entry in page.entries:
                self._sort(entry)
            self._advance(sum(entry.size for entry in page.entries))
            for (waste, name), entries in self._leftovers.items():
                await self._sweep_leftovers(waste, name, entries)
            self._leftovers.clear()

    def _sort(self, entry: Entry) -> None:
        """Note whether a listed object has what it belongs to."""
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
        """Delete listed objects unless the record that they belong to is there, by now or in another order."""
        if waste is not Waste.PROBE and await self._deletions.exists(name):
            return
        if not self._dry_run:
            done = await self._store.delete_all(entries)
            entries = [entry for entry, deleted in zip(entries, done, strict=True) if deleted]
        if entries:
            self._find(waste, name, len(entries), sum(entry.size for entry in entries))

    # --- root groups that no domain names ---------------------------------------------------------

    async def _sweep_unnamed(self, roots: list[str], unsettled: dict[str, DeletionNote]) -> None:
        """Claim the old ones of these roots, read all domains again, and delete those that still have none."""
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
        """Say whether a damaged record may be that of the root group's domain.

        It may if that is the record of the domain for which the root group says it was created, and cannot be read, has
        this root, or has no root and no checksum: with one it is a folder's. It also may if the root group cannot be
        read.
        """
        try:
            home = (await self._record(storage_key(root))).get("domain")
            if not isinstance(home, str) or not home.startswith("/"):
                return False
            key = storage_key(home)
            stored = await self._store.get(key)
            named = RecordCodec(key).decode(stored.data).get("root")
        except (NotFound, BadRequest):  # no domain has a path that is refused
            return False
        except (Corrupt, Unsupported) as error:
            log.warning("The objects of %s, which no domain has, stay: %s", root, error.message)
            return True
        if named is None and has_checksum(stored.data):
            return False
        if named is None:
            log.warning("The objects of %s stay: they were created for %s, which has no root.", root, home)
        return named in (None, root)

    async def _record(self, key: str) -> Record:
        return RecordCodec(key).decode((await self._store.get(key)).data)

    async def _claim(self, root: str, unsettled: dict[str, DeletionNote]) -> DeletionNote | None:
        """Return a claim of ours, None where another deletion has a note."""
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

    # --- domains whose root group is gone ---------------------------------------------------------

    async def _mark_dangling(self, domain: StoredDomain) -> None:
        """Mark a domain whose root group was deleted by another name of it; a marked one answers that it is gone."""
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
                return  # changed or deleted since
        self._find(Waste.DANGLING, domain.path, 1)

    def _is_old(self, modified: float) -> bool:
        return self._clock.now() - modified >= self._min_age

    def _find(self, waste: Waste, name: str, objects: int = 0, nbytes: int = 0) -> None:
        self._found.setdefault((waste, name), Finding(waste, name)).add(objects, nbytes)
