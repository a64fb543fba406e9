"""HSDS's summary of a domain is gone before an object of the domain changes, and is looked for once."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.records import HSDS_SUMMARY, HsdsSummaries
from hsparse.dn.service import DataService
from hsparse.errors import NotFound
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.model.ids import domain_prefix, new_id, new_root_id, summary_id
from hsparse.wire.chunk_message import WriteChunks
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteObject,
    PutLinks,
    PutRecord,
    RecordChange,
)
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
GROUP = new_id("groups", ROOT, CLOCK)
KEY = domain_prefix(ROOT) + HSDS_SUMMARY


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


async def gone(store: CountingStore, key: str) -> bool:
    try:
        await store.get(key)
    except NotFound:
        return True
    return False


async def test_the_summary_of_one_domain_is_removed(store: CountingStore) -> None:
    other = domain_prefix(new_root_id(CLOCK)) + HSDS_SUMMARY
    for key in (KEY, other):
        await store.put_if_absent(key, b"{}")
    await HsdsSummaries(store).remove(GROUP)
    assert await gone(store, KEY)
    assert not await gone(store, other)


async def test_what_has_none_is_not_asked_again(store: CountingStore) -> None:
    summaries = HsdsSummaries(store)
    for id in (GROUP, ROOT, new_id("datasets", ROOT, CLOCK)):
        await summaries.remove(id)
    assert store.keys == {("delete", KEY): 1}


async def test_only_so_many_are_remembered(store: CountingStore) -> None:
    summaries = HsdsSummaries(store, limit=1)
    for id in (GROUP, new_id("groups", new_root_id(CLOCK), CLOCK), GROUP):
        await summaries.remove(id)
    assert store.keys[("delete", KEY)] == 2


async def test_a_change_of_values_alone_removes_it(store: CountingStore) -> None:
    await store.put_if_absent(KEY, b"{}")
    item = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    spec = ChunkSpec(new_id("datasets", ROOT, CLOCK), item, (10,), False, b"", ((),))
    part = ChunkSelection((0,), Orthogonal.all((10,)), True)
    await DataService(store, CLOCK).send(WriteChunks(spec, (part,), (np.zeros(10, "<i4"),)))
    assert await gone(store, KEY)


@pytest.mark.parametrize(
    ("change", "removes"),
    [
        (PutLinks(GROUP, {}), True),
        (DeleteObject(GROUP), True),
        (CreateObject(GROUP, {}), True),
        (CreateObject(ROOT, {}), False),  # a new domain has none
        (PutRecord("/home/a.h5", {}), False),
        (PutRecord(summary_id(ROOT), {}), False),
    ],
)
async def test_changes_of_objects_remove_it(
    store: CountingStore, change: RecordChange, removes: bool
) -> None:
    await store.put_if_absent(KEY, b"{}")
    await DataService(store, CLOCK).send(ChangeObjects((change,)))
    assert await gone(store, KEY) is removes
