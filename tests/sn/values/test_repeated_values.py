"""Writes whose few values are repeated over the selection (`element_count`), and selections given as lists."""

from __future__ import annotations

import base64
import gc
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.concurrency import collector
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


@pytest.mark.parametrize("layout", [{"class": "H5D_CHUNKED", "dims": [1, 2, 3]}, sparse(1, 2, 3)])
async def test_values_are_repeated_over_the_first_dimensions(client: RestClient, layout: Any) -> None:
    path = await create(client, [2, 3, 5], "H5T_STD_I32LE", layout=layout)
    model = np.zeros((2, 3, 5), "<i4")
    plane = np.arange(15, dtype="<i4").reshape(3, 5)
    writes: list[tuple[Any, dict[str, Any], Any, Any]] = [
        ({"value": plane.tolist()}, {"element_count": 15}, np.s_[:], plane),
        ({"value": (plane + 1).ravel().tolist(), "element_count": 15}, {}, np.s_[:], plane + 1),
        ((plane + 2).tobytes(), {"element_count": 15}, np.s_[:], plane + 2),
        (
            {"value_base64": base64.b64encode((plane + 3).tobytes()).decode()},
            {"element_count": 15},
            np.s_[:],
            plane + 3,
        ),
        ({"value": [[1, 2, 3, 4, 5]]}, {"element_count": 5}, np.s_[:], [1, 2, 3, 4, 5]),
        ({"value": [9, 8]}, {"element_count": 2, "select": "[0:2,1,2:4]"}, np.s_[:, 1:2, 2:4], [9, 8]),
        (
            {"value": [7], "element_count": 1, "start": [0, 0, 1], "stop": [2, 2, 4]},
            {},
            np.s_[:2, :2, 1:4],
            7,
        ),
        *(({"value": value}, {"element_count": 1}, np.s_[:], 42) for value in (42, [42], [[42]])),
        ({"value": (plane + 4).tolist()}, {"element_count": 15}, np.s_[:], plane + 4),
    ]
    for body, options, index, values in writes:
        assert (await client("PUT", f"{path}/value", body, **options)).status == 200, body
        model[index] = values
        np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)
    for count in (0, -1, 2, 3, 6, 10, "x", 30.0):
        body = {"value": [1] * count if isinstance(count, int) else 1, "element_count": count}
        assert (await client("PUT", f"{path}/value", body)).status == 400, count
    for body in ({"value": [1, 2]}, {"value": [[1], [2]]}, {"value": []}, bytes(8)):
        assert (await client("PUT", f"{path}/value", body, element_count=1)).status == 400
    np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)


async def test_repeated_values_have_a_limit(client: RestClient) -> None:
    path = await create(client, [1 << 20, 1 << 10], "H5T_STD_I32LE", layout=sparse(1, 1024))
    body = {"value": [1] * 1024, "element_count": 1024}
    assert (await client("PUT", f"{path}/value", body)).status == 413
    assert (await client("PUT", f"{path}/value", body, select="[5:9,:]")).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == 4096


async def test_variable_length_values_are_repeated(client: RestClient) -> None:
    kind = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    path = await create(client, [2, 3], kind)
    assert (await client("PUT", f"{path}/value", {"value": ["a", "", "bcd"]}, element_count=3)).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [["a", "", "bcd"]] * 2


async def test_appended_values_are_repeated(client: RestClient) -> None:
    path = await create(client, [1], "H5T_STD_I32LE", maxdims=[0])
    assert (await client("PUT", f"{path}/value", {"value": [5]}, element_count=1, append=2)).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [0, 5, 5]


@pytest.mark.parametrize(
    ("select", "values"),
    [
        ([1, [0, 2]], [[10, 12]]),
        (["1:3", [0, 2]], [[10, 12], [20, 22]]),
        ([[0, 1, 3], [1, 2, 4]], [1, 12, 34]),
        ([[3, 1, 1], 0], [[30], [10], [10]]),
        ([[], ":"], []),
        ([":", "4"], [[4], [14], [24], [34]]),
    ],
)
async def test_a_selection_as_a_list(client: RestClient, select: Any, values: Any) -> None:
    path = await create(client, [4, 5], "H5T_STD_I32LE")
    data = (10 * np.arange(4)[:, None] + np.arange(5)).astype("<i4")
    await client("PUT", f"{path}/value", data.tobytes())
    assert (await client("POST", f"{path}/value", {"select": select}))["value"] == values
    binary = await client("POST", f"{path}/value", {"select": select}, accept=BINARY)
    if values:
        assert np.frombuffer(binary.body, "<i4").tolist() == np.ravel(values).tolist()


@pytest.mark.parametrize(
    "select",
    [
        [[0, 1], [0]],
        [4, 0],
        [0],
        [0, 0, 0],
        [0, 1.5],
        [0, True],
        [0, None],
        [0, [True]],
        [0, "0,1"],
        [0, "[1]"],
        [0, ""],
    ],
)
async def test_a_bad_selection_as_a_list(client: RestClient, select: Any) -> None:
    path = await create(client, [4, 5], "H5T_STD_I32LE")
    assert (await client("POST", f"{path}/value", {"select": select})).status == 400


async def test_many_points_in_json(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come and go as arrays, while the collector of cycles is paused."""
    monkeypatch.setattr(collector, "PAUSING_LISTS", 1000)
    was_enabled = gc.isenabled()
    client.service.settings = ServiceSettings()
    path = await create(client, [2000, 2000], "H5T_STD_I32LE", layout=sparse(1000, 1000))
    places = np.random.default_rng(1).permutation(4_000_000)[:20_000]
    points = np.stack(np.divmod(places, 2000), axis=1)
    body = {"points": points.tolist(), "value": places.tolist()}
    assert (await client("PUT", f"{path}/value", body)).status == 200
    read = await client("POST", f"{path}/value", {"points": points[::-1].tolist()})
    assert read["value"] == places[::-1].tolist()
    found = await client("GET", f"{path}/value", sparse=1)
    rows, columns = np.array(found["selection"]["coordinates"]).T
    np.testing.assert_array_equal(2000 * rows + columns, found["value"])
    assert len(found["value"]) == len(places)
    for bad in ([[0, 0], [1]], [[0, "x"]], [[0.5, 1]], [[True, False]], [[0, 1, 2]], [[-1, 0]]):
        assert (await client("POST", f"{path}/value", {"points": bad})).status == 400
    assert gc.isenabled() or not was_enabled
