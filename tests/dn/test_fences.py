"""Changes that come too late, or again: fences, the redo log and idempotency keys."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.bounded_cache import ENTRY_BYTES
from hsparse.dn import redo_log
from hsparse.dn.cached_object import Encoded
from hsparse.dn.fences import Fences
from hsparse.dn.membership import keyed_changes
from hsparse.dn.membership.keyed_changes import KeyedChanges
from hsparse.dn.membership.member_ownership import Accepted, MemberOwnership, Resent
from hsparse.dn.record_changes import DeletedNames
from hsparse.dn.redo_log import LOGGED_SECONDS, Change, RedoLog
from hsparse.errors import Gone, Misdirected, Moved, NotFound, Unanswered
from hsparse.format.chunk_spec import ChunkSpec
from tests.testing.manual_clock import ManualClock

SPEC = ChunkSpec("d-1", "H5T_STD_I8LE", (1,), False, b"", ((),))


class Records:
    """Generations as stored, and how often they were asked for."""

    def __init__(self, **generations: int) -> None:
        self.generations = {name.replace("_", "-"): value for name, value in generations.items()}
        self.asked: list[str] = []

    async def generation(self, dataset: str) -> int:
        self.asked.append(dataset)
        return self.generations.get(dataset, 0)


async def test_the_record_tells_what_was_before() -> None:
    records = Records(d_1=2)
    fences = Fences(records.generation)
    fences.check(SPEC)
    await fences.learn("d-1")
    await fences.learn("d-1")
    assert records.asked == ["d-1"]
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=1))
    fences.check(replace(SPEC, generation=2))


async def test_the_newest_generation_heard_of_counts() -> None:
    fences = Fences(Records().generation)
    fences.check(replace(SPEC, generation=3))
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))
    await fences.learn("d-1")
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))


async def test_the_deleted_stay_deleted() -> None:
    fences = Fences(Records(d_1=1).generation)
    fences.refuse_deleted("d-1")
    await fences.learn("d-1")
    with pytest.raises(Gone):
        fences.check(replace(SPEC, generation=9))


async def test_what_is_forgotten_is_learnt_again() -> None:
    records = Records(d_1=1)
    fences = Fences(records.generation, limit=2)
    for dataset in ("d-1", "d-2", "d-3", "d-1"):
        await fences.learn(dataset)
    assert records.asked == ["d-1", "d-2", "d-3", "d-1"]
    with pytest.raises(Moved):
        fences.check(SPEC)


async def test_of_the_deleted_only_so_many_are_remembered() -> None:
    records = Records(d_1=1, d_2=1)
    fences = Fences(records.generation, limit=3)
    await fences.learn("d-1")
    for number in range(10, 100):
        fences.refuse_deleted(f"d-{number}")
    await fences.learn("d-1")
    assert records.asked == ["d-1", "d-1"]
    for number in (98, 99):
        with pytest.raises(Gone):
            fences.check(replace(SPEC, dataset=f"d-{number}"))
    fences.check(replace(SPEC, dataset="d-97"))


def test_long_names_of_what_was_deleted_take_no_more_memory() -> None:
    deleted = DeletedNames()
    tracemalloc.start()
    try:
        for number in range(1000):
            deleted.add("g-1", "attribute", f"{number}".rjust(1024, "\N{GRINNING FACE}"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 300 * 1000
    name = "999".rjust(1024, "\N{GRINNING FACE}")
    assert isinstance(deleted.missing("It", "g-1", "attribute", name), Gone)
    deleted.remove("g-1", "attribute", name)
    assert isinstance(deleted.missing("It", "g-1", "attribute", name), NotFound)


async def test_a_record_is_read_although_a_message_has_told_its_generation() -> None:
    """The record may forbid changes, which no message tells."""
    records = Records(d_1=3)
    fences = Fences(records.generation)
    fences.check(replace(SPEC, generation=3))
    await fences.learn("d-1")
    await fences.learn("d-1")
    assert records.asked == ["d-1"]
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=2))


async def test_a_node_that_does_not_hear_of_all_shrinks_reads_the_record_each_time() -> None:
    records, hears = Records(d_1=1), [False]
    fences = Fences(records.generation, hears_all=lambda: hears[0])
    await fences.learn("d-1")
    records.generations["d-1"] = 2
    await fences.learn("d-1")
    with pytest.raises(Moved):
        fences.check(replace(SPEC, generation=1))
    hears[0] = True
    await fences.learn("d-1")
    assert len(records.asked) == 2


Chunk = dict[int, int]


class Node:
    """Chunks over a `RedoLog` in an epoch; its monotonic clock begins at 0."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.started = self.clock.monotonic()
        self.log = RedoLog(self.clock)
        self.chunks: dict[str, Chunk] = {}

    def accept(self, change: Change, resent: tuple[int, float] | None = None, key: str = "k") -> Change:
        first = None if resent is None else Resent(resent[0], self.started + resent[1])
        return self.log.logged(key, change, 10, Accepted(0, 5, first))

    def write(self, values: Chunk, resent: tuple[int, float] | None = None, key: str = "k") -> Change:
        change = self.accept(setting(values), resent, key)
        self.chunks[key], _ = change(self.chunks.get(key, {}))
        return change


def setting(values: Chunk) -> Change:
    return lambda chunk: ({**chunk, **values}, len(values))


def test_a_write_that_is_sent_again_does_not_undo_what_came_after_it() -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1, 1: 1})
    node.write({0: 2, 2: 2}, resent=(4, 9))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 2}
    node.write({0: 3, 2: 3}, resent=(4, 8))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 2}
    node.write({0: 4, 2: 4}, resent=(4, 9.5))
    assert node.chunks["k"] == {0: 1, 1: 1, 2: 4}


@pytest.mark.parametrize("resent", [None, (4, 10.5), (5, 9.0)], ids=["none", "asked for later", "sent later"])
def test_a_write_that_came_later_is_applied_last(resent: tuple[int, float] | None) -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    node.clock.time += 1
    node.write({0: 2}, resent)
    assert node.chunks["k"] == {0: 2}


def test_a_change_that_is_applied_again_has_the_same_place() -> None:
    """Another node has put in between: what came into the queue meanwhile is applied after it anyway."""
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    resent = node.accept(setting({0: 2, 1: 2}), (4, 9))
    assert resent({}) == ({0: 1, 1: 2}, 2)
    node.write({1: 3})
    assert resent({5: 5}) == ({0: 1, 1: 2, 5: 5}, 2)


def test_an_encoded_value_is_changed_on() -> None:
    node = Node()
    node.clock.time += 10
    node.write({0: 1})
    direct = node.accept(lambda chunk: (Encoded({0: 2, 1: 2}, b""), None), (4, 9))
    assert direct({7: 7}) == ({0: 1, 1: 2}, None)


def test_changes_are_forgotten_where_another_node_may_have_been_the_owner() -> None:
    node = Node()
    node.clock.time += 10
    for key in ("kept", "lost"):
        node.write({0: 1}, key=key)
    under_way = node.accept(setting({0: 2}), key="lost")
    node.log.forget(lambda key: key == "kept")
    under_way({})
    for key in ("kept", "lost"):
        node.write({0: 3}, (4, 9), key)
    assert node.chunks == {"kept": {0: 1}, "lost": {0: 3}}


def test_a_change_that_was_refused_is_no_change() -> None:
    node = Node()
    node.clock.time += 10
    node.log.remove(node.write({0: 1}))
    node.write({0: 2}, (4, 9))
    assert node.chunks["k"] == {0: 2}


def test_changes_are_remembered_for_a_time_and_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo_log, "MAX_LOG_BYTES", 25)
    node = Node()
    node.clock.time += 10
    for key in ("a", "b", "c"):
        node.write({0: 1}, key=key)
    for key in ("a", "c"):
        node.write({0: 2}, (4, 9), key)
    assert (node.chunks["a"], node.chunks["c"]) == ({0: 2}, {0: 1})
    node.clock.time += LOGGED_SECONDS + 1
    change = setting({0: 1})
    assert node.accept(change) is change


def test_a_server_remembers_nothing() -> None:
    """Nothing is sent to it again."""
    log, accepted = RedoLog(ManualClock()), MemberOwnership(lambda: True, server=True).accept()
    change = setting({0: 1})
    assert log.logged("k", change, 1, accepted) is change


@given(st.data())
def test_writes_end_up_in_the_order_in_which_they_were_asked_for(data: Any) -> None:
    """Writes of a lost owner arrive in any order between those of this one."""
    node, expected = Node(), dict[int, int]()
    writes = data.draw(st.lists(st.dictionaries(st.integers(0, 3), st.integers()), max_size=6))
    resent = [(write, (4, float(at))) for at, write in enumerate(writes)]
    certain = data.draw(st.lists(st.dictionaries(st.integers(0, 3), st.integers()), max_size=4))
    node.clock.time += 100
    arrivals = data.draw(st.permutations([*resent, *((None, None) for _ in certain)]))
    rest = iter(certain)
    for write, first in arrivals:
        node.clock.time += 1
        node.write(next(rest) if write is None else write, first)
    for write in (*writes, *certain):
        expected |= write
    assert node.chunks.get("k", {}) == expected


FRAME = 8
"""Bytes of a reply that is a small number."""


async def nothing() -> None:
    return None


def counting() -> Callable[[], Awaitable[int]]:
    """Return what returns how often it was carried out."""
    counts = itertools.count(1)

    async def work() -> int:
        return next(counts)

    return work


async def test_an_attempt_that_arrives_after_a_later_one_is_refused() -> None:
    """Also if the later one has failed: its sender may have gone on since."""
    changes, work = KeyedChanges(), counting()

    async def fail() -> int:
        raise Unanswered("lost")

    with pytest.raises(Unanswered):
        await changes.once((1, "a"), 1, fail)
    with pytest.raises(Misdirected, match="sent again"):
        await changes.once((1, "a"), 0, work)
    assert await changes.once((1, "a"), 2, work) == 1


async def test_an_attempt_waits_for_the_end_of_the_one_before() -> None:
    changes, go_on, order = KeyedChanges(), asyncio.Event(), []

    async def first() -> None:
        await go_on.wait()
        order.append("first")
        raise ValueError

    async def second() -> None:
        order.append("second")

    tasks = [
        asyncio.create_task(changes.once((1, "a"), attempt, work))
        for attempt, work in enumerate((first, second))
    ]
    await asyncio.sleep(0)
    await changes.once((1, "other"), 0, nothing)
    assert order == []
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["first", "second"]
    assert isinstance(results[0], ValueError)


async def test_what_waits_for_an_earlier_attempt_is_refused_after_a_later_one_has_come() -> None:
    changes, go_on, work = KeyedChanges(), asyncio.Event(), counting()

    async def fail() -> int:
        await go_on.wait()
        raise Unanswered("lost")

    tasks = [
        asyncio.create_task(changes.once((1, "a"), attempt, what))
        for attempt, what in enumerate((fail, work, work))
    ]
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Unanswered, Misdirected, int]


async def test_what_was_carried_out_is_answered_as_it_was() -> None:
    changes, work = KeyedChanges(), counting()
    assert [await changes.once((1, "a"), attempt, work) for attempt in (0, 0, 1, 3)] == [1, 1, 1, 1]
    assert await changes.once((1, "b"), 0, work) == 2
    assert await changes.once((2, "a"), 3, work) == 3


async def test_what_arrives_twice_is_carried_out_once() -> None:
    changes, work = KeyedChanges(), counting()
    tasks = [asyncio.create_task(changes.once((1, "a"), 0, work)) for _ in range(2)]
    assert await asyncio.gather(*tasks) == [1, 1]


async def test_the_oldest_keys_are_forgotten() -> None:
    changes, work = KeyedChanges(limit=2, reply_bytes=2 * (ENTRY_BYTES + FRAME)), counting()
    for key in "abc":
        await changes.once((1, key), 1, work)
    assert await changes.once((1, "a"), 0, work) == 4
    with pytest.raises(Misdirected):
        await changes.once((1, "c"), 0, work)


async def test_replies_without_content_are_remembered_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_changes, "REPLY_BYTES", ENTRY_BYTES + FRAME)
    changes, work = KeyedChanges(), counting()
    for key in "ab":
        await changes.once((1, key), 0, nothing)
    for key in "cd":
        await changes.once((1, key), 0, work)

    async def again() -> str:
        return "again"

    assert [await changes.once((1, key), 1, again) for key in "abdc"] == [None, None, 2, "again"]


async def test_replies_are_bounded_by_bytes_and_the_last_one_is_remembered() -> None:
    limit = 100_000
    changes = KeyedChanges(reply_bytes=limit)

    async def once(key: int, size: int) -> int:
        async def work() -> dict[str, str]:
            return {"text": "x" * size}

        return len((await changes.once((1, str(key)), 0, work))["text"])

    sizes = [10, 60_000, 1, 99_000, 30_000, 30_000, 30_000, 30_000, 0]
    for key, size in enumerate(sizes):
        assert await once(key, size) == size
        assert await once(key, -1) == size
        assert changes._replies.size <= limit
    assert [await once(key, 7) for key in (3, 5, 6, 7)] == [7, 30_000, 30_000, 30_000]
