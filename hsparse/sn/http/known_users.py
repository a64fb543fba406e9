"""Whose credentials were valid: to take turns by user before a request is authenticated, and for nothing else."""

from __future__ import annotations

MOST = 10_000
"""Credentials that are remembered; the one that was used least recently is forgotten first."""


class KnownUsers:
    """Users by their `Authorization` headers, of which only hashes are kept; None is a request without one."""

    def __init__(self) -> None:
        self._users: dict[int, str] = {}

    def learn(self, authorization: str | None, user: str) -> None:
        """Remember that a credential was valid for a user."""
        key = hash(authorization)
        self._users.pop(key, None)
        self._users[key] = user
        if len(self._users) > MOST:
            del self._users[next(iter(self._users))]

    def get(self, authorization: str | None) -> str | None:
        """Return the user for whom a credential was last valid, None if it is unknown."""
        return self._users.get(hash(authorization))
