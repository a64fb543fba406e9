"""Reading many records: the records of given ids, or of all objects that hard links reach from a group (a crawl).

A batch of records has about `READ_BYTES`, whatever the size of the records. The visited set of a crawl takes 8 bytes
for each object, because ids of one domain and collection differ only in 16 hex digits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import MISSING_KINDS
from hsparse.model.link import HARD
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.message import Record

FIRST_READS, MAX_READS = 64, 500
"""The number of records in the first batch, and the most records in any batch."""
READ_BYTES = 4 << 20
"""The target size of a batch, in bytes of the records' JSON."""
Batch = list[tuple[str, Record]]
Numbers = NDArray[np.uint64]
COMMON_LENGTH = 20
"""The length of the prefix that ids of a domain and collection have in common: `d-00000000-00000000-`."""
LINKS_AT_ONCE = 10_000
"""Links that a crawl follows without a pause for other requests."""
ID_PREFIXES = ("g", "d", "t")


class Pace:
    """The number of records in the next batch, adapted to the size of the records."""

    def __init__(self) -> None:
        self.reads = FIRST_READS

    def weigh(self, nbytes: int) -> None:
        """Set `reads` so that the next batch has about `READ_BYTES`; the last batch had `nbytes`."""
        wanted = self.reads * READ_BYTES // max(nbytes, 1)
        self.reads = max(1, min(wanted, 2 * self.reads, MAX_READS))


class RecordSource(Protocol):
    """A source of named records, in batches whose size follows `pace`."""

    pace: Pace

    def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield pairs of a name and its record, batch by batch. Callers must not modify the records."""
        ...


class RecordReader:
    """A `RecordSource` of the objects in `ids`, which maps names to ids; raises the error of an unreadable record."""

    def __init__(self, owners: Owners, ids: dict[str, str]) -> None:
        self.pace = Pace()
        self._owners = owners
        self._ids = list(ids.items())

    async def batches(self) -> AsyncGenerator[Batch, None]:
        while self._ids:
            some, self._ids = self._ids[: self.pace.reads], self._ids[self.pace.reads :]
            async with aclosing(self._owners.read_parts([id for _, id in some])) as parts:
                async for first, outcomes in parts:
                    names = (name for name, _ in some[first:])
                    yield [(name, one.unwrap()) for name, one in zip(names, outcomes, strict=False)]


async def require_records(owners: Owners, ids: list[str]) -> None:
    """Raise the error of the first id whose object does not exist."""
    async for _ in RecordReader(owners, {id: id for id in ids}).batches():
        pass


class VisitedSet:
    """A set of uint64 numbers, stored as a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[Numbers] = []

    def add(self, numbers: Numbers) -> Numbers:
        """Add `numbers` to the set; return the numbers that it did not contain, ascending and unique."""
        new = np.unique(numbers)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, new), len(run) - 1)
            new = new[run[places] != new]
        if len(new):
            self._runs.append(new)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate((self._runs[-1], last)))
        return new

    def all(self) -> Numbers:
        """Return all numbers, ascending."""
        return np.sort(np.concatenate(self._runs)) if self._runs else np.empty(0, np.uint64)


class Crawl:
    """A `RecordSource` that follows hard links from `starts`, objects of one domain, roughly breadth first.

    It reads groups and, if `leaves` is true, datasets and committed types. It skips links to a target deleted or in
    another domain. Once `ended()` is true, it follows no more links and yields only the objects found so far.
    """

    def __init__(
        self, owners: Owners, *starts: str, leaves: bool, ended: Callable[[], bool] = lambda: False
    ) -> None:
        self._owners = owners
        self._leaves = leaves
        self._ended = ended
        self._domain = starts[0][1:COMMON_LENGTH]
        self._visited = {kind: VisitedSet() for kind in ID_PREFIXES}
        self._next: deque[tuple[str, Numbers]] = deque()
        self.pace = Pace()
        self._add(list(starts))

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield pairs of an id and its record, batch by batch. Callers must not modify the records."""
        while self._next:
            async with aclosing(self._owners.read_parts(self._batch())) as parts:
                async for _, outcomes in parts:
                    found = [
                        outcome.unwrap()
                        for outcome in outcomes
                        if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS
                    ]
                    yield [(record["id"], record) for record in found]
                    for record in found if not self._ended() else ():
                        for targets in _targets(record):
                            self._add(targets)
                            await asyncio.sleep(0)

    def ids(self, kind: str) -> list[str]:
        """Return the ids of `kind` (`g`, `d` or `t`) that links have led to, ascending, even of deleted objects."""
        return [self._id(kind, number) for number in self._visited[kind].all().tolist()]

    def _add(self, ids: list[str]) -> None:
        for kind in ID_PREFIXES:
            own = kind + self._domain
            numbers = [_number(id) for id in ids if id.startswith(own)]
            if not numbers:
                continue
            new = self._visited[kind].add(np.array(numbers, np.uint64))
            if len(new) and (kind == "g" or self._leaves):
                self._next.append((kind, new))

    def _batch(self) -> list[str]:
        ids: list[str] = []
        while self._next and len(ids) < self.pace.reads:
            kind, numbers = self._next.popleft()
            room = self.pace.reads - len(ids)
            if len(numbers) > room:
                self._next.appendleft((kind, numbers[room:]))
            ids += [self._id(kind, number) for number in numbers[:room].tolist()]
        return ids

    def _id(self, kind: str, number: int) -> str:
        digits = f"{number:016x}"
        return f"{kind}{self._domain}{digits[:4]}-{digits[4:10]}-{digits[10:]}"


def _number(id: str) -> int:
    return int(id[COMMON_LENGTH:].replace("-", ""), 16)


def _targets(record: Record) -> Iterator[list[str]]:
    """Yield the target ids of a group's hard links, in parts of at most `LINKS_AT_ONCE`."""
    links = iter((record.get("links") or {}).values())
    while some := list(islice(links, LINKS_AT_ONCE)):
        yield [link["id"] for link in some if link.get("class") == HARD]
