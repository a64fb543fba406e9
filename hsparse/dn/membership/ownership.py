"""Whether a data node may answer from its cache: only while no other node can have changed the object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.wire.message import DataNode

Kept = Callable[[str], bool]
"""Says of an object's name whether the node owned it before, and does now."""
_ACCEPTED_IN: ContextVar[int | None] = ContextVar("accepted_in", default=None)


@dataclass(frozen=True, slots=True)
class Doubt:
    """That a change may have been carried out before: it was asked for by the time `asked`, of this node's monotonic
    clock, and sent by the membership of `epoch`.
    """

    epoch: int
    asked: float


_DOUBT: ContextVar[Doubt | None] = ContextVar("doubt", default=None)


class Ownership(Protocol):
    """What a data node owns, at this moment."""

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

    def accepted_in(self) -> int:
        """Return the term in which the change was accepted that this code carries out."""
        ...

    @property
    def change_epoch(self) -> int:
        """The epoch in which changes are accepted; 0 where none is ever sent again."""
        ...

    def doubt(self) -> Doubt | None:
        """Return whether the change that this code carries out may have been carried out before."""
        ...

    def may_change(self, term: int) -> bool:
        """Say whether a change that was accepted in `term` may be stored, or acknowledged, now.

        Otherwise another node may own the object, and have carried out the change, and others after it.
        """
        ...


class OwningService(DataNode, Protocol):
    """The service of a data node, which is told what it does not own any more."""

    def doubt(self, kept: Kept) -> None:
        """See `DataService`."""
        ...

    def forget_news(self) -> None:
        """See `DataService`."""
        ...

    def counters(self) -> dict[str, int]:
        """See `DataService`."""
        ...


class SoleOwnership:
    """The ownership of a data node that is alone with its store: it owns everything, always."""

    shared = False
    hears_all = True
    change_epoch = 0

    def doubt(self) -> Doubt | None:
        return None

    def trusts(self, name: str) -> bool:
        return True

    def accepted_in(self) -> int:
        return 0

    def may_change(self, term: int) -> bool:
        return True


SOLE = SoleOwnership()


class NoOwnership(SoleOwnership):
    """The ownership of a data node that only reads a store which others may write: it confirms all that it reads."""

    shared = True
    hears_all = False

    def trusts(self, name: str) -> bool:
        return False


class MemberOwnership:
    """The ownership of a member: what the membership gives it, once that is settled, and while its lease holds.

    A membership is settled once no other member answers by an older one. A `server` owns everything where it is the
    only member. Beside other members neither it nor they own anything.
    """

    def __init__(self, holds: Callable[[], bool], *, server: bool = False) -> None:
        self._holds = holds
        self._server = server
        self.membership: Membership = NO_MEMBERS
        self.settled = False
        self.node = ""
        self.term = 0
        """How often another node has taken the lease away."""

    @property
    def in_force(self) -> bool:
        """Whether this node owns what the membership gives it."""
        return self.settled and self._holds()

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

    @contextmanager
    def accepting(self, doubt: Doubt | None = None) -> Iterator[None]:
        """Let what is done in the context be of a change that is accepted now."""
        token, doubted = _ACCEPTED_IN.set(self.term), _DOUBT.set(doubt)
        try:
            yield
        finally:
            _ACCEPTED_IN.reset(token)
            _DOUBT.reset(doubted)

    @property
    def change_epoch(self) -> int:
        return 0 if self._server else self.membership.epoch

    def doubt(self) -> Doubt | None:
        return _DOUBT.get()

    def accepted_in(self) -> int:
        term = _ACCEPTED_IN.get()
        return self.term if term is None else term

    def may_change(self, term: int) -> bool:
        # Other members take over only after this one has finished what it accepted, or when its lease has run out.
        return term == self.term and self._holds()
