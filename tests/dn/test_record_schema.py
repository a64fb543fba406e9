"""Records of a newer hsparse: what may be done with them, and that nothing of them is rewritten."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hsparse.clock import SystemClock
from hsparse.dn.record_form import RecordCodec
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt, Unsupported
from hsparse.model.acl import Principal
from hsparse.model.ids import storage_key
from tests.sn.value_client import SETTINGS, create, sparse, value_client
from tests.support.rest_client import RestClient
from tests.support.stored_attribute import remove_checksum
from tests.testing.memory_store import MemoryStore

CODEC = RecordCodec("db/1/.group.json")
INT = "H5T_STD_I32LE"
CHUNKED = {"class": "H5D_CHUNKED", "dims": [4]}


def stored(**schema: Any) -> bytes:
    return json.dumps({"id": "g-1", "schema": {"version": 1} | schema}).encode()


def test_a_record_without_new_features_is_stored_as_0_1_does() -> None:
    """But for a checksum, which 0.1 ignores."""
    assert remove_checksum(CODEC.encode({"id": "g-1", "links": {}})) == b'{"id":"g-1","links":{}}'


def test_an_append_under_way_is_a_feature() -> None:
    record = {"id": "d-1", "appends": {"dim": 0, "parts": [], "dropped": {"a": 1.0}}}
    data = CODEC.encode(record)
    assert json.loads(data)["schema"] == {"version": 1, "readFeatures": [], "writeFeatures": ["appends"]}
    assert CODEC.decode(data) == record


@pytest.mark.parametrize(
    ("schema", "named"), [({"version": 2}, "version 2"), ({"readFeatures": ["spirals"]}, "'spirals'")]
)
def test_what_cannot_be_read_is_refused(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        CODEC.decode(stored(**schema))
    for part in ("db/1/.group.json", named, "newer hsparse"):
        assert part in refused.value.message


def test_a_schema_of_an_unknown_form_is_corrupt() -> None:
    with pytest.raises(Corrupt, match=r"db/1/\.group\.json"):
        CODEC.decode(stored(writeFeatures=3))


@asynccontextmanager
async def next_server(store: MemoryStore) -> AsyncIterator[RestClient]:
    """A client of another server over the store."""
    clock = SystemClock()
    node = DataService(store, clock)
    client = await RestClient(node, clock, Principal("admin", admin=True), settings=SETTINGS).open()
    client.domain = "/home/admin/values.h5"
    yield client
    await client.close()
    await node.close()


async def demand(store: MemoryStore, id: str, **schema: Any) -> None:
    """Let the record of an object need something."""
    record = json.loads((await store.get(storage_key(id))).data)
    await store.put(storage_key(id), json.dumps(record | {"schema": {"version": 1} | schema}).encode())


async def content(store: MemoryStore) -> dict[str, bytes]:
    keys = [entry.key async for page in store.list("") for entry in page.entries]
    return {key: (await store.get(key)).data for key in keys}


@pytest.mark.parametrize("layout", [CHUNKED, sparse(4)], ids=["dense", "sparse"])
@pytest.mark.parametrize("shrunk", [False, True])
async def test_an_object_with_an_unknown_write_feature_is_read_only(
    layout: dict[str, Any], shrunk: bool
) -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        dataset = await create(client, [8], INT, maxdims=[0], layout=layout)
        assert (await client("PUT", f"{dataset}/value", {"value": list(range(8))})).status == 200
        if shrunk:  # a chunk message then tells the generation before the record is read
            assert (await client("PUT", f"{dataset}/shape", {"shape": [6]})).status == 201
        attribute = {"type": INT, "value": 1}
        assert (await client("PUT", f"{dataset}/attributes/a", attribute)).status == 201
    await demand(store, dataset.removeprefix("/datasets/"), writeFeatures=["spirals"])
    before = await content(store)
    async with next_server(store) as client:
        count = 6 if shrunk else 8
        for _ in range(2):
            assert (await client("GET", f"{dataset}/value"))["value"] == list(range(count))
            assert (await client("GET", f"{dataset}/attributes/a"))["value"] == 1
            changes: list[tuple[str, str, Any]] = [
                ("PUT", f"{dataset}/value", {"value": [9] * count}),
                ("PUT", f"{dataset}/value", {"append": 1, "value": [9]}),
                ("PUT", f"{dataset}/shape", {"shape": [3]}),
                ("PUT", f"{dataset}/shape", {"shape": [30]}),
                ("PUT", f"{dataset}/attributes/b", attribute),
                ("DELETE", f"{dataset}/attributes/a", None),
                ("DELETE", dataset, None),
            ]
            if layout is not CHUNKED:
                changes.append(("DELETE", f"{dataset}/value?select=[0:2]", None))
            for method, path, body in changes:
                path, _, select = path.partition("?select=")
                reply = await client(method, path, body, **({"select": select} if select else {}))
                assert (reply.status, reply["error"]["kind"]) == (400, "unsupported"), (method, path)
                assert "'spirals'" in reply["error"]["message"]
    assert await content(store) == before


async def test_an_object_with_an_unknown_read_feature_is_refused_alone() -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        known = await create(client, [8], INT)
        unknown = await create(client, [8], INT)
    await demand(store, unknown.removeprefix("/datasets/"), readFeatures=["spirals"])
    before = (await store.get(storage_key(unknown.removeprefix("/datasets/")))).data
    async with next_server(store) as client:
        for method, path, body in (
            ("GET", unknown, None),
            ("GET", f"{unknown}/value", None),
            ("PUT", f"{unknown}/value", {"value": [1] * 8}),
            ("DELETE", unknown, None),
        ):
            reply = await client(method, path, body)
            assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
            assert "'spirals'" in reply["error"]["message"]
        assert (await client("GET", f"{known}/value")).status == 200
        assert (await client("PUT", f"{known}/value", {"value": [1] * 8})).status == 200
    assert (await store.get(storage_key(unknown.removeprefix("/datasets/")))).data == before
