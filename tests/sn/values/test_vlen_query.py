"""Queries over compounds with parts of variable length, against lists in Python; answers of several pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import element_query
from tests.model.type_strategies import text
from tests.sn.value_client import BINARY, create, value_client
from tests.support.rest_client import RestClient

TEXT = text("H5T_VARIABLE")
KIND = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "word", "type": TEXT},
        {"name": "n", "type": "H5T_STD_I16BE"},
        {"name": "list", "type": {"class": "H5T_VLEN", "base": "H5T_IEEE_F64LE"}},
        {"name": "x", "type": "H5T_IEEE_F32LE"},
        {"name": "code", "type": {**text(3), "charSet": "H5T_CSET_ASCII"}},
    ],
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(settings=ServiceSettings(page_size=2000)) as made:
        yield made


def rows(count: int) -> list[list[Any]]:
    return [["wö" * (i % 40), i % 100, [0.5] * (i % 3), i * 0.5, f"c{i % 10}"] for i in range(count)]


async def table(client: RestClient, shape: list[int], chunk: list[int]) -> tuple[str, list[Any]]:
    count = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    path = await create(client, shape, KIND, layout={"class": "H5D_CHUNKED", "dims": chunk})
    flat = rows(count)
    value = flat if len(shape) == 1 else [flat[i : i + shape[1]] for i in range(0, count, shape[1])]
    assert (await client("PUT", f"{path}/value", {"value": value})).status == 200
    return path, flat


async def test_elements_are_found_by_their_fields_of_fixed_size(client: RestClient) -> None:
    path, flat = await table(client, [700], [30])
    reply = await client("GET", f"{path}/value", query="n >= 97 & code != b'c8' | x == 2.5")
    places = [i for i, row in enumerate(flat) if (row[1] >= 97 and row[4] != "c8") or row[3] == 2.5]
    assert reply.facts == {"status": 200, "index": places, "value": [flat[i] for i in places]}
    reply = await client("GET", f"{path}/value", query="n == 7", Limit=3, fields="list:word")
    assert reply["index"] == [7, 107, 207]
    assert reply["value"] == [[flat[i][2], flat[i][0]] for i in (7, 107, 207)]
    reply = await client("GET", f"{path}/value", query="n == 7", select="[107:600:50]")
    assert reply["index"] == [107, 207, 307, 407, 507]


async def test_the_answer_is_json_whatever_was_asked_for(client: RestClient) -> None:
    path, flat = await table(client, [700], [30])
    reply = await client("GET", f"{path}/value", query="n < 50", accept=BINARY)
    assert reply["value"] == [row for row in flat if row[1] < 50]
    reply = await client("GET", f"{path}/value", query="n > 1000", accept=BINARY)
    assert reply.facts == {"status": 200, "index": [], "value": []}


async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with value_client(settings=ServiceSettings(page_size=2000, max_request_size=100_000)) as client:
        path = await create(client, [700], KIND, layout={"class": "H5D_CHUNKED", "dims": [30]})
        assert (await client("PUT", f"{path}/value", {"value": ["w" * 200, 1, [], 1.0, "c"]})).status == 200
        reply = await client("GET", f"{path}/value", query="n == 1")
        assert reply.status == 413
        assert "Limit" in reply["error"]["message"]
        assert (await client("GET", f"{path}/value", query="n == 1", Limit=100))["index"] == list(range(100))


async def test_two_dimensions_are_in_row_major_order(client: RestClient) -> None:
    path, flat = await table(client, [20, 30], [7, 11])
    reply = await client("GET", f"{path}/value", query="n == 5")
    assert reply["index"] == [list(divmod(i, 30)) for i, row in enumerate(flat) if row[1] == 5]
    body = {"points": [[10, 5], [0, 5], [10, 5], [3, 15]], "query": "n == 5"}
    assert (await client("POST", f"{path}/value", body))["index"] == [[0, 5], [3, 15], [10, 5]]


async def test_boxes_are_looked_through_in_row_major_order(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(element_query, "BOXES_AT_ONCE", 7)
    path, flat = await table(client, [20, 30], [7, 11])
    corners = [[[2, 20], [15, 29]], [[0, 0], [17, 9]]]
    inside = [
        (i, j)
        for i in range(20)
        for j in range(30)
        if any(low[0] <= i <= high[0] and low[1] <= j <= high[1] for low, high in corners)
    ]
    selection = {"class": "H5S_SEL_HYPERSLABS", "coordinates": corners}
    reply = await client("POST", f"{path}/value", {"selection": selection}, query="n < 20")
    assert reply["index"] == [[i, j] for i, j in inside if flat[i * 30 + j][1] < 20]
    assert reply["value"] == [flat[i * 30 + j] for i, j in reply["index"]]


@pytest.mark.parametrize("query", ["x >= 0", "x > 0"])
async def test_of_many_chunks_those_that_are_stored_are_looked_at(client: RestClient, query: str) -> None:
    path = await create(client, [3000], KIND, layout={"class": "H5D_CHUNKED", "dims": [1]})
    for place in (5, 2999):
        body = {"value": ["w", 1, [], 1.0, "c"], "select": f"[{place}]"}
        assert (await client("PUT", f"{path}/value", body)).status == 200
    reply = await client("GET", f"{path}/value", query=query, fields="word")
    assert reply["index"] == (list(range(3000)) if query == "x >= 0" else [5, 2999])


async def test_what_cannot_be_asked_is_told(client: RestClient) -> None:
    path, _ = await table(client, [10], [5])
    for query, why in (
        ("word == 'a'", "no fixed size"),
        ("list == 1", "no fixed size"),
        ("none == 1", "no field"),
    ):
        reply = await client("GET", f"{path}/value", query=query)
        assert reply.status == 400
        assert why in reply["error"]["message"]
    reply = await client("PUT", f"{path}/value", {"n": 1}, query="n == 5")
    assert reply.status == 400
    assert "write those" in reply["error"]["message"]
    texts = await create(client, [3], TEXT)
    assert (await client("GET", f"{texts}/value", query="_ == 'a'")).status == 400
    scalar = await create(client, "H5S_SCALAR", KIND)
    assert (await client("GET", f"{scalar}/value", query="n == 5")).status == 400


async def test_floats_that_are_not_finite_are_as_in_other_answers(client: RestClient) -> None:
    path, _ = await table(client, [4], [4])
    body = {"value": [["a", 1, ["nan"], "inf", "c"]], "select": "[2:3]"}
    assert (await client("PUT", f"{path}/value", body)).status == 200
    reply = await client("GET", f"{path}/value", query="x > 1000")
    assert json.dumps(reply["value"]) == '[["a", 1, [NaN], Infinity, "c"]]'
    reply = await client("GET", f"{path}/value", query="x > 1000", ignore_nan=1)
    assert reply["value"] == [["a", 1, [None], None, "c"]]
