"""Queries that are ordered by value, over HTTP, against numpy; and what they read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sn.value_client import BINARY, SETTINGS, create, sparse, value_client
from tests.sn.values.test_query_values import KIND, ROW
from tests.sn.values.test_statistics_pruning import chunk_gets, opened
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

F8 = "H5T_IEEE_F64LE"


@pytest.mark.parametrize("layout", ["dense", "sparse", "sparse without statistics"])
@pytest.mark.parametrize("descending", [False, True])
async def test_the_first_elements_by_value(layout: str, descending: bool) -> None:
    rng = np.random.default_rng(7)
    values = rng.integers(1, 300, (30, 50)).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    dims = sparse(3, 5) if "sparse" in layout else {"class": "H5D_CHUNKED", "dims": [3, 5]}
    properties = {"chunkStatistics": False} if "without" in layout else {}
    async with value_client(nodes=2) as client:
        path = await create(client, [30, 50], F8, layout=dims, **properties)
        assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
        for select, rows in {"[:,:]": slice(0, 30), "[4:20,:]": slice(4, 20)}.items():
            keys = np.where(np.isnan(values[rows]), np.inf, -values[rows] if descending else values[rows])
            order = np.argsort(keys.reshape(-1), kind="stable")
            matching = [i for i in order.tolist() if not values[rows].reshape(-1)[i] <= 20][:12]
            ask = {"query": "not (_ <= 20)", "order_by": "-_" if descending else "_", "Limit": 12}
            reply = await client("GET", f"{path}/value", select=select, **ask)
            assert reply.status == 200, reply.body
            wanted = [[i // 50 + rows.start, i % 50] for i in matching]
            assert reply["index"] == wanted
            reply = await client("GET", f"{path}/value", accept=BINARY, select=select, **ask)
            assert np.frombuffer(reply.body).tolist() == values[tuple(np.array(wanted).T)].tolist()
        boxes = {"class": "H5S_SEL_HYPERSLABS", "coordinates": [[[4, 0], [10, 49]], [[11, 0], [19, 49]]]}
        reply = await client("POST", f"{path}/value", {"selection": boxes}, **ask)
        assert reply["index"] == wanted


async def test_elements_that_were_never_written_have_the_fill_value() -> None:
    async with value_client() as client:
        path = await create(client, [100], F8, layout=sparse(10), fillValue=5)
        await client("PUT", f"{path}/value", {"points": [3, 55, 56], "value": [1, 9, 5]})
        ask = {"query": "_ > 0", "order_by": "-_", "Limit": 3}
        assert (await client("GET", f"{path}/value", **ask))["index"] == [55, 0, 1]
        ask["order_by"] = "_"
        assert (await client("GET", f"{path}/value", **ask))["index"] == [3, 0, 1]


async def test_fill_values_are_ordered_in_so_many_chunks() -> None:
    async with value_client(settings=replace(SETTINGS, max_query_chunks=100)) as client:
        path = await create(client, [2**40], F8, layout=sparse(10))
        await client("PUT", f"{path}/value", {"points": [3, 2**39], "value": [2, 1]})
        refused = await client("GET", f"{path}/value", query="_ < 5", order_by="_", Limit=1)
        assert refused.status == 413
        assert "max_query_chunks" in refused["error"]["message"]
        some = await client("GET", f"{path}/value", query="_ < 5", order_by="_", Limit=1, select="[3:903]")
        assert some["index"] == [4]
        stored = await client("GET", f"{path}/value", query="_ > 0", order_by="_", Limit=1)
        assert stored["index"] == [2**39]


async def test_only_promising_chunks_are_read() -> None:
    store = CountingStore(MemoryStore())
    values = np.random.default_rng(1).permutation(4000) + 1.0
    async with opened(store) as client:
        await client("PUT", "/", {})
        path = await create(client, [4000], F8, layout=sparse(10))
        await client("PUT", f"{path}/value", values.tobytes())
    async with opened(store) as client:
        store.reset()
        reply = await client("GET", f"{path}/value", query="_ > 0", order_by="-_", Limit=5)
        assert reply["value"] == [4000, 3999, 3998, 3997, 3996]
        assert chunk_gets(store) == 16


async def test_fields_are_picked_after_ordering() -> None:
    rows = np.zeros(5, ROW)
    rows["date"], rows["price"], rows["name"] = range(5), [3, 1, 2, 1, 5], [b"a", b"b", b"c", b"d", b"e"]
    async with value_client() as client:
        path = await create(client, [5], KIND)
        await client("PUT", f"{path}/value", rows.tobytes())
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
        changed = await client("PUT", f"{path}/value", {"price": 1}, order_by="price", **ask)
        assert changed.status == 400
