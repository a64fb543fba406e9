"""Memory budgets for request bodies. Memory is taken as bytes arrive, so that announced bytes alone take none.

Bodies that grow concurrently could use up one budget so that none of them can finish. Bodies therefore grow in one half
of the memory. A body that finds no room there waits until the other half has room for all bytes that it still needs.
It can then finish.

The values parsed from JSON have a third budget, of half the size, which is taken at once when the body is complete.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from hsparse.concurrency.memory_budget import MemoryBudget

FIRST_STEP_BYTES = 16 * 1024
"""Bytes that a body takes when its first bytes arrive. Each further step doubles this."""


class BodyBudget:
    """The memory budgets of a node: `limit` bytes for bodies, and half of that for values parsed from JSON."""

    def __init__(self, limit: int) -> None:
        self.growing = MemoryBudget(limit // 2)
        self.rest = MemoryBudget(limit - limit // 2)
        self.values = MemoryBudget(limit // 2)

    @property
    def used(self) -> int:
        """Bytes that all bodies have taken."""
        return self.growing.used + self.rest.used


class BodyMemory:
    """The memory that one request body has taken from a `BodyBudget`."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._held = AsyncExitStack()
        self._value = AsyncExitStack()
        self._nbytes = 0

    async def aclose(self) -> None:
        """Release all memory of the body."""
        await self.drop_value()
        await self._held.aclose()

    @property
    def nbytes(self) -> int:
        """The number of bytes taken: at least the bytes that have arrived, and at most about twice as many."""
        return self._nbytes

    def has_room(self, nbytes: int) -> bool:
        """Return whether `grow(nbytes, nbytes)` would succeed without waiting."""
        return nbytes <= self._nbytes or self._budget.growing.has_room(self._step(nbytes, nbytes))

    async def grow(self, nbytes: int, most: int) -> None:
        """Take memory for the first `nbytes` of a body of at most `most` bytes; raise `Busy` if it waits too long."""
        if nbytes <= self._nbytes:
            return
        step, budget = self._step(nbytes, most), self._budget.growing
        if not budget.has_room(step):
            step, budget = most - self._nbytes, self._budget.rest
        await self._held.enter_async_context(budget.hold(step))
        self._nbytes += step

    def has_room_for_value(self, nbytes: int) -> bool:
        """Return whether `hold_value(nbytes)` would succeed without waiting."""
        return self._budget.values.has_room(nbytes)

    async def hold_value(self, nbytes: int) -> None:
        """Take `nbytes`, at most the whole budget, for the parsed body; raise `Busy` if the wait is too long."""
        await self._value.enter_async_context(self._budget.values.hold(nbytes))

    async def drop_value(self) -> None:
        """Release the memory taken by `hold_value`."""
        await self._value.aclose()

    def _step(self, nbytes: int, most: int) -> int:
        return min(max(nbytes, 2 * self._nbytes, FIRST_STEP_BYTES), max(nbytes, most)) - self._nbytes
