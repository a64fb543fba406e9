"""A store seen from a process that dies, or whose network fails, at a chosen call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hsparse.errors import StoreFailed
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.testing.store_wrapper import StoreWrapper

R = TypeVar("R")
CHANGES = ("put", "put_if_absent", "put_if_match", "delete")


@dataclass(frozen=True, slots=True)
class Moment:
    """When it happens: at the call of `methods` after `skip` others; once that call is `applied`, or before.

    A `fatal` one is the process's end: that call and all later ones are never answered. One that is not
    fails that call.
    """

    skip: int
    applied: bool
    fatal: bool
    methods: tuple[str, ...] = CHANGES


class MortalStore(StoreWrapper):
    """One process's view of a store. `died` is set at its end; what it had sent before is still applied.

    `close` leaves the store open, for the process that comes after.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.died = asyncio.Event()
        self._moment: Moment | None = None
        self._skip = 0
        self._sent: set[asyncio.Future[Any]] = set()

    def arm(self, moment: Moment | None) -> None:
        """Let `moment` come, or none any more."""
        self._moment = moment
        self._skip = moment.skip if moment is not None else 0

    async def settle(self) -> None:
        """Wait until what was sent is applied: nothing that a dead process sent happens after this."""
        while self._sent:
            await asyncio.wait(self._sent)

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        await self._live()
        moment = self._met(method)
        if moment is None or moment.applied:
            result = await asyncio.shield(self._send(call, data))
            await self._live()
            if moment is None:
                return result
        if moment.fatal:
            self.died.set()
            await self._live()
        raise StoreFailed(f"A scripted fault met {method!r} of {key!r}.")

    async def close(self) -> None:
        """Leave the store open."""

    def _met(self, method: str) -> Moment | None:
        moment = self._moment
        if moment is None or method not in moment.methods:
            return None
        if self._skip:
            self._skip -= 1
            return None
        self._moment = None
        return moment

    def _send(self, call: Callable[[Buffer], Awaitable[R]], data: Buffer) -> asyncio.Future[R]:
        sent = asyncio.ensure_future(call(data))
        self._sent.add(sent)
        sent.add_done_callback(self._sent.discard)
        return sent

    async def _live(self) -> None:
        """Go on only while the process lives; what is dead waits until it is cancelled."""
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()
