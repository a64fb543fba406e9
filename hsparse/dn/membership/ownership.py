"""Whether a data node may answer from its cache: only while no other node can have changed the object.

Tests: tests/dn/test_cached_object.py, tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hsparse.cluster.membership import NO_MEMBERS, Membership


class Ownership(Protocol):
    """What a data node owns, at this moment."""

    shared: bool
    """Whether there may be other data nodes, which serve what this one owns when it does not answer."""

    def trusts(self, name: str) -> bool:
        """Say whether no other node changes the object `name`: what was read while this was true stands."""
        ...

    def may_acknowledge(self) -> bool:
        """Say whether what was accepted while this node owned it may be acknowledged: no other node owns it yet."""
        ...


class SoleOwnership:
    """The ownership of a data node that is alone with its store: it owns everything, always."""

    shared = False

    def trusts(self, name: str) -> bool:
        return True

    def may_acknowledge(self) -> bool:
        return True


class MemberOwnership:
    """The ownership of a member: what the membership gives it, once that is settled, and while its lease holds.

    A membership is settled once no other member answers by an older one.
    """

    shared = True

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self.membership: Membership = NO_MEMBERS
        self.settled = False
        self.node = ""

    @property
    def in_force(self) -> bool:
        """Whether this node owns what the membership gives it."""
        return self.settled and self._holds()

    def trusts(self, name: str) -> bool:
        return self.in_force and self.membership.owner(name) == self.node

    def may_acknowledge(self) -> bool:
        # Other members take over only after this one has finished what it accepted, or when its lease has run out.
        return self._holds()
