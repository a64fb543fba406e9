"""Stores that fail, hang or die when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hsparse.errors import HsparseError, StoreFailed
from hsparse.storage.object_store import Buffer, ObjectStore, Stored
from tests.testing.store_wrapper import METHODS, StoreWrapper

R = TypeVar("R")
GETS = ("get", "get_range")
PUTS = ("put", "put_if_absent", "put_if_match")
DELETES = ("delete", "delete_if_match")


@dataclass(slots=True, eq=False)
class Fault:
    """A fault of the next `times` calls of `methods` on `key` (None: any key).

    `before` is raised instead of applying the call, `after` after applying it. `sent` changes the data of puts, `got`
    the data of gets. `entered` is set when a call meets the fault; a hanging call continues after `release()`.
    """

    methods: tuple[str, ...]
    key: str | None = None
    times: int = 1
    before: HsparseError | None = None
    after: HsparseError | None = None
    hang: bool = False
    hang_after: bool = False
    sent: Callable[[bytes], bytes] | None = None
    got: Callable[[bytes], bytes] | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def holding(self, call: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Begin a call; return its task once it meets this fault."""
        task = asyncio.create_task(call)
        await self.entered.wait()
        return task

    def release(self) -> None:
        """Let hanging calls continue."""
        self.released.set()


class FaultyStore(StoreWrapper):
    """A store whose calls meet the faults of a script; each call meets the first matching fault that is not used up.

    The methods that add a fault take the name of a store method, or `gets`, `puts`, `deletes` or `all`, and a key
    (None: any key). They return the fault, whose `entered` event is set when a call has met it.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.script: list[Fault] = []

    def fail_before(
        self, method: str, key: str | None = None, *, times: int = 1, error: HsparseError | None = None
    ) -> Fault:
        """Fail calls without applying them, as when a request is lost."""
        return self._add(Fault(_methods(method), key, times, before=error or _lost(method)))

    def fail_after(
        self, method: str, key: str | None = None, *, times: int = 1, error: HsparseError | None = None
    ) -> Fault:
        """Apply calls, then fail, as when a reply is lost."""
        return self._add(Fault(_methods(method), key, times, after=error or _lost(method)))

    def hang(self, method: str, key: str | None = None, *, times: int = 1, applied: bool = False) -> Fault:
        """Hold calls until released: before they are applied or, with `applied`, before they return."""
        return self._add(Fault(_methods(method), key, times, hang=not applied, hang_after=applied))

    def flip(self, key: str | None = None, *, offset: int = 0, mask: int = 1, times: int = 1) -> Fault:
        """Flip the bits `mask` in the byte at `offset` (from the end, if negative) of the data that gets return."""

        def flipped(data: bytes) -> bytes:
            changed = bytearray(data)
            changed[offset] ^= mask
            return bytes(changed)

        return self._add(Fault(GETS, key, times, got=flipped))

    def truncate(self, key: str | None = None, *, keep: int, times: int = 1) -> Fault:
        """Cut the data that gets return to the first `keep` bytes."""
        return self._add(Fault(GETS, key, times, got=lambda data: data[:keep]))

    def tear(self, key: str | None = None, *, keep: int, times: int = 1) -> Fault:
        """Store only the first `keep` bytes of puts, then fail; no store may do this, but a disk can."""
        return self._add(Fault(PUTS, key, times, sent=lambda data: data[:keep], after=_lost("put")))

    def clear(self) -> None:
        """Clear the script and release all hanging calls."""
        for fault in self.script:
            fault.release()
        self.script.clear()

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        fault = self._next(method, key)
        if fault is None:
            return await call(data)
        fault.entered.set()
        if fault.hang:
            await fault.released.wait()
        if fault.before is not None:
            raise copy(fault.before)
        result = await call(data if fault.sent is None else fault.sent(bytes(data)))
        if fault.hang_after:
            await fault.released.wait()
        if fault.after is not None:
            raise copy(fault.after)
        return _changed(result, fault.got)

    def _add(self, fault: Fault) -> Fault:
        self.script.append(fault)
        return fault

    def _next(self, method: str, key: str) -> Fault | None:
        for fault in self.script:
            if fault.times > 0 and method in fault.methods and fault.key in (None, key):
                fault.times -= 1
                return fault
        return None


def _changed(result: R, change: Callable[[bytes], bytes] | None) -> R:
    if change is None or not isinstance(result, Stored):
        return result
    stored: Any = replace(result, data=change(result.data))
    return stored  # type: ignore[no-any-return]  # R is Stored here


def _methods(method: str) -> tuple[str, ...]:
    names = {"gets": GETS, "puts": PUTS, "deletes": DELETES, "all": METHODS}.get(method, (method,))
    assert set(names) <= set(METHODS), f"{method!r} is no method of a store"
    return names


def _lost(method: str) -> StoreFailed:
    return StoreFailed(f"A scripted fault met {method!r}; the script of the test has it.")


CHANGES = (*PUTS, *DELETES)


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
