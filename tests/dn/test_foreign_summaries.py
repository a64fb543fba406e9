"""HSDS's summary of a domain is gone before an object of the domain changes, and is looked for once."""

from __future__ import annotations

import pytest

from hsparse.clock import SystemClock
from hsparse.dn.foreign_summaries import NAME, ForeignSummaries
from hsparse.errors import NotFound
from hsparse.model.objid import domain_prefix, new_id, new_root_id, summary_id
from hsparse.storage.memory import MemoryStore
from hsparse.testing.counting_store import CountingStore
from hsparse.wire.message import CreateObject, DeleteObject, PutLinks, PutRecord

CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
GROUP = new_id("groups", ROOT, CLOCK)
KEY = domain_prefix(ROOT) + NAME


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


async def test_a_change_removes_the_summary_of_its_domain_alone(store: CountingStore) -> None:
    other = domain_prefix(new_root_id(CLOCK)) + NAME
    for key in (KEY, other):
        await store.put_if_absent(key, b"{}")
    await ForeignSummaries(store).remove(PutLinks(GROUP, {}))
    with pytest.raises(NotFound):
        await store.get(KEY)
    assert (await store.get(other)).data == b"{}"


async def test_what_has_none_is_not_asked_again(store: CountingStore) -> None:
    summaries = ForeignSummaries(store)
    for id in (GROUP, ROOT, new_id("datasets", ROOT, CLOCK)):
        await summaries.remove(DeleteObject(id))
    assert store.keys == {("delete", KEY): 1}


async def test_a_domain_that_is_made_has_none(store: CountingStore) -> None:
    summaries = ForeignSummaries(store)
    await summaries.remove(CreateObject(ROOT, {}))
    await summaries.remove(CreateObject(GROUP, {}))
    assert not store.keys


@pytest.mark.parametrize("id", ["/home/a.h5", summary_id(ROOT)])
async def test_domains_and_our_own_summaries_are_not_in_it(store: CountingStore, id: str) -> None:
    await ForeignSummaries(store).remove(PutRecord(id, {}))
    assert not store.keys


async def test_only_so_many_are_remembered(store: CountingStore) -> None:
    summaries = ForeignSummaries(store, limit=1)
    for id in (GROUP, new_id("groups", new_root_id(CLOCK), CLOCK), GROUP):
        await summaries.remove(DeleteObject(id))
    assert store.keys[("delete", KEY)] == 2
