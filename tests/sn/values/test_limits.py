"""Long bodies and answers of values: refused, or converted beside the event loop, block by block."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format import chunk_spec
from hsparse.format.value_arrays import FixedArrays
from hsparse.model import json_values
from hsparse.setting import MIB
from hsparse.sn.http import request
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import chunk_fanout, request_selection
from hsparse.sn.values.request_selection import pack_points
from tests.sn.conftest import Watch, note_holds
from tests.sn.dataset_kinds import F32, I8, I32, I64, TEXT, array_of, chunked, compound, sparse
from tests.sn.value_client import BINARY, create, json_of, put, value_client
from tests.support.rest_client import RestClient, answered, refuses

MANY = 40_000


@pytest.fixture
def on_loop(watch: Watch) -> list[bool]:
    """Whether selections are resolved, and values converted or computed, while the event loop waits."""
    watch(json_values, "fixed_array")
    watch(request_selection, "points_selection")
    return watch(chunk_spec, "arange_values")


async def test_many_values_and_points_are_converted_beside_the_event_loop(
    client: RestClient, on_loop: list[bool]
) -> None:
    path = await create(client, [MANY], I32)
    await put(client, path, {"value": list(range(MANY))})
    found = await client("POST", f"{path}/value", {"points": list(range(MANY))})
    assert found["value"] == list(range(MANY))
    assert on_loop
    assert not any(on_loop)


async def test_values_that_were_never_written_are_computed_beside_the_event_loop(
    client: RestClient, on_loop: list[bool]
) -> None:
    path = await create(client, [2**40], I64, initializer=["arange"])
    assert await json_of(client, path, select="[7:8]") == [7]
    assert on_loop
    assert not any(on_loop)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 2**64 - 1),
            st.integers(-9, 9),
            st.lists(st.integers(0, 9), max_size=3),
            st.floats(),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_points_that_are_integers_are_packed_by_blocks(points: list[Any]) -> None:
    body = {"points": points}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_selection, "ELEMENTS_AT_ONCE", 2)
        pack_points(body)
    packed = body["points"]
    if isinstance(packed, np.ndarray):
        assert packed.tolist() == points
    else:
        assert not all(type(point) is int and 0 <= point < 2**63 for point in points)


async def test_so_many_lists_are_parsed(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "MAX_LISTS", 10)
    path = await create(client, [20], I32)
    await refuses(client("PUT", f"{path}/value", {"value": [[1]] * 20}), 413, "octet-stream")


async def test_so_many_chunks_are_computed(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_fanout, "MAX_COMPUTED", 3)
    path = await create(client, [2**40], I64, initializer=["arange"])
    few = [number << 36 for number in range(3)]
    assert (await client("POST", f"{path}/value", {"points": few}))["value"] == few
    await refuses(client("POST", f"{path}/value", {"points": [*few, 2**40 - 1]}), 413, "computed")


CHUNKED = {"layout": chunked(1000, 100)}
SMALL_WRITES = ServiceSettings(max_write_size=4 * MIB)


@pytest.mark.parametrize(
    ("kind", "properties", "value", "few", "many"),
    [
        (I64, CHUNKED, 7, "[0:3000:1000,0:1]", "[0:20000:1000,0:1]"),
        (I64, {"layout": sparse(1000, 100)}, 7, "[0:5000,:]", "[0:6000,:]"),
        (TEXT, {"layout": sparse(1000, 100)}, "a" * 1000, "[0:40,:]", "[0:45,:]"),
    ],
    ids=["dense", "sparse", "text"],
)
async def test_one_value_fills_so_many_bytes(
    kind: Any, properties: dict[str, Any], value: Any, few: str, many: str
) -> None:
    async with value_client(settings=SMALL_WRITES) as client:
        path = await create(client, [100_000, 100], kind, **properties)
        body = {"value": value, "element_count": 1}
        await refuses(client("PUT", f"{path}/value", body, select=many), 413, "max_write_size")
        assert (await client("GET", f"{path}/chunks"))["chunks"] == []
        await put(client, path, body, select=few)


async def test_a_change_by_a_query_fills_so_many_bytes() -> None:
    async with value_client(settings=SMALL_WRITES) as client:
        path = await create(client, [100_000, 100], I64, **CHUNKED)
        await answered(
            client("PUT", f"{path}/value", {"value": 7}, query="_ == 0", select="[0:20000:1000,0:1]"), 413
        )
        await put(client, path, {"value": 7}, query="_ == 1", select="[0:20000:1000,0:1]")


NESTED = {"class": "H5T_ARRAY", "base": I8, "dims": [1] * 31}
HUGE = 1 << 33


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings()


@pytest.mark.parametrize("kind", [I8, TEXT], ids=["numbers", "text"])
async def test_lists_without_elements_count(client: RestClient, kind: Any) -> None:
    path = await create(client, [HUGE, 10], kind)
    await refuses(client("GET", f"{path}/value", select=f"[0:{HUGE},5:5]"), 413, "octet-stream")
    reply = await client("GET", f"{path}/value", select=f"[0:{HUGE},5:5]", accept=BINARY)
    assert (reply.status, reply.body) == (200, b"")
    assert await json_of(client, path, select="[0:3,5:5]") == [[], [], []]


@pytest.mark.parametrize("kind", [I32, TEXT], ids=["numbers", "text"])
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
    await put(client, path, b"")
    body = {"reads": [{"ids": [path.rpartition("/")[2]]}]}
    assert (await client("POST", "/datasets/values", body, accept=BINARY)).body == bytes(8)
    assert (await client("GET", f"{path}/value")).status == (413 if dims[0] else 200)


async def test_lists_in_elements_count(client: RestClient) -> None:
    path = await create(client, [1_000_000], NESTED)
    assert (await client("GET", f"{path}/value")).status == 413
    assert (await client("GET", f"{path}/value", query="_ > 0")).status == 400
    assert (await client("GET", f"{path}/value", select="[0:2]")).status == 200


async def test_an_empty_density_and_an_empty_reduction_have_lists_too(client: RestClient) -> None:
    path = await create(client, [HUGE, 10], I8, layout=sparse(1000, 10))
    assert (await client("GET", f"{path}/density", select=f"[0:{HUGE},5:5]")).status == 413
    assert (await client("GET", f"{path}/density", select="[0:2,5:5]"))["count"] == [[], []]
    dense = await create(client, [HUGE, 10, 10], I8)
    await answered(client("GET", f"{dense}/reduce", select=f"[0:{HUGE},5:5,0:1]", axis="2", op="count"), 413)
    reply = await client("GET", f"{dense}/reduce", select="[0:2,5:5,0:1]", axis="2", op="count")
    assert reply["value"] == {"count": [[], []]}


@pytest.mark.parametrize(
    "kind",
    [
        F32,
        {"class": "H5T_STRING", "length": 1, "charSet": "H5T_CSET_ASCII"},
        {"class": "H5T_OPAQUE", "size": 1},
        compound(a=I8),
        array_of(I8, 2),
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
    held = note_holds(client.service.answers, monkeypatch)
    reply = await client("GET", f"{path}/value")
    assert len(reply["value"]) == 100_000
    assert not any(on_loop for on_loop, _ in made)
    assert max(size for _, size in made) <= 1 << 16
    assert sum(size for _, size in made) == 100_000
    assert held[0] >= 400_000  # the text, and not the values alone


async def test_text_in_pieces_is_what_was_written(client: RestClient) -> None:
    path = await create(client, [30_000, 3], TEXT)
    texts = np.arange(90_000).astype(str).reshape(30_000, 3).tolist()
    await put(client, path, {"value": texts})
    assert await json_of(client, path) == texts
