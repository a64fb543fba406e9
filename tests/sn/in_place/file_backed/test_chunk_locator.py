"""Chunk tables that the server fills from an HDF5 file of the store."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.hdf5.in_place.file_backed import chunk_locator
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

KEY = "data/deep/file.h5"
FIELDS = [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}]
MASK = {"name": "filter_mask", "type": "H5T_STD_U32LE"}
VALUES = np.random.default_rng(3).integers(0, 99, (50, 70)).astype("<i4")


def make_file(libver: str = "earliest", userblock: int = 0) -> bytes:
    held = io.BytesIO()
    with h5py.File(held, "w", libver=libver, userblock_size=userblock) as file:
        file.create_dataset("g/a", data=VALUES, chunks=(10, 20), compression="gzip")
        holes = file.create_dataset("holes", (50, 70), "<i4", chunks=(10, 20), maxshape=(None, None))
        holes[10:20, 20:40] = 7
        file["contiguous"] = VALUES
        file["soft"] = h5py.SoftLink("/g/a")
    return held.getvalue()


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.put(KEY, make_file())
    await store.put("data/text.h5", b"no HDF5 " * 100)
    await store.put("home/alice/a.h5", make_file())
    return store


@pytest.fixture
async def client(store: MemoryStore) -> AsyncIterator[RestClient]:
    node = DataService(store, SystemClock())
    settings = ServiceSettings(bucket=store.name)
    users = (Principal("bob"), Principal("alice"))
    client = await RestClient(node, SystemClock(), *users, settings=settings).open()
    client.domain = "/home/bob/x.h5"
    assert (await client("PUT", "/", {})).status == 201
    yield client
    await client.close()
    await node.close()


def options(key: str = KEY, h5path: str = "/g/a", bucket: str = "memory") -> list[str]:
    return ["chunklocator", f"--h5path={h5path}", f"--filepath={key}", f"--bucket={bucket}"]


async def fill(
    client: RestClient, initializer: Any, shape: Any = (5, 4), fields: Any = FIELDS, **body: Any
) -> Any:
    kind = {"class": "H5T_COMPOUND", "fields": fields}
    made = {"type": kind, "shape": list(shape), "creationProperties": {"initializer": initializer}}
    return await client("POST", "/datasets", made | body)


async def linked(client: RestClient, table: str) -> Any:
    layout = {
        "class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": f"s3://memory/{KEY}", "dims": [10, 20], "chunk_table": table
    }  # fmt: skip
    body = {
        "type": "H5T_STD_I32LE",
        "shape": [50, 70],
        "creationProperties": {"layout": layout, "filters": ["gzip"]},
    }
    made = await client("POST", "/datasets", body)
    assert made.status == 201, made.body
    return (await client("GET", f"/datasets/{made['id']}/value"))["value"]


@pytest.mark.parametrize(
    ("libver", "userblock"), [("earliest", 0), ("latest", 0), ("earliest", 512), ("v110", 1024)]
)
async def test_a_table_is_filled_from_the_file(
    client: RestClient, store: MemoryStore, libver: str, userblock: int
) -> None:
    await store.put(KEY, make_file(libver, userblock))
    for fields in (FIELDS, [*FIELDS, MASK]):
        table = await fill(client, options(), fields=fields)
        assert table.status == 201, table.body
        assert "initializer" not in table["creationProperties"]
        np.testing.assert_array_equal(await linked(client, table["id"]), VALUES)


async def test_a_chunk_that_is_not_there_has_no_entry(client: RestClient) -> None:
    table = await fill(client, " ".join(options(h5path="/holes")))
    entries = np.array((await client("GET", f"/datasets/{table['id']}/value"))["value"])
    assert np.argwhere(entries[..., 1] > 0).tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("initializer", "status"),
    [
        (options(key="data/none.h5"), 404),
        (options(h5path="/none"), 404),
        (options(h5path="/g"), 404),
        (options(h5path="/soft"), 404),
        (options(h5path="/g/a/b"), 404),
        (options(h5path="/contiguous"), 400),
        (options(key="data/text.h5"), 400),
        (options(key="../x.h5"), 400),
        (options(bucket="s3://other"), 403),
        (options()[:3], 400),
        ([*options(), "--more=1"], 400),
        ([*options()[:3], 7], 400),
        (options(h5path=""), 400),
        ("chunklocator", 400),
    ],
)
async def test_what_cannot_be_filled(client: RestClient, initializer: Any, status: int) -> None:
    reply = await fill(client, initializer)
    assert reply.status == status, reply.body
    assert reply["error"]["message"].endswith(".")


async def test_a_table_of_another_form(client: RestClient) -> None:
    assert (await fill(client, options(), shape=(5, 3))).status == 400
    assert (await fill(client, options(), shape=(20,))).status == 400
    assert (await fill(client, options(), fields=FIELDS[:1])).status == 400
    assert (
        await fill(client, options(), fields=[*FIELDS, {"name": "f", "type": "H5T_IEEE_F32LE"}])
    ).status == 400
    assert (await fill(client, options(), shape=(1 << 20, 1 << 10))).status == 413
    assert (await fill(client, options(), value=[[[0, 0]] * 4] * 5)).status == 400
    assert (await client("GET", "/datasets"))["datasets"] == []


async def test_the_file_needs_a_right(client: RestClient) -> None:
    assert (await client("PUT", "/", {}, user="alice", domain="/home/alice/y.h5")).status == 201
    await client("PUT", "/acls/default", {"read": False}, user="alice", domain="/home/alice")
    assert (await fill(client, options(key="home/alice/a.h5"))).status == 403


async def test_no_more_is_read_than_an_index_has(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_locator, "MAX_READ", 1000)
    reply = await fill(client, options())
    assert (reply.status, "--link" in reply["error"]["message"]) == (413, True)


async def test_blocks_are_bounded(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_locator, "BLOCK_BYTES", 512)
    monkeypatch.setattr(chunk_locator, "MAX_BLOCKS", 1)
    table = await fill(client, options())
    np.testing.assert_array_equal(await linked(client, table["id"]), VALUES)
