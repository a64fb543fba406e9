"""A cached object: readers share one load (single flight), and several changes share one put (group commit).

Changes that arrive while a put is in flight wait and share the next put. A change is a function from the old value to
the new value, without side effects. If another writer's put came first, the change is applied again to the
newer value (optimistic concurrency). While the node does not own the object (`Ownership`), each read asks the store
whether the cached value is current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.compute import compute
from hsparse.concurrency.request_trace import (
    RequestTrace,
    begin_trace,
    count_hits,
    count_loads,
    current_trace,
    measured_wait,
)
from hsparse.dn.membership.ownership import SOLE, Ownership
from hsparse.dn.stored_form import SMALL_VALUE, ObjectMemory, ObjectState, StoredForm, load_state
from hsparse.errors import Busy, HsparseError, PreconditionFailed, Unanswered
from hsparse.storage.object_store import Buffer, Stored

V = TypeVar("V")
T = TypeVar("T")


class Base(Enum):
    """What a change needs to know of the object's current value if that value is not in memory."""

    NEEDED = "needed"
    """The change needs the value, so the value is loaded first."""
    ABSENT = "absent"
    """The object probably does not exist: it is put as a new object, and loaded only if the store refuses the put."""
    IGNORED = "ignored"
    """The change replaces any value and never raises, so nothing is loaded."""


@dataclass(frozen=True, slots=True)
class Encoded(Generic[V]):
    """A new value that a change returns with its encoded bytes, so that the codec need not encode the value."""

    value: V
    data: Buffer


@dataclass(slots=True)
class WaitingChange(Generic[V]):
    """A change, accepted in the ownership term `term`, that waits for the next put; `done` receives its result."""

    change: Callable[[V | None], tuple[V | Encoded[V] | None, Any]]
    weight: int
    base: Base
    done: asyncio.Future[Any]
    trace: RequestTrace | None
    term: int


MOST_PAUSE = 0.02
"""The longest pause after a group commit, in seconds."""


class GroupPause:
    """A pause before a group's put, in which the clients answered by the last group can send their next changes.

    Clients answered by one group send their next changes at about the same time. If the put began with the first of
    these changes, the other changes would wait for two puts. A group therefore waits until it has as many requests as
    the last group had, but not longer than the last put took.
    """

    __slots__ = ("_began", "_enough", "_requests", "_until")

    def __init__(self) -> None:
        self._requests = 0
        """The number of requests whose changes were in the last group, or waited when that group was stored."""
        self._until = 0.0
        """The end of the pause, in the event loop's time."""
        self._began = 0.0
        self._enough: asyncio.Future[None] | None = None

    def begin(self, changes: Iterable[WaitingChange[Any]]) -> None:
        """Record that a group was stored; `changes` are this group's changes and the changes of the next group."""
        self._requests = len({id(one.trace) for one in changes if one.trace is not None})
        now = asyncio.get_running_loop().time()
        self._until = now + min(now - self._began, MOST_PAUSE)

    def arrived(self, count: int) -> None:
        """End the pause if the number of waiting changes, `count`, has reached the last group's number of requests."""
        if self._enough is not None and count >= self._requests and not self._enough.done():
            self._enough.set_result(None)

    async def wait(self, count: int) -> None:
        """Wait until enough changes have arrived or the pause is over; `count` changes have arrived already."""
        loop = asyncio.get_running_loop()
        left = self._until - loop.time()
        if count < self._requests and left > 0:
            self._enough = loop.create_future()
            await asyncio.wait([self._enough], timeout=left)
            self._enough = None
        self._began = loop.time()


@dataclass(slots=True)
class AppliedGroup(Generic[V]):
    """The result of applying a group: the new value, whether to store it, its encoded data, and a result per change."""

    value: V | None
    changed: bool
    data: Any
    results: list[Any] = field(default_factory=list)


def apply_group(
    group: Sequence[WaitingChange[V]],
    state: ObjectState[V],
    encode: Callable[[ObjectState[V], V | None], Any],
) -> AppliedGroup[V]:
    """Apply the changes in order. A change that raises an `HsparseError` changes nothing; the error is its result."""
    value = state.value
    data: Any = None
    results: list[Any] = []
    # Keep futures out of this frame: the traceback of an error may reference the frame.
    for change in [waiting.change for waiting in group]:
        try:
            new, result = change(value)
        except HsparseError as error:
            # Drop the traceback: its frames reference `results`, a cycle that keeps the value until a collection.
            result = error.with_traceback(None)
        else:
            if isinstance(new, Encoded):
                value, data = new.value, new.data
            elif new is not value:
                value, data = new, None
        results.append(result)
    changed = not state.is_absent if value is None else (value is not state.value or data is not None)
    if changed and data is None:
        data = encode(state, value)
    return AppliedGroup(value, changed, data, results)


def answer_group(
    group: list[WaitingChange[V]], results: list[Any], waiting: Iterable[WaitingChange[V]], pause: GroupPause
) -> None:
    """Give each change of a group its result or error; clear `group` and `results`, which a traceback may reference."""
    pause.begin([*group, *waiting])
    for change, result in zip(group, results, strict=True):
        if change.done.done():
            continue
        if isinstance(result, BaseException):
            change.done.set_exception(result)
        else:
            change.done.set_result(result)
    group.clear()
    results.clear()


def count_commit(group: list[WaitingChange[Any]]) -> None:
    """Count a stored group and the number of its changes in the trace of the group's first change."""
    trace = group[0].trace
    if trace is not None:
        trace.commits += 1
        trace.changes += len(group)


def count_conflict(group: Iterable[WaitingChange[Any]]) -> None:
    """Count a refused put in the trace of each request in the group."""
    for waiting in group:
        if waiting.trace is not None:
            waiting.trace.conflicts += 1


class CachedObject(Generic[V]):
    """A stored object in memory: its stored form and its last known state. Not thread-safe: one event loop uses it.

    `name`, by default the key, determines which node owns the object. If `memory` is given, a caller increments `users`
    while it uses the object, and calls `release` afterwards.
    """

    __slots__ = (
        "_committing",
        "_form",
        "_load_waiters",
        "_loading",
        "_memory",
        "_outdated",
        "_ownership",
        "_pause",
        "_putting",
        "_state",
        "_unanswered",
        "_waiting",
        "key",
        "name",
        "users",
    )

    def __init__(
        self,
        form: StoredForm[V],
        ownership: Ownership = SOLE,
        name: str = "",
        memory: ObjectMemory[V] | None = None,
    ) -> None:
        self.key = form.key
        self.name = name or form.key
        self._form = form
        self._ownership = ownership
        self._memory = memory
        self._state: ObjectState[V] | None = None
        self._outdated = 0
        """The number of invalidations and puts: a load that began before the last of them is outdated."""
        self._putting: asyncio.Future[None] | None = None
        self._unanswered = False
        """Whether the store may still apply a put or delete that it has not answered."""
        self._loading: asyncio.Task[ObjectState[V]] | None = None
        self._load_waiters = 0
        """The number of callers that wait for the load."""
        self._waiting: list[WaitingChange[V]] = []
        self._committing: asyncio.Task[None] | None = None
        self._pause = GroupPause()
        self.users = 0

    @property
    def busy(self) -> bool:
        """Whether the object must stay in memory, because it is being loaded or stored."""
        return self._committing is not None or self._loading is not None

    @property
    def nbytes(self) -> int:
        """The bytes of memory that an eviction of this object frees."""
        return len(self.key) + (self._state.nbytes if self._state is not None else 0)

    def release(self) -> None:
        """Give back the memory reserved for the value, unless the object is in use."""
        if self._memory is not None and self._memory.reservation.held and not (self.users or self.busy):
            self._memory.reservation.give_back()

    def peek(self) -> tuple[bool, V | None]:
        """Return a pair: whether the value in memory is current (False during a put if `shared`), and the value."""
        state = self._state
        if state is None or not state.decoded or not state.certain or not self._is_trusted():
            return False, None
        if self._putting is not None and self._ownership.shared:
            return False, None
        return True, state.value

    def tail(self, version: Any) -> Stored | None:
        """Return the last bytes of the object if its state has this version, or None if the bytes are not in memory."""
        state = self._state
        return state.tail if state is not None and state.version == version else None

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Check the state with the store before its next use, unless this node has always owned it (see `Kept`)."""
        if kept(self.name):
            return
        self._outdated += 1
        if self._state is not None:
            self._state.certain = False

    async def read(self) -> V | None:
        """Return the committed value, or None if the store has no such object."""
        known, value = self.peek()
        if not known and self._putting is not None and self._ownership.shared:
            with measured_wait():
                await asyncio.wait([self._putting])
            known, value = self.peek()
        if known:
            count_hits()
            return value
        return (await self._loaded()).value

    async def apply(
        self,
        change: Callable[[V | None], tuple[V | Encoded[V] | None, T]],
        *,
        weight: int = 0,
        base: Base = Base.NEEDED,
        term: int | None = None,
    ) -> T:
        """Change the value and return the change's result once the new value is durable.

        `change` takes the value, or None if there is no object, and returns a pair: the new value and a result. A new
        value of None deletes the object; an identical value stores nothing. Errors of `change` are raised here.
        `weight` is the approximate bytes of its work. `term` is the ownership term that accepted it (default: current).
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        term = self._ownership.term if term is None else term
        self._waiting.append(WaitingChange(change, weight, base, done, current_trace(), term))
        self._pause.arrived(len(self._waiting))
        try:
            if self._committing is None:
                self._committing = asyncio.create_task(self._commit())
                return await done
            with measured_wait():
                return await done
        finally:
            del done  # breaks the cycle future -> error -> traceback -> this frame

    async def drain(self) -> None:
        """Wait until no group is being committed."""
        while self._committing is not None:
            await asyncio.wait([self._committing])

    async def settle(self) -> None:
        """Wait until changes accepted before this call are stored or have failed; later changes may still run."""
        if self._committing is None:
            return
        with suppress(HsparseError):  # errors of the other changes reach their own callers
            await self.apply(lambda value: (value, None))

    async def _loaded(self) -> ObjectState[V]:
        """Load and return the state; while no other node can change the object, concurrent callers share one load."""
        if self._unanswered or not self._is_trusted():
            return await self._load()  # a load that began earlier may return a state that is too old
        if self._loading is None:
            self._load_waiters = 0
            self._loading = asyncio.create_task(self._load_once())
            return await self._wait_for(self._loading)
        with measured_wait():
            return await self._wait_for(self._loading)

    async def _wait_for(self, loading: asyncio.Task[ObjectState[V]]) -> ObjectState[V]:
        """Await a load that other callers may share; the last caller to give up cancels the load."""
        self._load_waiters += 1
        try:
            return await asyncio.shield(loading)
        finally:
            if loading is self._loading:
                self._load_waiters -= 1
                if not self._load_waiters:
                    self._loading = None
                    loading.cancel()
            del loading  # breaks the cycle task -> error -> traceback -> this frame

    async def _load_once(self) -> ObjectState[V]:
        try:
            return await self._load()
        finally:
            if self._loading is asyncio.current_task():
                self._loading = None
            self.release()

    async def _load(self) -> ObjectState[V]:
        """Read and return the state; cache it unless the object was changed or invalidated during the read."""
        certain, outdated = self._is_trusted() and not self._unanswered, self._outdated
        state = await self._stored_state()
        if self._outdated == outdated:
            state.certain = certain
            self._state = state
        return state

    async def _stored_state(self) -> ObjectState[V]:
        """Return the state of the object in the store; the value is read again only if it has changed."""
        known = self._state
        if known is not None and known.decoded and await self._form.is_current(known):
            return known
        count_loads()
        return await load_state(self._form)

    async def _commit(self) -> None:
        try:
            while self._waiting:
                await self._pause.wait(len(self._waiting))
                group, self._waiting = self._waiting, []
                begin_trace(group[0].trace)  # changes the context of this task only
                try:
                    results = await self._commit_group(group)
                except Exception as error:  # noqa: BLE001 - raised in each waiting request
                    self._state = None
                    results = [error] * len(group)
                answer_group(group, results, self._waiting, self._pause)
        finally:
            self._committing = None
            self.release()

    async def _commit_group(self, group: list[WaitingChange[V]]) -> list[Any]:
        """Apply a group of changes and store the new value; return a result for each change."""
        base, term = group[0].base, min([waiting.term for waiting in group])
        for _ in range(MAX_CHANGE_ATTEMPTS):
            remembered = self._state is not None or self._loading is not None
            state = await self._known(base)
            if self._memory is not None and state.value is not None and state.nbytes > SMALL_VALUE:
                await self._memory.reservation.take(self._memory.encode_bound(state.value))
            weight = state.nbytes // self._form.speed + sum([waiting.weight for waiting in group])
            applied = await compute(weight, apply_group, group, state, self._form.encode)
            try:
                if applied.changed:
                    await self._put(state, applied, term)
                    self._check(term)
                    count_commit(group)
                elif remembered:
                    await self._confirm(state)
            except PreconditionFailed:
                count_conflict(group)
                self._state = await self._form.glimpse() if base is Base.IGNORED else None
                base = base if base is Base.IGNORED else Base.NEEDED
                continue
            return applied.results
        raise Busy(f"Other writers kept changing {self.key}; try again.")

    async def _known(self, base: Base) -> ObjectState[V]:
        """Return the state to which a group is applied; it is loaded if `base`, of the first change, requires that."""
        state = self._state
        if state is not None and (state.decoded or base is Base.IGNORED):
            count_hits()
            return state
        if base is not Base.NEEDED and state is None:
            return ObjectState(None, None, decoded=False)
        return await self._loaded()

    def _is_trusted(self) -> bool:
        """Return whether no other node can change the object."""
        return self._ownership.always or self._ownership.trusts(self.name)

    def _check(self, term: int) -> None:
        """Raise `Unanswered` if another node may own the object by now: a put could undo the new owner's changes."""
        if not (self._ownership.always or self._ownership.may_change(term)):
            raise Unanswered(f"Another node may own {self.key} by now; try again.")

    async def _put(self, state: ObjectState[V], group: AppliedGroup[V], term: int) -> None:
        """Store the new value of a group in place of `state`, or delete the object if the value is None."""
        if group.value is None and not state.decoded and state.version is None:
            # Delete only a known version: the store may still carry out a deletion that was given up and sent again.
            raise PreconditionFailed(f"{self.key} must be read before it is deleted.")
        self._check(term)
        certain, outdated = self._is_trusted(), self._outdated
        self._putting = asyncio.get_running_loop().create_future()
        try:
            if group.value is None:
                stored = await self._form.delete(state, group.data)
            else:
                stored = await self._form.put(state, group.value, group.data)
            self._unanswered = False
        except PreconditionFailed:
            raise
        except BaseException:
            self._unanswered = True
            raise
        finally:
            self._putting.set_result(None)
            self._putting = None
        stored.certain = certain and self._outdated == outdated
        self._state = stored
        self._outdated += 1

    async def _confirm(self, state: ObjectState[V]) -> None:
        """Raise `PreconditionFailed` if the store no longer holds `state`.

        A group that puts nothing, because its changes keep or refuse the remembered value, needs this check: without a
        put, a change by another node would go unnoticed.
        """
        if not await self._form.is_current(state):
            raise PreconditionFailed(f"{self.key} was changed by another node; read it again.")
