"""How many users there are now."""

from __future__ import annotations

SECONDS = 1.0
"""A user who came in this time, or in the one before it, is there."""


class RecentUsers:
    """Users who came a moment ago."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._before: set[str] = set()
        self._since = 0.0

    def __len__(self) -> int:
        return max(len(self._now), len(self._before))

    def add(self, user: str, now: float) -> None:
        """Note that a user came at a time."""
        if now - self._since >= SECONDS:
            self._before = self._now if now - self._since < 2 * SECONDS else set()
            self._now, self._since = set(), now
        self._now.add(user)
