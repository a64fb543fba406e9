"""Appending: a dataset grows by what writes add at its end, as one visible change.

The place at the end is reserved first, then written, and the extent grows over it last: a reader sees the elements,
or the old extent. An append that fails leaves the extent as it was, and what it wrote is erased
(`hsparse.model.dataset_state`). These are three puts one after the other, so appends to a dataset that come while
others are under way share theirs: a group has one place, writes each chunk once, and is shown at once.

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
from hsparse.sn.records.dataset import Dataset, change_extent, finish_trim
from hsparse.sn.service import Service
from hsparse.wire.message import Failure
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend

ATTEMPTS = 32
"""Attempts at an append that changes of the extent, or appends that died, undo."""
LEASE = 10.0
"""Seconds after which the place of an append whose service node is gone is given up."""
RENEWAL = LEASE / 3
"""Seconds after which a service node that still writes asks for the lease again."""
LEAST_WAIT, MOST_WAIT = 0.001, 0.05
"""Seconds between two looks at whether the appends before this one are written."""
PATIENCE = 1.0
"""Seconds of waiting after which the data node is asked whether one of them is out of time."""
MOST_PAUSE = 0.02
"""The most seconds after a group in which the next one waits for others."""
MOST_APPENDS, MOST_BYTES = 256, 16 * 1024 * 1024
"""The most appends of a group, and the most bytes of these, with the places of their elements: joined in 2 to 4 ms."""
LARGE = 1024 * 1024
"""Bytes from which on an append shares nothing and waits for none: it takes as long as its bytes."""

LOWER, UPPER = "lower", "upper"
"""The ends of a dimension."""

Load = Callable[[], Awaitable[Dataset]]
Prepare = Callable[[Dataset], AbstractAsyncContextManager[tuple[Selection, Values]]]
Write = Callable[[Dataset, Selection, Values], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Append:
    """Grow dimension `dim` by `count` elements, and write there: at the upper end or, with `below`, the lower one."""

    count: int
    dim: int
    below: bool = False

    def slab(self, dataset: Dataset) -> Dataset:
        """Return the dataset as if it had only the new elements, in which the request's selection is resolved.

        Raises `BadRequest` for a dataset that cannot be appended to.
        """
        dataset.require_writable()
        if self.dim >= len(dataset.extent):
            raise BadRequest(f"append_dim is {self.dim}; {dataset.id} has {len(dataset.extent)} dimensions.")
        if self.below and not isinstance(dataset.extent, SignedExtent):
            raise BadRequest(f"{dataset.id} has no lower bound, below which something could be appended.")
        return dataset.slab(self.dim, self.count)

    def select(self, dataset: Dataset, start: int) -> str:
        """Return the select string of the new elements, the first of which is at the place `start`.

        Counted from 0, it is that of the dataset as it was, and grown by this.
        """
        if isinstance(dataset.extent, SignedExtent) and not dataset.extent.in_places:
            start = max(0, start - dataset.record["shape"]["lower"][self.dim])
        axes = [":"] * len(dataset.extent)
        axes[self.dim] = f"{start}:{start + self.count}"
        return f"[{','.join(axes)}]"

    def require_same(self, dataset: Dataset, dim: int, count: int, side: str) -> None:
        """Raise `BadRequest` unless this is the append that a key was used for."""
        if (dim, count, side == LOWER) != (self.dim, self.count, self.below):
            raise BadRequest(
                f"The Idempotency-Key was used to append {count} elements to dimension {dim} of {dataset.id}: give "
                "each request a key of its own."
            )


def parse_append(count: Any, dim: Any, side: Any = None) -> Append | None:
    """Return the append of a request, None without one; `BadRequest` unless count and dim are non-negative integers."""
    if count is None or count is False:
        return None
    below = parse_side(side, "append_side")
    for name, value in (("append", count), ("append_dim", dim or 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest(f"{name} must be a non-negative integer, not {short_repr(value)}.")
    return Append(count, dim or 0, below)


def parse_side(side: Any, name: str) -> bool:
    """Say whether a request is about the lower end of a dimension; `BadRequest` unless it names one of the two."""
    if side not in (None, "", UPPER, LOWER):
        raise BadRequest(f"{name} must be {UPPER} or {LOWER}, not {short_repr(side)}.")
    return bool(side == LOWER)


@dataclass(slots=True, eq=False)
class _Member:
    """An append that is ready to be written: `selection` is in `slab`. `start` will be its place, once it waits."""

    append: Append
    slab: Dataset
    selection: Selection
    values: Values
    write: Write
    key: str
    start: asyncio.Future[int] | None = None
    variables: Variables | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all new elements are written, in their order."""
        return isinstance(self.selection, Orthogonal) and self.selection.is_all

    @property
    def nbytes(self) -> int:
        """The bytes of its values and of the places of those, as they are in a group."""
        repeated = self.selection.size if self.values.size == 1 else 1
        places = 0 if self.is_whole else self.selection.size * 8 * len(self.slab.extent)
        return self.values.nbytes * repeated + places

    def kind(self, how: Hashable) -> Hashable:
        """Return what is the same of appends that can be one write."""
        dim, extent = self.append.dim, self.slab.extent
        values = "vlen" if isinstance(self.values, VlenArray) else self.values.dtype
        whole = self.is_whole and not isinstance(self.values, VlenArray)
        bounds = (self.append.below, extent.lower) if isinstance(extent, SignedExtent) else ()
        return (self.slab.id, dim, extent[:dim], extent[dim + 1 :], bounds, values, whole, how)


@dataclass(slots=True)
class _Line:
    """Appends of a kind: whether some are under way, and those that wait for them.

    Clients that send one append after the other come back together. So a group waits, after one that has ended, until
    all of them are there, but only as long as that one took: a group that begins with the first of them leaves the
    others to the next one.
    """

    is_busy: bool = False
    waiting: list[_Member] = field(default_factory=list)
    clients: int = 1
    """How many were answered with the last group, or waited then."""
    pause: asyncio.TimerHandle | None = None
    """As long as it is there they are waited for; it is set when a group ends."""

    def may_begin(self, count: int) -> bool:
        """Say whether a group of the `count` that wait begins now."""
        return not self.is_busy and count > 0 and (count >= self.clients or self.pause is None)

    def end(self, size: int, pause: asyncio.TimerHandle) -> None:
        """Note that a group of `size` has ended."""
        self.is_busy = False
        self.clients = min(size + len(self.waiting), MOST_APPENDS)
        if self.pause is not None:
            self.pause.cancel()
        self.pause = pause

    def take(self) -> list[_Member]:
        """Remove and return the next group. A key is in a group once."""
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
    """The appends of a service node: those to one dataset that wait for others are one append.

    One group of a kind is under way at a time: two, each with half of the clients, take twice as many puts and are
    slower, since both change the dataset's record. An append that waits for none is made by its request itself, alone.
    A group is made in a task, which goes on if a request is given up meanwhile.
    """

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self._owners = owners
        self._clock = clock
        self._lines: dict[Hashable, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the groups of a service node."""
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
        """Append to the dataset that `load` returns; return the select string of the new elements, which are visible.

        `prepare` has what to append, as a selection in the slab that it is given, and its values. Those of several
        requests may be given to the `write` of one of them, if `how` is the same. What was appended with `key` before
        is not appended again; `BadRequest` if that was something else.
        """
        for _ in range(ATTEMPTS):
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

    async def _appended_before(self, append: Append, dataset: Dataset, key: str) -> str | None:
        """Return the select string of what was appended with a key; None if that was not, or was dropped."""
        record = dataset.record
        while key:
            if (before := appended_before(record, key)) is not None:
                append.require_same(dataset, before["dim"], before["count"], before.get("side", UPPER))
                return append.select(dataset, before["start"])
            if (begun := part_with_key(record, key)) is None:
                return None
            # Another request has begun it. To write the same would undo what is written there once that one has ended.
            append.require_same(dataset, record["appends"]["dim"], begun["count"], begun.get("side", UPPER))
            await self._while_begun(dataset.id, begun["token"])
            record = await self._owners.record(dataset.id)
        return None

    async def _join(self, member: _Member, how: Hashable) -> int:
        """Append it, alone or with others; return where it is. `Moved` if that is to be tried again."""
        if member.nbytes >= LARGE:
            return (await self._write([member]))[0]
        kind, loop = member.kind(how), asyncio.get_running_loop()
        line, began = self._lines.setdefault(kind, _Line()), loop.time()
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

    def _begin(self, kind: Hashable, line: _Line) -> None:
        """Begin the next group if it is time; forget a line that nobody has come back to."""
        if line.may_begin(len(line.waiting)):
            group = line.take()
            line.is_busy = True
            # The last one has the most time left.
            task = asyncio.get_running_loop().create_task(
                self._carry_out(kind, line, group), context=group[-1].variables
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not line.is_busy and not line.waiting and line.pause is None:
            del self._lines[kind]

    def _end(self, kind: Hashable, line: _Line, size: int, began: float) -> None:
        """Note that a group of `size` has ended, and begin the next one, now or a moment later."""
        loop = asyncio.get_running_loop()
        line.end(size, loop.call_later(min(loop.time() - began, MOST_PAUSE), self._end_pause, kind, line))
        self._begin(kind, line)

    def _end_pause(self, kind: Hashable, line: _Line) -> None:
        line.pause = None
        self._begin(kind, line)

    async def _carry_out(self, kind: Hashable, line: _Line, group: list[_Member]) -> None:
        """Append a group, and answer its members."""
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
        """Return where each member is, or its error.

        What is refused of several, because they do not fit, may fit without the others.
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
        """Append a group as one; return where each member is. `Moved` if its place was given up."""
        first, (*offsets, count) = group[0], accumulate((one.append.count for one in group), initial=0)
        dim, slab = first.append.dim, first.slab.slab(first.append.dim, count)
        lower = slab.extent.lower if isinstance(slab.extent, SignedExtent) else ()
        keys = tuple(
            (one.key, offset, one.append.count) for one, offset in zip(group, offsets, strict=True) if one.key
        )
        token, below = self._clock.token(8).hex(), first.append.below
        begin = BeginAppend(slab.id, token, tuple(slab.extent), dim, LEASE, keys, below, lower)
        record = (await self._owners.apply(begin)).unwrap()
        starts = [part_starts(record)[begin.token] + offset for offset in offsets]
        try:
            target = Dataset.of(record).reaching(dim, starts[0], starts[0] + count)
            selection, values = _joined(group, starts, target)
            await _renewing(self._owners, begin, first.write(target, selection, values))
            await self._show(slab.id, begin.token)
        except Exception:
            await change_extent(self._owners, AbandonAppends(slab.id, begin.token))
            raise
        return starts

    async def _show(self, id: str, token: str) -> None:
        """Return when the elements are visible; `Moved` if they were dropped because an earlier append has died."""

        async def end() -> bool:
            record = (await self._owners.apply(EndAppend(id, token))).unwrap()
            return all(part["token"] != token for part in appended_parts(record))

        await self._until(id, end)

    async def _while_begun(self, id: str, token: str) -> None:
        """Return when a part of another request is visible or dropped."""

        async def done() -> bool:
            record = await self._owners.record(id)
            return all(part["token"] != token for part in appended_parts(record))

        await self._until(id, done)

    async def _others(self, append: Append, id: str) -> None:
        """Return when nothing is appended along another dimension."""

        async def done() -> bool:
            record = await self._owners.record(id)
            return not appended_parts(record) or record["appends"]["dim"] == append.dim

        await self._until(id, done)

    async def _until(self, id: str, done: Callable[[], Awaitable[bool]]) -> None:
        """Return when `done`, which waits for appends of other requests; those that died are dropped."""
        wait, waited = LEAST_WAIT, 0.0
        while not await done():
            if waited > PATIENCE:
                await change_extent(self._owners, AbandonAppends(id, expired=True))
                waited = 0.0
            await asyncio.sleep(wait)
            waited += wait
            wait = min(2 * wait, MOST_WAIT)


def _joined(group: Sequence[_Member], starts: Sequence[int], target: Dataset) -> tuple[Selection, Values]:
    """Return what the members write, each at its place in `target`, as one selection and its values."""
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
    """Return a value for each selected element, (n,)."""
    if values.size == 1 and selection.size != 1:
        return values.reshape((1,))[np.zeros(selection.size, np.intp)]
    return values.reshape((selection.size,))


async def _renewing(owners: Owners, begin: BeginAppend, work: Awaitable[None]) -> None:
    """Await `work`, and keep the place that it writes to meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=RENEWAL))[0]:
            await owners.apply(begin)
        await task
    finally:
        task.cancel()
