"""Where capabilities of values meet: types, fields, queries, initializers, JSON forms, and any selection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.type_strategies import text
from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

F4 = "H5T_IEEE_F32LE"
PAIR = {"class": "H5T_ARRAY", "dims": [2], "base": F4}
INITIAL = {
    "initializer": ["arange", "--start=3", "--step=2"],
    "layout": {"class": "H5D_CHUNKED", "dims": [300]},
}
BITS = {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"FALSE": 0, "TRUE": 1}}
RECORD = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "pair", "type": PAIR},
        {"name": "flag", "type": BITS},
        {"name": "raw", "type": {"class": "H5T_OPAQUE", "size": 2}},
        {"name": "x", "type": F4},
    ],
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


async def write(client: RestClient, path: str, body: Any, **query: Any) -> None:
    reply = await client("PUT", f"{path}/value", body, **query)
    assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    ("kind", "value", "clean"),
    [
        (F4, float("nan"), None),
        (PAIR, [1.0, float("inf")], [1.0, None]),
        (
            {"class": "H5T_COMPOUND", "fields": [{"name": "p", "type": PAIR}]},
            [[float("nan"), 2.0]],
            [[None, 2.0]],
        ),
        ({"class": "H5T_VLEN", "base": F4}, [float("-inf")], [None]),
    ],
)
@pytest.mark.parametrize("shape", [[3], [3, 1]])
async def test_floats_that_are_not_finite_have_one_form(
    client: RestClient, kind: Any, value: Any, clean: Any, shape: list[int]
) -> None:
    path = await create(client, shape, kind)
    body = json.loads(json.dumps({"value": value, "select": ",".join(["[0", "0"][: len(shape)]) + "]"}))
    raw = json.dumps(body).replace("NaN", '"nan"').replace("-Infinity", '"-inf"').replace("Infinity", '"inf"')
    await write(client, path, json.loads(raw))
    first = "[0]" if len(shape) == 1 else "[0,0]"
    shown = (await client("GET", f"{path}/value", select=first))["value"]
    shown = shown[0] if len(shape) == 2 else shown
    assert json.dumps(shown) == json.dumps([value])
    reply = await client("GET", f"{path}/value", select=first, ignore_nan=1)
    assert (reply["value"][0] if len(shape) == 2 else reply["value"]) == [clean]


@pytest.mark.parametrize("kind", [PAIR, {"class": "H5T_VLEN", "base": F4}], ids=["array", "sequence"])
async def test_dimensions_that_are_left_out_are_those_of_the_selection(client: RestClient, kind: Any) -> None:
    path = await create(client, [2, 3], kind)
    await write(client, path, {"value": [[[1.0, 2.0]]], "select": "[1,1]"})
    assert (await client("GET", f"{path}/value", select="[1,1]"))["value"] == [[[1.0, 2.0]]]
    assert (await client("GET", f"{path}/value", select="[1,1]", reduce_dim=1))["value"] == [1.0, 2.0]
    assert (await client("GET", f"{path}/value", select="[1,1:3]", reduce_dim=1))["value"][0] == [1.0, 2.0]


@pytest.mark.parametrize(
    "layout", [{"class": "H5D_CHUNKED", "dims": [4]}, sparse(4)], ids=["dense", "sparse"]
)
async def test_fields_of_every_kind(client: RestClient, layout: Any) -> None:
    path = await create(client, [6], RECORD, layout=layout)
    await write(client, path, {"value": [[1.0, 2.0], True, "QUI=", 0.5]})
    await write(client, path, {"value": [3.0, 4.0], "select": "[1:2]"}, fields="pair")
    await write(client, path, {"value": [False, "Qg=="], "select": "[2:3]", "fields": "flag:raw"})
    await write(client, path, np.array([9.0, 8.0], "<f4").tobytes(), select="[4:6]", fields="x")
    reply = await client("GET", f"{path}/value")
    assert reply["value"] == [
        [[1.0, 2.0], True, "QUI=", 0.5],
        [[3.0, 4.0], True, "QUI=", 0.5],
        [[1.0, 2.0], False, "QgA=", 0.5],
        [[1.0, 2.0], True, "QUI=", 0.5],
        [[1.0, 2.0], True, "QUI=", 9.0],
        [[1.0, 2.0], True, "QUI=", 8.0],
    ]
    reply = await client("GET", f"{path}/value", query="flag == false | x > 8.5", fields="raw:pair")
    assert reply.facts == {
        "status": 200,
        "index": [2, 4],
        "value": [["QgA=", [1.0, 2.0]], ["QUI=", [1.0, 2.0]]],
    }
    reply = await client("PUT", f"{path}/value", {"pair": [7, 6], "raw": "AAE="}, query="x == 8")
    assert reply["value"] == [[5, [7.0, 6.0], True, "AAE=", 8.0]]
    reply = await client("PUT", f"{path}/value", {"pair": 5}, query="x == 8")
    assert reply["value"] == [[5, [5.0, 5.0], True, "AAE=", 8.0]]
    assert (await client("GET", f"{path}/value", query="pair == 1")).status == 400
    assert (await client("GET", f"{path}/value", query="raw == 1")).status == 400


async def test_queries_see_what_an_initializer_makes(client: RestClient) -> None:
    path = await create(client, [1000], "H5T_STD_I32LE", **INITIAL)
    reply = await client("GET", f"{path}/value", query="_ > 1991")
    assert reply["index"] == list(range(995, 1000))
    reply = await client("PUT", f"{path}/value", {"value": -1}, query="_ < 9 | _ == 1003")
    assert reply["indices"] == [[0], [1], [2], [500]]
    expected = 3 + 2 * np.arange(1000, dtype="<i4")
    expected[[0, 1, 2, 500]] = -1
    found = await client("GET", f"{path}/value", accept=BINARY)
    np.testing.assert_array_equal(np.frombuffer(found.body, "<i4"), expected)
    reply = await client("PUT", f"{path}/value", {"value": -2}, query="_ > 1000", Limit=2)
    assert reply["indices"] == [[499], [501]]
    reply = await client("GET", f"{path}/value", query="_ == 0")  # the fill value is nowhere
    assert reply["index"] == []


async def test_queries_of_many_chunks_with_an_initializer(client: RestClient) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [256]}
    path = await create(client, [400_000], "H5T_STD_I32LE", initializer=["arange"], layout=layout)
    await write(client, path, {"value": 0, "select": "[399999]"})
    reply = await client("GET", f"{path}/value", query="_ in (7, 300000, 399999) | _ == 0")
    assert reply["index"] == [0, 7, 300_000, 399_999]


async def test_texts_that_are_none_are_refused_in_every_answer(client: RestClient) -> None:
    path = await create(client, [2], {"class": "H5T_COMPOUND", "fields": [{"name": "t", "type": text(2)}]})
    await write(client, path, b"\xff\xfeok")
    assert (await client("GET", f"{path}/value")).status == 400
    assert (await client("GET", f"{path}/value", query="t != b'ok'")).status == 400
    assert (await client("GET", f"{path}/value", accept=BINARY)).body == b"\xff\xfeok"


async def test_every_kind_of_fixed_size_stays_in_a_file() -> None:
    kind = np.dtype([("pair", "<f4", (2,)), ("flag", "?"), ("raw", "V2"), ("x", "<f4")])
    model = np.zeros(200, kind)
    model["pair"], model["x"] = np.arange(400).reshape(200, 2), np.arange(200)
    model["flag"], model["raw"] = np.arange(200) % 3 == 0, b"ab"
    model["x"][7] = np.nan
    store = MemoryStore()
    await store.put("free/a.h5", model.tobytes())
    await store.put("free/b.h5", model["pair"].tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "offset": 0}
    async with value_client(store) as client:
        path = await create(
            client, [200], RECORD, layout=layout | {"file_uri": "free/a.h5", "size": model.nbytes}
        )
        reply = await client("GET", f"{path}/value", select="[6:8]")
        assert json.dumps(reply["value"]) == json.dumps(
            [[[12.0, 13.0], True, "YWI=", 6.0], [[14.0, 15.0], False, "YWI=", float("nan")]]
        )
        reply = await client("GET", f"{path}/value", query="flag == true & x > 190", fields="pair:x")
        assert reply["value"] == [[[2.0 * i, 2.0 * i + 1], i] for i in (192, 195, 198)]
        pairs = await create(client, [200], PAIR, layout=layout | {"file_uri": "free/b.h5", "size": 1600})
        assert (await client("GET", f"{pairs}/value", select="[3:5]"))["value"] == [[6.0, 7.0], [8.0, 9.0]]
        body = {
            "type": {"class": "H5T_VLEN", "base": F4},
            "shape": [200],
            "creationProperties": {"layout": layout | {"file_uri": "free/b.h5", "size": 1600}},
        }
        refused = await client("POST", "/datasets", body)
        assert refused.status == 400
        assert "variable length" in refused["error"]["message"]


SHAPE = (13, 9, 11)
CHUNK = (5, 4, 11)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A `select` string, and the numpy index of the same elements, in the same shape, or of a flat list."""

    select: str
    index: Any
    paired: bool


@st.composite
def selects(draw: st.DrawFn) -> Drawn:
    """Draw an index, a slice with a step or a list for each dimension; two lists or more are paired."""
    pieces, axes, lists = [], [], 0
    length = draw(st.integers(1, 6))
    for extent in SHAPE:
        kind = draw(st.sampled_from(["index", "slice", "list", "all"]))
        if kind == "index":
            start = draw(st.integers(0, extent - 1))
            pieces.append(str(start))
            axes.append(np.array([start]))
        elif kind == "slice":
            start, stop = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
            step = draw(st.integers(1, extent))
            pieces.append(f"{start}:{stop}" + (f":{step}" if step > 1 or draw(st.booleans()) else ""))
            axes.append(np.arange(start, stop, step))
        elif kind == "list":
            items = draw(st.lists(st.integers(0, extent - 1), min_size=length, max_size=length))
            pieces.append(f"[{','.join(map(str, items))}]")
            axes.append(np.array(items))
            lists += 1
        else:
            pieces.append(":")
            axes.append(np.arange(extent))
    listed = [piece.startswith("[") for piece in pieces]
    return Drawn(f"[{','.join(pieces)}]", index_of(axes, listed), lists > 1)


def index_of(axes: list[np.ndarray], listed: list[bool]) -> Any:
    """Return the index arrays of a product of axes in which the listed ones go together, at the first's place."""
    together = [dim for dim, is_list in enumerate(listed) if is_list]
    kept = [dim for dim in range(len(axes)) if dim not in together[1:]]
    arrays = []
    for dim, axis in enumerate(axes):
        place = kept.index(together[0] if dim in together else dim)
        arrays.append(axis.reshape((-1,) + (1,) * (len(kept) - place - 1)))
    return np.broadcast_arrays(*arrays)


@pytest.mark.endurance
@settings(max_examples=repeats(60, short=20))
@given(st.lists(selects(), min_size=1, max_size=4), st.booleans())
def test_what_is_selected_is_what_numpy_selects(drawn: list[Drawn], dense: bool) -> None:
    async def check() -> None:
        async with value_client() as client:
            layout = {"class": "H5D_CHUNKED", "dims": list(CHUNK)} if dense else sparse(*CHUNK)
            path = await create(client, list(SHAPE), "H5T_STD_I32LE", fillValue=-1, layout=layout)
            model = np.full(SHAPE, -1, "<i4")
            for number, one in enumerate(drawn, 1):
                index = tuple(one.index)
                shape = model[index].shape
                values = (np.arange(model[index].size, dtype="<i4") + 10_000 * number).reshape(shape)
                reply = await client("PUT", f"{path}/value", values.tobytes(), select=one.select)
                assert reply.status == 200, reply.body
                flat = model.reshape(-1)
                places = np.ravel_multi_index(index, SHAPE).ravel()
                flat[places] = values.ravel()  # of an element given twice the last wins
                got = await read(client, path, "<i4", shape, select=one.select)
                np.testing.assert_array_equal(got, model[index])
                json = await client("GET", f"{path}/value", select=one.select)
                assert json["value"] == model[index].tolist()
                posted = await client("POST", f"{path}/value", {"select": one.select}, accept=BINARY)
                assert posted.body == model[index].tobytes()
                points = np.stack([axis.ravel() for axis in index], 1).astype("<u8")
                binary = await client("POST", f"{path}/value", points.tobytes(), accept=BINARY)
                assert binary.body == model[index].tobytes()
                listed = await client("POST", f"{path}/value", {"points": points.tolist()})
                assert listed["value"] == model[index].ravel().tolist()
                one_for_all = await client("PUT", f"{path}/value", {"value": -number}, select=one.select)
                assert one_for_all.status == 200
                flat[places] = -number
            np.testing.assert_array_equal(await read(client, path, "<i4", SHAPE), model)

    asyncio.run(check())


async def test_points_that_have_not_the_rank() -> None:
    async with value_client() as client:
        scalar = await create(client, "H5S_SCALAR", "H5T_STD_I32LE")
        flat = await create(client, [2, 2], "H5T_STD_I32LE")
        for path, points in (
            (scalar, []),
            (scalar, [0]),
            (scalar, 0),
            (scalar, [[0]]),
            (flat, 0),
            (flat, [1]),
        ):
            reply = await client("POST", f"{path}/value", {"points": points})
            assert reply.status == 400, reply.body
        assert (await client("POST", f"{scalar}/value", {"points": [[]]}))["value"] == [0]
