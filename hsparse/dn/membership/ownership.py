"""Whether a data node may answer from its cache: only while no other node can have changed the object.

A change carries the term in which its node accepted it (`Accepted`). It is stored only in that term: in a later one
another node may own the object, and have carried out the change, and others after it.

A sender that gets no answer sends a change again. `KeyedChanges` remembers what was carried out by the idempotency key
of the change: carried out again, or late, it would undo what came between.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from hsparse.cluster.lease_object import NO_MEMBERS, Membership
from hsparse.errors import Misdirected
from hsparse.wire.message import DataNode, Message

R = TypeVar("R")

Kept = Callable[[str], bool]
"""Says of an object's name whether the node owned it before, and does now."""


@dataclass(frozen=True, slots=True)
class Resent:
    """That a change was sent before, and may have been carried out: first by the membership of `epoch`.

    It was asked for by the time `asked`, of this node's monotonic clock.
    """

    epoch: int
    asked: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """In which term and epoch a node has accepted a change; the epoch is 0 where none is ever sent again."""

    term: int
    epoch: int = 0
    resent: Resent | None = None


class Ownership(Protocol):
    """What a data node owns, at this moment."""

    @property
    def always(self) -> bool:
        """Whether this node owns everything, and always will: nothing else needs to be asked."""
        ...

    @property
    def shared(self) -> bool:
        """Whether another data node may serve what this one owns, because it does not answer or its lease has ended."""
        ...

    @property
    def hears_all(self) -> bool:
        """Whether this node makes, or is told of, all changes that concern it: no other server makes any unheard."""
        ...

    def trusts(self, name: str) -> bool:
        """Say whether no other node changes the object `name`: what was read while this was true stands."""
        ...

    @property
    def term(self) -> int:
        """How often another node has taken this one's lease away."""
        ...

    @property
    def era(self) -> object:
        """What is another one once this node may have missed what all nodes were told: what it knew is asked again."""
        ...

    def may_change(self, term: int) -> bool:
        """Say whether a change that was accepted in `term` may be stored, or acknowledged, now.

        Otherwise another node may own the object, and have carried out the change, and others after it.
        """
        ...


class OwningService(DataNode, Protocol):
    """The service of a data node, which is told what it does not own any more."""

    async def send(self, message: Message[R], /, accepted: Accepted | None = None) -> R:
        """See `DataNode`; a change that was accepted is stored in that term only."""
        ...

    def invalidate(self, kept: Kept) -> None:
        """See `DataService`."""
        ...

    def forget_fences(self) -> None:
        """See `DataService`."""
        ...

    def counters(self) -> dict[str, int]:
        """See `DataService`."""
        ...


class SoleOwnership:
    """The ownership of a data node that is alone with its store: it owns everything, always."""

    always = True
    shared = False
    hears_all = True
    term = 0
    era: object = None

    def trusts(self, name: str) -> bool:
        return True

    def may_change(self, term: int) -> bool:
        return True


SOLE = SoleOwnership()


class NoOwnership(SoleOwnership):
    """The ownership of a data node that only reads a store which others may write: it confirms all that it reads."""

    always = False
    shared = True
    hears_all = False

    def trusts(self, name: str) -> bool:
        return False


class PartlyTrusted:
    """The ownership of `base`, but of no name that `trusts` says no of."""

    always = False

    def __init__(self, base: Ownership, trusts: Callable[[str], bool]) -> None:
        self.may_change = base.may_change
        self._base, self._trusts = base, trusts

    @property
    def shared(self) -> bool:
        return self._base.shared

    @property
    def hears_all(self) -> bool:
        return self._base.hears_all

    @property
    def term(self) -> int:
        return self._base.term

    @property
    def era(self) -> object:
        return self._base.era

    def trusts(self, name: str) -> bool:
        return self._base.trusts(name) and self._trusts(name)


class MemberOwnership:
    """The ownership of a member: what the membership gives it, once that is settled, and while its lease holds.

    A membership is settled once no other member answers by an older one. A `server` owns everything where it is the
    only member. Beside other members neither it nor they own anything.
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
        """Whether this node owns what the membership gives it."""
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

    def accept(self, resent: Resent | None = None) -> Accepted:
        """Accept a change, now."""
        return Accepted(self.term, 0 if self._server else self.membership.epoch, resent)

    def may_change(self, term: int) -> bool:
        # Other members take over only after this one has finished what it accepted, or when its lease has run out.
        return term == self.term and self._holds()


Key: TypeAlias = tuple[int, str]
"""An idempotency key: the epoch of the membership by which a change was sent, and what its sender names it."""
MAX_KEYS = 100_000
"""The most keys that are remembered, the last ones."""
MAX_REPLIES = 256
"""The most replies with a content that are remembered, the last ones: a message is sent again within seconds.

Of those without one, as of writes, there may be as many as keys.
"""


class KeyedChanges:
    """What a node has carried out, by idempotency keys; see `Routed`."""

    def __init__(self, limit: int = MAX_KEYS) -> None:
        self._limit = limit
        self._attempts: OrderedDict[Key, int] = OrderedDict()
        """The last attempt at each change that was sent again."""
        self._done: OrderedDict[Key, None] = OrderedDict()
        """The changes whose reply was None."""
        self._replies: OrderedDict[Key, Any] = OrderedDict()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def once(self, key: Key, attempt: int, work: Callable[[], Awaitable[R]]) -> R:
        """Return what `work` returns, or what it has returned for this key, when earlier attempts have ended.

        `Misdirected` when there was a later attempt. What failed is carried out again.
        """
        if attempt > self._attempts.get(key, 0):
            _keep(self._attempts, key, attempt, self._limit)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if attempt < self._attempts.get(key, 0):
                raise Misdirected("This change was sent again since.")
            if key in self._done:
                return cast(R, None)
            if key in self._replies:
                return cast(R, self._replies[key])
            reply = await work()
            if reply is None:
                _keep(self._done, key, None, self._limit)
            else:
                _keep(self._replies, key, reply, min(MAX_REPLIES, self._limit))
            return reply


def _keep(known: OrderedDict[Key, Any], key: Key, value: Any, limit: int) -> None:
    """Add a key as the newest; the oldest ones beyond `limit` are forgotten."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > limit:
        known.popitem(last=False)
