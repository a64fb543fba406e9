"""What a service node believes of members that do not answer: one that is there is neither given up nor avoided."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.errors import HsparseError, Misconfigured, Misdirected, StoreFailed, Unanswered
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.cluster_nodes import ClusterNodes
from hsparse.sn.data_nodes.owners import Delivery
from hsparse.wire.message import CheckMember, Message, Routed
from hsparse.wire.record_message import ChangeObjects, Outcome
from tests.testing.memory_store import MemoryStore

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
