"""Long bodies of values: refused before they are converted, or converted beside the event loop, block by block."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format import chunk_spec
from hsparse.model import json_values
from hsparse.sn.http import request
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import chunk_fanout, request_selection
from hsparse.sn.values.request_selection import pack_points
from tests.sn.value_client import create, value_client

MANY = 40_000


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads in which selections are resolved, and values are converted or computed."""
    found: set[int] = set()
    for module, name in (
        (json_values, "fixed_array"),
        (request_selection, "points_selection"),
        (chunk_spec, "arange_values"),
    ):
        whole = getattr(module, name)

        def noting(*args: Any, whole: Any = whole) -> Any:
            found.add(threading.get_ident())
            return whole(*args)

        monkeypatch.setattr(module, name, noting)
    return found


async def test_many_values_and_points_are_converted_beside_the_event_loop(threads: set[int]) -> None:
    async with value_client(settings=ServiceSettings()) as client:
        path = await create(client, [MANY], "H5T_STD_I32LE")
        assert (await client("PUT", f"{path}/value", {"value": list(range(MANY))})).status == 200
        found = await client("POST", f"{path}/value", {"points": list(range(MANY))})
        assert found["value"] == list(range(MANY))
    assert threads
    assert threading.get_ident() not in threads


async def test_values_that_were_never_written_are_computed_beside_the_event_loop(threads: set[int]) -> None:
    async with value_client(settings=ServiceSettings()) as client:
        path = await create(client, [2**40], "H5T_STD_I64LE", initializer=["arange"])
        assert (await client("GET", f"{path}/value", select="[7:8]"))["value"] == [7]
    assert threads
    assert threading.get_ident() not in threads


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


async def test_so_many_lists_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "MAX_LISTS", 10)
    async with value_client() as client:
        path = await create(client, [20], "H5T_STD_I32LE")
        refused = await client("PUT", f"{path}/value", {"value": [[1]] * 20})
    assert refused.status == 413
    assert "octet-stream" in refused["error"]["message"]


async def test_so_many_chunks_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_fanout, "MAX_COMPUTED", 3)
    async with value_client(settings=ServiceSettings()) as client:
        path = await create(client, [2**40], "H5T_STD_I64LE", initializer=["arange"])
        few = [number << 36 for number in range(3)]
        assert (await client("POST", f"{path}/value", {"points": few}))["value"] == few
        refused = await client("POST", f"{path}/value", {"points": [*few, 2**40 - 1]})
    assert refused.status == 413
    assert "computed" in refused["error"]["message"]
