"""Writes of elements as bytes that are larger than `max_request_size`: applied part by part."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from hsparse.model.acl import Principal
from hsparse.sn import request
from hsparse.sn.body_memory import BodyMemory
from tests.sn.dataset_kinds import F64, I64, TEXT, chunked, compound, sparse
from tests.sn.value_client import SETTINGS, create, defined_count, put, read, value_client
from tests.support.rest_client import RestClient, refuses

HEADERS = {"Content-Type": "application/octet-stream"}
NUMBERS = np.random.default_rng(3).permutation(np.arange(100_000, dtype="<f8"))
PAIR = compound(a=I64, b=F64)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of memory that bodies took."""
    found: list[int] = []
    grow = BodyMemory.grow

    async def noting(memory: BodyMemory, nbytes: int, most: int) -> None:
        await grow(memory, nbytes, most)
        found.append(memory.nbytes)

    monkeypatch.setattr(BodyMemory, "grow", noting)
    return found


@pytest.mark.parametrize(
    ("shape", "properties", "query"),
    [
        ((100_000,), {}, {}),
        ((200, 500), {"layout": chunked(30, 40)}, {}),
        ((2, 50_000), {}, {}),
        ((400, 500), {}, {"select": "[1:400:2,:]"}),
        ((200, 500), {"layout": sparse(50, 50)}, {}),
        ((200, 500), {"layout": sparse(50, 50)}, {"drop_fill": "1"}),
    ],
    ids=["one row", "chunks", "wide rows", "steps", "sparse", "sparse without fill values"],
)
async def test_a_part_is_in_memory_at_a_time(
    held: list[int], shape: tuple[int, ...], properties: dict[str, Any], query: dict[str, str]
) -> None:
    async with value_client() as client:
        path = await create(client, list(shape), F64, **properties)
        await put(client, path, NUMBERS.tobytes(), headers=HEADERS, **query)
        assert max(held) <= SETTINGS.max_request_size < NUMBERS.nbytes
        rows = np.s_[1:400:2] if "select" in query else np.s_[:]
        found = await read(client, path, "<f8", shape)
        assert np.array_equal(found[rows].reshape(-1), NUMBERS)
        if "drop_fill" in query:
            assert await defined_count(client, path) == NUMBERS.size - 1


async def test_fields_of_compounds(client: RestClient) -> None:
    path = await create(client, [100_000], PAIR)
    await put(client, path, NUMBERS.tobytes(), headers=HEADERS, fields="b")
    found = await read(client, path, [("a", "<i8"), ("b", "<f8")], (100_000,))
    assert np.array_equal(found["b"], NUMBERS)
    assert not found["a"].any()


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({"select": "[0:99999]"}, 400, "elements have 799992"),
        ({"drop_fill": "1"}, 400, "not sparse"),
        ({"fields": "x"}, 400, "no field"),
        ({"select": "[0:100001]"}, 400, "extent"),
        ({"append": "100000"}, 413, "max_request_size"),
        ({"sparse": "1"}, 413, "max_request_size"),
        ({"element_count": "1"}, 413, "max_request_size"),
    ],
)
async def test_what_is_refused_is_refused_before_it_is_read(
    client: RestClient, query: dict[str, str], status: int, reason: str
) -> None:
    path = await create(client, [100_000], F64)
    await refuses(client("PUT", f"{path}/value", NUMBERS.tobytes(), headers=HEADERS, **query), status, reason)
    assert (await client("GET", f"{path}/chunks"))["chunks"] == []


async def test_other_bodies_have_the_limit_that_they_had(client: RestClient) -> None:
    path = await create(client, [100_000], F64)
    words = await create(client, [100_000], TEXT)
    for where, body, headers in (
        (f"{path}/value", b'{"value": 1}' + b" " * 200_000, {"Content-Type": "application/json"}),
        (f"{words}/value", bytes(600_000), HEADERS),
        (f"{path}/attributes/a", b" " * 200_001, {"Content-Type": "application/json"}),
    ):
        await refuses(client("PUT", where, body, headers=headers), 413, "max_request_size")


async def test_rights_are_asked_for_before_the_body(client: RestClient) -> None:
    path = await create(client, [100_000], F64)
    client.user = Principal("guest").name
    assert (await client("PUT", f"{path}/value", NUMBERS.tobytes(), headers=HEADERS)).status in (401, 403)


async def test_of_a_body_that_does_not_come_the_parts_that_came_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "BODY_PATIENCE", 0.5)
    async with value_client() as client:
        path = await create(client, [100_000], F64)
        host, port = client.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"PUT {path}/value?domain={client.domain} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {client.user}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {NUMBERS.nbytes}\r\n\r\n"
        )
        writer.write(head.encode() + NUMBERS.tobytes()[:500_000])
        answer = await reader.read()
        writer.close()
        assert b" 400 " in answer.splitlines()[0]
        assert b"what had arrived before was applied" in answer
        found = await read(client, path, "<f8", (100_000,))
        assert np.array_equal(found[:25_000], NUMBERS[:25_000])
        assert not found[62_500:].any()
