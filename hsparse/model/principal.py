"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS_NAME = "anonymous"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user, or the anonymous one; an admin has every right in every domain."""

    name: str
    admin: bool = False
    groups: frozenset[str] = frozenset()

    @property
    def anonymous(self) -> bool:
        return self.name == ANONYMOUS_NAME


ANONYMOUS = Principal(ANONYMOUS_NAME)
