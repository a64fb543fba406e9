"""Chunk objects are opened behind the fences of their datasets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base
from hsparse.dn.chunks import ChunkObjects
from hsparse.dn.fences import Fences
from hsparse.dn.records import HsdsSummaries
from hsparse.dn.redo_log import RedoLog
from hsparse.errors import Gone, Moved
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.registry import kind_of
from tests.testing.manual_clock import ManualClock
from tests.testing.store_wrapper import CountingStore

ITEM = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
SPEC = ChunkSpec("d-3c448a8a-6c0b2447-9594-1269a1-049963", ITEM, (10,), False, b"", ((),))


@pytest.fixture
def cache() -> Cache:
    return Cache(1 << 20)


@pytest.fixture
def chunks(store: CountingStore, cache: Cache) -> ChunkObjects:
    async def generation(_: str) -> int:
        return 3

    fences, log = Fences(generation), RedoLog(ManualClock())
    summaries, memory = HsdsSummaries(store), MemoryBudget(1 << 20)
    return ChunkObjects(store, cache, fences, summaries, redo_log=log, memory=memory)


async def write(chunks: ChunkObjects, spec: ChunkSpec) -> None:
    value = np.arange(10, dtype="<i4")
    await chunks.apply(kind_of(spec), (0,), lambda _: (value, None), 40, Base.IGNORED, None)


async def test_what_was_planned_before_a_shrink_is_refused_once_that_is_learnt(chunks: ChunkObjects) -> None:
    await chunks.begin(SPEC)
    with pytest.raises(Moved):
        chunks.fences.check(SPEC)
    with pytest.raises(Moved):
        await write(chunks, SPEC)
    await write(chunks, replace(SPEC, generation=3))


async def test_a_buried_dataset_is_settled_and_forgotten(chunks: ChunkObjects, cache: Cache) -> None:
    await write(chunks, SPEC)
    assert len(cache) == 1
    await chunks.fence_deleted(SPEC.dataset)
    assert len(cache) == 0
    with pytest.raises(Gone):
        await write(chunks, SPEC)
