"""Deferred appends: durable at once, beside the extent in the dataset's record, and visible a moment later.

An append is three puts one after the other: its place, the chunks, the extent. A deferred one is answered after the
first, which has its elements (`hsparse.dn.extent_changes`); those of many are written to the chunks together, and each
chunk is encoded once for all of them. What a service node that has died leaves behind is written by another one, when
the dataset is next read, appended to, or resized there.

Tests: tests/sn/values/test_deferred_append.py.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hsparse.clock import Clock
from hsparse.errors import MISSING_KINDS, HsparseError, Moved
from hsparse.format.selections.points import Points
from hsparse.format.selections.selection import Selection
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset, change_extent
from hsparse.sn.service import Service
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record
from hsparse.wire.record_message import (
    MOST_DEFERRED,
    AbandonAppends,
    EndAppend,
    appended_parts,
    is_deferred,
)

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.05
"""How long deferred appends wait for others to be written with them."""
PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts to write them."""
MOST_BYTES = 64 * 1024
"""The most bytes of an append that is deferred: the record that has it is put again for each one that follows."""
FULL = MOST_DEFERRED // 2
"""Characters of deferred elements in a record from which on they are written at once, before appends must wait."""
LAST_SECONDS = 10.0
"""How long a node that stops waits for what it has deferred; what is left another one writes."""


def deferred_elements(slab: Dataset, selection: Selection, values: Values) -> Record | None:
    """Return what is appended in the form of `BeginAppend.elements`; None if it is too much, or of variable length."""
    if not isinstance(values, np.ndarray) or values.dtype.hasobject or slab.dtype.itemsize == 0:
        return None
    nbytes = selection.size * (slab.dtype.itemsize + (0 if selection.is_all else 8))
    if nbytes > MOST_BYTES:
        return None
    if values.shape != selection.shape:
        values = np.broadcast_to(values, selection.shape)
    whole = values.astype(slab.dtype, copy=False)
    elements = {"values": _text(whole)}
    if selection.is_all:
        return elements
    return elements | {"places": _text(selection.offsets().astype(_place_type(slab.extent), copy=False))}


@dataclass(slots=True)
class _Waiting:
    """The parts of a dataset that wait to be visible: their tokens, each with the generation in which it has begun.

    `unwritten` has those that are not written yet, with the characters of their elements.
    """

    tokens: dict[str, int] = field(default_factory=dict)
    unwritten: dict[str, int] = field(default_factory=dict)
    are_many: asyncio.Event = field(default_factory=asyncio.Event)


class DeferredAppends:
    """The deferred appends that this node has answered, by dataset, until they are visible.

    They are written with `variables` of their own: they are no part of a request, whose deadline is not theirs.
    """

    def __init__(self, owners: Owners, clock: Clock, variables: Callable[[], Variables] = Variables) -> None:
        self._owners = owners
        self._clock = clock
        self._variables = variables
        self._waiting: dict[str, _Waiting] = {}
        """By dataset."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the deferred appends of a service node."""
        return cls(service.owners, service.clock)

    def add(self, record: Record, token: str, size: int) -> None:
        """Have the part written that has begun with this token; `record` is the dataset's since.

        Its elements are of so many characters.
        """
        id: str = record["id"]
        waiting = self._waiting.setdefault(id, _Waiting())
        waiting.tokens[token] = record.get("generation", 0)
        waiting.unwritten[token] = size
        if sum(waiting.unwritten.values()) >= FULL:
            waiting.are_many.set()
        if id not in self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks[id] = loop.create_task(self._write(id), context=self._variables())

    async def look_after(self, record: Record) -> bool:
        """Write the parts of a node that is gone, if `record` has some; say whether it had."""
        now = self._clock.now()
        late = any(is_deferred(part) and part["until"] < now for part in appended_parts(record))
        if late:
            await drop_appends(self._owners, record["id"], expired=True)
        return late

    async def close(self) -> None:
        """Wait for what is being written, but not for long."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks.values(), timeout=LAST_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _write(self, id: str) -> None:
        """Write what waits until nothing does; a store that fails is asked again and again."""
        pause = PAUSE
        try:
            waiting = self._waiting[id]
            while waiting.tokens:
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiting.are_many.wait(), FLUSH_SECONDS)
                waiting.are_many.clear()
                try:
                    has_progress = await self._attempt(id, waiting)
                except HsparseError as error:
                    if error.kind in MISSING_KINDS:
                        return
                    log.warning("What was appended to %s is not written yet: %s", id, error.message)
                    has_progress = False
                pause = PAUSE if has_progress else min(2 * pause, LONGEST_PAUSE)
                if not has_progress:
                    await asyncio.sleep(pause)
        finally:
            del self._waiting[id], self._tasks[id]

    async def _attempt(self, id: str, waiting: _Waiting) -> bool:
        """Write parts once, and forget those that are visible, whoever has written them.

        Return False if that was of no use, and some are not written yet. Others may stay behind those of another node.
        """
        # Those that come while the record is on its way may not be in it, though they are not visible.
        tokens, unwritten = dict(waiting.tokens), set(waiting.unwritten)
        record = await self._owners.record(id)
        generation = record.get("generation", 0)
        # Where another node has taken them over, a generation has begun in which that node alone writes them.
        mine = {token for token in unwritten if tokens[token] == generation}
        written = _in_full_chunks(record, mine)
        if written:
            await write_deferred(self._owners, record, written)
            record = await self._owners.record(id)
        await self.look_after(record)
        visible = set(tokens) - {part["token"] for part in appended_parts(record)}
        for token in visible:
            del waiting.tokens[token]
        through = visible | written if record.get("generation", 0) == generation else visible
        for token in through:
            waiting.unwritten.pop(token, None)
        return bool(through) or not waiting.unwritten


async def drop_appends(owners: Owners, id: str, *, expired: bool = False) -> None:
    """Drop the appends to a dataset, see `AbandonAppends`; deferred ones are written instead."""
    abandoned = await change_extent(owners, AbandonAppends(id, expired=expired))
    tokens = {part["token"] for part in appended_parts(abandoned) if is_deferred(part)}
    if tokens and "trim" in abandoned:
        record = await owners.record(id)
        if (
            record.get("generation", 0) == abandoned["generation"] + 1
        ):  # else somebody else has taken them over since
            await write_deferred(owners, record, tokens)


async def write_deferred(owners: Owners, record: Record, tokens: Collection[str]) -> None:
    """Write those deferred parts in a dataset's record that have these tokens.

    Only one node may write a part in a generation: another one would undo what is written there once it is visible.
    Nothing is left to do after `Moved`: somebody has taken them over.
    """
    starts = part_starts(record)
    parts = [
        (starts[part["token"]], part)
        for part in appended_parts(record)
        if part["token"] in tokens and not part["done"]
    ]
    if not parts or "trim" in record:
        return
    generation = record.get("generation", 0)
    with suppress(Moved):
        await _write_parts(owners, record, parts)
        ends = (EndAppend(record["id"], part["token"], generation) for _, part in parts)
        for outcome in await owners.change(*ends):
            outcome.unwrap()


async def _write_parts(owners: Owners, record: Record, parts: Sequence[tuple[int, Record]]) -> None:
    """Write parts, each with its first place along the dimension, by as few writes as can be."""
    dim, dataset = record["appends"]["dim"], Dataset.of(record)
    target = dataset.with_length(dim, max(start + part["count"] for start, part in parts))
    await ChunkFanout(owners, target).write(*_elements_of_parts(target, parts))


def _elements_of_parts(dataset: Dataset, parts: Sequence[tuple[int, Record]]) -> tuple[Points, NDArray[Any]]:
    """Return the elements of parts, each with its first place along the dimension, of a dataset that has room for them.

    Parts of the same length that follow each other are decoded as one.
    """
    appends, coords, values = dataset.record["appends"], list[NDArray[np.uint64]](), list[NDArray[Any]]()
    dim, extent = appends["dim"], dataset.extent
    for count, some in groupby(parts, lambda one: one[1]["count"]):
        slab, starts, offsets = (*extent[:dim], count, *extent[dim + 1 :]), [], []
        for start, part in some:
            elements = appends["elements"][part["token"]]
            values.append(np.frombuffer(base64.b64decode(elements["values"]), dataset.dtype))
            if "places" in elements:
                offsets.append(np.frombuffer(base64.b64decode(elements["places"]), _place_type(slab)))
            else:
                offsets.append(np.arange(prod(slab), dtype=_place_type(slab)))
            starts.append(start)
        places = np.stack(np.unravel_index(np.concatenate(offsets).astype(np.int64), slab), axis=1)
        places[:, dim] += np.repeat(starts, list(map(len, offsets)))
        coords.append(places.astype(np.uint64))
    return Points(extent, np.concatenate(coords)), np.concatenate(values)


def part_starts(record: Record) -> dict[str, int]:
    """Return the first place of each part along the dimension that is appended to, by its token."""
    parts, starts = appended_parts(record), dict[str, int]()
    start = record["shape"]["dims"][record["appends"]["dim"]] if parts else 0
    for part in parts:
        starts[part["token"]] = start
        start += part["count"]
    return starts


def _in_full_chunks(record: Record, tokens: set[str]) -> set[str]:
    """Return the parts up to the last border of chunks at which one of them ends; all if there is none.

    The others are written with those that come next: a chunk that is filled in two halves is encoded and put twice.
    """
    starts = part_starts(record)
    ends = {
        part["token"]: starts[part["token"]] + part["count"]
        for part in appended_parts(record)
        if part["token"] in tokens and not part["done"]
    }
    length = Dataset.of(record).spec.dims[record["appends"]["dim"]] if ends else 1
    border = max((end for end in ends.values() if end % length == 0), default=0)
    return {token for token, end in ends.items() if end <= border} or tokens


def _place_type(slab: tuple[int, ...]) -> str:
    """Return the type of the linear offsets in a part."""
    return "<u4" if prod(slab) <= 2**32 else "<u8"


def _text(array: NDArray[np.generic]) -> str:
    return base64.b64encode(array.tobytes()).decode()
