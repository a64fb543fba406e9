"""Virtual datasets over sparse ones: places, values, counts, queries and reductions against a dict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.format.structured.region import decode_region
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.sn.virtual_dataset.test_virtual_values import FILL, box, link, maps, numbers, slab, stored, virtual
from tests.support.rest_client import RestClient

Elements = dict[tuple[int, int], int]
FLAGS = ["H5D_SPARSE_DATA"]
SELECTS = {
    "[:,:]": (range(40), range(30)),
    "[3:31,5:20]": (range(3, 31), range(5, 20)),
    "[0:40:7,1:30:4]": (range(0, 40, 7), range(1, 30, 4)),
    "[[2,2,17,39],:]": ((2, 17, 39), range(30)),
}


@pytest.fixture(params=[1 << 20, 400], ids=["whole", "paged"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[RestClient]:
    settings = ServiceSettings(page_size=request.param, max_request_size=2_000_000)
    async with value_client(settings=settings, nodes=2) as client:
        yield client


async def filled(client: RestClient, name: str, shape: tuple[int, int], seed: int) -> Elements:
    """Make a sparse dataset with some elements, and return them."""
    rng = np.random.default_rng(seed)
    path = await create(client, list(shape), "H5T_STD_I32LE", layout=sparse(4, 7), fillValue=FILL)
    places = np.unique(np.stack([rng.integers(0, length, 60) for length in shape], 1), axis=0)
    values = rng.integers(-50, 50, len(places))
    put = await client("PUT", f"{path}/value", {"points": places.tolist(), "value": values.tolist()})
    assert put.status == 200, put.body
    await link(client, (await client("GET", "/"))["root"], name, path)
    return {(int(i), int(j)): int(v) for (i, j), v in zip(places, values, strict=True)}


@pytest.fixture(params=[None, [9, 8]], ids=["own grid", "small grid"])
async def pile(request: pytest.FixtureRequest, client: RestClient) -> tuple[str, Elements]:
    """A virtual dataset over two sources: one below the other, strides, what overlaps, and what nothing maps."""
    one, two = await filled(client, "one", (12, 20), 1), await filled(client, "two", (20, 30), 2)
    model: Elements = {(i + 2, j + 5): v for (i, j), v in one.items()}
    model |= {(i + 14, j): v for (i, j), v in two.items()}
    model = {place: v for place, v in model.items() if not (10 <= place[0] < 16 and place[1] < 10)}
    model |= {(i + 10, j): v for (i, j), v in one.items() if i < 6 and j < 10}
    model |= {(34 + i // 3, j // 2): v for (i, j), v in two.items() if i < 18 and i % 3 == 0 and j % 2 == 0}
    mappings = [
        maps("one", box([2, 5], [14, 25])),
        maps("two", box([14, 0], [34, 30])),
        maps("one", box([10, 0], [16, 10]), box([0, 0], [6, 10])),
        maps("two", box([34, 0], [40, 15]), slab([0, 0], [6, 15], stride=[3, 2])),
    ]
    more = {"dims": request.param} if request.param else {}
    return await virtual(client, [40, 30], *mappings, flags=FLAGS, **more), model


def chosen(model: Elements, select: str) -> Elements:
    rows, columns = SELECTS[select]
    return {place: v for place, v in sorted(model.items()) if place[0] in rows and place[1] in columns}


@pytest.mark.parametrize("select", SELECTS)
async def test_sparse_over_sparse_is_sparse(
    client: RestClient, pile: tuple[str, Elements], select: str
) -> None:
    path, model = pile
    expected = chosen(model, select)
    reply = await client("GET", f"{path}/value", accept=BINARY, select=select, sparse=1)
    assert reply.status == 200, reply.body
    places, values = decode_region(reply.body, np.dtype("<i4"))
    found = {tuple(place): int(v) for place, v in zip(places.coords().tolist(), values, strict=True)}
    assert found == expected
    assert (await client("GET", f"{path}/defined", select=select, count_only=1))["count"] == len(expected)
    defined = await client("GET", f"{path}/defined", select=select)
    assert sorted(map(tuple, defined["selection"]["coordinates"])) == sorted(expected)
    asked = await client("GET", f"{path}/value", select=select, query="_>10")
    assert asked["index"] == [list(place) for place, v in expected.items() if v > 10]
    where = {"select": select.replace("2,2,", "2,")}
    sums = await client("GET", f"{path}/reduce", op="sum,count", undefined="skip", **where)
    assert sums["value"] == {"sum": sum(expected.values()), "count": len(expected)}


async def test_it_is_read_as_a_dense_one(client: RestClient, pile: tuple[str, Elements]) -> None:
    path, model = pile
    expected = np.full((40, 30), FILL, "<i4")
    for place, value in model.items():
        expected[place] = value
    assert np.array_equal(await read(client, path, "<i4", (40, 30)), expected)
    asked = await client("GET", f"{path}/value", query=f"_=={FILL}")
    assert asked["index"] == np.argwhere(expected == FILL).tolist()
    columns = await client("GET", f"{path}/reduce", op="sum", axis=0, undefined="fill")
    assert columns["value"]["sum"] == expected.sum(axis=0).tolist()
    density = await client("GET", f"{path}/density", bin="[10,10]", approximate=1)
    there = np.zeros((40, 30))
    for place in model:
        there[place] = 1
    assert density["count"] == there.reshape(4, 10, 3, 10).sum(axis=(1, 3)).tolist()


async def test_it_has_the_grid_of_its_first_source(client: RestClient) -> None:
    await filled(client, "one", (12, 20), 1)
    path = await virtual(client, [24, 20], maps("one", box([0, 0], [12, 20])), flags=FLAGS)
    layout = (await client("GET", path))["creationProperties"]["layout"]
    assert layout["dims"] == [4, 7]
    assert layout["flags"] == FLAGS


async def test_what_is_dense_or_mapped_twice_is_no_source(client: RestClient) -> None:
    await stored(client, "dense", numbers(4, 4))
    await filled(client, "one", (4, 8), 1)
    twice = {"class": "H5S_SEL_POINTS", "coordinates": [[0, 0], [0, 0]]}
    cases = [
        (maps("dense", box([0, 0], [4, 4])), "it is dense"),
        (maps("one", box([0, 0], [1, 2]), twice), "twice"),
    ]
    for mapping, told in cases:
        path = await virtual(client, [4, 4], mapping, flags=FLAGS)
        reply = await client("GET", f"{path}/value", sparse=1)
        assert reply.status == 409, reply.body
        assert told in reply["error"]["message"]


async def test_a_sparse_one_is_not_erased(client: RestClient, pile: tuple[str, Elements]) -> None:
    path, _ = pile
    replies: list[Any] = [
        await client("DELETE", f"{path}/value", select="[0,0]"),
        await client("PUT", f"{path}/value", {"points": [[0, 0]], "value": [1]}),
    ]
    assert [one.status for one in replies] == [400, 400]
    assert all("write to its sources" in one["error"]["message"] for one in replies)


async def test_sources_count_and_reduce_their_own(client: RestClient) -> None:
    """What does not overlap is counted and reduced by the owners of the sources, by groups and axes, too."""
    one, two = await filled(client, "one", (12, 20), 1), await filled(client, "two", (20, 30), 2)
    mappings = [
        maps("one", box([2, 5], [14, 25])),
        maps("two", box([14, 0], [24, 30]), slab([1, 0], [10, 30], stride=[2, 1])),
    ]
    path = await virtual(client, [40, 30], *mappings, flags=FLAGS)
    model = {(i + 2, j + 5): v for (i, j), v in one.items()}
    model |= {(14 + (i - 1) // 2, j): v for (i, j), v in two.items() if i % 2 == 1}
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == len(model)
    labels = [place % 3 for place in range(40)]
    reply = await client(
        "POST", f"{path}/reduce", {"op": "sum,count", "axis": 0, "by": labels, "undefined": "skip"}
    )
    sums, counts = np.zeros((3, 30), int), np.zeros((3, 30), int)
    for (i, j), value in model.items():
        sums[i % 3, j] += value
        counts[i % 3, j] += 1
    assert reply["value"] == {"sum": sums.tolist(), "count": counts.tolist()}
    # Rows without an element are as those of a dataset that has the elements itself.
    own = await create(client, [40, 30], "H5T_STD_I32LE", layout=sparse(4, 7), fillValue=FILL)
    await client("PUT", f"{own}/value", {"points": list(model), "value": list(model.values())})
    for op, axis, undefined in (
        ("max", 1, "skip"),
        ("mean", 0, "skip"),
        ("min", 0, "fill"),
        ("sum", "0,1", "fill"),
    ):
        found = [
            await client("GET", f"{one}/reduce", op=op, axis=axis, select="[10:30,4:28]", undefined=undefined)
            for one in (path, own)
        ]
        assert found[0]["value"] == found[1]["value"], op


@pytest.mark.parametrize("type", ["H5T_STD_I32LE", "H5T_IEEE_F64LE"])
async def test_it_has_its_own_fill_value_where_a_source_has_another(client: RestClient, type: str) -> None:
    path = await create(client, [6, 7], type, layout=sparse(4, 7), fillValue=FILL + 1)
    await client("PUT", f"{path}/value", {"points": [[1, 2], [5, 0]], "value": [8, 9]})
    await link(client, (await client("GET", "/"))["root"], "one", path)
    made = await virtual(client, [6, 7], maps("one", box([0, 0], [6, 7])), flags=FLAGS)
    model = np.full((6, 7), FILL)
    model[1, 2], model[5, 0] = 8, 9
    assert (await client("GET", f"{made}/value"))["value"] == model.tolist()
    points = await client("POST", f"{made}/value", {"points": [[5, 0], [0, 0], [5, 0]]})
    assert points["value"] == [9, FILL, 9]
    found = await client("GET", f"{made}/value", query=f"_ == {FILL}")
    assert len(found["index"]) == 40
    summed = await client("GET", f"{made}/reduce", op="sum", undefined="fill")
    assert summed["value"]["sum"] == model.sum()


async def test_a_missing_source_hides_nothing(client: RestClient) -> None:
    """As of dense ones, and in HDF5: the last mapping counts whose source is there."""
    one = await filled(client, "one", (12, 20), 1)
    mappings = [maps("one", box([0, 0], [12, 20])), maps("none", box([0, 0], [12, 9]))]
    path = await virtual(client, [12, 20], *mappings, flags=FLAGS, missing="fill")
    found = await client("GET", f"{path}/value", sparse=1)
    assert dict(zip(map(tuple, found["selection"]["coordinates"]), found["value"], strict=True)) == one
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == len(one)
