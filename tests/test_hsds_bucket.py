"""A bucket that HSDS 1.0.2 wrote, as h5pyd told it: every class of type, compressed chunks too.

`tests/data/hsds-types-1.0.2.json` has the objects by key, in base64.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - HSDS's LZ4 is Blosc's
import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from tests.support.rest_client import BINARY, RestClient
from tests.testing.memory_store import MemoryStore

OBJECTS = Path(__file__).parent / "data/hsds-types-1.0.2.json"
TEXT = [f"ä{n}" * n for n in range(40)]
VALUES: dict[str, Any] = {
    "text": TEXT,
    "gz": TEXT,
    "ints": [[1, 2, 3], [], [], [4], []],
    "rec": [[0, "", []], [1, "x", [0]], [2, "xx", [0, 1]]],
    "arr": [[["a", "bb"], 4], [["", "c"], 4]],
    "scalar": "héllo",
    "fill": ["fill"] * 3,
    "bool": [True, False],
    "opaque": [base64.b64encode(b"abc\0").decode(), base64.b64encode(b"d\0\0\0").decode()],
    "cplx": [[1.0, 2.0]],
    "arrint": [[0, 0, 0], [0, 1, 2], [3, 4, 5], [0, 0, 0]],
    "num": np.arange(600).reshape(20, 30).tolist(),
    "lz4": np.arange(600.0).tolist(),
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    store, clock = MemoryStore(), SystemClock()
    for key, data in json.loads(OBJECTS.read_text()).items():
        await store.put_if_absent(key, base64.b64decode(data))
    node = DataService(store, clock)
    client = await RestClient(node, clock, Principal("admin", admin=True)).open()
    client.domain = "/home/a.h5"
    yield client
    await client.close()
    await node.close()


async def found(client: RestClient, name: str) -> str:
    reply = await client("GET", "/datasets/", h5path=f"/{name}")
    assert reply.status == 200, reply.body
    return f"/datasets/{reply['id']}"


@pytest.mark.parametrize("name", VALUES)
async def test_values(client: RestClient, name: str) -> None:
    reply = await client("GET", f"{await found(client, name)}/value")
    assert reply.status == 200, reply.body
    assert reply["value"] == VALUES[name]


async def test_references(client: RestClient) -> None:
    text = (await found(client, "text")).removeprefix("/")
    (group, dataset) = (await client("GET", f"{await found(client, 'ref')}/value"))["value"]
    assert dataset.rpartition("/")[2] == text.rpartition("/")[2]
    assert (await client("GET", f"/groups/{group.rpartition('/')[2]}")).status == 200
    (region,) = (await client("GET", f"{await found(client, 'reg')}/value"))["value"]
    assert text.endswith(region["id"])
    assert (region["select_type"], region["selection"]) == ("H5S_SEL_HYPERSLABS", [[[2], [4]]])


async def test_attributes(client: RestClient) -> None:
    root = (await client("GET", "/"))["root"]
    own = f"/groups/{root}/attributes"
    assert (await client("GET", f"{own}/s"))["value"] == "é"
    assert (await client("GET", f"{own}/v"))["value"] == [[1, 2], [3]]
    reply = await client("GET", f"{own}/v/value", accept=BINARY)
    assert reply.body == np.array([8, 1, 2, 4, 3], "<i4").tobytes()


async def test_writing_beside_what_is_there(client: RestClient) -> None:
    path = await found(client, "gz")
    assert (await client("PUT", f"{path}/value", {"value": ["new"]}, select="[17:18]")).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [*TEXT[:17], "new", *TEXT[18:]]


async def test_as_a_file(client: RestClient) -> None:
    """What HSDS compressed in its own form is unfiltered there."""
    data = (await client("GET", "/files/home/a.h5", domain=None)).body
    with h5py.File(io.BytesIO(data)) as file:
        assert (file["num"][()].tolist(), file["lz4"][()].tolist()) == (VALUES["num"], VALUES["lz4"])
        assert file["num"].compression is None
        assert file["text"].asstr()[()].tolist() == file["gz"].asstr()[()].tolist() == TEXT
        assert file["fill"].asstr()[()].tolist() == VALUES["fill"]
        assert [one.tolist() for one in file["ints"][()]] == VALUES["ints"]
        assert file["bool"][()].tolist() == VALUES["bool"]
        assert [file[one].name for one in file["ref"][()]][1] == "/text"
        assert file[file["reg"][0]].name == "/text"
