"""The records that a data node owns: read, changed and listed. They are stored as JSON.

Fences refuse chunk operations with a stale plan: planned before a shrink of the extent, or for a deleted dataset.

Which domains had their objects changed lately: a client that is told all of such a domain would keep it as it is.

HSDS 1.0 answers a client that opens a domain from the `.summary.json` of its last scan, however old: it is deleted
before the first change of an object here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from hsparse.clock import Clock
from hsparse.compute import gather_all, gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import count_hits
from hsparse.dn.cache import Cache, SingleObject, StoredForm, load_state
from hsparse.dn.cached_object import Base, CachedObject
from hsparse.dn.membership.ownership import SOLE, Accepted, Ownership
from hsparse.dn.record_changes import DeletedNames, change_record, changed_entries, check_size, must_measure
from hsparse.dn.record_objects import LARGE_READ, LARGE_RECORD, RecordObjects, RecordValue, WholeRecord
from hsparse.errors import Gone, HsparseError, Moved, TooLarge, Unanswered
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.model import dataset_state
from hsparse.model.ids import (
    COLLECTIONS,
    ID_DOMAIN,
    JOB_PREFIX,
    domain_hex,
    domain_prefix,
    is_root,
    storage_key,
)
from hsparse.model.schema import check_changeable
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.message import Failure, Record
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    Listing,
    ListKeys,
    Outcome,
    PutAttributes,
    PutLinks,
    PutRecord,
    RecordChange,
)

HSDS_SUMMARY = ".summary.json"
MAX_SUMMARIES = 100_000
"""The most domains that are remembered as having no summary; a forgotten one has it deleted once more."""


class HsdsSummaries:
    """HSDS's summaries of the domains whose objects a data node changes."""

    def __init__(self, store: ObjectStore, limit: int = MAX_SUMMARIES) -> None:
        self._store = store
        self._limit = limit
        self._none: OrderedDict[str, None] = OrderedDict()

    async def remove(self, id: str) -> None:
        """Delete the summary of an object's domain, unless it is known that there is none."""
        if id[ID_DOMAIN] not in self._none:
            await self._store.delete(domain_prefix(id) + HSDS_SUMMARY)
            self.know_none(id)

    def know_none(self, id: str) -> None:
        """Remember that an object's domain has no summary."""
        self._none[id[ID_DOMAIN]] = None
        if len(self._none) > self._limit:
            self._none.popitem(last=False)


MAX_DOMAINS = 10_000
"""The most domains that are remembered, those that changed last."""


class RecentChanges:
    """The time of the last change of each domain's objects that this node has made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: OrderedDict[str, float] = OrderedDict()

    def note(self, id: str) -> None:
        """Note a change of an object now."""
        domain = domain_hex(id)
        self._times[domain] = self._clock.now()
        self._times.move_to_end(domain)
        if len(self._times) > MAX_DOMAINS:
            self._times.popitem(last=False)

    def settle(self, root: str) -> None:
        """Answer `SettleChanges`."""
        self._times.pop(domain_hex(root), None)

    def within(self, root: str, seconds: float) -> bool:
        """Answer `ChangedLately`."""
        last = self._times.get(domain_hex(root))
        return last is not None and self._clock.now() - last < seconds


MAX_FENCES = 100_000
"""The most datasets that are remembered. The generation of a forgotten one is learnt again from its record.

A deleted one has none: what was planned before its deletion, and comes after 100,000 others, is carried out again, and
the chunks stay until a sweep. A chunk may be written without a record, so a missing one refuses nothing.
"""


class Fences:
    """The fencing token of each dataset: the newest generation seen, None when it was deleted.

    `generation_of` reads a dataset's generation from its stored record, so that a restarted node accepts no operation
    that it had refused before. A node that does not hear of all shrinks reads it each time.
    """

    def __init__(
        self,
        generation_of: Callable[[str], Awaitable[int]],
        limit: int = MAX_FENCES,
        hears_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._generation_of = generation_of
        self._limit = limit
        self._hears_all = hears_all
        self._newest: OrderedDict[str, int | None] = OrderedDict()
        self._unread: set[str] = set()
        """Datasets whose generation a message has told, and whose record was not read."""

    async def learn(self, dataset: str) -> None:
        """Learn the dataset's generation; to be awaited before its chunks are changed.

        Raises what `generation_of` raises, each time: the record forbids changes.
        """
        if dataset not in self._newest or dataset in self._unread or not self._hears_all():
            generation = await self._generation_of(dataset)
            self._raise(dataset, generation)
            self._unread.discard(dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` for an older generation than the newest, `Gone` for a deleted dataset."""
        newest = self._newest.get(spec.dataset, 0)
        if newest is None:
            raise Gone(f"{spec.dataset} was deleted.")
        if spec.generation < newest:
            raise Moved(f"The extent of {spec.dataset} was shrunk in the meantime.")
        if spec.generation > newest:
            if spec.dataset not in self._newest:
                self._unread.add(spec.dataset)
            self._raise(spec.dataset, spec.generation)

    def forget(self) -> None:
        """Forget all fences: this node was no member for a while, and was not told of some."""
        self._newest.clear()
        self._unread.clear()

    def refuse_deleted(self, dataset: str) -> None:
        """Refuse everything about a deleted dataset from now on."""
        self._remember(dataset, None)
        self._unread.discard(dataset)

    def _raise(self, dataset: str, generation: int) -> None:
        """Remember a generation, unless a newer one, or the dataset's deletion, was seen meanwhile."""
        known = self._newest.get(dataset, 0)
        self._remember(dataset, None if known is None else max(known, generation))

    def _remember(self, dataset: str, generation: int | None) -> None:
        self._newest[dataset] = generation
        self._newest.move_to_end(dataset)
        if len(self._newest) > self._limit:
            forgotten, _ = self._newest.popitem(last=False)
            self._unread.discard(forgotten)


NO_LIMIT = 2**63 - 1
READS_AT_ONCE = 32
"""Records of one message that are read at a time."""
JSON_FACTOR = 4
"""How many times the memory of its JSON that of a record is, about."""
READ_MEMORY = 512 * 1024 * 1024
"""Memory of the large records that requests read at a time, and of the answers made of them."""
REPLY_MEMORY = 64 * 1024 * 1024
"""About how many bytes of memory the records of one reply take, but for the first one."""
LEFT_OUT = Outcome(
    failure=Failure.of(TooLarge("The records that were asked for have no room in one reply; ask for fewer."))
)
"""Instead of a record that the reply has no room for: who asks for one alone is always given it."""
OF_ENTRIES = (PutAttributes, DeleteAttributes, PutLinks, DeleteLinks)
"""Changes whose outcome leaves out the record, which may have many more entries."""
_BASES = {CreateObject: Base.ABSENT, PutRecord: Base.IGNORED}


class Records:
    """Records by id, over the node's cache and store."""

    def __init__(
        self,
        store: ObjectStore,
        cache: Cache,
        summaries: HsdsSummaries,
        clock: Clock,
        ownership: Ownership = SOLE,
        max_size: int = NO_LIMIT,
        large_size: int = LARGE_RECORD,
    ) -> None:
        self._store = store
        self._max_size = max_size
        self._large_size = large_size
        self._memory = MemoryBudget(READ_MEMORY)
        self._ownership = ownership
        self._cache = cache
        self._clock = clock
        self._deleted = DeletedNames()
        self.recent = RecentChanges(clock)
        self._summaries = summaries

    def cached(self, ids: tuple[str, ...]) -> tuple[Outcome, ...] | None:
        """Answer `ReadObjects` without waiting if all records are in memory, and are not large, else return None."""
        outcomes: list[Outcome] = []
        used = 0
        for id in ids:
            outcome, nbytes = self._cached(id)
            used += nbytes
            if outcome is None or used > LARGE_READ:
                return None
            outcomes.append(outcome)
        count_hits(len(outcomes))
        return tuple(outcomes)

    async def read(self, ids: tuple[str, ...]) -> tuple[Outcome, ...]:
        """Answer `ReadObjects`."""
        used = 0  # bytes of memory that the records of the reply take

        async def read(place: int) -> Outcome:
            nonlocal used
            if place and used > REPLY_MEMORY:
                return LEFT_OUT
            outcome, nbytes = self._cached(ids[place])
            if outcome is None:
                outcome, nbytes = await self._read(ids[place])
                used += nbytes
            else:
                used += nbytes
                count_hits()
                if nbytes > LARGE_READ:
                    await self._memory.hold_for_request(nbytes // JSON_FACTOR)
            # Others may have taken the room meanwhile; but the first is never left out.
            return LEFT_OUT if place and used > REPLY_MEMORY else outcome

        return tuple(await gather_each(read, range(len(ids)), READS_AT_ONCE))

    async def change(self, message: ChangeObjects, accepted: Accepted | None = None) -> tuple[Outcome, ...]:
        """Answer `ChangeObjects`: changes of one object are applied in the order given."""
        repeated, term = message.repeated, None if accepted is None else accepted.term
        if len(message.changes) == 1:
            return (await self._change(message.changes[0], repeated, term),)
        return tuple(await gather_all([self._change(change, repeated, term) for change in message.changes]))

    async def generation(self, dataset: str) -> int:
        """Return the generation in a dataset's stored record, 0 when there is none; to be known before it is changed.

        `Unsupported` if its chunks must not be changed here.
        The record is not cached when another node owns it: the copy here would become stale.
        """
        key = storage_key(dataset)
        cached: CachedObject[RecordValue] | None = self._cache.get(key)
        known, value = (False, None) if cached is None else cached.peek()
        if not known:
            state = await load_state(self._objects(key))
            if state.value is None:
                return 0
            value = state.value
        record = {} if value is None else value.record
        check_changeable(dataset, record)
        return dataset_state.generation(record)

    async def list(self, message: ListKeys) -> Listing:
        """Answer `ListKeys`."""
        entries: list[tuple[str, int, float]] = []
        prefixes: list[str] = []
        more = False
        async for page in self._store.list(
            message.prefix, delimiter=message.delimiter, start_after=message.start_after
        ):
            entries += [(entry.key, entry.size, entry.modified) for entry in page.entries]
            prefixes += page.prefixes
            if len(entries) + len(prefixes) > message.limit:
                more = True
                break
        if more:
            names = sorted([key for key, _, _ in entries] + prefixes)[: message.limit]
            entries = [entry for entry in entries if entry[0] <= names[-1]]
            prefixes = [prefix for prefix in prefixes if prefix <= names[-1]]
        return Listing(
            tuple(key for key, _, _ in entries),
            tuple(size for _, size, _ in entries),
            tuple(modified for _, _, modified in entries),
            tuple(prefixes),
            more,
        )

    def _cached(self, id: str) -> tuple[Outcome | None, int]:
        """Return a cached record, None without one, and about how many bytes of memory it has."""
        cached: CachedObject[RecordValue] | None = self._cache.get(storage_key(id))
        if cached is None:
            return None, 0
        value = cached.peek()[1]
        return (None, 0) if value is None else (Outcome(value.record), cached.nbytes)

    async def _read(self, id: str) -> tuple[Outcome, int]:
        """Return a record, and about how many bytes of memory it has."""
        key = storage_key(id)
        nbytes = 0
        try:
            with self._cache.use(key, lambda: self._make(key, id)) as cached:
                value = await cached.read()
                nbytes = cached.nbytes
            if value is None:
                raise self._deleted.missing(id, id)
        except HsparseError as error:
            return Outcome(failure=Failure.of(error)), nbytes
        return Outcome(value.record), nbytes

    async def _change(self, change: RecordChange, repeated: bool, term: int | None) -> Outcome:
        key = storage_key(change.id)
        before: Record = {}

        def apply(value: RecordValue | None) -> tuple[RecordValue | None, Outcome]:
            nonlocal before
            record = None if value is None else value.record
            before = record or {}
            new, outcome = change_record(change, record, self._clock.now(), self._deleted, repeated=repeated)
            if isinstance(change, OF_ENTRIES):
                outcome = replace(outcome, record=None)
            if new is None or new is record:
                return (None if new is None else value), outcome
            stored = None if value is None else _stored_bytes(value, cached)
            if must_measure(change, stored, self._max_size):
                check_size(new, self._max_size)
            changed = RecordValue(new) if value is None else value.changed(new, *changed_entries(change))
            return changed, outcome

        try:
            await self._remove_summary(change)
            with self._cache.use(key, lambda: self._make(key, change.id)) as cached:
                base = _BASES.get(type(change), Base.NEEDED)
                outcome = await cached.apply(apply, base=base, term=term)
        except Unanswered:
            raise
        except HsparseError as error:
            return Outcome(failure=Failure.of(error))
        if outcome.changed or repeated:
            self._note_deletions(change, before)
        if outcome.changed and _is_of_domain(change.id):
            self.recent.note(change.id)
        return outcome

    async def _remove_summary(self, change: RecordChange) -> None:
        """Remove HSDS's summary of the changed object's domain; domains, jobs and our own summaries are not in it."""
        id = change.id
        if not _is_of_domain(id):
            return
        if isinstance(change, CreateObject) and is_root(id):
            self._summaries.know_none(id)
        else:
            await self._summaries.remove(id)

    def _make(self, key: str, id: str) -> CachedObject[RecordValue]:
        form: StoredForm[RecordValue] = (
            self._objects(key) if id[0] in COLLECTIONS else SingleObject(key, self._store, WholeRecord(key))
        )
        return CachedObject(form, self._ownership, id)

    def _objects(self, key: str) -> RecordObjects:
        return RecordObjects(key, self._store, self._clock, self._large_size, self._memory)

    def _note_deletions(self, change: RecordChange, before: Record) -> None:
        """Note which names a change has deleted from the record `before` it, or made again."""
        match change:
            case DeleteObject(id):
                self._deleted.add(id)
            case CreateObject(id, _):
                self._deleted.remove(id)
            case DeleteAttributes(id, names):
                for name in (before.get("attributes") or {}).keys() & names:
                    self._deleted.add(id, "attribute", name)
            case PutAttributes(id, attributes, _):
                for name in attributes:
                    self._deleted.remove(id, "attribute", name)
            case DeleteLinks(id, titles):
                for title in (before.get("links") or {}).keys() & titles:
                    self._deleted.add(id, "link", title)
            case PutLinks(id, links, removed):
                for title in (before.get("links") or {}).keys() & removed:
                    self._deleted.add(id, "link", title)
                for title in links:
                    self._deleted.remove(id, "link", title)


def _stored_bytes(value: RecordValue, cached: CachedObject[RecordValue]) -> int:
    """Return about how many bytes of JSON a record in memory has, or more."""
    return cached.nbytes if value.delta is None else value.delta.base_size + value.delta.size


def _is_of_domain(id: str) -> bool:
    """Say whether a record is an object of a domain: no domain itself, summary or job."""
    return not id.startswith(("/", "s-", JOB_PREFIX))
