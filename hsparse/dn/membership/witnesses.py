"""Witnesses: nodes outside the membership that ask about a member which does not answer them.

A member that they reach is not the one that is cut off.
"""

from __future__ import annotations

import asyncio

FRESH = 0.25
"""Seconds for which it counts that somebody has asked: this node may have been cut off after it."""


class Witnesses:
    """The times at which service nodes, and nodes that join, asked about members."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def note(self, member: str) -> None:
        """Note that somebody outside asks about a member, now."""
        now = asyncio.get_running_loop().time()
        self._times = {one: time for one, time in self._times.items() if now - time <= FRESH}
        self._times[member] = now
        async with self._changed:
            self._changed.notify_all()

    async def ask_about(self, member: str, patience: float) -> bool:
        """Wait until somebody asks about a member who has just asked, or asks again; False if nobody does in time."""
        loop = asyncio.get_running_loop()

        def is_fresh() -> bool:
            return member in self._times and loop.time() - self._times[member] <= FRESH

        try:
            async with asyncio.timeout(patience), self._changed:
                return await self._changed.wait_for(is_fresh)
        except TimeoutError:
            return False
