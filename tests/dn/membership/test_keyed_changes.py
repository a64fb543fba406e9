"""A change with an idempotency key is carried out once, and not after a later attempt at it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from hsparse.bounded_cache import ENTRY_BYTES
from hsparse.dn.membership import keyed_changes
from hsparse.dn.membership.keyed_changes import KeyedChanges
from hsparse.errors import Misdirected, Unanswered

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

    found = [await changes.once((1, key), 1, again) for key in "abdc"]
    assert found == [None, None, 2, "again"]


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
