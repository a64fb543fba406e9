"""Answers in JSON that would have many lists, or objects: they are refused, or made beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.format.value_arrays import FixedArrays
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import BINARY, create, sparse, value_client
from tests.support.rest_client import RestClient

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
NESTED = {"class": "H5T_ARRAY", "base": "H5T_STD_I8LE", "dims": [1] * 31}
HUGE = 1 << 33


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(settings=ServiceSettings()) as made:
        yield made


@pytest.mark.parametrize("kind", ["H5T_STD_I8LE", TEXT], ids=["numbers", "text"])
async def test_lists_without_elements_count(client: RestClient, kind: Any) -> None:
    path = await create(client, [HUGE, 10], kind)
    refused = await client("GET", f"{path}/value", select=f"[0:{HUGE},5:5]")
    assert refused.status == 413
    assert "octet-stream" in refused["error"]["message"]
    reply = await client("GET", f"{path}/value", select=f"[0:{HUGE},5:5]", accept=BINARY)
    assert (reply.status, reply.body) == (200, b"")
    assert (await client("GET", f"{path}/value", select="[0:3,5:5]"))["value"] == [[], [], []]


@pytest.mark.parametrize("kind", ["H5T_STD_I32LE", TEXT], ids=["numbers", "text"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("dims", [[1 << 31, 0, 1 << 31], [0, 1 << 40, 1 << 40], [1 << 62, 8, 0]], ids=str)
async def test_no_elements_of_a_shape_that_numpy_has_not(
    client: RestClient, dims: list[int], layout: str, kind: Any
) -> None:
    """They are read and written as any others; lists without elements would be too many."""
    properties = {"layout": sparse(4, 4, 4)} if layout == "sparse" else {}
    path = await create(client, dims, kind, **properties)
    for reply in (
        await client("GET", f"{path}/value", accept=BINARY),
        await client("POST", f"{path}/value", {"select": "[...]"}, accept=BINARY),
    ):
        assert (reply.status, reply.body) == (200, b"")
    assert (await client("PUT", f"{path}/value", b"")).status == 200
    body = {"reads": [{"ids": [path.rpartition("/")[2]]}]}
    assert (await client("POST", "/datasets/values", body, accept=BINARY)).body == bytes(8)
    expected = 413 if dims[0] else 200
    assert (await client("GET", f"{path}/value")).status == expected


async def test_lists_in_elements_count(client: RestClient) -> None:
    path = await create(client, [1_000_000], NESTED)
    assert (await client("GET", f"{path}/value")).status == 413
    assert (await client("GET", f"{path}/value", query="_ > 0")).status == 400
    assert (await client("GET", f"{path}/value", select="[0:2]")).status == 200


async def test_an_empty_density_and_an_empty_reduction_have_lists_too(client: RestClient) -> None:
    path = await create(client, [HUGE, 10], "H5T_STD_I8LE", layout=sparse(1000, 10))
    assert (await client("GET", f"{path}/density", select=f"[0:{HUGE},5:5]")).status == 413
    assert (await client("GET", f"{path}/density", select="[0:2,5:5]"))["count"] == [[], []]
    dense = await create(client, [HUGE, 10, 10], "H5T_STD_I8LE")
    reply = await client("GET", f"{dense}/reduce", select=f"[0:{HUGE},5:5,0:1]", axis="2", op="count")
    assert reply.status == 413
    reply = await client("GET", f"{dense}/reduce", select="[0:2,5:5,0:1]", axis="2", op="count")
    assert reply["value"] == {"count": [[], []]}


@pytest.mark.parametrize(
    "kind",
    [
        "H5T_IEEE_F32LE",
        {"class": "H5T_STRING", "length": 1, "charSet": "H5T_CSET_ASCII"},
        {"class": "H5T_OPAQUE", "size": 1},
        {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": "H5T_STD_I8LE"}]},
        {"class": "H5T_ARRAY", "base": "H5T_STD_I8LE", "dims": [2]},
    ],
    ids=["floats", "text", "opaque", "compound", "array"],
)
async def test_json_of_many_values_is_made_in_a_thread_and_in_pieces(
    client: RestClient, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, [100_000], kind)
    made: list[tuple[bool, int]] = []
    to_json = FixedArrays.to_json

    def recorded(arrays: FixedArrays, values: Any) -> Any:
        made.append((threading.current_thread() is threading.main_thread(), values.size))
        return to_json(arrays, values)

    monkeypatch.setattr(FixedArrays, "to_json", recorded)
    held: list[int] = []
    hold = client.service.answers.hold
    monkeypatch.setattr(client.service.answers, "hold", lambda nbytes: (held.append(nbytes), hold(nbytes))[1])
    reply = await client("GET", f"{path}/value")
    assert len(reply["value"]) == 100_000
    assert not any(on_loop for on_loop, _ in made)
    assert max(size for _, size in made) <= 1 << 16
    assert sum(size for _, size in made) == 100_000
    assert held[0] >= 400_000  # the text, and not the values alone


async def test_text_in_pieces_is_what_was_written(client: RestClient) -> None:
    path = await create(client, [30_000, 3], TEXT)
    texts = np.arange(90_000).astype(str).reshape(30_000, 3).tolist()
    assert (await client("PUT", f"{path}/value", {"value": texts})).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == texts
