"""Reductions by groups: labels from datasets, categorical columns and requests; and results as Arrow tables."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.format.arrow_stream import read_batches
from hsparse.format.reductions.label_groups import LabelGroups
from hsparse.sn.values.reduction import dataset_reduction
from hsparse.sn.values.reduction import dataset_reduction as group_labels
from tests.sn.value_client import SETTINGS, create, sparse, value_client
from tests.support.rest_client import RestClient

I8, F8 = "H5T_STD_I64LE", "H5T_IEEE_F64LE"
TEXT = {
    "class": "H5T_STRING",
    "length": "H5T_VARIABLE",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
}
FIXED_TEXT = {"class": "H5T_STRING", "length": 3, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
ARROW = "application/vnd.apache.arrow.stream"
WORDS = ["b", "a", "", "b", "c", "a", "b", "b", "c"]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=3) as made:
        yield made


async def matrix(client: RestClient, layout: str) -> tuple[str, NDArray[Any], NDArray[np.bool_]]:
    """Return a dataset of 9 rows and 12 columns, its values and which of them are defined."""
    rng = np.random.default_rng(2)
    chosen = {"dense": {"class": "H5D_CHUNKED", "dims": [2, 5]}, "sparse": sparse(2, 5)}[layout]
    path = await create(client, [9, 12], I8, layout=chosen)
    there = rng.random((9, 12)) < 0.4
    values = np.where(there, rng.integers(-9, 9, (9, 12)), 0)
    places = np.argwhere(there)
    body = {"points": places.tolist(), "value": values[there].tolist()}
    assert (await client("PUT", f"{path}/value", body)).status == 200
    return path, values, there if layout == "sparse" else np.ones_like(there)


async def labelled(client: RestClient, kind: Any, values: list[Any], path: str) -> str:
    """Create a dataset of labels at a path, and return its id."""
    body = {"type": kind, "shape": [len(values)], "h5path": path}
    made = await client("POST", "/datasets", body, implicit=1)
    assert made.status == 201, made.body
    assert (await client("PUT", f"/datasets/{made['id']}/value", {"value": values})).status == 200
    return str(made["id"])


def sums(values: NDArray[Any], labels: list[Any], groups: list[Any]) -> list[list[int]]:
    chosen = np.array(labels, object)
    return [values[chosen == group].sum(axis=0).tolist() for group in groups]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
async def test_labels_from_datasets_and_from_the_request(client: RestClient, layout: str) -> None:
    path, values, there = await matrix(client, layout)
    numbers = [3, -1, 3, 3, 0, 0, 0, -1, 3]
    id = await labelled(client, I8, numbers, "/obs/batch")
    await labelled(client, TEXT, WORDS, "/obs/word")
    await labelled(client, FIXED_TEXT, WORDS, "/obs/short")
    await labelled(client, F8, [float("nan") if n == 0 else n for n in numbers], "/obs/score")
    words = sorted(set(WORDS))
    ask: dict[str, Any] = {"op": "sum,count", "axis": "0", "undefined": "skip"}
    for by, labels, groups in [
        ("/obs/batch", numbers, [-1, 0, 3]),
        (id, numbers, [-1, 0, 3]),
        ("/obs/word", WORDS, words),
        ("/obs/short", WORDS, words),
        ("/obs/score", numbers, [-1.0, 3.0]),
    ]:
        reply = await client("GET", f"{path}/reduce", by=by, **ask)
        assert reply.status == 200, reply.body
        assert (reply["groups"], reply["shape"]) == (groups, [len(groups), 12])
        assert reply["value"]["sum"] == sums(values, labels, groups)
        assert reply["value"]["count"] == sums(there, labels, groups)
    given = [None if word == "" else word for word in WORDS]
    reply = await client("POST", f"{path}/reduce", ask | {"by": given})
    assert (reply["groups"], reply["value"]["sum"]) == (["a", "b", "c"], sums(values, WORDS, ["a", "b", "c"]))


async def test_groups_of_columns_of_a_selection_with_all_axes_reduced(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    labels = ["x" if column % 3 else "y" for column in range(12)]
    body = {
        "op": "sum,count,min",
        "axis": [1],
        "undefined": "fill",
        "by": labels,
        "select": "[1:8:2,[0,2,3,9]]",
    }
    some = values[1:8:2][:, [0, 2, 3, 9]]
    reply = await client("POST", f"{path}/reduce", body)
    assert reply["groups"] == ["x", "y"]
    wanted = np.stack((some[:, [1]].sum(axis=1), some[:, [0, 2, 3]].sum(axis=1)), axis=1)
    assert reply["value"]["sum"] == wanted.tolist()
    assert reply["value"]["count"] == [[1, 3]] * 4
    assert reply["value"]["min"] == np.stack((some[:, 1], some[:, [0, 2, 3]].min(axis=1)), axis=1).tolist()
    reply = await client("POST", f"{path}/reduce", body | {"axis": [1, 0]})
    assert reply["value"]["sum"] == wanted.sum(axis=0).tolist()
    assert reply["value"]["count"] == [4, 12]


async def test_a_categorical_column(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    codes = [1, 0, -1, 1, 2, 0, 1, 1, 2]
    await labelled(client, "H5T_STD_I8LE", codes, "/obs/type/codes")
    await labelled(client, TEXT, ["T", "B", "NK", "none"], "/obs/type/categories")
    reply = await client("GET", f"{path}/reduce", op="sum,mean", axis=0, undefined="fill", by="/obs/type")
    assert reply["groups"] == ["T", "B", "NK", "none"]
    assert reply["value"]["sum"] == sums(values, codes, [0, 1, 2, 3])
    wanted = np.array(sums(values, codes, [0, 1, 2])) / np.array([[2], [4], [2]])
    np.testing.assert_allclose(reply["value"]["mean"][:3], wanted)
    assert np.isnan(reply["value"]["mean"][3]).all()


@pytest.mark.parametrize("by", ["/obs/type", "/obs/batch", "/obs/word", "list"])
async def test_many_labels_are_grouped_in_a_thread_within_the_memory_for_answers(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 20_000
    threads: dict[str, bool] = {}
    held: list[int] = []
    for where, name in [
        (LabelGroups, "of_list"),
        (LabelGroups, "of_numbers"),
        (LabelGroups, "of_categories"),
        (dataset_reduction, "_picked"),
        (dataset_reduction, "add_missing"),
    ]:
        monkeypatch.setattr(where, name, noting_threads(getattr(where, name), name, threads))
    async with value_client(settings=replace(SETTINGS, max_request_size=4 << 20)) as client:
        hold = client.service.answers.hold

        def noted(nbytes: int) -> AbstractAsyncContextManager[None]:
            held.append(nbytes)
            return hold(nbytes)

        monkeypatch.setattr(client.service.answers, "hold", noted)
        path = await create(client, [count, 2], "H5T_STD_I8LE", layout=sparse(5000, 2))
        codes = [place % 3 for place in range(count)]
        words = ["x" if code else "y" for code in codes]
        await labelled(client, "H5T_STD_I8LE", codes, "/obs/type/codes")
        await labelled(client, TEXT, ["a", "b", "c"], "/obs/type/categories")
        await labelled(client, I8, codes, "/obs/batch")
        await labelled(client, FIXED_TEXT, words, "/obs/word")
        held.clear()
        body = {"op": "count", "axis": 0, "undefined": "fill", "by": words if by == "list" else by}
        reply = await client("POST", f"{path}/reduce", body)
        assert (
            sorted(reply["value"]["count"])[-1]
            == [words.count("x") if by in ("/obs/word", "list") else codes.count(0)] * 2
        )
    assert len(threads) == 3
    assert all(threads.values()), threads
    assert held[0] >= count * group_labels.GROUPED_BYTES
    assert max(held[1:]) >= count * dataset_reduction.CODE_BYTES


def noting_threads(function: Any, name: str, threads: dict[str, bool]) -> Any:
    """Return a function that notes, by its name, whether another thread than the event loop's calls it."""

    def noted(*args: Any) -> Any:
        threads[name] = threading.current_thread() is not threading.main_thread()
        return function(*args)

    return noted


async def test_labels_that_do_not_fit(client: RestClient) -> None:
    path, *_ = await matrix(client, "sparse")
    await labelled(client, I8, [1, 2], "/short")
    await labelled(client, I8, [0] * 9, "/obs/codes")
    for by, status in [("/short", 400), ("/none", 404), ("/obs", 400), (path.rpartition("/")[2], 400)]:
        reply = await client("GET", f"{path}/reduce", op="sum", axis=0, undefined="skip", by=by)
        assert reply.status == status, reply.body
    for labels in ([1] * 8, [1.5] * 9, [1, "a"] + [1] * 7):
        body = {"op": "sum", "axis": 0, "undefined": "skip", "by": labels}
        assert (await client("POST", f"{path}/reduce", body)).status == 400


async def test_an_arrow_table_has_a_row_for_each_place(client: RestClient) -> None:
    path, values, _ = await matrix(client, "sparse")
    reply = await client(
        "GET", f"{path}/reduce", accept=ARROW, op="sum,mean", axis=0, undefined="fill", select="[:,2:12:5]"
    )
    ((length, columns),) = read_batches(reply.body)
    assert (length, list(columns)) == (2, ["dim_1", "sum", "mean"])
    assert columns["dim_1"].values.tolist() == [2, 7]
    assert columns["sum"].values.tolist() == values[:, [2, 7]].sum(axis=0).tolist()
    np.testing.assert_allclose(columns["mean"].values, values[:, [2, 7]].mean(axis=0))
    await labelled(client, TEXT, WORDS, "/obs/word")
    reply = await client(
        "GET",
        f"{path}/reduce",
        accept=ARROW,
        op="max",
        axis=0,
        undefined="fill",
        by="/obs/word",
        select="[:,3:5]",
    )
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
