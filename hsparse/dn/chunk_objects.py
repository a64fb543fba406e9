"""The chunk objects a data node owns: opened and changed behind the fences of their datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base, CachedObject
from hsparse.dn.chunk_codec import codec_for
from hsparse.dn.fences import Fences
from hsparse.dn.hsds_summaries import HsdsSummaries
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.datatype import Datatype
from hsparse.model.objid import chunk_key, chunk_prefix
from hsparse.storage.object_store import ObjectStore

T = TypeVar("T")
Scaled = tuple[int, ...]


class ChunkObjects:
    """Chunks by dataset and scaled coordinates, over the node's cache and store."""

    def __init__(
        self, store: ObjectStore, cache: Cache, workers: OffloadPool, fences: Fences, summaries: HsdsSummaries
    ) -> None:
        self._store = store
        self._cache = cache
        self._workers = workers
        self._fences = fences
        self._summaries = summaries

    async def begin(self, spec: ChunkSpec) -> None:
        """Do what comes before any change of a dataset's chunks, most often nothing."""
        await self._summaries.remove(spec.dataset)
        await self._fences.learn(spec.dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` when the extent was shrunk since `spec` was read, `Gone` for a deleted dataset."""
        self._fences.check(spec)

    @contextmanager
    def use(self, spec: ChunkSpec, scaled: Scaled, datatype: Datatype) -> Iterator[CachedObject[Any]]:
        """Give a chunk's object, which stays in memory at least while it is used; raises as `check` does."""
        self._fences.check(spec)
        key = chunk_key(spec.dataset, scaled)
        codec: Any = codec_for(key, spec, datatype)
        with self._cache.use(key, lambda: CachedObject(key, self._store, codec, self._workers)) as owned:
            yield owned

    async def apply(
        self,
        spec: ChunkSpec,
        scaled: Scaled,
        datatype: Datatype,
        change: Callable[[Any], tuple[Any, T]],
        weight: int,
        base: Base,
    ) -> T:
        """Change a chunk, see `Owned.apply`."""
        with self.use(spec, scaled, datatype) as owned:
            return await owned.apply(change, weight=weight, base=base)

    async def settle(self, dataset: str) -> None:
        """Wait until what was accepted for a dataset's chunks by now is durable."""
        prefix = chunk_prefix(dataset)
        for owned in self._cache:
            if owned.key.startswith(prefix):
                await owned.settle()

    async def bury(self, dataset: str) -> None:
        """Refuse everything about a dataset from now on, and forget its chunks once they are settled."""
        self._fences.bury(dataset)
        await self.settle(dataset)
        self._cache.drop(chunk_prefix(dataset))
