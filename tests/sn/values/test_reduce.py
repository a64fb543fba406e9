"""Reductions over HTTP against numpy: numbers of all types, any axes, undefined elements, and by groups."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.compute import MAX_INLINE_BYTES
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn import chunk_reductions
from hsparse.format.arrow_stream import read_batches
from hsparse.format.reductions.label_groups import LabelGroups
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.reduction import dataset_reduction
from tests.sn.conftest import Watch, note_holds
from tests.sn.dataset_kinds import F32, F64, I8, I32, I64, TEXT, chunked, sparse
from tests.sn.value_client import BINARY, SETTINGS, create, put, value_client
from tests.support.rest_client import RestClient, answered, refuses

NAMES = {"i1": I8, ">i2": "H5T_STD_I16BE", "u4": "H5T_STD_U32LE", "i8": I64, "u8": "H5T_STD_U64LE"}
NAMES |= {"f4": F32, ">f8": "H5T_IEEE_F64BE"}
SHAPES = {1: ((30,), (7,)), 2: ((9, 13), (4, 5)), 3: ((5, 6, 7), (2, 3, 4)), 4: ((3, 4, 3, 4), (2, 2, 2, 3))}
SKIP = {"op": "sum", "undefined": "skip"}
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
    layouts = {"dense": chunked(*chunks), "sparse": sparse(*chunks)}
    path = await create(client, list(shape), NAMES[kind], layout=layouts[layout], fillValue=fill)
    model, there = np.full(shape, fill, kind), np.zeros(shape, np.bool_)
    for _ in range(2):
        box = tuple(slice(*sorted(rng.choice(length + 1, 2, replace=False).tolist())) for length in shape)
        low = 0 if np.dtype(kind).kind == "u" else -50
        model[box] = rng.integers(low, 50, model[box].shape) / (1 if np.dtype(kind).kind != "f" else 8)
        there[box] = True
        select = "[" + ",".join(f"{one.start}:{one.stop}" for one in box) + "]"
        await put(client, path, model[box].tobytes(), select=select)
    if layout == "sparse":
        gone = np.argwhere(rng.random(shape) < 0.2)
        await answered(
            client("POST", f"{path}/erase", {"points": gone.tolist() if rank > 1 else gone[:, 0].tolist()})
        )
        there[tuple(gone.T)] = False
        model[~there] = fill
    else:
        there[...] = True
    return path, model, there


async def reduced(client: RestClient, path: str, **query: Any) -> Any:
    """Return the results of a reduction."""
    return (await answered(client("GET", f"{path}/reduce", **query)))["value"]


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
            ask = {"op": ",".join(OPERATIONS), "axis": ",".join(map(str, axes)), "undefined": undefined}
            reply = await answered(client("GET", f"{path}/reduce", accept=BINARY, **ask))
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
        assert reply["shape"] == [len(index[1].ravel())]
        assert reply["value"]["sum"] == model[index].sum(axis=0).tolist()


async def test_a_scalar_and_a_dataset_that_was_never_written(client: RestClient) -> None:
    path = await create(client, [], NAMES["f4"])
    await put(client, path, {"value": 2.5})
    assert await reduced(client, path, op="sum,count,max") == {"sum": 2.5, "count": 1, "max": 2.5}
    path = await create(client, [1000, 1000], NAMES["i8"], layout=sparse(100, 100), fillValue=7)
    found = await reduced(client, path, op="sum,mean,min,var", undefined="fill")
    assert found == {"sum": 7_000_000, "mean": 7.0, "min": 7, "var": 0.0}
    found = await reduced(client, path, op="count,sum,mean,min", undefined="skip")
    found = dict(found)
    assert np.isnan(found.pop("mean"))
    assert found == {"count": 0, "sum": 0, "min": 7}


async def test_sums_of_integers_are_exact_or_refused(client: RestClient) -> None:
    path = await create(client, [4], NAMES["i8"], layout=sparse(2))
    big = 2**62
    await put(client, path, {"value": [big, big - 1, 5, -big]})
    assert (await reduced(client, path, op="sum", undefined="skip"))["sum"] == big + 4
    reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip", select="[0:2]")
    assert reply["value"]["sum"] == 2**63 - 1
    asked = client("GET", f"{path}/reduce", op="sum", undefined="skip", select="[0:3]")
    await refuses(asked, 400, "64 bits")
    reply = await client("GET", f"{path}/reduce", op="mean", undefined="skip", select="[0:3]")
    assert reply["value"]["mean"] == (2**63 + 4) / 3
    path = await create(client, [10**12], NAMES["u8"], layout=sparse(2**20), fillValue=2**40)
    assert (await client("GET", f"{path}/reduce", op="sum", undefined="fill")).status == 400
    path = await create(client, [10**12], NAMES["u8"], layout=sparse(2**20), fillValue=3)
    assert (await reduced(client, path, op="sum", undefined="fill"))["sum"] == 3 * 10**12


async def test_a_field_of_compounds_and_elements_that_can_only_be_counted(client: RestClient) -> None:
    fields = [{"name": "x", "type": NAMES["f4"]}, {"name": "n", "type": NAMES["i8"]}]
    for layout in ({}, {"layout": sparse(2)}):
        path = await create(client, [3], {"class": "H5T_COMPOUND", "fields": fields}, **layout)
        await put(client, path, {"value": [[0.5, 1], [1.5, 2], [2.5, -9]]})
        ask = {"undefined": "skip"}
        assert await reduced(client, path, op="sum,min", field="n", **ask) == {"sum": -6, "min": -9}
        assert await reduced(client, path, op="count", **ask) == {"count": 3}
        assert (await client("GET", f"{path}/reduce", op="sum", **ask)).status == 400
        assert (await client("GET", f"{path}/reduce", op="sum", field="y", **ask)).status == 400
        path = await create(
            client, [2, 3], TEXT, **{key: {**one, "dims": [1, 2]} for key, one in layout.items()}
        )
        await put(client, path, {"value": [["a", "b"]]}, select="[1:2,0:2]")
        found = await reduced(client, path, op="count", axis=1, **ask)
        assert found["count"] == ([0, 2] if layout else [3, 3])
        assert (await client("GET", f"{path}/reduce", op="sum", **ask)).status == 400


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "op"),
        ({"op": "median"}, "median"),
        ({"op": "sum,sum"}, "twice"),
        ({"op": "sum"}, "undefined"),
        ({"op": "sum", "undefined": "zero"}, "undefined"),
        (SKIP | {"axis": 2}, "axis"),
        (SKIP | {"axis": "0,-2"}, "twice"),
        (SKIP | {"axis": "x"}, "axis"),
        (SKIP | {"select": "[[3,1],:]"}, "ascend"),
        (SKIP | {"ddof": 2}, "ddof"),
        (SKIP | {"by": "/labels"}, "axis"),
    ],
)
async def test_errors_name_what_is_wrong(client: RestClient, query: dict[str, Any], said: str) -> None:
    path = await create(client, [9, 13], NAMES["i8"], layout=sparse(4, 5))
    await refuses(client("GET", f"{path}/reduce", **query), 400, said)


async def test_a_result_is_limited(client: RestClient) -> None:
    path = await create(client, [4, 10_000], NAMES["i8"], layout=sparse(2, 100))
    await answered(client("GET", f"{path}/reduce", op="sum", axis=0, undefined="fill"), 413)
    reply = await client("GET", f"{path}/reduce", op="sum", axis=0, undefined="fill", select="[:,:3000]")
    assert reply["shape"] == [3000]


async def test_variance_of_a_sample(client: RestClient) -> None:
    path = await create(client, [4], NAMES["f4"])
    await put(client, path, {"value": [1, 2, 3, 4]})
    assert (await reduced(client, path, op="var", ddof=1))["var"] == pytest.approx(5 / 3)


async def test_values_that_are_generated(client: RestClient) -> None:
    arange = {"initializer": ["arange", "--start=10", "--step=2"]}
    path = await create(client, [1000], NAMES["i8"], **arange)
    await put(client, path, {"value": [0, 0]}, select="[0:2]")
    values = 10 + 2 * np.arange(1000)
    values[:2] = 0
    found = await reduced(client, path, op="sum,max,nnz")
    assert found == {"sum": int(values.sum()), "max": int(values.max()), "nnz": 998}
    path = await create(client, [10**12], NAMES["i8"], **arange)
    assert (await client("GET", f"{path}/reduce", op="sum")).status == 413
    assert await reduced(client, path, op="max", select="[5:7]") == {"max": 22}


async def test_large_chunks_of_one_request_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes the whole budget, and takes so long that waiting for all others would end in a 503."""
    monkeypatch.setattr(chunk_reductions, "REDUCTIONS_AT_ONCE", 1000)
    monkeypatch.setattr(chunk_reductions, "MemoryBudget", partial(MemoryBudget, patience=0.0))
    async with value_client(settings=ServiceSettings(min_chunk_size=1)) as client:
        layout = chunked(1, 2 * MAX_INLINE_BYTES)
        path = await create(client, [16, 2 * MAX_INLINE_BYTES], I32, layout=layout)
        values = np.arange(32 * MAX_INLINE_BYTES, dtype="<i4")
        for row, some in enumerate(values.reshape(16, -1)):
            await put(client, path, some.tobytes(), select=f"[{row},:]")
        for op, expected in {"sum": int(values.sum()), "var": float(values.var())}.items():
            reply = await answered(client("GET", f"{path}/reduce", op=op))
            assert reply["value"] == {op: pytest.approx(expected)}


FIXED_TEXT = {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
ARROW = "application/vnd.apache.arrow.stream"
WORDS = ["b", "a", "", "b", "c", "a", "b", "b", "c"]


async def matrix(client: RestClient, layout: str) -> tuple[str, NDArray[Any], NDArray[np.bool_]]:
    """Return a dataset of 9 rows and 12 columns, its values and which of them are defined."""
    rng = np.random.default_rng(2)
    chosen = {"dense": chunked(2, 5), "sparse": sparse(2, 5)}[layout]
    path = await create(client, [9, 12], I64, layout=chosen)
    there = rng.random((9, 12)) < 0.4
    values = np.where(there, rng.integers(-9, 9, (9, 12)), 0)
    places = np.argwhere(there)
    body = {"points": places.tolist(), "value": values[there].tolist()}
    await put(client, path, body)
    return path, values, there if layout == "sparse" else np.ones_like(there)


async def labelled(client: RestClient, kind: Any, values: list[Any], path: str) -> str:
    """Create a dataset of labels at a path, and return its id."""
    body = {"type": kind, "shape": [len(values)], "h5path": path}
    made = await answered(client("POST", "/datasets", body, implicit=1), 201)
    assert (await client("PUT", f"/datasets/{made['id']}/value", {"value": values})).status == 200
    return str(made["id"])


def sums(values: NDArray[Any], labels: list[Any], groups: list[Any]) -> list[list[int]]:
    chosen = np.array(labels, object)
    return [values[chosen == group].sum(axis=0).tolist() for group in groups]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
async def test_labels_from_datasets_and_from_the_request(client: RestClient, layout: str) -> None:
    path, values, there = await matrix(client, layout)
    numbers = [3, -1, 3, 3, 0, 0, 0, -1, 3]
    id = await labelled(client, I64, numbers, "/obs/batch")
    await labelled(client, TEXT, WORDS, "/obs/word")
    await labelled(client, FIXED_TEXT, WORDS, "/obs/short")
    await labelled(client, F64, [float("nan") if n == 0 else n for n in numbers], "/obs/score")
    words = sorted(set(WORDS))
    ask: dict[str, Any] = {"op": "sum,count", "axis": "0", "undefined": "skip"}
    for by, labels, groups in [
        ("/obs/batch", numbers, [-1, 0, 3]),
        (id, numbers, [-1, 0, 3]),
        ("/obs/word", WORDS, words),
        ("/obs/short", WORDS, words),
        ("/obs/score", numbers, [-1.0, 3.0]),
    ]:
        reply = await answered(client("GET", f"{path}/reduce", by=by, **ask))
        assert (reply["groups"], reply["shape"]) == (groups, [len(groups), 12])
        assert reply["value"]["sum"] == sums(values, labels, groups)
        assert reply["value"]["count"] == sums(there, labels, groups)
    given = [None if word == "" else word for word in WORDS]
    reply = await client("POST", f"{path}/reduce", ask | {"by": given})
    assert (reply["groups"], reply["value"]["sum"]) == (["a", "b", "c"], sums(values, WORDS, ["a", "b", "c"]))


async def test_groups_of_columns_of_a_selection_with_all_axes_reduced(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    labels = ["x" if column % 3 else "y" for column in range(12)]
    body = {"op": "sum,count,min", "axis": [1], "undefined": "fill", "by": labels}
    body |= {"select": "[1:8:2,[0,2,3,9]]"}
    some = values[1:8:2][:, [0, 2, 3, 9]]
    reply = await client("POST", f"{path}/reduce", body)
    assert reply["groups"] == ["x", "y"]
    wanted = np.stack((some[:, [1]].sum(axis=1), some[:, [0, 2, 3]].sum(axis=1)), axis=1)
    assert (reply["value"]["sum"], reply["value"]["count"]) == (wanted.tolist(), [[1, 3]] * 4)
    assert reply["value"]["min"] == np.stack((some[:, 1], some[:, [0, 2, 3]].min(axis=1)), axis=1).tolist()
    reply = await client("POST", f"{path}/reduce", body | {"axis": [1, 0]})
    assert (reply["value"]["sum"], reply["value"]["count"]) == (wanted.sum(axis=0).tolist(), [4, 12])


async def test_a_categorical_column(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    codes = [1, 0, -1, 1, 2, 0, 1, 1, 2]
    await labelled(client, I8, codes, "/obs/type/codes")
    await labelled(client, TEXT, ["T", "B", "NK", "none"], "/obs/type/categories")
    reply = await client("GET", f"{path}/reduce", op="sum,mean", axis=0, undefined="fill", by="/obs/type")
    assert reply["groups"] == ["T", "B", "NK", "none"]
    assert reply["value"]["sum"] == sums(values, codes, [0, 1, 2, 3])
    wanted = np.array(sums(values, codes, [0, 1, 2])) / np.array([[2], [4], [2]])
    np.testing.assert_allclose(reply["value"]["mean"][:3], wanted)
    assert np.isnan(reply["value"]["mean"][3]).all()


@pytest.mark.parametrize("by", ["/obs/type", "/obs/batch", "/obs/word", "list"])
async def test_many_labels_are_grouped_in_a_thread_within_the_memory_for_answers(
    by: str, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    count = 20_000
    for name in ("of_list", "of_numbers", "of_categories"):
        watch(LabelGroups, name)
    watch(dataset_reduction, "_picked")
    on_loop = watch(dataset_reduction, "add_missing")
    async with value_client(settings=replace(SETTINGS, max_request_size=4 << 20)) as client:
        held = note_holds(client.service.answers, monkeypatch)
        path = await create(client, [count, 2], I8, layout=sparse(5000, 2))
        codes = [place % 3 for place in range(count)]
        words = ["x" if code else "y" for code in codes]
        await labelled(client, I8, codes, "/obs/type/codes")
        await labelled(client, TEXT, ["a", "b", "c"], "/obs/type/categories")
        await labelled(client, I64, codes, "/obs/batch")
        await labelled(client, FIXED_TEXT, words, "/obs/word")
        held.clear()
        body = {"op": "count", "axis": 0, "undefined": "fill", "by": words if by == "list" else by}
        reply = await client("POST", f"{path}/reduce", body)
        most = words.count("x") if by in ("/obs/word", "list") else codes.count(0)
        assert max(reply["value"]["count"]) == [most] * 2
    assert len(on_loop) >= 3
    assert not any(on_loop)
    assert held[0] >= count * dataset_reduction.GROUPED_BYTES
    assert max(held[1:]) >= count * dataset_reduction.CODE_BYTES


async def test_labels_that_do_not_fit(client: RestClient) -> None:
    path, *_ = await matrix(client, "sparse")
    await labelled(client, I64, [1, 2], "/short")
    await labelled(client, I64, [0] * 9, "/obs/codes")
    for by, status in [("/short", 400), ("/none", 404), ("/obs", 400), (path.rpartition("/")[2], 400)]:
        await answered(client("GET", f"{path}/reduce", op="sum", axis=0, undefined="skip", by=by), status)
    for labels in ([1] * 8, [1.5] * 9, [1, "a"] + [1] * 7):
        body = {"op": "sum", "axis": 0, "undefined": "skip", "by": labels}
        assert (await client("POST", f"{path}/reduce", body)).status == 400


async def test_an_arrow_table_has_a_row_for_each_place(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    ask = {"op": "sum,mean", "axis": 0, "undefined": "fill", "select": "[:,2:12:5]"}
    reply = await client("GET", f"{path}/reduce", accept=ARROW, **ask)
    ((length, columns),) = read_batches(reply.body)
    assert (length, list(columns)) == (2, ["dim_1", "sum", "mean"])
    assert columns["dim_1"].values.tolist() == [2, 7]
    assert columns["sum"].values.tolist() == values[:, [2, 7]].sum(axis=0).tolist()
    np.testing.assert_allclose(columns["mean"].values, values[:, [2, 7]].mean(axis=0))
    await labelled(client, TEXT, WORDS, "/obs/word")
    ask = {"op": "max", "axis": 0, "undefined": "fill", "by": "/obs/word", "select": "[:,3:5]"}
    reply = await client("GET", f"{path}/reduce", accept=ARROW, **ask)
    ((length, columns),) = read_batches(reply.body)
    assert (length, list(columns)) == (8, ["group", "dim_1", "max"])
    group = columns["group"]
    text = bytes(group.values).decode()
    assert [text[a:b] for a, b in zip(group.offsets[:-1], group.offsets[1:], strict=True)] == [
        word for word in sorted(set(WORDS)) for _ in range(2)
    ]
    chosen = np.array(WORDS)
    wanted = [values[chosen == word][:, 3:5].max(axis=0).tolist() for word in sorted(set(WORDS))]
    assert columns["max"].values.reshape(4, 2).tolist() == wanted
