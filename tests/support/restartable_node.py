"""A data node of a process that is started, stopped or killed, over a store that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from hsparse.clock import SystemClock
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SOLE, Ownership, SoleOwnership
from hsparse.dn.service import DataService
from hsparse.storage.object_store import ObjectStore
from tests.support.driver import Driver, NotDone
from tests.testing.faulty_store import CrashingStore, CrashPoint

OpenDriver = Callable[..., Awaitable[Driver]]
Wrap = Callable[[ObjectStore, Ownership], tuple[ObjectStore, Ownership]]
"""What an extension gives a data node in place of its store and its ownership."""


class Doubtful(SoleOwnership):
    """The ownership of a node beside which another one owns the same objects, and is told of the same."""

    always = False
    shared = True

    def trusts(self, name: str) -> bool:
        return False


class RestartableNode:
    """One data node and the driver to it. `cache_size` in bytes."""

    def __init__(
        self,
        store: ObjectStore,
        open_driver: OpenDriver,
        *,
        cache_size: int = 2**27,
        ownership: Ownership = SOLE,
        wrap: Wrap = lambda store, ownership: (store, ownership),
    ) -> None:
        self.store = CrashingStore(store)
        self._open_driver = open_driver
        settings = DataSettings(cache_size=cache_size)
        wrapped, owned = wrap(self.store, ownership)
        self._node = DataService(wrapped, SystemClock(), settings, ownership=owned)
        self.driver: Driver

    async def start(self, *others: RestartableNode) -> RestartableNode:
        """Let its driver ask this node, and tell `others` what all nodes are told."""
        self.driver = await self._open_driver(self._node, *(one._node for one in others))
        return self

    async def attempt(self, work: Coroutine[Any, Any, None], crash_point: CrashPoint | None) -> bool:
        """Do `work` while `crash_point` may come; say whether it was acknowledged. Look at `store.died` after it."""
        self.store.arm(crash_point)
        doing = asyncio.create_task(work)
        dying = asyncio.create_task(self.store.died.wait())
        await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
        self.store.arm(None)
        if not doing.done():
            return False
        dying.cancel()
        try:
            await doing
        except NotDone:
            return False
        return True

    async def stop(self) -> None:
        """End it as a signal to stop does: what was accepted is finished."""
        await self.driver.close()
        await self._node.close()

    async def kill(self) -> None:
        """End it as `kill -9` does: only what it had sent to the store still happens.

        Every other task of this event loop is taken for the process's and cancelled.
        """
        self.store.died.set()
        await self.store.settle()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            # A task loses a cancellation to a timeout of its own that passes in the same step: it is sent again.
            await asyncio.wait(others, timeout=1)
        await self.stop()
