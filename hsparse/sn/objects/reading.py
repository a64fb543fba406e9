"""Reading many records in messages that bring about so many bytes each, however large a record is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from hsparse.sn.owners import Owners
from hsparse.wire.message import Record

FIRST_READS, MOST_READS = 64, 500
"""Records asked for in one message: first, and at most."""
READ_BYTES = 4 << 20
"""About how many bytes of records one message is to bring, as far as the last one tells."""
Batch = list[tuple[str, Record]]


class Pace:
    """How many records to read next."""

    def __init__(self) -> None:
        self.reads = FIRST_READS

    def weigh(self, nbytes: int) -> None:
        """Tell how many bytes the last batch came to: the next is made to come to `READ_BYTES`."""
        wanted = self.reads * READ_BYTES // max(nbytes, 1)
        self.reads = max(1, min(wanted, 2 * self.reads, MOST_READS))


class Records(Protocol):
    """Where records come from: batches of names and records, at a pace that follows what they weigh."""

    pace: Pace

    def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the records batch by batch. Callers must not modify them."""
        ...


class Reading:
    """The records of given ids, by name; the first that is not there fails."""

    def __init__(self, owners: Owners, ids: dict[str, str]) -> None:
        self.pace = Pace()
        self._owners = owners
        self._ids = list(ids.items())

    async def batches(self) -> AsyncGenerator[Batch, None]:
        while self._ids:
            some, self._ids = self._ids[: self.pace.reads], self._ids[self.pace.reads :]
            outcomes = await self._owners.read(*(id for _, id in some))
            yield [(name, outcome.unwrap()) for (name, _), outcome in zip(some, outcomes, strict=True)]


async def check_there(owners: Owners, ids: list[str]) -> None:
    """Raise what says that one of the objects is not there."""
    async for _ in Reading(owners, {id: id for id in ids}).batches():
        pass
