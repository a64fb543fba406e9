"""A data node for tests of service nodes: the service, called directly, over a store in memory."""

from __future__ import annotations

from typing import Any, TypeVar

from hsparse.clock import Clock
from hsparse.dn.service import DataService
from hsparse.wire.message import Message, Record
from hsparse.wire.record_message import ChangeObjects, CreateObject, ReadObjects
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

R = TypeVar("R")


class MemoryNode(DataService):
    """The service; `log` has every message it was sent, in the order in which they came."""

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or ManualClock()
        super().__init__(MemoryStore(clock=clock), clock)
        self.log: list[Message[Any]] = []

    async def send(self, message: Message[R]) -> R:
        self.log.append(message)
        return await super().send(message)

    async def create(self, records: dict[str, Record]) -> None:
        """Store new records by their ids, which `log` does not have."""
        for outcome in await super().send(
            ChangeObjects(tuple(CreateObject(id, record) for id, record in records.items()))
        ):
            outcome.unwrap()

    async def record(self, id: str) -> Record:
        """Return a stored record."""
        return (await super().send(ReadObjects((id,))))[0].unwrap()
