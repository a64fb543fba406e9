"""Appending: a dataset grows by what a write adds at its end, as one visible change.

The place at the end is reserved first, then written, and the extent grows over it last: a reader sees the elements,
or the old extent. An append that fails leaves the extent as it was, and what it wrote is erased
(`hsparse.dn.extent_changes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any

from hsparse.clock import Clock
from hsparse.errors import BadRequest, Busy, Moved
from hsparse.format.selections.selection import Selection
from hsparse.model.json_values import Values
from hsparse.model.short_text import short_repr
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset, change_extent, finish_trim
from hsparse.wire.change_token import appended_before, keyed_token, part_of
from hsparse.wire.record_message import (
    AbandonAppends,
    BeginAppend,
    EndAppend,
    appended_parts,
    part_starts,
)

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

Load = Callable[[], Awaitable[Dataset]]
Prepare = Callable[[Dataset], AbstractAsyncContextManager[tuple[Selection, Values]]]
Write = Callable[[Dataset, Selection, Values], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Append:
    """Grow dimension `dim` by `count` elements, and write there."""

    count: int
    dim: int

    def slab(self, dataset: Dataset) -> Dataset:
        """Return the dataset as if it had only the new elements, in which the request's selection is resolved.

        Raises `BadRequest` for a dataset that cannot be appended to.
        """
        dataset.require_writable()
        if self.dim >= len(dataset.extent):
            raise BadRequest(f"append_dim is {self.dim}; {dataset.id} has {len(dataset.extent)} dimensions.")
        return dataset.with_length(self.dim, self.count)

    async def apply(
        self, owners: Owners, clock: Clock, load: Load, prepare: Prepare, write: Write, key: str = ""
    ) -> str:
        """Append to the dataset that `load` returns; return the select string of the new elements.

        `prepare` has what to append, as a selection in the slab that it is given, and its values. What was appended
        with `key` before is not appended again; `BadRequest` if that was something else.
        """
        for _ in range(ATTEMPTS):
            dataset = await load()
            slab = self.slab(dataset)
            async with prepare(slab) as (selection, values):
                if not self.count:
                    return self._select(dataset, dataset.extent[self.dim])
                if "trim" in dataset.record:
                    await finish_trim(owners, dataset.record)
                token = keyed_token(key, clock.token(8).hex())
                begin = BeginAppend(slab.id, token, slab.extent, self.dim, LEASE)
                with suppress(Moved):
                    return await self._attempt(owners, begin, slab, selection, values, write)
            await self._others(owners, dataset.id)
        raise Busy(f"The extent of {dataset.id} kept changing while it was appended to; try again.")

    async def _attempt(
        self,
        owners: Owners,
        begin: BeginAppend,
        slab: Dataset,
        selection: Selection,
        values: Values,
        write: Write,
    ) -> str:
        token = begin.token
        record = (await owners.apply(begin)).unwrap()
        if (before := appended_before(record, token)) is not None:
            self._require_same(slab, before["dim"], before["count"])
            return self._select(slab, before["start"])
        part = part_of(record, token)
        if part is not None and part["token"] != token:
            # Another request has begun it. To write the same would undo what is written there once that one has ended.
            self._require_same(slab, record["appends"]["dim"], part["count"])
            await self._while_begun(owners, slab.id, part["token"])
            raise Moved("What was appended with this key is visible now, or was dropped.")
        start = part_starts(record)[token]
        try:
            target = Dataset.of(record).with_length(self.dim, start + self.count)
            offset = [start if dim == self.dim else 0 for dim in range(len(slab.extent))]
            await _renewing(owners, begin, write(target, selection.translate(offset, target.extent), values))
            await self._end(owners, slab.id, token)
        except Exception:
            await change_extent(owners, AbandonAppends(slab.id, token))
            raise
        return self._select(target, start)

    def _require_same(self, slab: Dataset, dim: int, count: int) -> None:
        """Raise `BadRequest` unless this is the append that a key was used for."""
        if (dim, count) != (self.dim, self.count):
            raise BadRequest(
                f"The Idempotency-Key was used to append {count} elements to dimension {dim} of {slab.id}: give each "
                "request a key of its own."
            )

    async def _end(self, owners: Owners, id: str, token: str) -> None:
        """Return when the elements are visible; `Moved` if they were dropped because an earlier append has died."""

        async def end() -> bool:
            record = (await owners.apply(EndAppend(id, token))).unwrap()
            return all(part["token"] != token for part in appended_parts(record))

        await _until(owners, id, end)

    async def _while_begun(self, owners: Owners, id: str, token: str) -> None:
        """Return when a part of another request is visible or dropped."""

        async def done() -> bool:
            record = await owners.record(id)
            return all(part["token"] != token for part in appended_parts(record))

        await _until(owners, id, done)

    async def _others(self, owners: Owners, id: str) -> None:
        """Return when nothing is appended along another dimension."""

        async def done() -> bool:
            record = await owners.record(id)
            return not appended_parts(record) or record["appends"]["dim"] == self.dim

        await _until(owners, id, done)

    def _select(self, dataset: Dataset, start: int) -> str:
        axes = [":"] * len(dataset.extent)
        axes[self.dim] = f"{start}:{start + self.count}"
        return f"[{','.join(axes)}]"


def parse_append(count: Any, dim: Any) -> Append | None:
    """Return the append of a request, None without one; `BadRequest` unless both are non-negative integers."""
    if count is None or count is False:
        return None
    for name, value in (("append", count), ("append_dim", dim or 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest(f"{name} must be a non-negative integer, not {short_repr(value)}.")
    return Append(count, dim or 0)


async def _until(owners: Owners, id: str, done: Callable[[], Awaitable[bool]]) -> None:
    """Return when `done`, which waits for appends of other requests; those that died are dropped."""
    wait, waited = LEAST_WAIT, 0.0
    while not await done():
        if waited > PATIENCE:
            await change_extent(owners, AbandonAppends(id, expired=True))
            waited = 0.0
        await asyncio.sleep(wait)
        waited += wait
        wait = min(2 * wait, MOST_WAIT)


async def _renewing(owners: Owners, begin: BeginAppend, work: Awaitable[None]) -> None:
    """Await `work`, and keep the place that it writes to meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=RENEWAL))[0]:
            await owners.apply(begin)
        await task
    finally:
        task.cancel()
