"""The limit of records: what grows beyond it is refused whole, what shrinks is carried out."""

from __future__ import annotations

import asyncio
from contextvars import Token
from typing import Any

import orjson
import pytest

from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn import record_changes as record_size
from hsparse.dn import record_objects, records
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.errors import ErrorKind
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    Outcome,
    PutAttributes,
    PutLinks,
    ReadObjects,
    RecordChange,
)
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

LIMIT = 64 * 1024
ID = "g-00000000-00000000-0001-000000-000000"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "UNMEASURED_BYTES", 1024)


def service() -> DataService:
    return DataService(MemoryStore(), ManualClock(), DataSettings(max_record_size=LIMIT))


async def change(node: DataService, *changes: RecordChange) -> list[Outcome]:
    return list(await node.send(ChangeObjects(changes)))


def attribute(size: int) -> dict[str, Any]:
    return {"type": "H5T_STD_I8LE", "shape": {"class": "H5S_SCALAR"}, "value": "a" * size, "created": 1.0}


async def made(node: DataService) -> None:
    record = {"id": ID, "root": ID, "links": {}, "attributes": {}, "created": 1.0}
    (outcome,) = await change(node, CreateObject(ID, record))
    outcome.unwrap()


async def size_of(node: DataService) -> int:
    (outcome,) = await node.send(ReadObjects((ID,)))
    return len(orjson.dumps(outcome.unwrap()))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [200, 3000, 30_000], ids=str)
async def test_attributes_grow_up_to_the_limit(size: int) -> None:
    node = service()
    await made(node)
    refused = []
    for number in range(2 * LIMIT // size):
        (outcome,) = await change(node, PutAttributes(ID, {f"a{number}": attribute(size)}))
        if outcome.failure is not None:
            assert outcome.failure.kind == ErrorKind.TOO_LARGE
            assert "max_record_size" in outcome.failure.message
            refused.append(number)
    assert refused == list(range(refused[0], 2 * LIMIT // size))
    assert LIMIT - 2 * size - 1000 < await size_of(node) <= LIMIT
    (gone,) = await change(node, DeleteAttributes(ID, ("a0",)))
    assert gone.failure is None
    (again,) = await change(node, PutAttributes(ID, {"b0": attribute(size)}))
    assert again.failure is None
    await node.close()


@pytest.mark.usefixtures("small")
async def test_changes_of_one_put_are_measured_together() -> None:
    node = service()
    await made(node)
    puts = [PutAttributes(ID, {f"a{number}": attribute(20_000)}) for number in range(10)]
    outcomes = await asyncio.gather(*(change(node, put) for put in puts))
    assert sum(outcome.failure is None for (outcome,) in outcomes) == 3
    assert await size_of(node) <= LIMIT
    await node.close()


@pytest.mark.usefixtures("small")
async def test_many_links_are_refused_and_can_be_deleted() -> None:
    node = service()
    await made(node)
    link = {"class": "H5L_TYPE_HARD", "id": ID, "created": 1.0}
    few = {f"link{number}": link for number in range(100)}
    many = {f"more{number}": link for number in range(2000)}
    (kept,) = await change(node, PutLinks(ID, few))
    (refused,) = await change(node, PutLinks(ID, many))
    assert kept.failure is None
    assert refused.failure is not None
    (gone,) = await change(node, DeleteLinks(ID, tuple(few)))
    assert gone.failure is None
    await node.close()


async def test_an_object_is_not_created_too_large() -> None:
    node = service()
    record = {"id": ID, "root": ID, "links": {}, "attributes": {"a": attribute(2 * LIMIT)}, "created": 1.0}
    (outcome,) = await change(node, CreateObject(ID, record))
    assert outcome.failure is not None
    assert outcome.failure.kind == ErrorKind.TOO_LARGE
    await node.close()


@pytest.mark.parametrize("cached", [False, True])
async def test_requests_for_large_records_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    monkeypatch.setattr(record_objects, "LARGE_READ", 1024)
    monkeypatch.setattr(records, "LARGE_READ", 1024)
    monkeypatch.setattr(records, "READ_MEMORY", 1024)
    store = MemoryStore()
    first = DataService(store, ManualClock())
    await made(first)
    (outcome,) = await change(first, PutAttributes(ID, {"a": attribute(20_000)}))
    outcome.unwrap()
    node = first if cached else DataService(store, ManualClock())

    async def read() -> Token[RequestTrace | None]:
        token = begin_trace(RequestTrace("r"))
        (outcome,) = await node.send(ReadObjects((ID,)))
        outcome.unwrap()
        return token

    token = await read()
    waiting = asyncio.create_task(read())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    end_trace(token)
    await waiting
    await node.close()
