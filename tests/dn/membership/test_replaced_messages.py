"""A change that was sent again is not carried out after its replacement."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from hsparse.dn.membership import ownership as replaced_messages
from hsparse.dn.membership.ownership import ReplacedMessages
from hsparse.errors import Misdirected, Unanswered


async def carry_out(messages: ReplacedMessages, token: str, *replaces: str) -> None:
    async with messages.admit(token, replaces):
        pass


async def test_what_arrives_after_its_replacement_is_refused() -> None:
    messages = ReplacedMessages()
    await carry_out(messages, "b", "a")
    with pytest.raises(Misdirected):
        await carry_out(messages, "a")
    await carry_out(messages, "b")
    await carry_out(messages, "c")


async def test_a_replacement_waits_for_the_end_of_what_it_replaces() -> None:
    messages, go_on, order = ReplacedMessages(), asyncio.Event(), []

    async def first() -> None:
        async with messages.admit("a", ()):
            await go_on.wait()
            order.append("a")
            raise ValueError

    async def second() -> None:
        async with messages.admit("b", ("z", "a")):
            order.append("b")

    tasks = asyncio.create_task(first()), asyncio.create_task(second())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await carry_out(messages, "other")
    assert order == []
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "b"]
    assert isinstance(results[0], ValueError)


async def test_the_oldest_tokens_are_forgotten() -> None:
    messages = ReplacedMessages(limit=2)
    await carry_out(messages, "d", "a", "b", "c")
    await carry_out(messages, "a")
    with pytest.raises(Misdirected):
        await carry_out(messages, "b")


async def test_what_was_carried_out_before_is_answered_as_it_was() -> None:
    messages, counts = ReplacedMessages(), itertools.count(1)

    async def work() -> int:
        return next(counts)

    assert await messages.once("a", (), work) == 1
    assert await messages.once("b", ("a",), work) == 1
    assert await messages.once("c", ("x", "a", "b"), work) == 1
    assert await messages.once("d", (), work) == 2
    with pytest.raises(Misdirected):
        await messages.once("a", (), work)


async def test_a_reply_is_recalled_once_there_is_one() -> None:
    messages, go_on = ReplacedMessages(), asyncio.Event()

    async def write() -> None:
        await go_on.wait()

    writing = asyncio.create_task(messages.once("a", (), write))
    await asyncio.sleep(0)
    recalled = asyncio.create_task(messages.recall(("z", "a")))
    await asyncio.sleep(0)
    assert not recalled.done()
    go_on.set()
    assert await recalled is None
    await writing
    with pytest.raises(Misdirected, match="remembers no reply"):
        await messages.recall(("y",))
    with pytest.raises(Misdirected, match="sent again"):
        await messages.once("y", (), write)


async def test_replies_without_content_are_remembered_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced_messages, "MAX_REPLIES", 1)
    messages = ReplacedMessages()

    async def nothing() -> None:
        return None

    async def one() -> int:
        return 1

    for token, work in (("a", nothing), ("b", nothing), ("c", one), ("d", one)):
        await messages.once(token, (), work)
    assert [await messages.recall((token,)) for token in ("a", "b", "d")] == [None, None, 1]
    with pytest.raises(Misdirected):
        await messages.recall(("c",))


async def test_what_failed_is_carried_out_again() -> None:
    messages = ReplacedMessages()

    async def fail() -> int:
        raise Unanswered("lost")

    async def work() -> int:
        return 7

    with pytest.raises(Unanswered):
        await messages.once("a", (), fail)
    assert await messages.once("b", ("a",), work) == 7


async def test_the_oldest_replies_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced_messages, "MAX_REPLIES", 2)
    messages, counts = ReplacedMessages(), itertools.count(1)

    async def work() -> int:
        return next(counts)

    for token in "abc":
        await messages.once(token, (), work)
    assert await messages.once("d", ("b",), work) == 2
    assert await messages.once("e", ("a",), work) == 4


async def test_a_message_that_arrives_twice_is_carried_out_once() -> None:
    messages, go_on, counts = ReplacedMessages(), asyncio.Event(), itertools.count(1)

    async def work() -> int:
        await go_on.wait()
        return next(counts)

    tasks = [asyncio.create_task(messages.once("a", (), work)) for _ in range(2)]
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*tasks) == [1, 1]
    assert await messages.once("a", (), work) == 1
    assert [await messages.once("", (), work) for _ in range(2)] == [2, 3]
