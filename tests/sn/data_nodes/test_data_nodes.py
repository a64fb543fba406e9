"""Messages to owners, what is believed of members that do not answer, and how long a read is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn import records
from hsparse.dn.service import DataService
from hsparse.errors import HsparseError, Misconfigured, Misdirected, StoreFailed, Unanswered
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.cluster_nodes import (
    HEDGED_FRACTION,
    MAX_HEDGE_SECONDS,
    MIN_HEDGE_SECONDS,
    MOST_SAVED,
    READS_PER_PERCENTILE,
    TIMED_READS,
    ClusterNodes,
    HedgeDelay,
)
from hsparse.sn.data_nodes.owners import RESEND, Delivery, FixedNodes, Owners
from hsparse.wire.message import CheckMember, InBucket, Message, Routed
from hsparse.wire.record_message import ChangeObjects, CreateObject, Outcome, ReadObjects
from tests.testing.memory_store import MemoryStore


class Script:
    """`NodeSet` whose epochs have the nodes in `epochs`; of each message that is sent some are to be resent."""

    def __init__(self, epochs: list[tuple[str, ...]], refused: list[bool]) -> None:
        self.epochs = epochs
        self.refused = refused
        self.sent: list[tuple[int, str, Message[object]]] = []
        self.membership = Membership(0, epochs[0])

    async def members(self, delivery: Delivery) -> Membership:
        if delivery.epoch >= 0:
            epoch = min(delivery.epoch + 1, len(self.epochs) - 1)
            self.membership = Membership(epoch, self.epochs[epoch])
        return self.membership

    async def send(self, membership, node, message, delivery):  # type: ignore[no-untyped-def]
        self.sent.append((membership.epoch, node, message))
        if self.refused and self.refused.pop():
            delivery.epoch = max(delivery.epoch, membership.epoch)
            return RESEND
        inner = message.message if isinstance(message, InBucket) else message
        return tuple(Outcome({"id": id, "node": node}) for id in inner.ids)

    async def send_any(self, message):  # type: ignore[no-untyped-def]
        return message

    async def send_all(self, message):  # type: ignore[no-untyped-def]
        return [message]


@given(
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=12),
    st.lists(st.sets(st.sampled_from("uvwx"), min_size=1).map(tuple), min_size=1, max_size=4),
    st.lists(st.booleans(), max_size=8),
    st.sampled_from(["", "other"]),
)
async def test_each_item_is_answered_by_its_owner(
    ids: list[str], epochs: list[tuple[str, ...]], refused: list[bool], bucket: str
) -> None:
    once = not any(refused)
    nodes = Script(epochs, refused)
    outcomes = await Owners(nodes, bucket).read(*ids)
    assert [outcome.unwrap()["id"] for outcome in outcomes] == ids
    for epoch, node, message in nodes.sent:
        assert isinstance(message, InBucket) == bool(bucket)
        inner = message.message if isinstance(message, InBucket) else message
        assert isinstance(inner, ReadObjects)
        assert inner.ids
        assert all(Membership(epoch, epochs[epoch]).owner(id) == node for id in inner.ids)
    if once:
        owners = [node for _, node, _ in nodes.sent]
        assert len(owners) == len(set(owners)), "one message an owner"


def as_root(number: int) -> str:
    return f"/home/a/{number:04d}.h5"


@pytest.mark.parametrize("room", [0, 3000, 20_000, records.REPLY_MEMORY])
@pytest.mark.parametrize("names", [("dn-001",), ("dn-001", "dn-002")])
async def test_large_records_come_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, room: int, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(records, "REPLY_MEMORY", room)
    monkeypatch.setattr(records, "LARGE_READ", min(room, records.LARGE_READ))
    random = Random(room)
    store, ids = MemoryStore(), [as_root(number) for number in range(60)]
    texts = {id: "x" * random.choice([1, 100, 1000, 30_000]) for id in ids}
    asked = [*ids, as_root(9999)]
    for cold in (False, True):
        nodes = {name: DataService(store, SystemClock()) for name in names}
        owners = Owners(FixedNodes(dict(nodes)))
        if not cold:
            await owners.change(*(CreateObject(id, {"owner": text}) for id, text in texts.items()))
        else:
            assert len(await owners.read(*asked)) == 61
        found, parts = {}, 0
        async for first, some in owners.read_parts(asked):
            assert first == len(found)
            parts += 1
            sizes = [len((one.record or {}).get("owner", "")) for one in some]
            assert sum(sizes) <= len(names) * (room + max(sizes))
            found |= {asked[first + place]: one for place, one in enumerate(some)}
        assert (parts > 1) == (room < 1 << 20)
        assert found.pop(asked[-1]).failure is not None
        assert {id: one.unwrap()["owner"] for id, one in found.items()} == texts
        assert [one.record for one in await owners.read(*ids)] == [found[id].record for id in ids]
        for node in nodes.values():
            await node.close()


R = TypeVar("R")

CHANGE, DONE = ChangeObjects(()), (Outcome(),)

Answer = Callable[[Message[Any]], Awaitable[Any]]


class StoredMembership(MembershipObject):
    """A membership that cannot be read while there is a `failure`; `looks` is called by each try then."""

    def __init__(self, view: Membership) -> None:
        super().__init__(MemoryStore(), "")
        self.view = view
        self.failure: HsparseError | None = None
        self.looks: Callable[[], None] = lambda: None

    async def read(self) -> Membership:
        if self.failure is not None:
            self.looks()
            raise self.failure
        return self.view

    def other_token(self, view: Membership) -> None:
        return None


class Member:
    """A data node that answers as a function does."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def send(self, message: Message[R], /) -> R:
        return cast(R, await self._answer(message))

    async def close(self) -> None:
        """Nothing to do."""


class Times:
    """An event that has happened once it was told of so many times."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._event.set()

    async def happened_or(self, task: asyncio.Task[Any]) -> None:
        """Return when it has happened, or a task has ended."""
        waiting = asyncio.create_task(self._event.wait())
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def members(answers: dict[str, Answer]) -> tuple[ClusterNodes, StoredMembership]:
    """Return members of epoch 1 with these answers, by their ids."""
    stored = StoredMembership(Membership(1, tuple(answers), urls={id: id for id in answers}))
    return ClusterNodes(stored, SystemClock(), lambda url: Member(answers[url])), stored


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_nodes, "CHECK_AFTER", 0.001)
    monkeypatch.setattr(cluster_nodes, "MEMBERSHIP_READ_SECONDS", 0.0)


@pytest.mark.parametrize(
    "failure", [StoreFailed("The store fails."), Misconfigured("Of tomorrow.")], ids=repr
)
async def test_a_membership_that_cannot_be_read_ends_no_change_that_a_node_carries_out(
    failure: HsparseError, caplog: pytest.LogCaptureFixture
) -> None:
    carried_out, looked = asyncio.Event(), Times(2)

    async def answer(message: Message[Any]) -> Any:
        await carried_out.wait()
        return DONE

    nodes, stored = members({"a": answer})
    changing = asyncio.create_task(nodes.send(await nodes.members(Delivery()), "a", CHANGE, Delivery()))
    stored.failure, stored.looks = failure, looked.tell
    await looked.happened_or(changing)
    carried_out.set()
    assert await changing == DONE
    assert failure.message in caplog.text
    await nodes.close()


async def test_a_witness_that_cannot_find_out_who_is_gone_ends_no_change() -> None:
    carried_out, asked = asyncio.Event(), Times(2)

    async def answer(message: Message[Any]) -> Any:
        if isinstance(message, CheckMember):
            asked.tell()
            raise StoreFailed("The store fails.")
        await carried_out.wait()
        return DONE

    nodes, _ = members({"a": answer, "b": answer})
    changing = asyncio.create_task(nodes.send(await nodes.members(Delivery()), "a", CHANGE, Delivery()))
    await asked.happened_or(changing)
    carried_out.set()
    assert await changing == DONE
    await nodes.close()


async def test_a_stand_in_is_not_avoided_because_the_owner_is_gone() -> None:
    owner = "a"

    async def gone(message: Message[Any]) -> Any:
        raise Unanswered("It does not answer.")

    async def stand_in(message: Message[Any]) -> Any:
        if isinstance(message, CheckMember):
            if message.node == owner:
                raise Misdirected("It is no member any more.")
            return True
        assert isinstance(message, Routed)
        if message.to == first:
            await asyncio.Event().wait()
        return DONE

    nodes, stored = members({owner: gone, "b": stand_in, "c": stand_in})
    first, second = stored.view.stand_ins(owner)
    assert await nodes.send(await nodes.members(Delivery()), owner, CHANGE, Delivery()) == DONE
    assert [nodes._is_avoided(node) for node in (owner, first, second)] == [True, False, False]
    await nodes.close()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.001] * READS_PER_PERCENTILE, MIN_HEDGE_SECONDS),
        ([0.001] * 28 + [0.5] * 4, 0.5),
        ([60.0] * READS_PER_PERCENTILE, MAX_HEDGE_SECONDS),
        ([60.0] * READS_PER_PERCENTILE + [0.3] * TIMED_READS, 0.3),
    ],
)
def test_the_percentile_of_the_last_reads(times: list[float], expected: float) -> None:
    delay = HedgeDelay()
    for seconds in times:
        delay.note(seconds)
    assert delay.seconds == expected


def test_before_reads_are_known_it_is_in_between() -> None:
    assert MIN_HEDGE_SECONDS < HedgeDelay().seconds < MAX_HEDGE_SECONDS


def test_only_a_part_of_the_reads_is_hedged() -> None:
    delay = HedgeDelay()
    assert [delay.may_hedge() for _ in range(200)].count(True) == MOST_SAVED
    hedged = 0
    for _ in range(1000):
        hedged += delay.may_hedge()
        delay.note(1.0)
    assert hedged == pytest.approx(1000 * HEDGED_FRACTION, abs=1)
