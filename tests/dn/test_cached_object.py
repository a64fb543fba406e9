"""Cached objects: loaded once, changed in groups, put conditionally, within the bytes of the cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from hsparse.concurrency.request_trace import RequestTrace, begin_trace
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base, CachedObject, Encoded
from hsparse.dn.deletions import read_ahead
from hsparse.dn.membership.ownership import NoOwnership
from hsparse.dn.record_form import OBJECT_BYTES, memory_of_json
from hsparse.dn.record_objects import RecordValue, WholeRecord
from hsparse.dn.stored_form import SingleObject
from hsparse.errors import BadRequest, Busy, Corrupt, StoreFailed, Unanswered
from hsparse.storage.object_store import Buffer
from tests.simulation.virtual_loop import VirtualLoop
from tests.testing.faulty_store import Fault, FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore, SlowStore

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


async def test_a_change_is_stored_before_its_answer(owned: CachedObject[str], store: CountingStore) -> None:
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


async def grouped(owned: CachedObject[str], faulty: FaultyStore, *changes: Any) -> list[Any]:
    """Apply changes that arrive during the put of a first one; return what came of all."""
    fault = faulty.hang("puts")
    first = await fault.holding(owned.apply(add("first")))
    others = [asyncio.create_task(owned.apply(change)) for change in changes]
    await asyncio.sleep(0)
    fault.release()
    return await asyncio.gather(first, *others, return_exceptions=True)


async def test_changes_that_arrive_during_a_put_share_the_next(
    owned: CachedObject[str], faulty: FaultyStore, store: CountingStore
) -> None:
    await grouped(owned, faulty, *(add(str(i)) for i in range(50)))
    assert store.puts == 2
    assert await owned.read() == ",".join(["first", *map(str, range(50))])


async def test_readers_see_only_what_is_durable(owned: CachedObject[str], faulty: FaultyStore) -> None:
    await owned.apply(add("a"))
    fault = faulty.hang("puts")
    change = await fault.holding(owned.apply(add("b")))
    assert await owned.read() == "a"
    fault.release()
    await change
    assert await owned.read() == "a,b"


async def test_a_failed_put_fails_its_whole_group(owned: CachedObject[str], faulty: FaultyStore) -> None:
    await owned.apply(add("a"))
    faulty.fail_before("puts")
    with pytest.raises(StoreFailed):
        await owned.apply(add("b"))
    assert await owned.read() == "a"
    await owned.apply(add("c"))
    assert await owned.read() == "a,c"


async def test_a_put_without_an_answer_is_found_later(owned: CachedObject[str], faulty: FaultyStore) -> None:
    await owned.apply(add("a"))
    faulty.fail_after("puts")
    with pytest.raises(StoreFailed):
        await owned.apply(add("b"))
    await owned.apply(add("c"))
    assert await owned.read() == "a,b,c"


async def test_a_change_that_raises_fails_alone(owned: CachedObject[str], faulty: FaultyStore) -> None:
    def refuse(value: str | None) -> tuple[str, None]:
        raise BadRequest("no")

    results = await grouped(owned, faulty, add("b"), refuse, add("c"))
    assert [type(result) for result in results] == [str, str, BadRequest, str]
    assert await owned.read() == "first,b,c"


async def test_an_unchanged_value_is_not_put(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(add("a"))
    store.reset()
    assert await owned.apply(lambda value: (value, "same")) == "same"
    assert store.calls == {"get_range": 1}


async def test_the_store_may_need_a_change_too(owned: CachedObject[str], store: CountingStore) -> None:
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


async def test_a_base_taken_for_absent_is_loaded(store: CountingStore, owned: CachedObject[str]) -> None:
    await store.store.put(KEY, b"old")
    await owned.apply(add("new"), base=Base.ABSENT)
    assert (await store.store.get(KEY)).data == b"old,new"


async def test_absence_is_checked_before_a_delete(owned: CachedObject[str], store: CountingStore) -> None:
    def without(value: str | None) -> tuple[str | None, None]:
        words = [word for word in (value or "").split(",") if word != "a"]
        return ",".join(words) or None, None

    await store.store.put(KEY, b"x")
    await asyncio.gather(owned.apply(add("a"), base=Base.ABSENT), owned.apply(without))
    assert (await store.store.get(KEY)).data == b"x"


async def test_an_ignored_base_is_not_loaded(store: CountingStore, owned: CachedObject[str]) -> None:
    await owned.apply(lambda value: ("new", None), base=Base.IGNORED)
    assert store.calls == {"put_if_absent": 1}
    cold = again(store)
    store.reset()
    await cold.apply(lambda value: ("newer", None), base=Base.IGNORED)
    assert store.calls == {"put_if_absent": 1, "get_range": 1, "put_if_match": 1}
    assert (await store.store.get(KEY)).data == b"newer"


async def test_the_unknown_is_read_before_a_delete(store: CountingStore, owned: CachedObject[str]) -> None:
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


async def test_deleting_the_absent_asks_no_store(owned: CachedObject[str], store: CountingStore) -> None:
    await owned.apply(lambda value: (None, None))
    assert store.calls == {"get": 1}


async def test_corrupt_bytes_are_never_a_value(store: CountingStore, owned: CachedObject[str]) -> None:
    await store.store.put(KEY, b"!")
    with pytest.raises(Corrupt):
        await owned.read()
    with pytest.raises(Corrupt):
        await owned.apply(add("a"))
    assert (await store.store.get(KEY)).data == b"!"


async def test_a_caller_that_leaves_stops_no_commit(owned: CachedObject[str], faulty: FaultyStore) -> None:
    fault = faulty.hang("puts")
    change = await fault.holding(owned.apply(add("a")))
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    assert owned.busy
    fault.release()
    await owned.drain()
    assert await owned.read() == "a"


async def test_a_caller_leaves_while_it_waits(owned: CachedObject[str], faulty: FaultyStore) -> None:
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


async def test_bytes_of_a_value_are_stored_as_they_are(
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
        await grouped(owned, faulty, *changes)
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
    changing = await fault.holding(cached.apply(add("old")))
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


RECORD_BYTES = OBJECT_BYTES + memory_of_json(b'{"key":"a"}')


def make(key: str, store: MemoryStore | FaultyStore) -> CachedObject[RecordValue]:
    return CachedObject(SingleObject(key, store, WholeRecord(key)))


async def fill(cache: Cache, store: MemoryStore | FaultyStore, key: str) -> None:
    with cache.use(key, lambda: make(key, store)) as owned:
        await owned.apply(lambda value: (RecordValue({"key": key}), None))


async def test_the_least_recently_used_goes_first() -> None:
    store, cache = MemoryStore(), Cache(3 * (RECORD_BYTES + 10))
    for key in ("a", "b", "c"):
        await fill(cache, store, key)
    with cache.use("a", lambda: make("a", store)):
        pass
    await fill(cache, store, "d")
    assert [owned.key for owned in cache] == ["c", "a", "d"]
    assert cache.nbytes <= 3 * (RECORD_BYTES + 10)


async def test_what_is_in_use_stays_and_is_the_same() -> None:
    store, cache = MemoryStore(), Cache(1)
    with cache.use("a", lambda: make("a", store)) as one:
        await one.apply(lambda value: (RecordValue({"n": 1}), None))
        await fill(cache, store, "b")
        with cache.use("a", lambda: make("a", store)) as two:
            assert one is two
    assert (len(cache), cache.nbytes) == (0, 0)


async def abandoned(cache: Cache, store: FaultyStore) -> Fault:
    """Begin a change whose caller goes away; return the fault that its put hangs at."""
    fault = store.hang("puts", "a")
    change = await fault.holding(fill(cache, store, "a"))
    change.cancel()
    await asyncio.wait([change])
    return fault


async def ended(cache: Cache, fault: Fault) -> None:
    fault.release()
    for owned in cache:
        await owned.drain()


async def test_what_is_being_committed_stays() -> None:
    cache = Cache(1)
    fault = await abandoned(cache, FaultyStore(MemoryStore()))
    cache.drop("")
    assert [owned.key for owned in cache] == ["a"]
    await ended(cache, fault)
    cache.drop("")
    assert len(cache) == 0


async def test_what_an_abandoned_change_left_is_counted_when_it_ends() -> None:
    store, cache = FaultyStore(MemoryStore()), Cache(RECORD_BYTES + 10)
    await ended(cache, await abandoned(cache, store))
    await fill(cache, store, "b")
    assert [owned.key for owned in cache] == ["b"]
    assert cache.nbytes <= RECORD_BYTES + 10


async def test_drop_forgets_a_prefix() -> None:
    store, cache = MemoryStore(), Cache(10**6)
    for key in ("db/1/a", "db/1/b", "db/2/a"):
        await fill(cache, store, key)
    cache.drop("db/1/")
    assert [owned.key for owned in cache] == ["db/2/a"]
    assert cache.nbytes == OBJECT_BYTES + memory_of_json(b'{"key":"db/2/a"}') + len("db/2/a")


PUT, THOUGHT = 0.02, 0.001
"""Seconds that a put takes, and those that a client takes to come back."""


async def slow_puts(method: str, key: str) -> None:
    if method.startswith("put"):
        await asyncio.sleep(PUT)


class Clients:
    """Clients that change one object, each one request after the other."""

    def __init__(self) -> None:
        self.store = CountingStore(SlowStore(MemoryStore(), slow_puts, after=False))
        self._object = CachedObject(SingleObject(KEY, self.store, TextCodec()))

    async def change(self, times: int, thought: float = THOUGHT) -> None:
        for _ in range(times):
            begin_trace(RequestTrace("request"))
            await self._object.apply(add("x"))
            await asyncio.sleep(thought)


def run(*changes: tuple[int, float]) -> tuple[int, float]:
    """Return the puts and the seconds of clients that begin together: how often each changes, how long it thinks."""

    async def main() -> tuple[int, float]:
        clients, began = Clients(), asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for times, thought in changes:
                group.create_task(clients.change(times, thought))
        return clients.store.puts, asyncio.get_running_loop().time() - began

    return VirtualLoop().run(main())


def test_clients_that_come_back_together_share_each_put() -> None:
    puts, seconds = run(*((10, number * THOUGHT / 8) for number in range(1, 17)))
    assert puts <= 10 + 2
    assert seconds < 12 * (PUT + 2 * THOUGHT)


def test_a_client_alone_does_not_wait() -> None:
    puts, seconds = run((10, THOUGHT))
    assert puts == 10
    assert seconds < 10 * (PUT + THOUGHT) + THOUGHT


def test_who_does_not_come_back_is_waited_for_once() -> None:
    puts, seconds = run((10, THOUGHT), *[(1, THOUGHT)] * 15)
    assert puts <= 10 + 1
    assert seconds < 12 * (PUT + THOUGHT)


def test_nobody_is_waited_for_after_an_idle_time() -> None:
    thought = 3 * PUT
    _, seconds = run((5, thought), (1, THOUGHT))
    assert seconds < 5 * (PUT + thought) + THOUGHT


async def test_the_next_one_is_read_while_one_is_worked_on() -> None:
    asked = [asyncio.Event() for _ in range(4)]

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            asked[number].set()
            yield number
        asked[3].set()

    seen = []
    async for number in read_ahead(numbers()):
        seen.append(number)
        await asked[number + 1].wait()
    assert seen == [0, 1, 2]


async def test_who_leaves_early_leaves_nothing_running() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        yield 0
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with aclosing(read_ahead(numbers())) as ahead:
        async for _ in ahead:
            await entered.wait()
            break
    await ended.wait()


async def test_an_error_comes_after_what_was_read_before_it() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 0
        raise OSError("the disk")

    ahead = read_ahead(numbers())
    assert await anext(ahead) == 0
    with pytest.raises(OSError, match="the disk"):
        await anext(ahead)
