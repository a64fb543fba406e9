"""Queries over HTTP: what is found, in which form and order, and changes by a query."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import element_query
from tests.format.test_query import REFUSES, SIGNS, VALUES, WORDS
from tests.model.type_strategies import text
from tests.sn.dataset_kinds import F32, F64, I32, I64, array_of, chunked, compound, sparse, vlen_of
from tests.sn.value_client import BINARY, SETTINGS, create, json_of, put, read, value_client
from tests.sn.values.test_element_query import chunk_gets, opened
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

STRING = {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
FIELDS = [{"name": "date", "type": I64}, {"name": "price", "type": F64}, {"name": "name", "type": STRING}]
KIND = {"class": "H5T_COMPOUND", "fields": FIELDS}
ROW = np.dtype([("date", "<i8"), ("price", "<f8"), ("name", "S4")])
LAYOUTS = {"chunked": {"layout": chunked(50)}, "sparse": {"layout": sparse(50)}}


def rows(count: int = 5) -> np.ndarray:
    values = np.zeros(count, ROW)
    values["date"] = np.arange(count)
    values["price"] = np.arange(count) * 1.5
    values["name"] = [b"A", b"B", b"C"] * (count // 3) + [b"A", b"B", b"C"][: count % 3]
    return values


async def table(client: RestClient, count: int = 5, layout: str = "chunked") -> tuple[str, np.ndarray]:
    path = await create(client, [count], KIND, **LAYOUTS[layout] if count >= 50 else {})
    values = rows(count)
    await put(client, path, values.tobytes())
    return path, values


async def test_who_may_update_and_not_read_changes_nothing_by_a_query(client: RestClient) -> None:
    path, values = await table(client)
    assert (await client("PUT", "/acls/default", {"update": True})).status == 201
    asked = client("PUT", f"{path}/value", {"price": -1}, query="date >= 0", user=None)
    await refuses(asked, 403, "right read")
    np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)
    await put(client, path, values.tobytes(), user=None)


async def test_a_query_computes_so_many_chunks(client: RestClient) -> None:
    client.service.settings = replace(client.service.settings, max_query_chunks=3)
    path = await create(client, [2**40], I64, initializer=["arange"])
    for method, body in ("GET", None), ("PUT", {"value": 1}):
        await refuses(client(method, f"{path}/value", body, query="_ < 0"), 413, "max_query_chunks")
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
    assert (await client("GET", f"{path}/value", query="price > 1000", accept=BINARY))["value"] == []


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
            await put(client, path, part, select=select)
        reply = await client("GET", f"{path}/value", query="date >= 10", accept=BINARY)
        assert reply.body == values[10:].tobytes()


async def test_elements_without_fields_and_of_more_dimensions(client: RestClient) -> None:
    path = await create(client, [3, 4], I32, layout=chunked(2, 3))
    model = np.array([[5, 1, 5, 2], [3, 5, 4, 5], [0, 0, 5, 0]], "<i4")
    await put(client, path, model.tobytes())
    reply = await client("GET", f"{path}/value", query="_ == 5")
    assert (reply["value"], reply["index"]) == ([5] * 5, np.argwhere(model == 5).tolist())
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
        ask = {"query": "name == A", "Limit": limit, "select": "[30:300]"}
        reply = await client("PUT", f"{path}/value", {"price": 8.0, "name": "new"}, **ask)
        chosen = np.flatnonzero((values["name"] == b"A") & (values["date"] >= 30))
        chosen = chosen[:limit] if limit else chosen
        values["price"][chosen], values["name"][chosen] = 8, b"new"
        assert reply["indices"] == [[i] for i in chosen]
        assert reply["value"] == [[i, i, 8.0, "new"] for i in chosen]
        np.testing.assert_array_equal(await read(client, path, ROW, (300,)), values)
        values["name"][chosen] = b"A"
        await put(client, path, values.tobytes())
    reply = await client("PUT", f"{path}/value", {"price": 1}, query="date > 1000")
    assert reply.facts == {"indices": [], "value": []}


async def test_arrays_and_compounds_in_changed_elements(client: RestClient) -> None:
    fields = [
        {"name": "n", "type": I32},
        {"name": "v", "type": array_of(F32, 2)},
        {"name": "t", "type": {"class": "H5T_COMPOUND", "fields": FIELDS[:2]}},
    ]
    path = await create(client, [3], {"class": "H5T_COMPOUND", "fields": fields})
    reply = await client("PUT", f"{path}/value", {"v": [1.5, 2.5], "t": [7, 0.5]}, query="n == 0", Limit=1)
    assert reply["value"] == [[0, 0, [1.5, 2.5], [7, 0.5]]]
    assert await json_of(client, path) == [[0, [1.5, 2.5], [7, 0.5]]] + [[0, [0, 0], [0, 0]]] * 2


async def test_answers_in_json_have_a_limit_and_nothing_is_changed_beyond_it() -> None:
    async with value_client(settings=ServiceSettings(page_size=4096, max_request_size=20_000)) as client:
        path = await create(client, [2000], KIND, **LAYOUTS["chunked"])
        for first in range(0, 2000, 500):
            part = rows(2000)[first : first + 500].tobytes()
            await put(client, path, part, select=f"[{first}:{first + 500}]")
        await refuses(client("GET", f"{path}/value", query="price >= 0"), 413, "Limit")
        await answered(client("PUT", f"{path}/value", {"price": -1}, query="price >= 0"), 413)
        assert await json_of(client, path, query="price < 0") == []
        reply = await client("PUT", f"{path}/value", {"price": -1}, query="price >= 0", Limit=100)
        assert len(reply["value"]) == 100


BAD_READS: list[dict[str, Any]] = [
    *({"query": query} for query in ("nofield > 1", "date == 'x'", "name == 1.5")),
    *({"query": "date > 1", "Limit": limit} for limit in ("x", "-1")),
    *({"query": "date > 1"} | more for more in ({"sparse": 1}, {"fields": "nofield"}, {"select": "[0:9]"})),
]


@pytest.mark.parametrize("arguments", BAD_READS, ids=str)
async def test_bad_queries_say_what_is_wrong(client: RestClient, arguments: dict[str, Any]) -> None:
    path, _ = await table(client)
    reply = await answered(client("GET", f"{path}/value", **arguments), 400)
    assert reply["error"]["message"].endswith(".")


NO_CHANGES: list[Any] = [{}, [], 7, None, {"nofield": 1}, {"value": 1}, b"12345678"]
BAD_CHANGES: list[tuple[Any, dict[str, Any]]] = [
    *((body, {}) for body in NO_CHANGES),
    *(({"date": value}, {}) for value in (None, 1.5, 2**70)),
    *(({"price": "abc"}, {}), ({"price": [1, 2]}, {}), ({"name": 7}, {})),
    *(
        ({"price": 1}, more)
        for more in ({"fields": "price"}, {"append": 1}, {"query": "price >"}, {"Limit": "x"})
    ),
]


@pytest.mark.parametrize(("body", "arguments"), BAD_CHANGES, ids=str)
async def test_bad_changes_change_nothing(client: RestClient, body: Any, arguments: dict[str, Any]) -> None:
    path, values = await table(client)
    reply = await answered(client("PUT", f"{path}/value", body, **{"query": "date >= 0"} | arguments), 400)
    assert reply["error"]["message"].endswith(".")
    np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)


async def test_hostile_queries_are_never_a_500(client: RestClient) -> None:
    """One server and table for all the queries that hypothesis makes: hundreds of requests in its own loop."""
    texts: list[str] = ["date > 0", *(text for text in REFUSES if text.strip("\0 "))]

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from([*WORDS, *SIGNS, *VALUES, "date", "price", "name"]), max_size=25))
    def draw(parts: list[str]) -> None:
        text = "".join(parts)
        if text.strip() and text.isprintable():  # blanks are no query, as none is
            texts.append(text)

    draw()
    path, values = await table(client)
    for one in texts:
        for reply in (
            await client("POST", f"{path}/value", {"select": "[0:5]", "query": one}),
            await client("GET", f"{path}/value", query=one),
        ):
            assert reply.status in (200, 400), (one, reply.body)
            assert reply.status == 400 or set(reply.facts) == {"status", "index", "value"}, one
    for one in REFUSES[2:]:
        await answered(client("PUT", f"{path}/value", {"price": 1}, query=one), 400)
    np.testing.assert_array_equal(await read(client, path, ROW, (5,)), values)


TEXT = text("H5T_VARIABLE")
VLEN_KIND = compound(
    word=TEXT, n="H5T_STD_I16BE", list=vlen_of(F64), x=F32, code={**text(3), "charSet": "H5T_CSET_ASCII"}
)


def vlen_rows(count: int) -> list[list[Any]]:
    return [["wö" * (i % 40), i % 100, [0.5] * (i % 3), i * 0.5, f"c{i % 10}"] for i in range(count)]


async def vlen_table(client: RestClient, shape: list[int], chunk: list[int]) -> tuple[str, list[Any]]:
    count = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    path = await create(client, shape, VLEN_KIND, layout={"class": "H5D_CHUNKED", "dims": chunk})
    flat = vlen_rows(count)
    value = flat if len(shape) == 1 else [flat[i : i + shape[1]] for i in range(0, count, shape[1])]
    await put(client, path, {"value": value})
    return path, flat


async def test_elements_are_found_by_their_fields_of_fixed_size(client: RestClient) -> None:
    path, flat = await vlen_table(client, [700], [30])
    reply = await client("GET", f"{path}/value", query="n >= 97 & code != b'c8' | x == 2.5")
    places = [i for i, row in enumerate(flat) if (row[1] >= 97 and row[4] != "c8") or row[3] == 2.5]
    assert reply.facts == {"status": 200, "index": places, "value": [flat[i] for i in places]}
    reply = await client("GET", f"{path}/value", query="n == 7", Limit=3, fields="list:word")
    assert reply["index"] == [7, 107, 207]
    assert reply["value"] == [[flat[i][2], flat[i][0]] for i in (7, 107, 207)]
    reply = await client("GET", f"{path}/value", query="n == 7", select="[107:600:50]")
    assert reply["index"] == [107, 207, 307, 407, 507]


async def test_the_answer_is_json_whatever_was_asked_for(client: RestClient) -> None:
    path, flat = await vlen_table(client, [700], [30])
    reply = await client("GET", f"{path}/value", query="n < 50", accept=BINARY)
    assert reply["value"] == [row for row in flat if row[1] < 50]
    reply = await client("GET", f"{path}/value", query="n > 1000", accept=BINARY)
    assert reply.facts == {"status": 200, "index": [], "value": []}


async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with value_client(settings=ServiceSettings(page_size=2000, max_request_size=100_000)) as client:
        path = await create(client, [700], VLEN_KIND, layout=chunked(30))
        await put(client, path, {"value": ["w" * 200, 1, [], 1.0, "c"]})
        await refuses(client("GET", f"{path}/value", query="n == 1"), 413, "Limit")
        assert (await client("GET", f"{path}/value", query="n == 1", Limit=100))["index"] == list(range(100))


async def test_two_dimensions_are_in_row_major_order(client: RestClient) -> None:
    path, flat = await vlen_table(client, [20, 30], [7, 11])
    reply = await client("GET", f"{path}/value", query="n == 5")
    assert reply["index"] == [list(divmod(i, 30)) for i, row in enumerate(flat) if row[1] == 5]
    body = {"points": [[10, 5], [0, 5], [10, 5], [3, 15]], "query": "n == 5"}
    assert (await client("POST", f"{path}/value", body))["index"] == [[0, 5], [3, 15], [10, 5]]


async def test_boxes_are_looked_through_in_row_major_order(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(element_query, "BOXES_AT_ONCE", 7)
    path, flat = await vlen_table(client, [20, 30], [7, 11])
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
    path = await create(client, [3000], VLEN_KIND, layout=chunked(1))
    for place in (5, 2999):
        await put(client, path, {"value": ["w", 1, [], 1.0, "c"], "select": f"[{place}]"})
    reply = await client("GET", f"{path}/value", query=query, fields="word")
    assert reply["index"] == (list(range(3000)) if query == "x >= 0" else [5, 2999])


async def test_what_cannot_be_asked_is_told(client: RestClient) -> None:
    path, _ = await vlen_table(client, [10], [5])
    size = "no fixed size"
    for query, why in (("word == 'a'", size), ("list == 1", size), ("none == 1", "no field")):
        await refuses(client("GET", f"{path}/value", query=query), 400, why)
    await refuses(client("PUT", f"{path}/value", {"n": 1}, query="n == 5"), 400, "write those")
    texts = await create(client, [3], TEXT)
    assert (await client("GET", f"{texts}/value", query="_ == 'a'")).status == 400
    scalar = await create(client, "H5S_SCALAR", VLEN_KIND)
    assert (await client("GET", f"{scalar}/value", query="n == 5")).status == 400


async def test_floats_that_are_not_finite_are_as_in_other_answers(client: RestClient) -> None:
    path, _ = await vlen_table(client, [4], [4])
    await put(client, path, {"value": [["a", 1, ["nan"], "inf", "c"]], "select": "[2:3]"})
    reply = await client("GET", f"{path}/value", query="x > 1000")
    assert json.dumps(reply["value"]) == '[["a", 1, [NaN], Infinity, "c"]]'
    reply = await client("GET", f"{path}/value", query="x > 1000", ignore_nan=1)
    assert reply["value"] == [["a", 1, [None], None, "c"]]


@pytest.mark.parametrize("layout", ["dense", "sparse", "sparse without statistics"])
@pytest.mark.parametrize("descending", [False, True])
async def test_the_first_elements_by_value(layout: str, descending: bool) -> None:
    rng = np.random.default_rng(7)
    values = rng.integers(1, 300, (30, 50)).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    dims = sparse(3, 5) if "sparse" in layout else chunked(3, 5)
    properties = {"chunkStatistics": False} if "without" in layout else {}
    async with value_client(nodes=2) as client:
        path = await create(client, [30, 50], F64, layout=dims, **properties)
        await put(client, path, values.tobytes())
        for select, rows in {"[:,:]": slice(0, 30), "[4:20,:]": slice(4, 20)}.items():
            keys = np.where(np.isnan(values[rows]), np.inf, -values[rows] if descending else values[rows])
            order = np.argsort(keys.reshape(-1), kind="stable")
            matching = [i for i in order.tolist() if not values[rows].reshape(-1)[i] <= 20][:12]
            ask = {"query": "not (_ <= 20)", "order_by": "-_" if descending else "_", "Limit": 12}
            reply = await answered(client("GET", f"{path}/value", select=select, **ask))
            wanted = [[i // 50 + rows.start, i % 50] for i in matching]
            assert reply["index"] == wanted
            reply = await client("GET", f"{path}/value", accept=BINARY, select=select, **ask)
            assert np.frombuffer(reply.body).tolist() == values[tuple(np.array(wanted).T)].tolist()
        boxes = {"class": "H5S_SEL_HYPERSLABS", "coordinates": [[[4, 0], [10, 49]], [[11, 0], [19, 49]]]}
        assert (await client("POST", f"{path}/value", {"selection": boxes}, **ask))["index"] == wanted


async def test_elements_that_were_never_written_have_the_fill_value(client: RestClient) -> None:
    path = await create(client, [100], F64, layout=sparse(10), fillValue=5)
    await put(client, path, {"points": [3, 55, 56], "value": [1, 9, 5]})
    for order, index in (("-_", [55, 0, 1]), ("_", [3, 0, 1])):
        assert (await client("GET", f"{path}/value", query="_ > 0", order_by=order, Limit=3))[
            "index"
        ] == index


async def test_fill_values_are_ordered_in_so_many_chunks() -> None:
    async with value_client(settings=replace(SETTINGS, max_query_chunks=100)) as client:
        path = await create(client, [2**40], F64, layout=sparse(10))
        await put(client, path, {"points": [3, 2**39], "value": [2, 1]})
        ask = {"query": "_ < 5", "order_by": "_", "Limit": 1}
        await refuses(client("GET", f"{path}/value", **ask), 413, "max_query_chunks")
        for more, index in (({"select": "[3:903]"}, [4]), ({"query": "_ > 0"}, [2**39])):
            assert (await client("GET", f"{path}/value", **ask | more))["index"] == index


async def test_only_promising_chunks_are_read() -> None:
    store = CountingStore(MemoryStore())
    values = np.random.default_rng(1).permutation(4000) + 1.0
    async with opened(store) as client:
        await client("PUT", "/", {})
        path = await create(client, [4000], F64, layout=sparse(10))
        await put(client, path, values.tobytes())
    async with opened(store) as client:
        store.reset()
        reply = await client("GET", f"{path}/value", query="_ > 0", order_by="-_", Limit=5)
        assert reply["value"] == [4000, 3999, 3998, 3997, 3996]
        assert chunk_gets(store) == 16


async def test_fields_are_picked_after_ordering(client: RestClient) -> None:
    rows = np.zeros(5, ROW)
    rows["date"], rows["price"], rows["name"] = range(5), [3, 1, 2, 1, 5], [b"a", b"b", b"c", b"d", b"e"]
    path = await create(client, [5], KIND)
    await put(client, path, rows.tobytes())
    ask = {"query": "date >= 0", "Limit": 3}
    reply = await client("GET", f"{path}/value", order_by="price", fields="name", **ask)
    assert (reply["index"], reply["value"]) == ([1, 3, 2], [["b"], ["d"], ["c"]])
    reply = await client("POST", f"{path}/value", {"select": "[1:5]", "order_by": "-name", **ask})
    assert reply["index"] == [4, 3, 2]
    for query in (
        {"order_by": "price", "Limit": 3},
        {"order_by": "price", "query": "date >= 0"},
        {"order_by": "none", **ask},
        {"order_by": "price", "query": "date >= 0", "Limit": 10**9},
    ):
        assert (await client("GET", f"{path}/value", **query)).status in (400, 413)
    await answered(client("PUT", f"{path}/value", {"price": 1}, order_by="price", **ask), 400)
