"""Virtual datasets over sparse ones against a dict, and random mappings over random sources against numpy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.format.structured.region import decode_region
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.in_place.file_backed.test_elements import random_select
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


UNDEFINED = -1000
"""What the model has where nothing is defined."""


@pytest.fixture
async def two_nodes() -> AsyncIterator[RestClient]:
    async with value_client(
        settings=ServiceSettings(page_size=700, max_request_size=2_000_000), nodes=2
    ) as client:
        yield client


async def random_source(
    client: RestClient, rng: np.random.Generator, name: str, is_sparse: bool
) -> np.ndarray:
    shape = tuple(map(int, rng.integers(2, 13, int(rng.integers(1, 4)))))
    chunk = [int(rng.integers(1, length + 1)) for length in shape]
    values = rng.integers(0, 90, shape).astype("<i4")
    kind = sparse(*chunk) if is_sparse else {"class": "H5D_CHUNKED", "dims": chunk, "enlarge": False}
    path = await create(client, list(shape), "H5T_STD_I32LE", layout=kind, fillValue=FILL)
    if is_sparse:
        values[rng.random(shape) < 0.6] = UNDEFINED
        places = np.argwhere(values != UNDEFINED)
        body = {"points": places.tolist(), "value": values[tuple(places.T)].tolist()}
        assert not len(places) or (await client("PUT", f"{path}/value", body)).status == 200
    else:
        assert (await client("PUT", f"{path}/value", {"value": values.tolist()})).status == 200
    await link(client, (await client("GET", "/"))["root"], name, path)
    return values


def random_axis(rng: np.random.Generator, length: int, count: int, block: int) -> tuple[int, int] | None:
    """Return start and stride of so many blocks in a dimension, None where there is no room."""
    strides = [one for one in range(block, length + 1) if (count - 1) * one + block <= length]
    if not strides:
        return None
    stride = int(rng.choice(strides))
    return int(rng.integers(0, length - ((count - 1) * stride + block) + 1)), stride


def random_slab(
    rng: np.random.Generator, shape: tuple[int, ...], sizes: list[tuple[int, int]]
) -> dict[str, Any] | None:
    axes = [random_axis(rng, length, *size) for length, size in zip(shape, sizes, strict=True)]
    if None in axes:
        return None
    found = [axis for axis in axes if axis is not None]
    return slab(
        [axis[0] for axis in found],
        [count for count, _ in sizes],
        stride=[axis[1] for axis in found],
        block=[block for _, block in sizes],
    )


def indices(selection: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return the offsets of a selection in row-major order."""
    if selection["class"] == "H5S_SEL_POINTS":
        return np.ravel_multi_index(tuple(np.array(selection["coordinates"]).T), shape)
    lists = [
        np.concatenate([np.arange(start + n * stride, start + n * stride + block) for n in range(count)])
        for start, stride, count, block in zip(
            *(selection[k] for k in ("start", "stride", "count", "block")), strict=True
        )
    ]
    return np.arange(int(np.prod(shape))).reshape(shape)[np.ix_(*lists)].ravel()


def random_mapping(
    rng: np.random.Generator, shape: tuple[int, ...], source: tuple[int, ...], is_sparse: bool
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two selections of as many elements: of the same dimensions, of others, or of points."""
    kind = rng.integers(0, 4)
    sizes = [(int(rng.integers(1, 4)), int(rng.integers(1, 4))) for _ in source]
    of = random_slab(rng, source, sizes)
    if of is None:
        return None
    count = len(indices(of, source))
    if kind < 2:  # the same sizes, ones added or left out
        wanted = [size for size in sizes if size != (1, 1)]
        if len(wanted) > len(shape):
            return None
        places = sorted(rng.choice(len(shape), len(wanted), replace=False).tolist())
        virtual_sizes = [(1, 1)] * len(shape)
        for place, size in zip(places, wanted, strict=True):
            virtual_sizes[place] = size
        to = random_slab(rng, shape, virtual_sizes)
        return None if to is None else (to, of)
    total = int(np.prod(shape))
    if count > total:
        return None
    chosen = rng.choice(total, count, replace=False)
    points = np.stack(np.unravel_index(chosen, shape), 1).tolist()
    to = {"class": "H5S_SEL_POINTS", "coordinates": points}
    return to, of


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(12))
async def test_it_is_the_model(two_nodes: RestClient, seed: int, is_sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    sources = {f"s{n}": await random_source(two_nodes, rng, f"s{n}", is_sparse) for n in range(3)}
    shape = tuple(map(int, rng.integers(3, 15, int(rng.integers(1, 4)))))
    model, mappings = np.full(shape, UNDEFINED if is_sparse else FILL, "<i4"), []
    for _ in range(40):
        name = f"s{rng.integers(0, 3)}"
        pair = random_mapping(rng, shape, sources[name].shape, is_sparse)
        if pair is None or len(mappings) == 6:
            continue
        mappings.append(maps(name, *pair))
        model.reshape(-1)[indices(pair[0], shape)] = sources[name].reshape(-1)[
            indices(pair[1], sources[name].shape)
        ]
    flags = {"flags": ["H5D_SPARSE_DATA"]} if is_sparse else {}
    dims = {"dims": [int(rng.integers(1, length + 1)) for length in shape]} if rng.random() < 0.7 else {}
    path = await virtual(two_nodes, list(shape), *mappings, **flags, **dims)
    shown = np.where(model == UNDEFINED, FILL, model)
    for _ in range(5):
        index, select = random_select(rng, shape)
        expected, some = shown[index], model[index]
        assert np.array_equal(await read(two_nodes, path, "<i4", expected.shape, select=select), expected), (
            select
        )
        found = await two_nodes("GET", f"{path}/value", query="_>30", select=select)
        assert found.status == 200, found.body
        grid = np.stack(np.meshgrid(*(np.ravel(one) for one in index), indexing="ij"), -1)
        places = grid[expected > 30].reshape(-1, len(shape))
        order = np.lexsort(places.T[::-1]) if len(places) else []
        assert np.array_equal(np.array(found["index"]).reshape(-1, len(shape)), places[order])
        told = {"undefined": "skip"} if is_sparse else {}
        reply = await two_nodes("GET", f"{path}/reduce", op="sum,count", axis=0, select=select, **told)
        there = some != UNDEFINED
        assert np.array_equal(reply["value"]["sum"], np.where(there, some, 0).sum(axis=0)), select
        assert np.array_equal(reply["value"]["count"], there.sum(axis=0))
        if is_sparse:
            count = await two_nodes("GET", f"{path}/defined", count_only=1, select=select)
            assert count["count"] == there.sum()
    points = np.stack([rng.integers(0, length, 50) for length in shape], 1)
    reply = await two_nodes("POST", f"{path}/value", {"points": points.tolist()})
    assert reply["value"] == shown[tuple(points.T)].tolist()
