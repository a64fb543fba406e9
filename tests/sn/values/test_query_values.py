"""Queries over HTTP: what is found, in which form, and changes by a query."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.sn.service_settings import ServiceSettings
from tests.format.test_query import REFUSES, SIGNS, VALUES, WORDS
from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.support.rest_client import RestClient

STRING = {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
FIELDS = [
    {"name": "date", "type": "H5T_STD_I64LE"},
    {"name": "price", "type": "H5T_IEEE_F64LE"},
    {"name": "name", "type": STRING},
]
KIND = {"class": "H5T_COMPOUND", "fields": FIELDS}
ROW = np.dtype([("date", "<i8"), ("price", "<f8"), ("name", "S4")])
LAYOUTS = {"chunked": {"layout": {"class": "H5D_CHUNKED", "dims": [50]}}, "sparse": {"layout": sparse(50)}}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


def rows(count: int = 5) -> np.ndarray:
    values = np.zeros(count, ROW)
    values["date"] = np.arange(count)
    values["price"] = np.arange(count) * 1.5
    values["name"] = [b"A", b"B", b"C"] * (count // 3) + [b"A", b"B", b"C"][: count % 3]
    return values


async def table(client: RestClient, count: int = 5, layout: str = "chunked") -> tuple[str, np.ndarray]:
    path = await create(client, [count], KIND, **LAYOUTS[layout] if count >= 50 else {})
    values = rows(count)
    assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
    return path, values


async def test_who_may_update_and_not_read_changes_nothing_by_a_query(client: RestClient) -> None:
    path, values = await table(client)
    assert (await client("PUT", "/acls/default", {"update": True})).status == 201
    refused = await client("PUT", f"{path}/value", {"price": -1}, query="date >= 0", user=None)
    assert (refused.status, "right read" in refused["error"]["message"]) == (403, True)
    np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)
    assert (await client("PUT", f"{path}/value", values.tobytes(), user=None)).status == 200


async def test_a_query_computes_so_many_chunks(client: RestClient) -> None:
    client.service.settings = replace(client.service.settings, max_query_chunks=3)
    path = await create(client, [2**40], "H5T_STD_I64LE", initializer=["arange"])
    for method, body in ("GET", None), ("PUT", {"value": 1}):
        refused = await client(method, f"{path}/value", body, query="_ < 0")
        assert refused.status == 413
        assert "max_query_chunks" in refused["error"]["message"]
    assert (await client("GET", f"{path}/value", query="_ == 7", select="[0:10]"))["index"] == [7]


async def test_rows_have_fields_alone_with_the_index_beside(client: RestClient) -> None:
    path, _ = await table(client)
    reply = await client("GET", f"{path}/value", query="price > 2", Limit=2)
    assert reply.facts == {"status": 200, "index": [2, 3], "value": [[2, 3.0, "C"], [3, 4.5, "A"]]}
    reply = await client("GET", f"{path}/value", query="price > 1000")
    assert reply.facts == {"status": 200, "index": [], "value": []}
    reply = await client("GET", f"{path}/value", query="where name in (b'A', b'C')", fields="name:date")
    assert reply["value"] == [["A", 0], ["C", 2], ["A", 3]]
    reply = await client("GET", f"{path}/value", query="price > 2", select="[0:4:2]")
    assert reply["value"] == [[2, 3.0, "C"]]


async def test_bytes_where_something_is_found(client: RestClient) -> None:
    path, values = await table(client)
    reply = await client("GET", f"{path}/value", query="price > 2", accept=BINARY)
    assert reply.body == values[values["price"] > 2].tobytes()
    reply = await client("GET", f"{path}/value", query="price > 2", fields="price", accept=BINARY)
    assert reply.body == values["price"][values["price"] > 2].tobytes()
    # h5pyd fails on an answer of no bytes, and reads JSON as well.
    reply = await client("GET", f"{path}/value", query="price > 1000", accept=BINARY)
    assert reply["value"] == []


async def test_selections_too_long_for_a_url(client: RestClient) -> None:
    path, _ = await table(client)
    body: dict[str, Any] = {"select": "[[4,0,2,2]]", "query": "price > 2", "fields": "date"}
    assert (await client("POST", f"{path}/value", body))["value"] == [[2], [4]]
    assert (await client("POST", f"{path}/value", body | {"Limit": 1}))["value"] == [[2]]
    points = {"points": [4, 3, 3]}
    assert (await client("POST", f"{path}/value", points, query="price > 2"))["index"] == [3, 4]
    binary = np.array([4, 1], "<u8").tobytes()
    assert (await client("POST", f"{path}/value", binary, query="price > 2"))["index"] == [4]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_large_answers_are_streamed(client: RestClient, layout: str) -> None:
    path, values = await table(client, 3000, layout)
    for query, mask in (
        ("price >= 0", values["price"] >= 0),
        ("name == B & date > 100", (values["name"] == b"B") & (values["date"] > 100)),
    ):
        reply = await client("GET", f"{path}/value", query=query, accept=BINARY)
        assert reply.body == values[mask].tobytes()
        reply = await client("GET", f"{path}/value", query=query, Limit=700, accept=BINARY)
        assert reply.body == values[mask][:700].tobytes()


async def test_one_page_of_more_than_a_mebibyte_is_sent_in_parts() -> None:
    async with value_client(settings=ServiceSettings()) as client:
        path = await create(client, [100_000], KIND)
        values = rows(100_000)
        for first in range(0, 100_000, 50_000):
            part, select = values[first : first + 50_000].tobytes(), f"[{first}:{first + 50_000}]"
            assert (await client("PUT", f"{path}/value", part, select=select)).status == 200
        reply = await client("GET", f"{path}/value", query="date >= 10", accept=BINARY)
        assert reply.body == values[10:].tobytes()


async def test_elements_without_fields_and_of_more_dimensions(client: RestClient) -> None:
    path = await create(client, [3, 4], "H5T_STD_I32LE", layout={"class": "H5D_CHUNKED", "dims": [2, 3]})
    model = np.array([[5, 1, 5, 2], [3, 5, 4, 5], [0, 0, 5, 0]], "<i4")
    assert (await client("PUT", f"{path}/value", model.tobytes())).status == 200
    reply = await client("GET", f"{path}/value", query="_ == 5")
    assert reply["value"] == [5] * 5
    assert reply["index"] == np.argwhere(model == 5).tolist()
    reply = await client("PUT", f"{path}/value", {"value": 7}, query="_ == 5", select="[1:3,:]", Limit=2)
    assert reply.facts == {"indices": [[1, 1], [1, 3]], "value": [[[1, 1], 7], [[1, 3], 7]]}
    model[1, 1] = model[1, 3] = 7
    np.testing.assert_array_equal(await read(client, path, "<i4", (3, 4)), model)
    reply = await client("PUT", f"{path}/value", {"value": 1}, query="_ >= 0")
    assert len(reply["indices"]) == 12


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_change_by_a_query_answers_in_both_dialects(client: RestClient, layout: str) -> None:
    path, values = await table(client, 300, layout)
    reply = await client("PUT", f"{path}/value", {"price": -1.0}, query="date == 1")
    assert reply.facts == {"indices": [[1]], "value": [[1, 1, -1.0, "B"]]}
    values["price"][1] = -1
    for limit in (0, 7):
        reply = await client(
            "PUT",
            f"{path}/value",
            {"price": 8.0, "name": "new"},
            query="name == A",
            Limit=limit,
            select="[30:300]",
        )
        chosen = np.flatnonzero((values["name"] == b"A") & (values["date"] >= 30))
        chosen = chosen[:limit] if limit else chosen
        values["price"][chosen], values["name"][chosen] = 8, b"new"
        assert reply["indices"] == [[i] for i in chosen]
        assert reply["value"] == [[i, i, 8.0, "new"] for i in chosen]
        np.testing.assert_array_equal(await read(client, path, ROW, (300,)), values)
        values["name"][chosen] = b"A"
        assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
    reply = await client("PUT", f"{path}/value", {"price": 1}, query="date > 1000")
    assert reply.facts == {"indices": [], "value": []}


async def test_arrays_and_compounds_in_changed_elements(client: RestClient) -> None:
    fields = [
        {"name": "n", "type": "H5T_STD_I32LE"},
        {"name": "v", "type": {"class": "H5T_ARRAY", "base": "H5T_IEEE_F32LE", "dims": [2]}},
        {"name": "t", "type": {"class": "H5T_COMPOUND", "fields": FIELDS[:2]}},
    ]
    path = await create(client, [3], {"class": "H5T_COMPOUND", "fields": fields})
    body = {"v": [1.5, 2.5], "t": [7, 0.5]}
    reply = await client("PUT", f"{path}/value", body, query="n == 0", Limit=1)
    assert reply["value"] == [[0, 0, [1.5, 2.5], [7, 0.5]]]
    assert (await client("GET", f"{path}/value"))["value"] == [[0, [1.5, 2.5], [7, 0.5]]] + [
        [0, [0, 0], [0, 0]]
    ] * 2


async def test_answers_in_json_have_a_limit_and_nothing_is_changed_beyond_it() -> None:
    async with value_client(settings=ServiceSettings(page_size=4096, max_request_size=20_000)) as client:
        path = await create(client, [2000], KIND, **LAYOUTS["chunked"])
        for first in range(0, 2000, 500):
            part = rows(2000)[first : first + 500].tobytes()
            assert (
                await client("PUT", f"{path}/value", part, select=f"[{first}:{first + 500}]")
            ).status == 200
        reply = await client("GET", f"{path}/value", query="price >= 0")
        assert reply.status == 413
        assert "Limit" in reply["error"]["message"]
        reply = await client("PUT", f"{path}/value", {"price": -1}, query="price >= 0")
        assert reply.status == 413
        assert (await client("GET", f"{path}/value", query="price < 0"))["value"] == []
        assert (
            len((await client("PUT", f"{path}/value", {"price": -1}, query="price >= 0", Limit=100))["value"])
            == 100
        )


BAD_READS: list[dict[str, Any]] = [
    {"query": "nofield > 1"},
    {"query": "date == 'x'"},
    {"query": "name == 1.5"},
    {"query": "date > 1", "Limit": "x"},
    {"query": "date > 1", "Limit": "-1"},
    {"query": "date > 1", "sparse": 1},
    {"query": "date > 1", "fields": "nofield"},
    {"query": "date > 1", "select": "[0:9]"},
]


@pytest.mark.parametrize("arguments", BAD_READS, ids=str)
async def test_bad_queries_say_what_is_wrong(client: RestClient, arguments: dict[str, Any]) -> None:
    path, _ = await table(client)
    reply = await client("GET", f"{path}/value", **arguments)
    assert reply.status == 400
    assert reply["error"]["message"].endswith(".")


BAD_CHANGES: list[tuple[Any, dict[str, Any]]] = [
    ({}, {}),
    ([], {}),
    (7, {}),
    (None, {}),
    ({"nofield": 1}, {}),
    ({"value": 1}, {}),
    ({"price": "abc"}, {}),
    ({"date": None}, {}),
    ({"price": [1, 2]}, {}),
    ({"date": 1.5}, {}),
    ({"date": 2**70}, {}),
    ({"name": 7}, {}),
    (b"12345678", {}),
    ({"price": 1}, {"fields": "price"}),
    ({"price": 1}, {"append": 1}),
    ({"price": 1}, {"query": "price >"}),
    ({"price": 1}, {"Limit": "x"}),
]


@pytest.mark.parametrize(("body", "arguments"), BAD_CHANGES, ids=str)
async def test_bad_changes_change_nothing(client: RestClient, body: Any, arguments: dict[str, Any]) -> None:
    path, values = await table(client)
    reply = await client("PUT", f"{path}/value", body, **{"query": "date >= 0"} | arguments)
    assert reply.status == 400, reply.body
    assert reply["error"]["message"].endswith(".")
    np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)


async def test_hostile_queries_are_never_a_500() -> None:
    """One server and table for all the queries that hypothesis makes: hundreds of requests in its own loop."""
    texts: list[str] = ["date > 0", *(text for text in REFUSES if text.strip("\0 "))]

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from([*WORDS, *SIGNS, *VALUES, "date", "price", "name"]), max_size=25))
    def draw(parts: list[str]) -> None:
        text = "".join(parts)
        if text.strip() and text.isprintable():  # blanks are no query, as none is
            texts.append(text)

    draw()
    async with value_client() as client:
        path, values = await table(client)
        for text in texts:
            for reply in (
                await client("POST", f"{path}/value", {"select": "[0:5]", "query": text}),
                await client("GET", f"{path}/value", query=text),
            ):
                assert reply.status in (200, 400), (text, reply.body)
                assert reply.status == 400 or set(reply.facts) == {"status", "index", "value"}, text
        for text in REFUSES[2:]:
            reply = await client("PUT", f"{path}/value", {"price": 1}, query=text)
            assert reply.status == 400, text
        np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)


async def test_h5pyd_024_reads_rows_by_the_index_beside_them(client: RestClient) -> None:
    """What its `read_where` and `update_where` make of the replies: an index, or the first item of a row."""
    path, _ = await table(client)
    reply = await client("GET", f"{path}/value", query="name == b'A'", Limit=5, select="[0:5:1]")
    got = [(index, *row) for index, row in zip(reply["index"], reply["value"], strict=True)]
    assert got == [(0, 0, 0.0, "A"), (3, 3, 4.5, "A")]
    reply = await client("PUT", f"{path}/value", {"price": 0.5}, query="name == b'A'", select="[0:5:1]")
    assert [row[0] for row in reply["value"]] == [0, 3]
