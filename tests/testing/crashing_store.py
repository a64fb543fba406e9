"""A store wrapper that simulates a process crash.

A `CrashingStore` is one process's view of a store that outlives the process. At a `CrashPoint`, a call fails or the
process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hsparse.errors import StoreFailed
from hsparse.storage.object_store import Buffer, ObjectStore
from tests.testing.faulty_store import CHANGES
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The call that fails: a call of one of `methods`, after `skip` such calls. With `applied` it is applied first.

    A `fatal` crash point ends the process: that call and all later ones never return. Otherwise only that call
    fails.
    """

    skip: int
    applied: bool
    fatal: bool
    methods: tuple[str, ...] = CHANGES


class CrashingStore(StoreWrapper):
    """One process's view of a store. `died` is set when the process ends; calls sent earlier are still applied.

    `close` leaves the wrapped store open for the next process.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.died = asyncio.Event()
        self._crash_point: CrashPoint | None = None
        self._skip = 0
        self._sent: set[asyncio.Future[Any]] = set()

    def arm(self, crash_point: CrashPoint | None) -> None:
        """Set the next crash point, or remove it with None."""
        self._crash_point = crash_point
        self._skip = crash_point.skip if crash_point is not None else 0

    async def settle(self) -> None:
        """Wait until all sent calls are applied, so that no call of a dead process is applied later."""
        while self._sent:
            await asyncio.wait(self._sent)

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        await self._live()
        crash_point = self._reach_crash_point(method)
        if crash_point is None or crash_point.applied:
            result = await asyncio.shield(self._send(call, data))
            await self._live()
            if crash_point is None:
                return result
        if crash_point.fatal:
            self.died.set()
            await self._live()
        raise StoreFailed(f"A scripted fault met {method!r} of {key!r}.")

    async def close(self) -> None:
        """Leave the wrapped store open."""

    def _reach_crash_point(self, method: str) -> CrashPoint | None:
        crash_point = self._crash_point
        if crash_point is None or method not in crash_point.methods:
            return None
        if self._skip:
            self._skip -= 1
            return None
        self._crash_point = None
        return crash_point

    def _send(self, call: Callable[[Buffer], Awaitable[R]], data: Buffer) -> asyncio.Future[R]:
        sent = asyncio.ensure_future(call(data))
        self._sent.add(sent)
        sent.add_done_callback(self._sent.discard)
        return sent

    async def _live(self) -> None:
        """Return only while the process lives; in a dead process, wait until cancelled."""
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()
