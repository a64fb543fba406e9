"""The service of a data node: answers each message of the wire contract, called directly or over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from hsparse.clock import Clock
from hsparse.compute import gather_all
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import queue_deadline, queue_user, seconds_left
from hsparse.dn.cache import BucketCache, Cache
from hsparse.dn.chunk_bytes import ChunkBytes, DirectChunks
from hsparse.dn.chunk_index import ChunkIndex
from hsparse.dn.chunk_reductions import ChunkReductions
from hsparse.dn.chunks import ChunkObjects, Chunks
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.deletions import Deletions
from hsparse.dn.file_backed_chunks import BackingFiles, FileBackedChunks
from hsparse.dn.membership.ownership import SOLE, Accepted, Ownership
from hsparse.dn.record_objects import LARGE_RECORD
from hsparse.dn.records import NO_LIMIT, Fences, HsdsSummaries, Records
from hsparse.dn.redo_log import RedoLog
from hsparse.dn.traced_store import ChunkVersions, StoreRequests, TracedStore
from hsparse.errors import BadRequest, Busy, Unsupported
from hsparse.model.ids import tree_prefix
from hsparse.storage.object_store import AnsweringStore, ObjectStore
from hsparse.wire.chunk_info_message import (
    CountChunks,
    FindChunk,
    GetChunkVersion,
    InspectFile,
    ListChunks,
    ReadDirect,
    ReadFileBacked,
    ReadObjectBytes,
    ReadPiece,
    SignKeys,
    WriteDirect,
)
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FenceDeleted,
    FindElements,
    ReadChunks,
    ReadDefined,
    ReduceChunks,
    TrimChunks,
    UpdateElements,
    WriteChunks,
)
from hsparse.wire.message import GetInfo, Message, NodeInfo, Record
from hsparse.wire.record_message import (
    AskStore,
    BeginDeletion,
    ChangedLately,
    ChangeObjects,
    DeleteTree,
    Forget,
    ListKeys,
    ReadObjects,
    SettleChanges,
    WithdrawDeletion,
)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class NodeResources:
    """The memory of a data node, which the services of its buckets share; `requests` counts for all.

    `stores` are those of all buckets by name, so that datasets can be linked to files of another one.
    """

    cache: Cache
    pending: MemoryBudget
    chunk_memory: MemoryBudget
    """What large chunks take while they are loaded and encoded."""
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    requests: StoreRequests = field(default_factory=Counter)
    admission: Admission | None = None
    """The places of messages; None where a service node in the same process has admitted their requests."""
    store_requests: int = 64
    max_record_size: int = NO_LIMIT
    large_record_size: int = LARGE_RECORD
    """Bytes of JSON above which changes of a record are stored beside it."""

    @classmethod
    def of(
        cls,
        settings: DataSettings,
        *stores: ObjectStore,
        requests: StoreRequests | None = None,
        admission: Admission | None = None,
    ) -> NodeResources:
        """Make those that the settings allow, for these stores if they are several."""
        return cls(
            Cache(settings.cache_bytes()),
            MemoryBudget(settings.pending_size),
            MemoryBudget(settings.chunk_bytes()),
            {store.name: store for store in stores},
            Counter() if requests is None else requests,
            admission,
            settings.store_requests,
            settings.max_record_size,
            settings.large_record_size,
        )

    def of_bucket(self, bucket: str) -> NodeResources:
        """Return the same with a view of the cache in which only the objects of one bucket are."""
        return replace(self, cache=BucketCache(self.cache, bucket))


class DataService:
    """A data node's service: implements `DataNode` directly over an object store."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        settings: DataSettings | None = None,
        *,
        id: str = "dn-001",
        resources: NodeResources | None = None,
        ownership: Ownership = SOLE,
    ) -> None:
        resources = resources or NodeResources.of(settings or DataSettings())
        self.id = id
        self.bucket = store.name
        self._versions = ChunkVersions(clock)
        self._admission = resources.admission
        self._ownership = ownership
        self._asked = store
        places = Admission(resources.store_requests)
        chunk_store = TracedStore(store, resources.requests, places, self._versions)
        store = self._store = TracedStore(store, resources.requests, places)
        self._cache = resources.cache
        summaries = HsdsSummaries(store)
        self._records = Records(
            store,
            self._cache,
            summaries,
            clock,
            ownership,
            resources.max_record_size,
            resources.large_record_size,
        )
        self.deletions = Deletions(store, clock, self._cache)
        fences = self._fences = Fences(self._records.generation, hears_all=lambda: ownership.hears_all)
        pending = resources.pending
        self._redo_log = RedoLog(clock)
        objects = ChunkObjects(
            chunk_store,
            self._cache,
            fences,
            summaries,
            ownership,
            redo_log=self._redo_log,
            memory=resources.chunk_memory,
        )
        self._chunks = Chunks(objects, pending)
        self._reductions = ChunkReductions(self._chunks, pending)
        self._index = ChunkIndex(store, self._cache, fences)
        self._direct = DirectChunks(store, objects, pending)
        self._bytes = ChunkBytes(store, self._cache, fences, self._versions)
        self._file_backed = FileBackedChunks(BackingFiles(store, resources.stores), self._cache, fences)
        self._answers = self._answers_by_type()
        self._changes = self._changes_by_type()
        self._start_time = clock.now()
        self._resuming: asyncio.Task[None] | None = None

    @property
    def buckets(self) -> tuple[str, ...]:
        """The name of the one bucket."""
        return (self.bucket,)

    async def send(self, message: Message[R], /, accepted: Accepted | None = None) -> R:
        """Answer a message, see `DataNode`; `Busy` for one that cannot be answered before its deadline.

        A change is stored only in the term in which it was accepted, by default now.
        """
        if self._admission is None or isinstance(message, GetInfo):
            return cast(R, await self._answer(message, accepted))
        # What changes something may be a part of a request that has changed more: it waits.
        place = await self._admission.enter(queue_user(), queue_deadline(), patient=not message.only_reads)
        try:
            return cast(R, await self._answer(message, accepted))
        finally:
            place.leave()

    async def _answer(self, message: Message[Any], accepted: Accepted | None) -> Any:
        """Answer a message; a read is given up at its deadline, and a load that others wait for goes on."""
        if isinstance(message, ReadObjects) and (found := self._records.cached(message.ids)) is not None:
            return found
        change = self._changes.get(type(message))
        if change is not None:
            return await change(message, accepted)
        answer = self._answers.get(type(message))
        if answer is None:
            raise BadRequest(f"{type(message).__name__} is not a message of a data node.")
        left = seconds_left()
        if left is None or not message.only_reads:
            return await answer(message)
        return await _within(left, answer(message))

    def _answers_by_type(self) -> dict[type[Message[Any]], Callable[[Any], Awaitable[Any]]]:
        """Return what answers each message."""
        deletions, recent = self.deletions, self._records.recent
        return {
            ReadObjects: lambda message: self._records.read(message.ids),
            ReadChunks: self._chunks.read,
            ReadFileBacked: self._file_backed.read,
            ReadPiece: self._file_backed.read_piece,
            InspectFile: lambda message: self._file_backed.inspect(message.uri),
            ReadDefined: self._chunks.read_defined,
            CountDefined: self._chunks.count,
            ReduceChunks: self._reductions.reduce,
            FindElements: self._chunks.find,
            ListChunks: self._index.list,
            CountChunks: self._index.count,
            FindChunk: self._index.find,
            GetChunkVersion: _at_once(lambda message: self._version(message.dataset)),
            ReadDirect: self._direct.read,
            ReadObjectBytes: self._bytes.read,
            SignKeys: self._index.sign,
            ListKeys: self._records.list,
            BeginDeletion: deletions.begin,
            WithdrawDeletion: lambda message: deletions.notes.withdraw_intended(message.id, message.token),
            DeleteTree: lambda message: deletions.delete_tree(message.id, message.born),
            ChangedLately: _at_once(
                lambda message: not self._ownership.hears_all or recent.within(message.root, message.seconds)
            ),
            SettleChanges: _at_once(lambda message: recent.settle(message.root)),
            FenceDeleted: self._chunks.fence_deleted,
            Forget: _at_once(lambda message: self._cache.drop(tree_prefix(message.id))),
            AskStore: self._ask_store,
            GetInfo: _at_once(lambda message: self._info()),
        }

    def _changes_by_type(self) -> dict[type[Message[Any]], Callable[[Any, Accepted | None], Awaitable[Any]]]:
        """Return what makes each change of records and chunks."""
        return {
            ChangeObjects: self._records.change,
            WriteChunks: self._chunks.write,
            UpdateElements: self._chunks.update,
            EraseChunks: self._chunks.erase,
            TrimChunks: self._chunks.trim,
            WriteDirect: self._direct.write,
        }

    async def _ask_store(self, message: AskStore) -> Record:
        if not isinstance(self._asked, AnsweringStore):
            raise Unsupported(f"The store {self.bucket!r} has nothing that answers {message.question}.")
        prefix = tree_prefix(message.settles) if message.settles else ""
        if message.renews:  # before it is asked, which may fail
            for entry in self._cache.beginning_with(prefix):
                entry.invalidate(lambda name: False)
            self._cache.drop(prefix)  # a dataset may have another layout now
            self.forget_fences()
        reply = await self._asked.answer(message.question, message.arguments)
        if prefix:
            await gather_all([entry.settle() for entry in list(self._cache.beginning_with(prefix))])
        return reply

    def _version(self, dataset: str) -> str:
        if not self._ownership.hears_all:
            self._versions.reset()
        return self._versions.of(dataset)

    def _info(self) -> NodeInfo:
        return NodeInfo(self.id, "READY", self._start_time, self.bucket, self.counters(), (self.bucket,))

    def counters(self) -> dict[str, int]:
        """Return the counters of `NodeInfo`."""
        return {"cached_objects": len(self._cache), "cached_bytes": self._cache.nbytes}

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Use nothing of the cache unconfirmed, but what this node owned all the time, by its name."""
        for entry in self._cache:
            entry.invalidate(kept)
        self._redo_log.forget(kept)

    def forget_fences(self) -> None:
        """Learn the fences of all datasets anew, and count no version on: this node was not told of all changes."""
        self._fences.forget()
        self._versions.reset()

    def start(self, sweep_interval: float) -> None:
        """Begin to resume interrupted deletions, so often in seconds, until closed; 0: never."""
        if sweep_interval:
            self._resuming = asyncio.create_task(self.deletions.keep_resuming(sweep_interval))

    async def drain(self) -> None:
        """Wait until the accepted changes are stored or have failed."""
        for entry in self._cache:
            await entry.drain()

    async def close(self) -> None:
        """Finish the accepted changes, then stop."""
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.wait([self._resuming])
        await self.drain()
        await self._store.close()


def _at_once(answer: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return what answers a message by a plain function."""

    async def answered(message: Any) -> Any:
        return answer(message)

    return answered


async def _within(seconds: float, answer: Awaitable[R]) -> R:
    """Await an answer for so many seconds; `Busy` then."""
    try:
        async with asyncio.timeout(seconds) as timeout:
            return await answer
    except TimeoutError:
        if timeout.expired():
            raise Busy("The answer was not found within the time that its request has.") from None
        raise
    finally:
        del timeout  # an error has this frame, which would have its task, and so itself
