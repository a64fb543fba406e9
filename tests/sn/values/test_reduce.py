"""Reductions over HTTP, against numpy: all types of number, dense and sparse, any axes, with undefined elements."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.compute import MAX_INLINE_BYTES
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn import chunk_reductions
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import BINARY, create, sparse, value_client
from tests.support.rest_client import RestClient

NAMES = {
    "i1": "H5T_STD_I8LE",
    ">i2": "H5T_STD_I16BE",
    "u4": "H5T_STD_U32LE",
    "i8": "H5T_STD_I64LE",
    "u8": "H5T_STD_U64LE",
    "f4": "H5T_IEEE_F32LE",
    ">f8": "H5T_IEEE_F64BE",
}
SHAPES = {1: ((30,), (7,)), 2: ((9, 13), (4, 5)), 3: ((5, 6, 7), (2, 3, 4)), 4: ((3, 4, 3, 4), (2, 2, 2, 3))}
FLOATS = ("mean", "var")
OPERATIONS = ("count", "nnz", "sum", "mean", "var", "min", "max")


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=2) as made:
        yield made


async def dataset(
    client: RestClient, kind: str, rank: int, layout: str, rng: np.random.Generator, fill: int = 0
) -> tuple[str, NDArray[Any], NDArray[np.bool_]]:
    """Return the path of a dataset of random numbers, of which some are written and some of these erased; its model."""
    shape, chunks = SHAPES[rank]
    layouts = {"dense": {"class": "H5D_CHUNKED", "dims": list(chunks)}, "sparse": sparse(*chunks)}
    path = await create(client, list(shape), NAMES[kind], layout=layouts[layout], fillValue=fill)
    model, there = np.full(shape, fill, kind), np.zeros(shape, np.bool_)
    for _ in range(2):
        box = tuple(slice(*sorted(rng.choice(length + 1, 2, replace=False).tolist())) for length in shape)
        low = 0 if np.dtype(kind).kind == "u" else -50
        model[box] = rng.integers(low, 50, model[box].shape) / (1 if np.dtype(kind).kind != "f" else 8)
        there[box] = True
        select = "[" + ",".join(f"{one.start}:{one.stop}" for one in box) + "]"
        reply = await client("PUT", f"{path}/value", model[box].tobytes(), select=select)
        assert reply.status == 200, reply.body
    if layout == "sparse":
        gone = np.argwhere(rng.random(shape) < 0.2)
        reply = await client(
            "POST", f"{path}/erase", {"points": gone.tolist() if rank > 1 else gone[:, 0].tolist()}
        )
        assert reply.status == 200, reply.body
        there[tuple(gone.T)] = False
        model[~there] = fill
    else:
        there[...] = True
    return path, model, there


def expected(
    name: str, values: NDArray[Any], there: NDArray[np.bool_], axes: tuple[int, ...]
) -> NDArray[Any]:
    """Return what numpy has for an operation over the elements that are there; NaN or 0 without any."""
    native = values.astype(values.dtype.newbyteorder("="))
    count = there.sum(axis=axes)
    doubles = native.astype(float)
    if name == "count":
        return count
    if name == "nnz":
        return (there & (native != 0)).sum(axis=axes)
    if name == "sum":
        return native.sum(axis=axes, where=there, dtype=None if native.dtype.kind != "f" else float)
    with np.errstate(all="ignore"):
        mean = doubles.sum(axis=axes, where=there, keepdims=True) / there.sum(axis=axes, keepdims=True)
        if name == "mean":
            return mean.reshape(count.shape)
        if name == "var":
            return ((doubles - mean) ** 2).sum(axis=axes, where=there) / count
    if name == "min":
        found = doubles.min(axis=axes, where=there, initial=np.inf)
    else:
        found = doubles.max(axis=axes, where=there, initial=-np.inf)
    return found


def parse(body: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a binary answer to all operations."""
    whole = {"i": "<i8", "u": "<u8", "f": "<f8"}[dtype.kind]
    own = dtype.newbyteorder("<")
    types = dict(zip(OPERATIONS, ("<i8", "<i8", whole, "<f8", "<f8", own, own), strict=True))
    found, first = {}, 0
    for name, kind in types.items():
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        found[name] = np.frombuffer(body[first : first + size], kind).reshape(shape)
        first += size
    assert first == len(body)
    return found


CASES = [
    (kind, rank, layout)
    for number, (kind, rank, layout) in enumerate(itertools.product(NAMES, SHAPES, ("dense", "sparse")))
    if number % 3 == 0 or kind in ("i8", "f4")
]


@pytest.mark.parametrize(("kind", "rank", "layout"), CASES)
async def test_results_are_those_of_numpy(client: RestClient, kind: str, rank: int, layout: str) -> None:
    rng = np.random.default_rng([rank, *kind.encode(), *layout.encode()])
    path, model, there = await dataset(client, kind, rank, layout, rng, fill=3)
    for undefined in ("skip", "fill"):
        mask = there if undefined == "skip" else np.ones_like(there)
        for axes in [(), *itertools.combinations(range(rank), min(rank, 1 + rank // 2))]:
            over = axes or tuple(range(rank))
            reply = await client(
                "GET",
                f"{path}/reduce",
                accept=BINARY,
                op=",".join(OPERATIONS),
                axis=",".join(map(str, axes)),
                undefined=undefined,
            )
            assert reply.status == 200, reply.body
            shape = tuple(length for dim, length in enumerate(model.shape) if dim not in over)
            found = parse(reply.body, np.dtype(kind), shape)
            some = found["count"] > 0
            for name in OPERATIONS:
                wanted = expected(name, model, mask, over)
                if name in ("min", "max"):
                    wanted = np.where(some, wanted, 3)
                np.testing.assert_allclose(found[name], wanted, rtol=1e-12, atol=1e-12, err_msg=name)


async def test_selections_are_reduced_alone(client: RestClient) -> None:
    path, model, there = await dataset(client, "i8", 2, "sparse", np.random.default_rng(5))
    for select, index in {
        "[2:8,1:12:3]": np.ix_(range(2, 8), range(1, 12, 3)),
        "[[0,3,8],[1,2,12]]": np.ix_([0, 3, 8], [1, 2, 12]),
        "[4,:]": np.ix_([4], range(13)),
        "[3:3,:]": np.ix_([], range(13)),
    }.items():
        index = tuple(one.astype(int) for one in index)
        reply = await client("GET", f"{path}/reduce", op="sum,count", axis=0, select=select, undefined="skip")
        assert reply["value"]["sum"] == model[index].sum(axis=0).tolist()
        assert reply["value"]["count"] == there[index].sum(axis=0).tolist()
        body = {"op": ["sum"], "axis": [-2], "select": select, "undefined": "fill"}
        reply = await client("POST", f"{path}/reduce", body)
        assert (reply["shape"], reply["value"]["sum"]) == (
            [len(index[1].ravel())],
            model[index].sum(axis=0).tolist(),
        )


async def test_a_scalar_and_a_dataset_that_was_never_written(client: RestClient) -> None:
    path = await create(client, [], NAMES["f4"])
    await client("PUT", f"{path}/value", {"value": 2.5})
    reply = await client("GET", f"{path}/reduce", op="sum,count,max")
    assert reply["value"] == {"sum": 2.5, "count": 1, "max": 2.5}
    path = await create(client, [1000, 1000], NAMES["i8"], layout=sparse(100, 100), fillValue=7)
    reply = await client("GET", f"{path}/reduce", op="sum,mean,min,var", undefined="fill")
    assert reply["value"] == {"sum": 7_000_000, "mean": 7.0, "min": 7, "var": 0.0}
    reply = await client("GET", f"{path}/reduce", op="count,sum,mean,min", undefined="skip")
    found = dict(reply["value"])
    assert np.isnan(found.pop("mean"))
    assert found == {"count": 0, "sum": 0, "min": 7}


async def test_sums_of_integers_are_exact_or_refused(client: RestClient) -> None:
    path = await create(client, [4], NAMES["i8"], layout=sparse(2))
    big = 2**62
    await client("PUT", f"{path}/value", {"value": [big, big - 1, 5, -big]})
    reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip")
    assert reply["value"]["sum"] == big + 4
    reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip", select="[0:2]")
    assert reply["value"]["sum"] == 2**63 - 1
    reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip", select="[0:3]")
    assert reply.status == 400
    assert "64 bits" in reply.facts["error"]["message"]
    reply = await client("GET", f"{path}/reduce", op="mean", undefined="skip", select="[0:3]")
    assert reply["value"]["mean"] == (2**63 + 4) / 3
    path = await create(client, [10**12], NAMES["u8"], layout=sparse(2**20), fillValue=2**40)
    assert (await client("GET", f"{path}/reduce", op="sum", undefined="fill")).status == 400
    path = await create(client, [10**12], NAMES["u8"], layout=sparse(2**20), fillValue=3)
    assert (await client("GET", f"{path}/reduce", op="sum", undefined="fill"))["value"]["sum"] == 3 * 10**12


async def test_a_field_of_compounds_and_elements_that_can_only_be_counted(client: RestClient) -> None:
    text = {
        "class": "H5T_STRING",
        "length": "H5T_VARIABLE",
        "charSet": "H5T_CSET_UTF8",
        "strPad": "H5T_STR_NULLTERM",
    }
    fields = [{"name": "x", "type": NAMES["f4"]}, {"name": "n", "type": NAMES["i8"]}]
    for layout in ({}, {"layout": sparse(2)}):
        path = await create(client, [3], {"class": "H5T_COMPOUND", "fields": fields}, **layout)
        await client("PUT", f"{path}/value", {"value": [[0.5, 1], [1.5, 2], [2.5, -9]]})
        ask = {"undefined": "skip"}
        reply = await client("GET", f"{path}/reduce", op="sum,min", field="n", **ask)
        assert reply["value"] == {"sum": -6, "min": -9}
        assert (await client("GET", f"{path}/reduce", op="count", **ask))["value"] == {"count": 3}
        assert (await client("GET", f"{path}/reduce", op="sum", **ask)).status == 400
        assert (await client("GET", f"{path}/reduce", op="sum", field="y", **ask)).status == 400
        path = await create(
            client, [2, 3], text, **{key: {**one, "dims": [1, 2]} for key, one in layout.items()}
        )
        await client("PUT", f"{path}/value", {"value": [["a", "b"]]}, select="[1:2,0:2]")
        reply = await client("GET", f"{path}/reduce", op="count", axis=1, **ask)
        assert reply["value"]["count"] == ([0, 2] if layout else [3, 3])
        assert (await client("GET", f"{path}/reduce", op="sum", **ask)).status == 400


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "op"),
        ({"op": "median"}, "median"),
        ({"op": "sum,sum"}, "twice"),
        ({"op": "sum"}, "undefined"),
        ({"op": "sum", "undefined": "zero"}, "undefined"),
        ({"op": "sum", "undefined": "skip", "axis": 2}, "axis"),
        ({"op": "sum", "undefined": "skip", "axis": "0,-2"}, "twice"),
        ({"op": "sum", "undefined": "skip", "axis": "x"}, "axis"),
        ({"op": "sum", "undefined": "skip", "select": "[[3,1],:]"}, "ascend"),
        ({"op": "sum", "undefined": "skip", "ddof": 2}, "ddof"),
        ({"op": "sum", "undefined": "skip", "by": "/labels"}, "axis"),
    ],
)
async def test_errors_name_what_is_wrong(client: RestClient, query: dict[str, Any], said: str) -> None:
    path = await create(client, [9, 13], NAMES["i8"], layout=sparse(4, 5))
    reply = await client("GET", f"{path}/reduce", **query)
    assert reply.status == 400
    assert said in reply.facts["error"]["message"]


async def test_a_result_is_limited(client: RestClient) -> None:
    path = await create(client, [4, 10_000], NAMES["i8"], layout=sparse(2, 100))
    reply = await client("GET", f"{path}/reduce", op="sum", axis=0, undefined="fill")
    assert reply.status == 413
    reply = await client("GET", f"{path}/reduce", op="sum", axis=0, undefined="fill", select="[:,:3000]")
    assert reply["shape"] == [3000]


async def test_variance_of_a_sample(client: RestClient) -> None:
    path = await create(client, [4], NAMES["f4"])
    await client("PUT", f"{path}/value", {"value": [1, 2, 3, 4]})
    reply = await client("GET", f"{path}/reduce", op="var", ddof=1)
    assert reply["value"]["var"] == pytest.approx(5 / 3)


async def test_values_that_are_generated(client: RestClient) -> None:
    arange = {"initializer": ["arange", "--start=10", "--step=2"]}
    path = await create(client, [1000], NAMES["i8"], **arange)
    await client("PUT", f"{path}/value", {"value": [0, 0]}, select="[0:2]")
    values = 10 + 2 * np.arange(1000)
    values[:2] = 0
    reply = await client("GET", f"{path}/reduce", op="sum,max,nnz")
    assert reply["value"] == {"sum": int(values.sum()), "max": int(values.max()), "nnz": 998}
    path = await create(client, [10**12], NAMES["i8"], **arange)
    assert (await client("GET", f"{path}/reduce", op="sum")).status == 413
    assert (await client("GET", f"{path}/reduce", op="max", select="[5:7]"))["value"] == {"max": 22}


async def test_large_chunks_of_one_request_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes the whole budget, and takes so long that waiting for all others would end in a 503."""
    monkeypatch.setattr(chunk_reductions, "REDUCTIONS_AT_ONCE", 1000)
    monkeypatch.setattr(chunk_reductions, "MemoryBudget", partial(MemoryBudget, patience=0.0))
    async with value_client(settings=ServiceSettings(min_chunk_size=1)) as client:
        layout = {"class": "H5D_CHUNKED", "dims": [1, 2 * MAX_INLINE_BYTES]}
        path = await create(client, [16, 2 * MAX_INLINE_BYTES], "H5T_STD_I32LE", layout=layout)
        values = np.arange(32 * MAX_INLINE_BYTES, dtype="<i4")
        for row, some in enumerate(values.reshape(16, -1)):
            reply = await client("PUT", f"{path}/value", some.tobytes(), select=f"[{row},:]")
            assert reply.status == 200, reply.body
        for op, expected in {"sum": int(values.sum()), "var": float(values.var())}.items():
            reply = await client("GET", f"{path}/reduce", op=op)
            assert reply.status == 200, reply.body
            assert reply["value"] == {op: pytest.approx(expected)}
