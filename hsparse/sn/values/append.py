"""Appends: grow a dataset and write its new elements, as one visible change.

An append reserves a range of indices at an end of a dimension, writes the elements there, and then grows the extent
over them. Readers see either the old extent or all new elements. If an append fails, the extent stays as it was and the
written elements are erased (`hsparse.model.dataset_state`). Because an append takes three consecutive puts, appends
that arrive while another is under way share their puts (group commit): a group reserves one range, writes each chunk
once, and becomes visible at once.

Tests: tests/sn/values/test_append.py, tests/sn/values/test_append_groups.py, tests/sn/values/test_idempotency.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.clock import Clock
from hsparse.errors import BadRequest, Busy, Conflict, HsparseError, Moved, TooLarge
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.format.selections.signed_extent import SignedExtent, corner_of, first_of
from hsparse.model.dataset_state import (
    appended_before,
    appended_parts,
    is_trimmed,
    part_starts,
    part_with_key,
)
from hsparse.model.dataspace import lower_of
from hsparse.model.json_values import Values
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import VlenArray, join_elements
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.service import Service
from hsparse.wire.message import Failure
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend

LEASE_SECONDS = 10.0
"""Seconds after which an append that is under way expires unless its service node renews its lease."""
RENEWAL_SECONDS = LEASE_SECONDS / 3
"""Seconds after which a service node that is still writing an append's elements renews the lease."""
LEAST_WAIT, MOST_WAIT = 0.001, 0.05
"""The minimum and maximum of seconds between two checks whether the appends for which an append waits have ended."""
EXPIRY_CHECK_SECONDS = 1.0
"""Seconds of waiting after which the service node sends a message that makes the data node drop expired appends."""
MOST_PAUSE = 0.02
"""The maximum number of seconds that a group waits for further members after the previous group has ended."""
MOST_APPENDS, MOST_BYTES = 256, 16 * 1024 * 1024
"""The most appends of a group, and the most bytes of their values and coordinates: joining them takes 2 to 4 ms."""
MIN_LONE_APPEND_BYTES = 1024 * 1024
"""Appends of at least this many bytes are written alone, because a group saves puts but not the time for bytes."""

LOWER, UPPER = "lower", "upper"
"""The names of the ends of a dimension in requests and records."""

Load = Callable[[], Awaitable[StoredDataset]]
"""A function that loads the current dataset."""
Prepare = Callable[[StoredDataset], AbstractAsyncContextManager[tuple[Selection, Values]]]
"""A function of an append's slab (`Append.slab`) that yields the selection in it and the values to write."""
Write = Callable[[StoredDataset, Selection, Values], Awaitable[None]]
"""A function that writes values to a selection in a dataset."""


@dataclass(frozen=True, slots=True)
class Append:
    """An append: dimension `dim` grows by `count` at its upper end or, with `below`, at its lower end."""

    count: int
    dim: int
    below: bool = False

    def slab(self, dataset: StoredDataset) -> StoredDataset:
        """Return the slab of new elements, as a dataset; the request's selection is resolved in its extent.

        Raises `BadRequest` if the dataset cannot be appended to.
        """
        dataset.require_writable()
        if self.dim >= len(dataset.extent):
            raise BadRequest(f"append_dim is {self.dim}, but {dataset.id} has rank {len(dataset.extent)}.")
        if self.below and not isinstance(dataset.extent, SignedExtent):
            raise BadRequest(f"{dataset.id} has no lower bound: append at its upper end (append_side=upper).")
        return dataset.slab(self.dim, self.count)

    def select(self, dataset: StoredDataset, start: int) -> str:
        """Return the select string of the new elements, which begin at the index `start` (signed with lower bounds).

        If the request counts from the lower bounds, the string is relative to the dataset as loaded, after this append.
        """
        if isinstance(dataset.extent, SignedExtent) and not dataset.extent.in_places:
            start = max(0, start - dataset.record["shape"]["lower"][self.dim])
        axes = [":"] * len(dataset.extent)
        axes[self.dim] = f"{start}:{start + self.count}"
        return f"[{','.join(axes)}]"

    def require_same(self, dataset: StoredDataset, dim: int, count: int, side: str) -> None:
        """Raise `BadRequest` unless this append equals an earlier append with its key: `dim`, `count` and `side`."""
        if (dim, count, side == LOWER) != (self.dim, self.count, self.below):
            raise BadRequest(
                f"The Idempotency-Key was used to append {count} elements to dimension {dim} of {dataset.id}: give "
                "each request a key of its own."
            )


def parse_append(count: Any, dim: Any, side: Any = None) -> Append | None:
    """Return the `Append` of a request, or None if `count` is missing; raise `BadRequest` for a malformed parameter."""
    if count is None or count is False:
        return None
    below = parse_side(side, "append_side")
    for name, value in (("append", count), ("append_dim", dim or 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest(f"{name} must be a non-negative integer, not {short_repr(value)}.")
    return Append(count, dim or 0, below)


def parse_side(side: Any, name: str) -> bool:
    """Return whether `side` is `lower`, not `upper` (the default); raise `BadRequest` for other values."""
    if side not in (None, "", UPPER, LOWER):
        raise BadRequest(f"{name} must be {UPPER} or {LOWER}, not {short_repr(side)}.")
    return bool(side == LOWER)


@dataclass(slots=True, eq=False)
class _Member:
    """An append that is ready to be written to a `selection` of `slab`; its group sets `start`, if it joins a group."""

    append: Append
    slab: StoredDataset
    selection: Selection
    values: Values
    write: Write
    key: str
    start: asyncio.Future[int] | None = None
    variables: Variables | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the selection is all elements of the slab, in order."""
        return isinstance(self.selection, Orthogonal) and self.selection.is_all

    @property
    def nbytes(self) -> int:
        """The bytes that the append's values and coordinates take when they are joined with those of other appends."""
        repeated = self.selection.size if self.values.size == 1 else 1
        places = 0 if self.is_whole else self.selection.size * 8 * len(self.slab.extent)
        return self.values.nbytes * repeated + places

    def kind(self, how: Hashable) -> Hashable:
        """Return a key that is equal for appends that one write can carry out; `how` is as in `AppendGroups.apply`."""
        dim, extent = self.append.dim, self.slab.extent
        values = "vlen" if isinstance(self.values, VlenArray) else self.values.dtype
        whole = self.is_whole and not isinstance(self.values, VlenArray)
        bounds = (self.append.below, extent.lower) if isinstance(extent, SignedExtent) else ()
        return (self.slab.id, dim, extent[:dim], extent[dim + 1 :], bounds, values, whole, how)


@dataclass(slots=True)
class _AppendQueue:
    """The queue of appends of one kind: whether a group is under way, and the appends that wait for it.

    Clients answered by one group send their next appends at about the same time. The next group therefore waits until
    as many appends have arrived, but not longer than the previous group took. A group that began with the first append
    to arrive would leave all others to the group after it.
    """

    is_busy: bool = False
    waiting: list[_Member] = field(default_factory=list)
    clients: int = 1
    """The number of appends that the last group answered, plus those that waited when it ended."""
    pause: asyncio.TimerHandle | None = None
    """The timer that is set when a group ends; while it runs, the next group waits for the clients."""

    def may_begin(self, count: int) -> bool:
        """Return whether a group of `count` appends may begin now."""
        return not self.is_busy and count > 0 and (count >= self.clients or self.pause is None)

    def end(self, size: int, pause: asyncio.TimerHandle) -> None:
        """Note that a group of `size` appends has ended; `pause` is the timer of the wait for the next group."""
        self.is_busy = False
        self.clients = min(size + len(self.waiting), MOST_APPENDS)
        if self.pause is not None:
            self.pause.cancel()
        self.pause = pause

    def take(self) -> list[_Member]:
        """Remove and return the next group, in which no idempotency key occurs twice."""
        size, nbytes, keys = 0, 0, set[str]()
        for member in self.waiting[:MOST_APPENDS]:
            nbytes += member.nbytes
            if size and (nbytes > MOST_BYTES or member.key in keys):
                break
            keys |= {member.key} - {""}
            size += 1
        group, self.waiting = self.waiting[:size], self.waiting[size:]
        return group


class AppendGroups:
    """Group commit of a service node's appends: appends that wait for another append are written as one append.

    One group of each kind is under way at a time. Two groups, each with half of the clients, would take twice as many
    puts and be slower, because both change the dataset's record. If no group is under way, a request writes its append
    itself. A group is written in a separate task, which continues if one of its requests is cancelled.
    """

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self._owners = owners
        self._clock = clock
        self._lines: dict[Hashable, _AppendQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the append groups of a service."""
        return cls(service.owners, service.clock)

    async def apply(
        self,
        append: Append,
        load: Load,
        prepare: Prepare,
        write: Write,
        key: str = "",
        how: Hashable = (),
    ) -> str:
        """Append to the dataset that `load` returns; when the elements are visible, return their select string.

        The `write` of one request may be called with the elements of several requests whose `how` is equal. If elements
        were already appended with the idempotency key `key`, they are not appended again. Raises `BadRequest` if the
        key was used for a different append, `Busy` after too many attempts.
        """
        for _ in range(MAX_CHANGE_ATTEMPTS):
            dataset = await load()
            slab = append.slab(dataset)
            before = await self._appended_before(append, slab, key)
            if before is not None:
                return before
            async with prepare(slab) as (selection, values):
                if not append.count:
                    at = lower_of(dataset.record["shape"]) if append.below else dataset.extent
                    return append.select(slab, at[append.dim] + corner_of(at)[append.dim])
                if is_trimmed(dataset.record):
                    await finish_trim(self._owners, dataset.record)
                member = _Member(append, slab, selection, values, write, key)
                with suppress(Moved):
                    return append.select(slab, await self._join(member, how))
            await self._others(append, dataset.id)
        raise Busy(f"The extent of {dataset.id} kept changing while it was appended to; try again.")

    async def _appended_before(self, append: Append, dataset: StoredDataset, key: str) -> str | None:
        """Return the select string of the elements appended with `key`, or None; wait for an append under way."""
        record = dataset.record
        while key:
            if (before := appended_before(record, key)) is not None:
                append.require_same(dataset, before["dim"], before["count"], before.get("side", UPPER))
                return append.select(dataset, before["start"])
            if (begun := part_with_key(record, key)) is None:
                return None
            # Another request is appending these elements: writing them again could undo writes that follow that append.
            append.require_same(dataset, record["appends"]["dim"], begun["count"], begun.get("side", UPPER))
            await self._while_begun(dataset.id, begun["token"])
            record = await self._owners.record(dataset.id)
        return None

    async def _join(self, member: _Member, how: Hashable) -> int:
        """Append `member`, alone or in a group; return its first index. Raise `Moved` if the caller must try again."""
        if member.nbytes >= MIN_LONE_APPEND_BYTES:
            return (await self._write([member]))[0]
        kind, loop = member.kind(how), asyncio.get_running_loop()
        line, began = self._lines.setdefault(kind, _AppendQueue()), loop.time()
        if not line.waiting and line.may_begin(1):
            line.is_busy = True
            try:
                return (await self._write([member]))[0]
            finally:
                self._end(kind, line, 1, began)
        member.start, member.variables = loop.create_future(), copy_context()
        line.waiting.append(member)
        self._begin(kind, line)
        try:
            return await member.start
        except asyncio.CancelledError:
            with suppress(ValueError):
                line.waiting.remove(member)
            raise

    def _begin(self, kind: Hashable, line: _AppendQueue) -> None:
        """Begin the next group of the queue `line` if `may_begin` allows it; drop the queue if it is idle and empty."""
        if line.may_begin(len(line.waiting)):
            group = line.take()
            line.is_busy = True
            # The task runs in the context of the last member, whose deadline is the latest.
            task = asyncio.get_running_loop().create_task(
                self._carry_out(kind, line, group), context=group[-1].variables
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not line.is_busy and not line.waiting and line.pause is None:
            del self._lines[kind]

    def _end(self, kind: Hashable, line: _AppendQueue, size: int, began: float) -> None:
        """Note that a group of `size` appends has ended; begin the next group now or after a pause."""
        loop = asyncio.get_running_loop()
        line.end(size, loop.call_later(min(loop.time() - began, MOST_PAUSE), self._end_pause, kind, line))
        self._begin(kind, line)

    def _end_pause(self, kind: Hashable, line: _AppendQueue) -> None:
        line.pause = None
        self._begin(kind, line)

    async def _carry_out(self, kind: Hashable, line: _AppendQueue, group: list[_Member]) -> None:
        """Append a group, and set the result of each member's `start`."""
        waiting, began = (
            [one.start for one in group if one.start is not None],
            asyncio.get_running_loop().time(),
        )
        try:
            for start, outcome in zip(waiting, await self._outcomes(group), strict=True):
                if start.done():
                    continue
                if isinstance(outcome, int):
                    start.set_result(outcome)
                else:
                    start.set_exception(outcome)
        finally:
            for start in waiting:
                start.cancel()
            self._end(kind, line, len(group), began)

    async def _outcomes(self, group: list[_Member]) -> list[int | Exception]:
        """Append a group; return each member's first index or error.

        If a group is refused, for example as too large, each member is tried alone, because a single append may fit.
        """
        try:
            return list(await self._write(group))
        except (BadRequest, Conflict, TooLarge) as error:
            if len(group) == 1:
                return [Failure.of(error).error()]
        except HsparseError as error:
            return [Failure.of(error).error() for _ in group]
        outcomes: list[int | Exception] = []
        for member in group:
            outcomes += await self._outcomes([member])
        return outcomes

    async def _write(self, group: Sequence[_Member]) -> list[int]:
        """Append a group as one append; return each member's first index. Raises `Moved` if the append was dropped."""
        first, (*offsets, count) = group[0], accumulate((one.append.count for one in group), initial=0)
        dim, slab = first.append.dim, first.slab.slab(first.append.dim, count)
        lower = slab.extent.lower if isinstance(slab.extent, SignedExtent) else ()
        keys = tuple(
            (one.key, offset, one.append.count) for one, offset in zip(group, offsets, strict=True) if one.key
        )
        token, below = self._clock.token(8).hex(), first.append.below
        begin = BeginAppend(slab.id, token, tuple(slab.extent), dim, LEASE_SECONDS, keys, below, lower)
        record = (await self._owners.apply(begin)).unwrap()
        starts = [part_starts(record)[begin.token] + offset for offset in offsets]
        try:
            target = StoredDataset.of(record).reaching(dim, starts[0], starts[0] + count)
            selection, values = _joined(group, starts, target)
            await _renewing(self._owners, begin, first.write(target, selection, values))
            await self._show(slab.id, begin.token)
        except Exception:
            await change_extent(self._owners, AbandonAppends(slab.id, begin.token))
            raise
        return starts

    async def _show(self, id: str, token: str) -> None:
        """Grow the extent over the append `token`; raise `Moved` if the append was dropped with an expired append."""

        async def end() -> bool:
            record = (await self._owners.apply(EndAppend(id, token))).unwrap()
            return all(part["token"] != token for part in appended_parts(record))

        await self._until(id, end)

    async def _while_begun(self, id: str, token: str) -> None:
        """Wait until the append `token` of another request is visible or dropped."""

        async def done() -> bool:
            record = await self._owners.record(id)
            return all(part["token"] != token for part in appended_parts(record))

        await self._until(id, done)

    async def _others(self, append: Append, id: str) -> None:
        """Wait until no append along another dimension is under way."""

        async def done() -> bool:
            record = await self._owners.record(id)
            return not appended_parts(record) or record["appends"]["dim"] == append.dim

        await self._until(id, done)

    async def _until(self, id: str, done: Callable[[], Awaitable[bool]]) -> None:
        """Poll until `done()` is true; every `EXPIRY_CHECK_SECONDS`, make the data node drop expired appends."""
        wait, waited = LEAST_WAIT, 0.0
        while not await done():
            if waited > EXPIRY_CHECK_SECONDS:
                await change_extent(self._owners, AbandonAppends(id, expired=True))
                waited = 0.0
            await asyncio.sleep(wait)
            waited += wait
            wait = min(2 * wait, MOST_WAIT)


def _joined(
    group: Sequence[_Member], starts: Sequence[int], target: StoredDataset
) -> tuple[Selection, Values]:
    """Return a pair: the selection in `target` of the members' elements, which begin at `starts`, and their values."""
    first, dim = group[0], group[0].append.dim
    offset = list(first_of(target.extent))
    inside = [start - corner_of(target.extent)[dim] for start in starts]
    offset[dim] = inside[0]
    if len(group) == 1:
        return first.selection.translate(offset, target.extent), first.values
    if first.is_whole and not isinstance(first.values, VlenArray):
        arrays = [np.broadcast_to(np.asarray(one.values), one.slab.extent) for one in group]
        shape = list(first.slab.extent)
        shape[dim] = sum(one.append.count for one in group)
        whole = Orthogonal.all(shape).translate(offset, target.extent)
        return whole, np.concatenate(arrays, dim, out=np.empty(shape, first.values.dtype))
    coords = np.concatenate([one.selection.coords() for one in group])
    sizes = [one.selection.size for one in group]
    offset[dim] = 0
    coords += np.array(offset, np.uint64)
    coords[:, dim] += np.repeat(np.array(inside, np.uint64), sizes)
    return Points.trusted(target.extent, coords), _columns(group)


def _columns(group: Sequence[_Member]) -> NDArray[Any] | VlenArray:
    """Return the values of all members, (n,), in the order of their selections."""
    found = [_column(one.values, one.selection) for one in group]
    if isinstance(found[0], VlenArray):
        return join_elements([one for one in found if isinstance(one, VlenArray)])
    arrays = [one for one in found if isinstance(one, np.ndarray)]
    return np.concatenate(arrays, out=np.empty(sum(map(len, arrays)), arrays[0].dtype))


def _column(values: Values, selection: Selection) -> Values:
    """Return one value for each selected element, (n,); a single value is repeated."""
    if values.size == 1 and selection.size != 1:
        return values.reshape((1,))[np.zeros(selection.size, np.intp)]
    return values.reshape((selection.size,))


async def _renewing(owners: Owners, begin: BeginAppend, work: Awaitable[None]) -> None:
    """Await `work`, which writes the elements of the append `begin`; meanwhile, renew the append's lease."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=RENEWAL_SECONDS))[0]:
            await owners.apply(begin)
        await task
    finally:
        task.cancel()
