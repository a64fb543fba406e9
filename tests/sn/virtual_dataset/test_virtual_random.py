"""Random mappings over random sources, dense and sparse, by random selections: equal to a model in numpy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.sn.service_settings import ServiceSettings
from tests.sn.in_place.file_backed.test_elements import random_select
from tests.sn.value_client import create, read, sparse, value_client
from tests.sn.virtual_dataset.test_virtual_values import FILL, link, maps, slab, virtual
from tests.support.rest_client import RestClient

SLAB = ("start", "stride", "count", "block")
UNDEFINED = -1000
"""What the model has where nothing is defined."""


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
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
async def test_it_is_the_model(client: RestClient, seed: int, is_sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    sources = {f"s{n}": await random_source(client, rng, f"s{n}", is_sparse) for n in range(3)}
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
    path = await virtual(client, list(shape), *mappings, **flags, **dims)
    shown = np.where(model == UNDEFINED, FILL, model)
    for _ in range(5):
        index, select = random_select(rng, shape)
        expected, some = shown[index], model[index]
        assert np.array_equal(await read(client, path, "<i4", expected.shape, select=select), expected), (
            select
        )
        found = await client("GET", f"{path}/value", query="_>30", select=select)
        assert found.status == 200, found.body
        grid = np.stack(np.meshgrid(*(np.ravel(one) for one in index), indexing="ij"), -1)
        places = grid[expected > 30].reshape(-1, len(shape))
        order = np.lexsort(places.T[::-1]) if len(places) else []
        assert np.array_equal(np.array(found["index"]).reshape(-1, len(shape)), places[order])
        told = {"undefined": "skip"} if is_sparse else {}
        reply = await client("GET", f"{path}/reduce", op="sum,count", axis=0, select=select, **told)
        there = some != UNDEFINED
        assert np.array_equal(reply["value"]["sum"], np.where(there, some, 0).sum(axis=0)), select
        assert np.array_equal(reply["value"]["count"], there.sum(axis=0))
        if is_sparse:
            count = await client("GET", f"{path}/defined", count_only=1, select=select)
            assert count["count"] == there.sum()
    points = np.stack([rng.integers(0, length, 50) for length in shape], 1)
    reply = await client("POST", f"{path}/value", {"points": points.tolist()})
    assert reply["value"] == shown[tuple(points.T)].tolist()
