"""Chunks of linked datasets: the file's own chunks, where they lie in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests.sn.chunks.test_handlers import listed, scaled
from tests.sn.in_place.file_backed.test_elements import FILE, PLAIN, URI, File, link, make_table
from tests.sn.value_client import SETTINGS, create, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

SHAPE, CHUNK = (25, 14), (4, 3)
MODEL = np.arange(25 * 14, dtype="<i4").reshape(SHAPE)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore(SETTINGS.bucket))


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[RestClient]:
    async with value_client(store) as client:
        yield client


async def linked(client: RestClient, store: CountingStore, kind: str) -> tuple[str, File]:
    """Link an array by a layout of `kind`; return the dataset's path and the file."""
    file = File(MODEL, CHUNK, packed=True)
    await store.put(FILE, file.data)
    common = {"file_uri": f"{SETTINGS.bucket}/{FILE}", "dims": list(CHUNK)}
    if kind == "listed":
        layout = {"class": "H5D_CHUNKED_REF", **common, "chunks": file.listed() | {"99_0": [0, 0]}}
    elif kind == "table":
        id = await make_table(client, PLAIN, file.table([("offset", "<i8"), ("size", "<i4")]))
        layout = {"class": "H5D_CHUNKED_REF_INDIRECT", **common, "chunk_table": id}
    else:
        values = file.table([("offset", "<i8"), ("size", "<i4"), ("uri", "S40")], uri=lambda _: FILE.encode())
        item = PLAIN | {"fields": [*PLAIN["fields"], URI]}
        id = await make_table(client, item, values)
        layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": list(CHUNK), "chunk_table": id}
    return await link(client, SHAPE, layout, filters=["deflate"]), file


@pytest.mark.parametrize("kind", ["listed", "table", "uris"])
async def test_chunks_are_where_the_file_has_them(
    client: RestClient, store: CountingStore, kind: str
) -> None:
    path, file = await linked(client, store, kind)
    for limit in (1, 7, 1000):
        rows = await listed(client, path, limit=limit)
        assert scaled(rows) == sorted(file.entries)
    for row in rows:
        offset, size = file.entries[tuple(row["scaled"])]
        assert row == {
            "scaled": row["scaled"],
            "offset": [i * n for i, n in zip(row["scaled"], CHUNK, strict=True)],
            "bucket": SETTINGS.bucket,
            "key": FILE,
            "address": offset,
            "size": size,
            "filter_mask": 0,
        }
        name = "_".join(map(str, row["scaled"]))
        assert (await client("GET", f"{path}/chunks/{name}")).body == row
        reply = await client("GET", f"{path}/chunks/{name}/value")
        assert reply.body == bytes(file.data[offset : offset + size])
        assert reply.headers["X-Hdf-filter-mask"] == "0"
    assert (await client("GET", f"{path}/chunks", count_only=1))["count"] == len(file.entries)
    assert (await client("GET", f"{path}/chunks"))["dims"] == list(CHUNK)


async def test_the_order_of_addresses(client: RestClient, store: CountingStore) -> None:
    path, file = await linked(client, store, "listed")
    expected = sorted(file.entries, key=lambda one: file.entries[one])
    assert expected != sorted(expected)
    for limit in (1, 5, 1000):
        assert scaled(await listed(client, path, order="addr", limit=limit)) == expected
    assert scaled(await listed(client, path, order="coord", limit=5)) == sorted(expected)
    third = await client("GET", f"{path}/chunks", order="addr", index=2)
    assert tuple(third["scaled"]) == expected[2]
    missing = next(iter({(i, j) for i in range(7) for j in range(5)} - set(file.entries)))
    reply = await client("GET", f"{path}/chunks", order="addr", marker="_".join(map(str, missing)))
    assert (reply.status, reply["error"]["kind"]) == (404, "not_found")


@pytest.mark.parametrize("kind", ["listed", "table"])
async def test_a_selection_chooses_and_missing_chunks_have_no_address(
    client: RestClient, store: CountingStore, kind: str
) -> None:
    path, file = await linked(client, store, kind)
    expected = [one for one in sorted(file.entries) if one[0] in (1, 2) and one[1] == 0]
    assert scaled(await listed(client, path, select="[4:12:2,2]")) == expected
    count = await client("GET", f"{path}/chunks", select="[4:12:2,2]", count_only=1)
    assert count["count"] == len(expected)
    i, j = next(iter({(i, j) for i in range(7) for j in range(5)} - set(file.entries)))
    reply = await client("GET", f"{path}/chunks/{i}_{j}")
    assert reply.body == {"scaled": [i, j], "offset": [4 * i, 3 * j], "size": 0, "address": None}
    assert (await client("GET", f"{path}/chunks/{i}_{j}/value")).status == 404
    assert (await client("GET", f"{path}/chunks/7_0")).status == 400


async def test_the_selection_of_all_chunks(client: RestClient, store: CountingStore) -> None:
    path, file = await linked(client, store, "table")
    corners = (await client("GET", f"{path}/chunks/selection"))["selection"]["coordinates"]
    cover = np.zeros(SHAPE, int)
    for low, high in corners:
        cover[low[0] : high[0] + 1, low[1] : high[1] + 1] += 1
    expected = np.zeros(SHAPE, int)
    for i, j in file.entries:
        expected[4 * i : 4 * i + 4, 3 * j : 3 * j + 3] = 1
    assert (cover == expected).all()


@pytest.mark.parametrize("size", [MODEL.nbytes, 0])
async def test_contiguous_data_is_one_chunk(client: RestClient, store: CountingStore, size: int) -> None:
    await store.put(FILE, b"head" + MODEL.tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 4, "size": size}
    path = await link(client, SHAPE, layout)
    rows = await listed(client, path)
    if not size:
        assert rows == []
        return
    assert [(row["scaled"], row["address"], row["size"]) for row in rows] == [([0, 0], 4, size)]
    assert (await client("GET", f"{path}/chunks/0_0/value")).body == MODEL.tobytes()


async def test_nothing_is_written_into_a_file(client: RestClient, store: CountingStore) -> None:
    path, file = await linked(client, store, "listed")
    reply = await client("PUT", f"{path}/chunks/0_0/value", b"x")
    assert (reply.status, reply["error"]["kind"]) == (400, "bad_request")
    assert (await store.get(FILE)).data == bytes(file.data)


async def test_a_file_that_was_changed_is_refused(client: RestClient, store: CountingStore) -> None:
    path, file = await linked(client, store, "listed")
    await store.put(FILE, b"other" + bytes(file.data))
    name = "_".join(map(str, next(iter(file.entries))))
    reply = await client("GET", f"{path}/chunks/{name}/value")
    assert (reply.status, reply["error"]["kind"]) == (409, "conflict")


async def test_a_file_without_the_right_to_it_is_not_told_of(client: RestClient) -> None:
    """As a read of its values: the table may name any file."""
    table: Any = np.zeros(1, [("offset", "<i8"), ("size", "<i4"), ("uri", "S40")])
    table["size"], table["uri"] = 8, b"../secret"
    id = await make_table(client, PLAIN | {"fields": [*PLAIN["fields"], URI]}, table)
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [2], "chunk_table": id}
    path = await create(client, [2], "H5T_STD_I32LE", layout=layout)
    for tail in ("", "/0", "/0/value"):
        assert (await client("GET", f"{path}/chunks{tail}")).status == 400
