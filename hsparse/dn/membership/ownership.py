"""Ownership: a data node may answer from its cache only while no other node can have changed the object.

A *term* of a node ends when another node takes its lease away. A change is stored only in the term in which its node
accepted it. In a later term another node may own the object, and may have applied this change and later changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

R = TypeVar("R")

Kept = Callable[[str], bool]
"""A function that returns whether the node has owned the object of a name without interruption until now."""


class Ownership(Protocol):
    """The objects that a data node owns at this moment."""

    @property
    def always(self) -> bool:
        """Whether this node owns everything forever, so that the other members need not be asked."""
        ...

    @property
    def shared(self) -> bool:
        """Whether another data node may serve this node's objects if this node does not answer or loses its lease."""
        ...

    @property
    def hears_all(self) -> bool:
        """Whether this node makes, or is told of, all changes that concern it; no server changes objects silently."""
        ...

    def trusts(self, name: str) -> bool:
        """Return whether no other node can change the object `name`, so a value read while this is True stays valid."""
        ...

    def changes_alone(self, name: str) -> bool:
        """Return whether only data nodes change the object `name`; False if it is derived from other data."""
        ...

    @property
    def term(self) -> int:
        """The number of times that another node has taken this node's lease away."""
        ...

    @property
    def era(self) -> object:
        """A value that changes when this node may have missed messages to all nodes, so its copies may be outdated."""
        ...

    def may_change(self, term: int) -> bool:
        """Return whether a change that was accepted in `term` may be stored or acknowledged now.

        Otherwise another node may own the object, and may have applied this change and later changes.
        """
        ...


class SoleOwnership:
    """The ownership of a data node that is alone with its store: it always owns everything."""

    always = True
    shared = False
    hears_all = True
    term = 0
    era: object = None

    def trusts(self, name: str) -> bool:
        return True

    def changes_alone(self, name: str) -> bool:
        return True

    def may_change(self, term: int) -> bool:
        return True


SOLE = SoleOwnership()


class NoOwnership(SoleOwnership):
    """The ownership of a data node that only reads a store that others may write: each read is confirmed."""

    always = False
    shared = True
    hears_all = False

    def trusts(self, name: str) -> bool:
        return False


class PartlyTrusted:
    """The ownership of `base`, except for the names for which `trusts` returns False."""

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

    def changes_alone(self, name: str) -> bool:
        return self._base.changes_alone(name) and self._trusts(name)
