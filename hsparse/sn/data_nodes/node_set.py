"""The data nodes that a service node sends to, of this process or the members of a cluster, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hsparse.clock import Clock
from hsparse.cluster.membership import Membership
from hsparse.concurrency.gather import gather_all
from hsparse.errors import Misconfigured
from hsparse.wire.message import DataNode, Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resend:
    """The outcome of a message that its receiver may not have carried out: it is to be sent to the owner of a newer
    membership than that of `epoch`, until the time `until` (monotonic, in seconds), for the time number `tries`.

    `doubtful`: it may have been carried out. `sent` are the tokens of the times that it was sent in that epoch. It was
    sent first at `since` (monotonic, in seconds), by the membership of `first`.
    """

    epoch: int
    until: float
    doubtful: bool
    tries: int = 1
    sent: tuple[str, ...] = ()
    first: int = 0
    since: float = 0.0

    def and_also(self, other: Resend) -> Resend:
        """Return what holds for both messages."""
        epoch = max(self.epoch, other.epoch)
        return Resend(
            epoch,
            min(self.until, other.until),
            self.doubtful or other.doubtful,
            max(self.tries, other.tries),
            tuple(dict.fromkeys((*self.sent_in(epoch), *other.sent_in(epoch)))),
            min(self.first, other.first),
            min(self.since, other.since),
        )

    def sent_in(self, epoch: int) -> tuple[str, ...]:
        """Return the tokens of the times that it was sent in an epoch."""
        return self.sent if self.epoch == epoch else ()


@dataclass(slots=True)
class Attempts:
    """The times that a message was sent so far: the tokens of those in this epoch, and when it was sent first.

    `doubtful`: it may have been carried out. `first` and `since` are as in `Resend`.
    """

    sent: list[str]
    doubtful: bool
    first: int
    since: float

    @classmethod
    def after(cls, again: Resend | None, epoch: int, clock: Clock) -> Attempts:
        """Return those before it is sent by the membership of `epoch`."""
        if again is None:
            return cls([], False, epoch, clock.monotonic())
        return cls(list(again.sent_in(epoch)), again.doubtful, again.first, again.since)


class NodeSet(Protocol):
    """Data nodes, by their ids in a membership."""

    @property
    def membership(self) -> Membership:
        """The newest membership that is known."""
        ...

    async def unready(self) -> Misconfigured | None:
        """Return why no message may be sent, None if messages may, or wait for the first node.

        While the nodes are not known that looks for them.
        """
        ...

    async def members(self, again: Resend | None) -> Membership:
        """Return a membership with at least one node, to send by; `again` is the outcome by an earlier one.

        `Unanswered` when there is none in time.
        """
        ...

    async def send(
        self, membership: Membership, node: str, message: Message[T], again: Resend | None
    ) -> T | Resend:
        """Send a message to a node as the owner of what it is about; return the reply, or that it is to be resent."""
        ...

    async def send_any(self, message: Message[T]) -> T:
        """Send a message to a node that answers."""
        ...

    async def send_all(self, message: Message[T]) -> list[T]:
        """Send a message to all nodes; the replies are those of all members of one epoch."""
        ...


class FixedNodes:
    """`NodeSet` of the data nodes of this process, by id; they are always there. `refused` says why they stopped."""

    def __init__(
        self, nodes: dict[str, DataNode], refused: Callable[[], Misconfigured | None] = lambda: None
    ) -> None:
        self._nodes = nodes
        self._refused = refused
        self.membership = Membership(0, tuple(nodes))

    async def unready(self) -> Misconfigured | None:
        return self._refused()

    async def members(self, again: Resend | None) -> Membership:
        return self.membership

    async def send(
        self, membership: Membership, node: str, message: Message[T], again: Resend | None
    ) -> T | Resend:
        return await self._nodes[node].send(message)

    async def send_any(self, message: Message[T]) -> T:
        return await next(iter(self._nodes.values())).send(message)

    async def send_all(self, message: Message[T]) -> list[T]:
        return await gather_all([node.send(message) for node in self._nodes.values()])
