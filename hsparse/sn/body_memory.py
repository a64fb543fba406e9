"""Memory for the bodies of requests, taken as they arrive: what a client announces and does not send takes none.

Bodies that grow side by side could fill the memory so that none of them can be finished. So half of it is for growing,
and a body that finds no room there takes what it lacks of the other half at once, in its turn, and then needs no more.

What JSON becomes has memory of its own, half as much again, which is taken at once when the body is there.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from hsparse.concurrency.memory_budget import MemoryBudget

FIRST = 16 * 1024
"""Bytes that a body takes when the first of it arrives; then twice what it had, each time."""


class BodyBudget:
    """The memory for all bodies, `limit` bytes, and half as much for the values of those that are JSON."""

    def __init__(self, limit: int) -> None:
        self.growing = MemoryBudget(limit // 2)
        self.rest = MemoryBudget(limit - limit // 2)
        self.values = MemoryBudget(limit // 2)

    @property
    def used(self) -> int:
        """Bytes that bodies have taken."""
        return self.growing.used + self.rest.used


class BodyMemory:
    """The memory of one body."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._held = AsyncExitStack()
        self._value = AsyncExitStack()
        self._nbytes = 0

    async def aclose(self) -> None:
        """Give all of it back."""
        await self.drop_value()
        await self._held.aclose()

    @property
    def nbytes(self) -> int:
        """Bytes that are taken: those that have arrived, or up to twice as many."""
        return self._nbytes

    def has_room(self, nbytes: int) -> bool:
        """Return whether `grow` to so many bytes would not wait."""
        return nbytes <= self._nbytes or self._budget.growing.has_room(self._step(nbytes, nbytes))

    async def grow(self, nbytes: int, most: int) -> None:
        """Have memory for `nbytes` of a body of at most `most`; `Busy` if there is none in time."""
        if nbytes <= self._nbytes:
            return
        step, budget = self._step(nbytes, most), self._budget.growing
        if not budget.has_room(step):
            step, budget = most - self._nbytes, self._budget.rest
        await self._held.enter_async_context(budget.hold(step))
        self._nbytes += step

    def has_room_for_value(self, nbytes: int) -> bool:
        """Return whether `hold_value` would not wait."""
        return self._budget.values.has_room(nbytes)

    async def hold_value(self, nbytes: int) -> None:
        """Have memory for what the body becomes, all of it for more than there is; `Busy` if there is none in time."""
        await self._value.enter_async_context(self._budget.values.hold(nbytes))

    async def drop_value(self) -> None:
        """Give back what `hold_value` took."""
        await self._value.aclose()

    def _step(self, nbytes: int, most: int) -> int:
        return min(max(nbytes, 2 * self._nbytes, FIRST), max(nbytes, most)) - self._nbytes
