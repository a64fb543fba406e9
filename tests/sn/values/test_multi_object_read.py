"""Values of many datasets in one answer, beside those of each by a request of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from struct import unpack_from
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientPayloadError

from hsparse.errors import Corrupt, Moved
from hsparse.format.arrow_stream import read_batches
from hsparse.sn.http import stream
from hsparse.sn.values.chunk_fanout import ChunkFanout
from tests.sn.dataset_kinds import F64, TEXT, chunked, sparse
from tests.sn.value_client import BINARY, create, put
from tests.support.rest_client import RestClient


def blocks(data: bytes) -> list[list[bytes]]:
    """Return the blocks of each part of an answer."""
    parts: list[list[bytes]] = []
    part: list[bytes] = []
    at = 0
    while at < len(data):
        (size,) = unpack_from("<Q", data, at)
        at += 8 + size
        if size:
            part.append(data[at - size : at])
        else:
            parts.append(part)
            part = []
    assert at == len(data)
    assert not part, "the last part has no end"
    return parts


async def ask(client: RestClient, *reads: dict[str, Any]) -> Any:
    return await client("POST", "/datasets/values", {"reads": list(reads)}, accept=BINARY)


async def numbers(client: RestClient, count: int, values: Any) -> str:
    path = await create(client, [count], F64, layout=chunked(min(count, 100) or 1))
    await put(client, path, {"value": values.tolist()})
    return path.rpartition("/")[2]


async def texts(client: RestClient, values: list[str]) -> str:
    path = await create(client, [len(values)], TEXT)
    await put(client, path, {"value": values})
    return path.rpartition("/")[2]


async def test_parts_are_what_each_dataset_answers(client: RestClient) -> None:
    """Small ones, ones of many pages, empty ones, texts, one dataset twice."""
    rng = np.random.default_rng(1)
    ids = [await numbers(client, count, rng.random(count)) for count in (3, 2000, 5, 0, 7)]
    ids += [await texts(client, ["a", "", "é" * 3000]), await texts(client, ["x" * 40] * 400)]
    ids += [await texts(client, ["z" * 60_000, "y"]), ids[0]]
    reply = await ask(client, {"ids": ids[:3]}, {"ids": ids[3:], "select": None})
    assert reply.status == 200, reply.body
    parts = blocks(reply.body)
    for id, part in zip(ids, parts, strict=True):
        assert b"".join(part) == (await client("GET", f"/datasets/{id}/value", accept=BINARY)).body
    assert len(parts[1]) > 1


async def test_selections_are_for_all_ids_beside_them(client: RestClient) -> None:
    values = np.arange(300.0)
    ids = [await numbers(client, 300, values + add) for add in (0, 1000)]
    reply = await ask(
        client,
        {"ids": ids, "select": "[[3,200]]"},
        {"ids": ids[:1], "select": "[5:8]"},
        {"ids": ids, "select": [[9, 4]], "orthogonal": True},
    )
    found = [np.frombuffer(b"".join(part)).tolist() for part in blocks(reply.body)]
    assert found == [[3, 200], [1003, 1200], [5, 6, 7], [9, 4], [1009, 1004]]


async def test_defined_elements_are_an_arrow_stream(client: RestClient) -> None:
    path = await create(client, [400, 50], F64, layout=sparse(16, 16))
    rng = np.random.default_rng(2)
    places = np.unique(rng.integers(0, [400, 50], (4000, 2)), axis=0)
    values = rng.random(len(places))
    body = {"points": places.tolist(), "value": values.tolist()}
    await put(client, path, body)
    id = path.rpartition("/")[2]
    reply = await ask(
        client, {"ids": [id], "select": "[0:300,:]", "sparse": True}, {"ids": [id], "select": "[0,0]"}
    )
    part, dense = blocks(reply.body)
    assert len(part) > 1
    found: dict[tuple[int, ...], float] = {}
    for length, columns in read_batches(b"".join(part)):
        rows, cells, some = (columns[name].values for name in ("dim_0", "dim_1", "value"))
        assert rows is not None
        assert cells is not None
        assert some is not None
        found |= dict(zip(zip(rows.tolist(), cells.tolist(), strict=True), some.tolist(), strict=True))
        assert len(rows) == length
    inside = places[:, 0] < 300
    assert found == dict(zip(map(tuple, places[inside].tolist()), values[inside].tolist(), strict=True))
    assert len(b"".join(dense)) == 8


async def test_what_is_wrong_is_refused_before_the_answer_begins(client: RestClient) -> None:
    id = await numbers(client, 3, np.arange(3.0))
    other = "d-" + id[2:-1] + ("0" if id[-1] != "0" else "1")
    foreign = "d-00000000-00000000-0000-000000-000000"
    for status, reads in (
        (400, [{"ids": [id], "select": "[0:4]"}]),
        (400, [{"ids": [id], "select": 7}]),
        (400, [{"ids": [id], "sparse": True}]),
        (400, [{"ids": [id], "sparse": 1}]),
        (400, [{"ids": [id], "select": "[0]", "orthogonal": 1}]),
        (400, [{"ids": id}]),
        (400, [{"ids": [foreign]}]),
        (400, [[id]]),
        (404, [{"ids": [id, other]}]),
        (413, [{"ids": [id] * 10_001}]),
    ):
        reply = await client("POST", "/datasets/values", {"reads": reads}, accept=BINARY)
        assert reply.status == status, (reads, reply.body)
        assert set(reply.body) == {"error"}
    assert (await client("POST", "/datasets/values", {})).status == 400
    assert (await ask(client)).body == b""


@pytest.mark.parametrize("count", [1, 3])
async def test_a_stale_plan_is_made_again(
    client: RestClient, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a shrink: also of a dataset that is read among others."""
    ids = [await numbers(client, 5, np.arange(5.0) + number) for number in range(count)]
    read_within = ChunkFanout.read_within
    stale = iter([True, True])

    async def read(self: ChunkFanout, *args: Any) -> Any:
        if next(stale, False):
            raise Moved("The extent was changed.")
        return await read_within(self, *args)

    monkeypatch.setattr(ChunkFanout, "read_within", read)
    reply = await ask(client, {"ids": ids})
    assert [np.frombuffer(b"".join(part))[0] for part in blocks(reply.body)] == list(range(count))


async def test_a_failure_after_the_answer_began_aborts_it(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await numbers(client, 2000, np.arange(2000.0)) for _ in range(2)]
    pages = ChunkFanout.pages
    begun = 0

    async def failing(self: ChunkFanout, *args: Any) -> AsyncIterator[Any]:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise Corrupt("A chunk is damaged.")
        async for page in pages(self, *args):
            yield page

    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(ChunkFanout, "pages", failing)
    with pytest.raises(ClientPayloadError):
        await ask(client, {"ids": ids})
