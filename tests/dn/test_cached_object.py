"""Owned objects: loaded once, changed in groups, put conditionally."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hsparse.dn.cached_object import Base, CachedObject, Encoded
from hsparse.dn.membership.ownership import NoOwnership
from hsparse.dn.stored_form import SingleObject
from hsparse.errors import BadRequest, Busy, Corrupt, StoreFailed, Unanswered
from hsparse.storage.object_store import Buffer
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

KEY = "db/object"


class TextCodec:
    """A comma-separated list: a value whose history is its content."""

    speed = 1

    def decode(self, data: bytes) -> str:
        if data.startswith(b"!"):
            raise Corrupt("The text is corrupt.")
        return data.decode()

    def encode(self, value: str) -> bytes:
        return value.encode()

    def nbytes(self, value: str, data: Buffer) -> int:
        return len(value)


def add(word: str) -> Callable[[str | None], tuple[str, str]]:
    return lambda value: (f"{value},{word}" if value else word, word)


@pytest.fixture
def owned(store: CountingStore) -> CachedObject[str]:
    return CachedObject(SingleObject(KEY, store, TextCodec()))


def again(store: CountingStore) -> CachedObject[str]:
    """Another owner of the same object: a restart, or a second node."""
    return CachedObject(SingleObject(KEY, store, TextCodec()))


async def test_a_change_is_stored_before_it_is_answered(
    owned: CachedObject[str], store: CountingStore
) -> None:
    assert await owned.apply(add("a")) == "a"
    assert (await store.store.get(KEY)).data == b"a"
    assert await owned.read() == "a"


async def test_many_readers_share_one_load(store: CountingStore, owned: CachedObject[str]) -> None:
    await store.store.put(KEY, b"x")
    assert await asyncio.gather(*(owned.read() for _ in range(20))) == ["x"] * 20
    assert await owned.read() == "x"
    assert store.calls == {"get": 1}


async def test_an_absent_object_is_remembered(store: CountingStore, owned: CachedObject[str]) -> None:
    assert await owned.read() is None
    assert await owned.read() is None
    assert store.calls == {"get": 1}


async def test_changes_that_arrive_during_a_put_share_the_next(
    owned: CachedObject[str], faulty: FaultyStore, store: CountingStore
) -> None:
    fault = faulty.hang("puts")
    first = asyncio.create_task(owned.apply(add("first")))
    await fault.entered.wait()
    others = [asyncio.create_task(owned.apply(add(str(i)))) for i in range(50)]
    await asyncio.sleep(0)
    fault.release()
    await asyncio.gather(first, *others)
    assert store.puts == 2
    assert await owned.read() == ",".join(["first", *map(str, range(50))])


async def test_readers_see_only_what_is_durable(owned: CachedObject[str], faulty: FaultyStore) -> None:
    await owned.apply(add("a"))
    fault = faulty.hang("puts")
    change = asyncio.create_task(owned.apply(add("b")))
    await fault.entered.wait()
    assert await owned.read() == "a"
    fault.release()
    await change
    assert await owned.read() == "a,b"


async def test_a_failed_put_fails_its_group_and_leaves_nothing(
    owned: CachedObject[str], faulty: FaultyStore
) -> None:
    await owned.apply(add("a"))
    faulty.fail_before("puts")
    with pytest.raises(StoreFailed):
        await owned.apply(add("b"))
    assert await owned.read() == "a"
    await owned.apply(add("c"))
    assert await owned.read() == "a,c"


async def test_a_put_applied_but_not_answered_is_found_by_the_next(
    owned: CachedObject[str], faulty: FaultyStore
) -> None:
    await owned.apply(add("a"))
    faulty.fail_after("puts")
    with pytest.raises(StoreFailed):
        await owned.apply(add("b"))
    await owned.apply(add("c"))
    assert await owned.read() == "a,b,c"


async def test_a_change_that_raises_leaves_the_others_of_its_group(
    owned: CachedObject[str], faulty: FaultyStore
) -> None:
    def refuse(value: str | None) -> tuple[str, None]:
        raise BadRequest("no")

    fault = faulty.hang("puts")
    first = asyncio.create_task(owned.apply(add("a")))
    await fault.entered.wait()
    rest = [asyncio.create_task(owned.apply(change)) for change in (add("b"), refuse, add("c"))]
    await asyncio.sleep(0)
    fault.release()
    results = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(result) for result in results] == [str, str, BadRequest, str]
    assert await owned.read() == "a,b,c"


async def test_an_unchanged_value_is_not_put(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(add("a"))
    store.reset()
    assert await owned.apply(lambda value: (value, "same")) == "same"
    assert store.calls == {"get_range": 1}


async def test_what_needs_no_change_here_may_need_one_in_the_store(
    owned: CachedObject[str], store: CountingStore
) -> None:
    def without_b(value: str | None) -> tuple[str | None, None]:
        return (value.replace(",b", "") if value and ",b" in value else value), None

    await owned.apply(add("a"))
    await again(store).apply(add("b"))
    await owned.apply(without_b)
    assert (await store.store.get(KEY)).data == b"a"


async def test_two_owners_lose_nothing(store: CountingStore) -> None:
    one, two = again(store), again(store)
    words = [f"{owner}{i}" for i in range(50) for owner in "ab"]
    await asyncio.gather(*((one if w[0] == "a" else two).apply(add(w)) for w in words))
    for word in words:
        await (one if word[0] == "b" else two).apply(add(word + "!"))
    stored = (await store.store.get(KEY)).data.decode().split(",")
    assert sorted(stored) == sorted([*words, *(word + "!" for word in words)])


async def test_an_absent_base_saves_the_load(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(add("a"), base=Base.ABSENT)
    assert store.calls == {"put_if_absent": 1}


async def test_an_absent_base_that_was_there_is_loaded(
    store: CountingStore, owned: CachedObject[str]
) -> None:
    await store.store.put(KEY, b"old")
    await owned.apply(add("new"), base=Base.ABSENT)
    assert (await store.store.get(KEY)).data == b"old,new"


async def test_what_was_taken_for_absent_is_not_deleted_unseen(
    owned: CachedObject[str], store: CountingStore
) -> None:
    def without(value: str | None) -> tuple[str | None, None]:
        words = [word for word in (value or "").split(",") if word != "a"]
        return ",".join(words) or None, None

    await store.store.put(KEY, b"x")
    await asyncio.gather(owned.apply(add("a"), base=Base.ABSENT), owned.apply(without))
    assert (await store.store.get(KEY)).data == b"x"


async def test_an_ignored_base_is_replaced_without_loading(
    store: CountingStore, owned: CachedObject[str]
) -> None:
    await owned.apply(lambda value: ("new", None), base=Base.IGNORED)
    assert store.calls == {"put_if_absent": 1}
    cold = again(store)
    store.reset()
    await cold.apply(lambda value: ("newer", None), base=Base.IGNORED)
    assert store.calls == {"put_if_absent": 1, "get_range": 1, "put_if_match": 1}
    assert (await store.store.get(KEY)).data == b"newer"


async def test_what_is_not_known_is_looked_at_before_it_is_deleted(
    store: CountingStore, owned: CachedObject[str]
) -> None:
    """A store may carry out a deletion long after it was given up: it must not take away what was put since."""
    await store.store.put(KEY, b"old")
    await owned.apply(lambda value: (None, None), base=Base.IGNORED)
    assert store.calls == {"get_range": 1, "delete_if_match": 1}
    store.reset()
    await again(store).apply(lambda value: (None, None), base=Base.IGNORED)
    assert not any("delete" in call for call in store.calls), "nothing is there to delete"


async def test_a_known_object_is_replaced_by_one_put(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(add("a"))
    store.reset()
    await owned.apply(lambda value: ("b", None), base=Base.IGNORED)
    assert store.calls == {"put_if_match": 1}


async def test_returning_none_deletes(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(add("a"))
    await owned.apply(lambda value: (None, None))
    assert await owned.read() is None
    assert store.calls == {"put_if_absent": 1, "get": 1, "delete_if_match": 1}
    await owned.apply(add("b"))
    assert (await store.store.get(KEY)).data == b"b"


async def test_a_deletion_sees_what_was_put_just_before_it(store: CountingStore) -> None:
    faulty = FaultyStore(store)
    owned = CachedObject(SingleObject(KEY, faulty, TextCodec()))
    await owned.apply(add("a"))
    fault = faulty.hang("delete_if_match")

    def clear(value: str | None) -> tuple[str | None, str | None]:
        return (None if value == "a" else value), value

    deleting = asyncio.create_task(owned.apply(clear))
    await fault.entered.wait()
    await again(store).apply(add("b"))
    fault.release()
    assert await deleting == "a,b"
    assert (await store.store.get(KEY)).data == b"a,b"


async def test_deleting_what_is_not_there_asks_nothing_of_the_store(
    owned: CachedObject[str], store: CountingStore
) -> None:
    await owned.apply(lambda value: (None, None))
    assert store.calls == {"get": 1}


async def test_corrupt_bytes_are_never_a_value(store: CountingStore, owned: CachedObject[str]) -> None:
    await store.store.put(KEY, b"!")
    with pytest.raises(Corrupt):
        await owned.read()
    with pytest.raises(Corrupt):
        await owned.apply(add("a"))
    assert (await store.store.get(KEY)).data == b"!"


async def test_a_caller_that_goes_away_does_not_stop_the_commit(
    owned: CachedObject[str], faulty: FaultyStore
) -> None:
    fault = faulty.hang("puts")
    change = asyncio.create_task(owned.apply(add("a")))
    await fault.entered.wait()
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    assert owned.busy
    fault.release()
    await owned.drain()
    assert await owned.read() == "a"


async def test_a_caller_that_goes_away_while_waiting_for_a_load(
    owned: CachedObject[str], faulty: FaultyStore
) -> None:
    fault = faulty.hang("gets")
    reads = [asyncio.create_task(owned.read()) for _ in range(2)]
    await fault.entered.wait()
    reads[0].cancel()
    fault.release()
    assert await reads[1] is None


async def test_endless_contention_ends_as_busy(owned: CachedObject[str], store: CountingStore) -> None:
    class Contended(FaultyStore):
        async def put_if_match(self, key: str, data: object, etag: str) -> str:
            await self.store.put(key, b"somebody else")
            return await super().put_if_match(key, data, etag)  # type: ignore[arg-type]

    inner = MemoryStore()
    await inner.put(KEY, b"x")
    with pytest.raises(Busy):
        await CachedObject(SingleObject(KEY, Contended(inner), TextCodec())).apply(add("a"))
    assert (await inner.get(KEY)).data == b"somebody else"


async def test_bytes_that_come_with_a_value_are_stored_as_they_are(
    owned: CachedObject[str], store: CountingStore
) -> None:
    await owned.apply(lambda value: (Encoded("a", b"A!"), None), base=Base.IGNORED)
    assert (await store.store.get(KEY)).data == b"A!"
    assert await owned.read() == "a"
    assert await owned.apply(add("b")) == "b"
    assert (await store.store.get(KEY)).data == b"a,b"


async def test_in_a_group_the_last_change_decides_what_is_encoded(
    owned: CachedObject[str], faulty: FaultyStore, store: CountingStore
) -> None:
    def given(value: str | None) -> tuple[Encoded[str], None]:
        return Encoded("a", b"A!"), None

    def same(value: str | None) -> tuple[str | None, None]:
        return value, None

    for changes, expected in (((add("x"), given, same), b"A!"), ((given, add("b")), b"a,b")):
        fault = faulty.hang("puts")
        first = asyncio.create_task(owned.apply(add("first")))
        await fault.entered.wait()
        rest = [asyncio.create_task(owned.apply(change)) for change in changes]
        await asyncio.sleep(0)
        fault.release()
        await asyncio.gather(first, *rest)
        assert (await store.store.get(KEY)).data == expected


class Lease:
    """An ownership that the test takes away."""

    always = False
    shared = True
    holds = True
    term = 0

    def trusts(self, name: str) -> bool:
        return self.holds

    def accepted_in(self) -> int:
        return self.term

    def may_change(self, term: int) -> bool:
        return self.holds and term == self.term


async def test_nothing_is_deleted_once_the_lease_has_run_out(store: CountingStore) -> None:
    lease = Lease()
    cached = CachedObject(SingleObject(KEY, store, TextCodec()), lease)
    await cached.apply(add("a"))

    def delete(value: str | None) -> tuple[None, None]:
        lease.holds = False
        return None, None

    with pytest.raises(Unanswered, match="Another node may own"):
        await cached.apply(delete)
    assert (await store.store.get(KEY)).data == b"a"


async def test_after_a_put_without_an_answer_reads_ask_the_store_until_a_put_is_answered(
    faulty: FaultyStore, store: CountingStore
) -> None:
    """The put may still be carried out, after any read: another node may see it before this one does."""
    cached = CachedObject(SingleObject(KEY, store, TextCodec()), Lease())
    await cached.apply(add("a"))
    faulty.fail_before("puts")
    with pytest.raises(StoreFailed):
        await cached.apply(add("late"))
    assert await cached.read() == "a"
    await store.store.put(KEY, b"a,late")
    assert await cached.read() == "a,late"
    await cached.apply(add("b"))
    store.reset()
    assert await cached.read() == "a,late,b"
    assert store.calls == {}


@pytest.mark.parametrize("again", [False, True], ids=["no lease", "another lease"])
async def test_a_change_is_not_stored_once_another_node_may_have_carried_it_out(
    faulty: FaultyStore, store: CountingStore, again: bool
) -> None:
    """It was sent again to the next owner, which has been told more since: the put would succeed, and undo that."""
    lease = Lease()
    cached = CachedObject(SingleObject(KEY, store, TextCodec()), lease)
    fault = faulty.hang("get")
    changing = asyncio.create_task(cached.apply(add("old")))
    await fault.entered.wait()
    lease.holds, lease.term = again, 1
    await store.store.put(KEY, b"old,new")
    fault.release()
    with pytest.raises(Unanswered, match="Another node may own"):
        await changing
    assert (await store.store.get(KEY)).data == b"old,new"
    lease.holds = True
    await cached.apply(add("b"))
    assert (await store.store.get(KEY)).data == b"old,new,b"


async def test_who_only_reads_what_others_may_write_confirms_each_read(store: CountingStore) -> None:
    await store.store.put(KEY, b"a")
    reader = CachedObject(SingleObject(KEY, store, TextCodec()), NoOwnership())
    assert [await reader.read() for _ in range(3)] == ["a"] * 3
    assert store.calls == {"get": 1, "get_range": 2}
    await store.store.put(KEY, b"b")
    assert await reader.read() == "b"
