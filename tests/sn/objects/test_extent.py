"""A dataset's extent."""

from __future__ import annotations

import pytest

from hsparse.sn.objects.extent import grown
from hsparse.testing.rest_client import RestClient


async def dataset(rest: RestClient, shape: list[int], maxdims: list[object]) -> str:
    made = await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": shape, "maxdims": maxdims})
    assert made.status == 201
    return f"/datasets/{made['id']}/shape"


async def test_growing_tells_what_is_new(rest: RestClient) -> None:
    path = await dataset(rest, [10], ["H5S_UNLIMITED"])
    grew = await rest("PUT", path, {"shape": [20]})
    assert (grew.status, grew.body) == (201, {"selection": "[10:20]"})
    assert (await rest("PUT", path, {"extend": 5, "extend_dim": 0})).body == {"selection": "[20:25]"}
    assert (await rest("PUT", path, {"extend": 5})).body == {"selection": "[25:30]"}
    assert (await rest("PUT", path, {"shape": 30})).body == {}
    got = await rest("GET", path)
    assert got["shape"] == {"class": "H5S_SIMPLE", "dims": [30], "maxdims": ["H5S_UNLIMITED"]}


async def test_shrinking_and_growing_again(rest: RestClient) -> None:
    path = await dataset(rest, [10, 10], [0, 20])
    assert (await rest("PUT", path, {"shape": [4, 10]})).body == {}
    assert (await rest("PUT", path, {"shape": [4, 12]})).body == {"selection": "[:,10:12]"}
    assert (await rest("PUT", path, {"shape": [3, 15]})).body == {}
    assert (await rest("GET", path))["shape"]["dims"] == [3, 15]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"shape": [11, 21]}, 409),
        ({"extend": 11, "extend_dim": 1}, 409),
        ({"shape": [1]}, 400),
        ({"shape": [-1, 5]}, 400),
        ({"shape": "x"}, 400),
        ({"extend": 0}, 400),
        ({"extend": 1, "extend_dim": 2}, 400),
        ({"extend": 1, "shape": [11, 11]}, 400),
        ({}, 400),
        ([], 400),
    ],
)
async def test_what_cannot_be(rest: RestClient, body: object, status: int) -> None:
    path = await dataset(rest, [10, 10], [0, 20])
    assert (await rest("PUT", path, body)).status == status
    assert (await rest("GET", path))["shape"]["dims"] == [10, 10]


async def test_what_is_not_extensible(rest: RestClient) -> None:
    for shape in ([10], [], "H5S_NULL"):
        made = await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": shape})
        assert (await rest("PUT", f"/datasets/{made['id']}/shape", {"shape": [20]})).status == 400


@pytest.mark.parametrize(
    ("before", "after", "selection"),
    [
        ((1, 2, 3), (1, 5, 3), "[:,2:5,:]"),
        ((1, 2), (2, 3), None),
        ((1, 2), (1, 1), None),
        ((2,), (2,), None),
        ((3, 3), (2, 4), None),
    ],
)
def test_grown(before: tuple[int, ...], after: tuple[int, ...], selection: str | None) -> None:
    assert grown(before, after) == selection


async def test_an_extent_of_more_than_63_bits_is_refused(rest: RestClient) -> None:
    line = await dataset(rest, [10], [0])
    plane = await dataset(rest, [2**40, 2**20], [0, 0])
    assert (await rest("PUT", line, {"extend": 2**63 - 5})).status == 400
    assert (await rest("PUT", line, {"extend": 2**64 - 1})).status == 400
    assert (await rest("PUT", plane, {"extend": 2**62})).status == 400
    assert (await rest("GET", line))["shape"]["dims"] == [10]
    assert (await rest("GET", plane))["shape"]["dims"] == [2**40, 2**20]
