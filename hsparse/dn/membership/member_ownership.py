"""The ownership of a member of a cluster, and the changes that it accepts.

A *term* ends when another node takes the lease of this node away. A change carries the term in which its node accepted
it (`Accepted`), and is stored only in that term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.dn.membership.ownership import Kept
from hsparse.wire.message import DataNode, Message

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Resent:
    """A change that was sent before, first in the membership of `epoch`, and may have been applied.

    Its client requested it no later than `asked`, on this node's monotonic clock.
    """

    epoch: int
    asked: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ownership term and the epoch in which a node accepted a change; `epoch` is 0 if changes are never resent."""

    term: int
    epoch: int = 0
    resent: Resent | None = None


class OwningService(DataNode, Protocol):
    """The service of a data node, which is told when the node loses ownership."""

    async def send(self, message: Message[R], /, accepted: Accepted | None = None) -> R:
        """Carry out the message and return its reply; a change is stored only in the ownership term of `accepted`."""
        ...

    def invalidate(self, kept: Kept) -> None:
        """Check each cached object with the store before its next use, unless this node has always owned the object."""
        ...

    def forget_fences(self) -> None:
        """Forget all fences and chunk versions, because this node may have missed changes."""
        ...

    def counters(self) -> dict[str, int]:
        """Return a dict that maps the counters of `NodeInfo` to their values: cached objects and cached bytes."""
        ...


class MemberOwnership:
    """The ownership of a member: it owns its names once the membership is settled, and while its lease holds.

    A membership is settled once no other member acts on an older one. A `server` that is the only member owns
    everything. If a server has other members beside it, no member owns anything.
    """

    always = False

    def __init__(self, holds: Callable[[], bool], *, server: bool = False) -> None:
        self._holds = holds
        self._server = server
        self.membership: Membership = NO_MEMBERS
        self.settled = False
        self.node = ""
        self.term = 0

    @property
    def in_force(self) -> bool:
        """Whether this node owns its part of the membership now."""
        return self.settled and self._holds()

    @property
    def era(self) -> object:
        return self.term, self.membership.epoch, self.settled

    @property
    def shared(self) -> bool:
        return not self._server or self.membership.shared or not self.in_force

    @property
    def hears_all(self) -> bool:
        return not self.membership.shared and (not self._server or self.in_force)

    def trusts(self, name: str) -> bool:
        if not self.in_force or self.membership.shared:
            return False
        return self._server or self.membership.owner(name) == self.node

    def changes_alone(self, name: str) -> bool:
        return True

    def accept(self, resent: Resent | None = None) -> Accepted:
        """Accept a change: return the current term and epoch, with `resent` if the change was sent before."""
        return Accepted(self.term, 0 if self._server else self.membership.epoch, resent)

    def may_change(self, term: int) -> bool:
        # Other members take over only after this one has finished its accepted changes or its lease has run out.
        return term == self.term and self._holds()
