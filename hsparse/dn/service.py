"""The service of a data node: answers each message of the wire contract, called directly or over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.gathering import gather_all
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import queue_deadline, queue_user, seconds_left
from hsparse.dn.cache import BucketCache, Cache
from hsparse.dn.chunk_bytes import ChunkBytes, DirectChunks
from hsparse.dn.chunk_index import ChunkIndex
from hsparse.dn.chunk_reductions import ChunkReductions
from hsparse.dn.chunks import ChunkObjects, Chunks
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.deletions import Deletions
from hsparse.dn.fences import Fences
from hsparse.dn.file_backed_chunks import BackingFiles, FileBackedChunks
from hsparse.dn.membership.member_ownership import Accepted
from hsparse.dn.membership.ownership import SOLE, Ownership
from hsparse.dn.record_objects import LARGE_RECORD
from hsparse.dn.records import NO_LIMIT, HsdsSummaries, Records
from hsparse.dn.redo_log import RedoLog
from hsparse.dn.traced_store import ChunkVersions, StoreRequests, TracedStore
from hsparse.errors import BadRequest, Busy, Unsupported
from hsparse.model.ids import tree_prefix
from hsparse.storage.object_store import AnsweringStore, ObjectStore
from hsparse.wire.chunk_info_message import (
    ChunkChanges,
    CountChunks,
    FindChunk,
    GetChunkChanges,
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
    """The memory and limits of a data node, shared by the services of its buckets; `requests` counts for all buckets.

    `stores` are the stores of all buckets by name, so that a dataset can be backed by a file in another bucket.
    """

    cache: Cache
    pending: MemoryBudget
    chunk_memory: MemoryBudget
    """The budget for large chunks while they are loaded and encoded."""
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    requests: StoreRequests = field(default_factory=Counter)
    admission: Admission | None = None
    """Admission control for messages, or None if a service node in this process has admitted the requests."""
    store_requests: int = 64
    max_record_size: int = NO_LIMIT
    large_record_size: int = LARGE_RECORD
    """The size in bytes from which the changes of a record are stored beside it; see `hsparse.dn.record_objects`."""

    @classmethod
    def of(
        cls,
        settings: DataSettings,
        *stores: ObjectStore,
        requests: StoreRequests | None = None,
        admission: Admission | None = None,
    ) -> NodeResources:
        """Return the resources that the settings allow; `stores` must be given if the node has several buckets."""
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
        """Return these resources with a view of the cache that is restricted to one bucket."""
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
        self._bytes = ChunkBytes(store, self._cache, self._versions)
        self._file_backed = FileBackedChunks(BackingFiles(store, resources.stores), self._cache)
        self._answers = self._answers_by_type()
        self._changes = self._changes_by_type()
        self._start_time = clock.now()
        self._resuming: asyncio.Task[None] | None = None

    @property
    def buckets(self) -> tuple[str, ...]:
        """The name of the only bucket."""
        return (self.bucket,)

    async def send(self, message: Message[R], /, accepted: Accepted | None = None) -> R:
        """Answer a message; store a change only in the term of `accepted`. Raise `Busy` if the deadline would pass."""
        if self._admission is None or isinstance(message, GetInfo):
            return cast(R, await self._answer(message, accepted))
        # A change may belong to a request that has made other changes, so it waits instead of being refused.
        place = await self._admission.enter(queue_user(), queue_deadline(), patient=not message.only_reads)
        try:
            return cast(R, await self._answer(message, accepted))
        finally:
            place.leave()

    async def _answer(self, message: Message[Any], accepted: Accepted | None) -> Any:
        """Answer a message. A read is cancelled at its deadline, but a load that other requests wait for continues."""
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
        """Return a dict that maps each type of message, except changes of records and chunks, to its handler."""
        deletions, recent = self.deletions, self._records.recent
        of_chunks: dict[type[Message[Any]], Callable[[Any], Awaitable[Any]]] = {
            ReadChunks: self._chunks.read,
            ReadFileBacked: self._file_backed.read,
            ReadDefined: self._chunks.read_defined,
            CountDefined: self._chunks.count,
            ReduceChunks: self._reductions.reduce,
            FindElements: self._chunks.find,
            ListChunks: self._index.list,
            CountChunks: self._index.count,
            FindChunk: self._index.find,
            ReadDirect: self._direct.read,
            ReadObjectBytes: self._bytes.read,
        }
        return {
            **{kind: partial(self._fences.guard, answer) for kind, answer in of_chunks.items()},
            ReadObjects: lambda message: self._records.read(message.ids),
            ReadPiece: self._file_backed.read_piece,
            InspectFile: lambda message: self._file_backed.files.inspect(message.uri),
            GetChunkVersion: _at_once(lambda message: self._version(message.dataset)),
            GetChunkChanges: _at_once(self._chunk_changes),
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
            Forget: _at_once(self._forget),
            AskStore: self._ask_store,
            GetInfo: _at_once(lambda message: self._info()),
        }

    def _changes_by_type(self) -> dict[type[Message[Any]], Callable[[Any, Accepted | None], Awaitable[Any]]]:
        """Return a dict that maps each type of change of records and chunks to its handler."""
        return {
            ChangeObjects: self._records.change,
            WriteChunks: self._chunks.write,
            UpdateElements: self._chunks.update,
            EraseChunks: self._chunks.erase,
            TrimChunks: self._chunks.trim,
            WriteDirect: self._direct.write,
        }

    def _forget(self, message: Forget) -> None:
        if message.renewed:
            self._fences.allow(message.id)
        self._cache.drop(tree_prefix(message.id))

    async def _ask_store(self, message: AskStore) -> Record:
        if not isinstance(self._asked, AnsweringStore):
            raise Unsupported(f"The store {self.bucket!r} does not support the question {message.question}.")
        prefix = tree_prefix(message.settles) if message.settles else ""
        if message.renews:  # before the store is asked, which may fail
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
        if not self._ownership.changes_alone(dataset):
            self._versions.doubt(dataset)
        return self._versions.of(dataset)

    def _chunk_changes(self, message: GetChunkChanges) -> ChunkChanges:
        version = self._version(message.dataset)
        return ChunkChanges(version, self._versions.changed(message.dataset, message.since))

    def _info(self) -> NodeInfo:
        return NodeInfo(self.id, "READY", self._start_time, self.bucket, self.counters(), (self.bucket,))

    def counters(self) -> dict[str, int]:
        """Return a dict that maps the counters of `NodeInfo` to their values: cached objects and cached bytes."""
        return {"cached_objects": len(self._cache), "cached_bytes": self._cache.nbytes}

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Check each cached object with the store before its next use, unless this node has always owned the object."""
        for entry in self._cache:
            entry.invalidate(kept)
        self._redo_log.forget(kept)

    def forget_fences(self) -> None:
        """Forget all fences and give all chunks new versions, because this node may have missed changes."""
        self._fences.forget()
        self._versions.reset()

    def start(self, sweep_interval: float) -> None:
        """Resume interrupted deletions every `sweep_interval` seconds until closed; 0 turns this off."""
        if sweep_interval:
            self._resuming = asyncio.create_task(self.deletions.keep_resuming(sweep_interval))

    async def drain(self) -> None:
        """Wait until the accepted changes are stored or have failed."""
        for entry in self._cache:
            await entry.drain()

    async def close(self) -> None:
        """Complete the accepted changes, then close the store."""
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.wait([self._resuming])
        await self.drain()
        await self._store.close()


def _at_once(answer: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return an asynchronous function that calls the plain function `answer`."""

    async def answered(message: Any) -> Any:
        return answer(message)

    return answered


async def _within(seconds: float, answer: Awaitable[R]) -> R:
    """Await an answer for at most `seconds`; raise `Busy` if it takes longer."""
    try:
        async with asyncio.timeout(seconds) as timeout:
            return await answer
    except TimeoutError:
        if timeout.expired():
            raise Busy("The data node had no answer within the request's time limit; try again.") from None
        raise
    finally:
        del timeout  # breaks the cycle task -> error -> traceback -> this frame
