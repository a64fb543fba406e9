"""Chunk queries against a model: which chunks there are after writes and erasures, in every order, and where."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.model.acl import Principal
from tests.sn.dataset_kinds import I32, chunked, sparse
from tests.sn.value_client import SETTINGS, create, put
from tests.support.rest_client import RestClient, answered
from tests.testing.memory_store import MemoryStore

Scaled = tuple[int, ...]


async def write(client: RestClient, path: str, select: str, value: int = 1) -> None:
    await put(client, path, {"value": value, "select": select})


async def listed(client: RestClient, path: str, **options: Any) -> list[dict[str, Any]]:
    """Return all chunks, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        reply = await answered(client("GET", f"{path}/chunks", **options))
        found += reply["chunks"]
        if "marker" not in reply.body:
            return found
        assert len(reply["chunks"]) == options.get("limit", 1000)
        options["marker"] = reply["marker"]


def scaled(rows: list[dict[str, Any]]) -> list[Scaled]:
    return [tuple(row["scaled"]) for row in rows]


async def test_info_of_a_sparse_chunk(client: RestClient) -> None:
    path = await create(client, [40, 30], I32, layout=sparse(16, 16), filters=["shuffle", "deflate"])
    await write(client, path, "[20,3:7]")
    (row,) = await listed(client, path)
    assert (row["scaled"], row["offset"], row["bucket"]) == ([1, 0], [16, 0], SETTINGS.bucket)
    assert row["key"].endswith("/1_0")
    assert (row["address"], row["defined"]) == (0, 4)
    selection, values = row["sections"]
    assert (selection["type"], values["type"]) == ("H5_SECTION_SELECTION", "H5_SECTION_FIXED")
    assert (selection["offset"], values["offset"]) == (0, selection["size"])
    assert values["unfiltered_size"] == 16
    assert (selection["filter_mask"], values["filter_mask"]) == (0, 0)
    assert row["size"] == selection["size"] + values["size"]
    assert row["etag"]
    assert (await client("GET", f"{path}/chunks/1_0")).body == row


async def test_info_of_a_dense_chunk(client: RestClient) -> None:
    path = await create(client, [1000], I32, layout=chunked(256))
    await write(client, path, "[300:310]")
    reply = await client("GET", f"{path}/chunks")
    assert reply["dims"] == [256]
    (row,) = reply["chunks"]
    expected = {"scaled": [1], "offset": [256], "address": 0, "size": 1024, "filter_mask": 0}
    assert row.items() >= expected.items()
    assert (await client("GET", f"{path}/chunks/1")).body == row


@pytest.mark.parametrize("layout", [sparse(10), chunked(300)], ids=["sparse", "dense"])
async def test_a_missing_chunk_has_size_0_and_no_address(client: RestClient, layout: Any) -> None:
    path = await create(client, [1000], I32, layout=layout)
    reply = await answered(client("GET", f"{path}/chunks/3"))
    assert reply.body == {"scaled": [3], "offset": [3 * layout["dims"][0]], "size": 0, "address": None}
    assert await listed(client, path) == []
    assert (await client("GET", f"{path}/chunks", count_only=1)).body == {"count": 0}


@pytest.mark.parametrize(
    "name", ["1", "1_2_3", "x_1", "-1_0", "1_", "5_0", "0_9", "00000000000000000000_1", "1_²"]
)
async def test_what_names_no_chunk_is_refused(client: RestClient, name: str) -> None:
    path = await create(client, [40, 30], I32, layout=sparse(10, 10))
    for method, tail in (("GET", ""), ("GET", "/value"), ("PUT", "/value")):
        reply = await client(method, f"{path}/chunks/{name}{tail}", b"" if method == "PUT" else None)
        assert (reply.status, reply["error"]["kind"]) == (400, "bad_request")
        assert "chunk" in reply["error"]["message"]


@pytest.mark.parametrize(
    "query",
    [{"order": "size"}, {"limit": 0}, {"limit": 10_001}, {"index": "x"}, {"marker": "a"}, {"select": "[99]"}],
)
async def test_what_cannot_be_asked(client: RestClient, query: dict[str, Any]) -> None:
    path = await create(client, [40], I32, layout=sparse(10))
    assert (await client("GET", f"{path}/chunks", **query)).status == 400


async def test_a_scalar_has_one_chunk(client: RestClient) -> None:
    path = await create(client, "H5S_SCALAR", I32)
    assert (await client("GET", f"{path}/chunks/selection")).body == {"selection": {"class": "H5S_SEL_NONE"}}
    await put(client, path, {"value": 7})
    (row,) = await listed(client, path, order="coord")
    assert (row["scaled"], row["offset"], row["size"]) == ([], [], 4)
    assert (await client("GET", f"{path}/chunks/0")).body == row
    assert (await client("GET", f"{path}/chunks", marker="0"))["chunks"] == []
    assert (await client("GET", f"{path}/chunks/selection")).body == {"selection": {"class": "H5S_SEL_ALL"}}


async def test_a_null_dataspace_has_no_chunks(client: RestClient) -> None:
    path = await create(client, "H5S_NULL", I32)
    assert (await client("GET", f"{path}/chunks")).status == 400


async def test_orders(client: RestClient) -> None:
    path = await create(client, [12, 30], I32, layout=sparse(1, 10))
    for row, column in ((2, 15), (10, 5), (2, 3), (11, 29)):
        await write(client, path, f"[{row},{column}]")
    by_key = [(10, 0), (11, 2), (2, 0), (2, 1)]
    for order, expected in (("native", by_key), ("addr", by_key), ("coord", sorted(by_key))):
        for limit in (1, 2, 3, 4):
            assert scaled(await listed(client, path, order=order, limit=limit)) == expected
        for index, wanted in enumerate(expected):
            found = await client("GET", f"{path}/chunks", order=order, index=index)
            assert tuple(found["scaled"]) == wanted
        past = await client("GET", f"{path}/chunks", order=order, index=4)
        assert (past.status, past["error"]["kind"]) == (404, "not_found")
    # A marker need not be a chunk that there is.
    assert scaled(await listed(client, path, order="coord", marker="2_2")) == [(10, 0), (11, 2)]
    assert scaled(await listed(client, path, order="native", marker="11_1")) == [(11, 2), (2, 0), (2, 1)]


async def test_chunks_beyond_a_smaller_extent_are_gone(client: RestClient) -> None:
    path = await create(client, [40], I32, layout=sparse(10), maxdims=[0])
    await write(client, path, "[:]")
    assert (await client("PUT", f"{path}/shape", {"shape": [15]})).status == 201
    assert [(row["scaled"], row["defined"]) for row in await listed(client, path)] == [([0], 10), ([1], 5)]
    reply = await client("GET", f"{path}/chunks/selection")
    assert reply["selection"] == {"class": "H5S_SEL_HYPERSLABS", "coordinates": [[[0], [14]]]}


async def test_a_chunk_whose_elements_were_erased_is_stored_and_defines_none(client: RestClient) -> None:
    path = await create(client, [40], I32, layout=sparse(10))
    await write(client, path, "[0:5]")
    await client("DELETE", f"{path}/value", select="[0:10]")
    (row,) = await listed(client, path)
    assert (row["defined"], row["sections"][1]["size"]) == (0, 0)


async def test_the_chunks_map_is_no_chunk(client: RestClient) -> None:
    """So many chunks that what their footers say is kept beside them; statistics do not count it."""
    path = await create(client, [200], I32, layout=sparse(1))
    await write(client, path, "[:]")
    before = (await client("GET", "/", verbose=1)).body
    for order in ("native", "coord"):
        assert len(await listed(client, path, order=order, limit=70)) == 200
    assert (await client("GET", f"{path}/chunks", count_only=1)).body == {"count": 200}
    after = (await client("PUT", "/", {"rescan": 1}), await client("GET", "/", verbose=1))[1].body
    for key in ("num_chunks", "allocated_bytes", "md5_sum", "lastModified"):
        assert after[key] == before[key]
    assert (await client("GET", path, verbose=1))["num_chunks"] == 200


# --- against a model ------------------------------------------------------------------------------

SHAPE, CHUNK = (17, 11), (3, 4)
BOX = st.tuples(
    *(
        st.tuples(st.integers(0, n - 1), st.integers(1, n), st.integers(1, 5)).map(
            lambda found, n=n: (found[0], min(n, found[0] + found[1]), found[2])
        )
        for n in SHAPE
    )
)
STEPS = st.lists(st.tuples(st.booleans(), BOX), max_size=6)


def text(box: Any) -> str:
    return "[" + ",".join(f"{start}:{stop}:{step}" for start, stop, step in box) + "]"


def slices(box: Any) -> tuple[slice, ...]:
    return tuple(slice(*some) for some in box)


def touched(mask: np.ndarray) -> list[Scaled]:
    """Return the chunks that have a marked element, in row-major order."""
    return sorted({(i // CHUNK[0], j // CHUNK[1]) for i, j in np.argwhere(mask).tolist()})


@given(steps=STEPS, select=BOX, limit=st.integers(1, 7), nodes=st.sampled_from([1, 2]))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
async def test_chunks_after_writes_and_erasures(
    steps: list[tuple[bool, Any]], select: Any, limit: int, nodes: int
) -> None:
    clock, store = SystemClock(), MemoryStore(page_size=3)
    services: dict[str, Any] = {f"dn-{number}": DataService(store, clock) for number in range(nodes)}
    client = await RestClient(services, clock, Principal("admin", admin=True), settings=SETTINGS).open()
    client.domain = "/model"
    assert (await client("PUT", "/", {})).status == 201
    path = await create(client, list(SHAPE), I32, layout=sparse(*CHUNK))
    defined, written = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    for erase, box in steps:
        if erase:
            await client("DELETE", f"{path}/value", select=text(box))
            defined[slices(box)] = False
        else:
            await write(client, path, text(box))
            defined[slices(box)] = written[slices(box)] = True
    rows = await listed(client, path, order="coord", limit=limit)
    assert scaled(rows) == touched(written)
    for row in rows:
        box = tuple(slice(i * n, (i + 1) * n) for i, n in zip(row["scaled"], CHUNK, strict=True))
        assert row["defined"] == defined[box].sum()
        assert (await client("GET", f"{path}/chunks/{row['scaled'][0]}_{row['scaled'][1]}")).body == row
    in_keys = await listed(client, path, limit=limit)
    assert sorted(scaled(in_keys)) == touched(written)
    assert [row["key"] for row in in_keys] == sorted(row["key"] for row in rows)
    selected = np.zeros(SHAPE, bool)
    selected[slices(select)] = True
    expected = [one for one in touched(written) if one in touched(selected)]
    assert scaled(await listed(client, path, order="coord", select=text(select))) == expected
    count = await client("GET", f"{path}/chunks", count_only=1, select=text(select))
    assert count.body == {"count": len(expected)}
    stored = (await client("GET", f"{path}/chunks/selection"))["selection"]
    cover = np.zeros(SHAPE, bool)
    for i, j in touched(written):
        cover[i * CHUNK[0] : (i + 1) * CHUNK[0], j * CHUNK[1] : (j + 1) * CHUNK[1]] = True
    coords = parse_selection_json(stored, SHAPE).coords().tolist()
    assert coords == np.argwhere(cover).tolist()
    assert stored["class"] == ("H5S_SEL_HYPERSLABS" if cover.any() else "H5S_SEL_NONE")
    await client.close()
    for service in services.values():
        await service.close()


async def test_selections_of_points_and_lists(client: RestClient) -> None:
    path = await create(client, [40, 40], I32, layout=sparse(10, 10))
    for i, j in itertools.product(range(4), repeat=2):
        await write(client, path, f"[{10 * i},{10 * j}]")
    rows = await listed(client, path, select="[[3,25],[7,31]]")
    assert scaled(rows) == [(0, 0), (2, 3)]
    assert len(await listed(client, path, select="[[3,25],:]")) == 8
