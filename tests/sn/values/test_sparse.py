"""Sparse over HTTP: defined, sparse reads and writes in three media, erasing, resizing, against a dict."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import nanoarrow as na
import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.chunk_spec import chunk_key
from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import decode_region, encode_region
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.media.arrow import read_arrow
from hsparse.wire.record_message import Forget
from tests.sn.dataset_kinds import F64, I8, I32, TEXT, U8, sparse
from tests.sn.value_client import ARROW, BINARY, arrow, create, defined_count, put, read, value_client
from tests.support.rest_client import RestClient, answered
from tests.testing.store_wrapper import CountingStore

SHAPE = (40, 50)
Model = dict[tuple[int, ...], float]


@pytest.fixture
async def path(client: RestClient) -> str:
    unlimited = ["H5S_UNLIMITED", "H5S_UNLIMITED"]
    return await create(client, list(SHAPE), F64, maxdims=unlimited, fillValue=-1.0, layout=sparse(16, 16))


async def write(client: RestClient, path: str, model: Model, seed: int, count: int = 300) -> None:
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, length, count) for length in SHAPE], axis=1)
    values = rng.random(count)
    await put(client, path, arrow(coords, values), headers=ARROW)
    model.update(zip(map(tuple, coords.tolist()), values.tolist(), strict=True))


def inside(model: Model, rows: slice, columns: slice) -> Model:
    in_rows, in_columns = range(*rows.indices(SHAPE[0])), range(*columns.indices(SHAPE[1]))
    return {at: value for at, value in model.items() if at[0] in in_rows and at[1] in in_columns}


async def points_of(client: RestClient, path: str, select: str) -> dict[str, Model]:
    """Read the defined elements in each of the three media."""
    found: dict[str, Model] = {}
    reply = await answered(client("GET", f"{path}/value", select=select, sparse=1))
    places = reply["selection"].get("coordinates", [])
    found["json"] = dict(zip(map(tuple, places), reply["value"], strict=True))
    reply = await client("GET", f"{path}/value", select=select, sparse=1, accept=ARROW_TYPE)
    coords, values = read_arrow(reply.body, 2, np.dtype(float))
    found["arrow"] = dict(zip(map(tuple, coords.tolist()), values.tolist(), strict=True))
    reply = await client("GET", f"{path}/value", select=select, sparse=1, accept=BINARY)
    selection, values = decode_region(reply.body, np.dtype(float))
    found["structured"] = dict(zip(map(tuple, selection.coords().tolist()), values.tolist(), strict=True))
    return found


async def test_every_medium_gives_the_same_points(client: RestClient, path: str) -> None:
    model: Model = {}
    for seed in range(3):
        await write(client, path, model, seed)
        for select, index in {
            "[:,:]": np.s_[:, :],
            "[5:33,10:20]": np.s_[5:33, 10:20],
            "[0:40:3,7]": np.s_[::3, 7:8],
        }.items():
            media = dict.fromkeys(("json", "arrow", "structured"), inside(model, *index))
            assert await points_of(client, path, select) == media


async def test_defined(client: RestClient, path: str) -> None:
    model: Model = {}
    assert (await client("GET", f"{path}/defined"))["selection"] == {"class": "H5S_SEL_NONE"}
    await write(client, path, model, 0)
    expected = inside(model, np.s_[3:20], np.s_[:])
    reply = await client("GET", f"{path}/defined", select="[3:20,:]")
    assert reply["selection"]["class"] == "H5S_SEL_POINTS"
    assert {tuple(at) for at in reply["selection"]["coordinates"]} == set(expected)
    assert await defined_count(client, path, select="[3:20,:]") == len(expected)
    binary = await client("GET", f"{path}/defined", select="[3:20,:]", accept=BINARY)
    assert {tuple(at) for at in decode_selection(binary.body).coords().tolist()} == set(expected)


async def test_lists_of_a_body_may_be_orthogonal(client: RestClient, path: str) -> None:
    model: Model = {}
    await write(client, path, model, 5)
    rows, columns = [39, 3, 3, 7], [0, 49, 12, 13, 14, 30]
    select = {"select": [rows, columns], "orthogonal": True}
    dense = np.full(SHAPE, -1.0)
    dense[tuple(np.array(list(model)).T)] = list(model.values())
    wanted = dense[np.ix_(rows, columns)]
    for body in (select, {"select": f"[{rows},{columns}]", "orthogonal": True}):
        assert (await client("POST", f"{path}/value", body))["value"] == wanted.tolist()
    boxes = {"class": "H5S_SEL_HYPERSLABS", "coordinates": [[[3, 0], [3, 2]], [[7, 5], [8, 5]]]}
    values = (await client("POST", f"{path}/value", {"selection": boxes}))["value"]
    assert values == [*dense[3, 0:3], dense[7, 5], dense[8, 5]]
    inside = {at: value for at, value in model.items() if at[0] in rows and at[1] in columns}
    assert inside
    found = await client("POST", f"{path}/value", select, sparse=1)
    assert sorted(found["value"]) == sorted(inside.values())
    places = (await client("POST", f"{path}/defined", select))["selection"]["coordinates"]
    assert set(map(tuple, places)) == set(inside)
    for asked in (select, {"points": [list(at) for at in inside]}):
        assert (await client("POST", f"{path}/defined", asked, count_only=1)).body == {"count": len(inside)}
    await client("POST", f"{path}/erase", select)
    assert await defined_count(client, path) == len(model) - len(inside)
    for wrong in ({"points": [[0, 0]], "orthogonal": True}, select | {"orthogonal": 1}, {"orthogonal": True}):
        for where in ("value", "defined", "erase"):
            assert (await client("POST", f"{path}/{where}", wrong)).status == 400


async def test_all_of_a_dense_dataset_is_defined(client: RestClient) -> None:
    path = await create(client, [4, 4], U8)
    assert (await client("GET", f"{path}/defined"))["selection"] == {"class": "H5S_SEL_ALL"}
    assert await defined_count(client, path, select="[0:2,1]") == 2


async def test_drop_fill_defines_only_what_differs(client: RestClient, path: str) -> None:
    values = np.full(SHAPE, -1.0)
    values[3, 4], values[30, 40] = 0.0, 2.0
    await put(client, path, values.tobytes(), drop_fill=1)
    assert (await points_of(client, path, "[:,:]"))["json"] == {(3, 4): 0.0, (30, 40): 2.0}
    await put(client, path, np.full((4, 4), -1.0).tobytes(), select="[1:5,2:6]", drop_fill=1)
    assert await defined_count(client, path) == 2


async def test_writing_a_box_defines_all_of_it(client: RestClient, path: str) -> None:
    for value in (5, -1):
        await put(client, path, {"value": value}, select="[10:20,10:20]")
        assert await defined_count(client, path) == 100
        assert (await read(client, path, float, SHAPE)).sum() == 100 * value - (2000 - 100)


async def test_structured_bytes_are_accepted(client: RestClient, path: str) -> None:
    points = Points(SHAPE, np.array([[1, 2], [39, 49], [1, 2]], np.uint64))
    body = encode_region(points, np.array([1.0, 2.0, 3.0]))
    await put(client, path, body, sparse=1)
    assert (await points_of(client, path, "[:,:]"))["arrow"] == {(1, 2): 3.0, (39, 49): 2.0}
    for broken in (body[:-1], body[:40], b"", body[:-25] + b"\0" + body[-24:]):
        await answered(client("PUT", f"{path}/value", broken, sparse=1), 400)
    for extent, place in (((99, 99), [[50, 50]]), ((5,), [[0]])):
        body = encode_region(Points(extent, np.array(place, np.uint64)), np.zeros(1))
        assert (await client("PUT", f"{path}/value", body, sparse=1)).status == 400


SLAB = {"start": [5, 10], "stride": [1, 1], "count": [25, 10], "block": [1, 1]}
ERASURES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "select": ("DELETE", None, {"select": "[5:30,10:20]"}),
    "select in the body": ("POST", {"select": "[5:30,10:20]"}, {}),
    "points": ("POST", {"points": [[r, c] for r in range(5, 30) for c in range(10, 20)]}, {}),
    "hyperslab": ("POST", {"selection": {"class": "H5S_SEL_HYPERSLABS"} | SLAB}, {}),
}


@pytest.mark.parametrize("way", ERASURES)
async def test_erasing(client: RestClient, path: str, way: str) -> None:
    model: Model = {}
    await write(client, path, model, 0, 1500)
    method, body, query = ERASURES[way]
    await answered(client(method, f"{path}/value" if method == "DELETE" else f"{path}/erase", body, **query))
    for at in inside(model, np.s_[5:30], np.s_[10:20]):
        del model[at]
    assert (await points_of(client, path, "[:,:]"))["arrow"] == model
    assert (await client("DELETE", f"{path}/value", select="[:,:]")).status == 200
    assert await defined_count(client, path) == 0


BAD_ERASURES = [
    ("DELETE", "value", None, {}),
    ("DELETE", "value", None, {"select": "[0:41,0:1]"}),
    ("POST", "erase", {}, {}),
    ("POST", "erase", {"points": [[0, 0]], "select": "[0,0]"}, {}),
    ("POST", "erase", {"points": [[40, 0]]}, {}),
    ("POST", "erase", {"selection": {"class": "H5S_SEL_OTHER"}}, {}),
    ("POST", "erase", {"select": 5}, {}),
]


@pytest.mark.parametrize(("method", "resource", "body", "query"), BAD_ERASURES)
async def test_bad_erasures_change_nothing(
    client: RestClient, path: str, method: str, resource: str, body: Any, query: dict[str, Any]
) -> None:
    model: Model = {}
    await write(client, path, model, 0)
    assert (await client(method, f"{path}/{resource}", body, **query)).status == 400
    assert (await points_of(client, path, "[:,:]"))["json"] == model


async def test_what_only_sparse_datasets_have(client: RestClient) -> None:
    path = await create(client, [4, 4], F64)
    assert (await client("DELETE", f"{path}/value", select="[0,0]")).status == 400
    assert (await client("POST", f"{path}/erase", {"points": [[0, 0]]})).status == 400
    assert (await client("GET", f"{path}/value", sparse=1)).status == 400
    assert (await client("PUT", f"{path}/value", arrow([[0, 0]], [1.0]), headers=ARROW)).status == 400


async def test_shrinking_erases_and_growing_shows_nothing_old(client: RestClient, path: str) -> None:
    model: Model = {}
    await write(client, path, model, 0, 1500)
    for dims in ([33, 20], [64, 64], [64, 5], [40, 50], [0, 0], [40, 50]):
        await answered(client("PUT", f"{path}/shape", {"shape": dims}), 201)
        model = {at: value for at, value in model.items() if at[0] < dims[0] and at[1] < dims[1]}
        assert (await points_of(client, path, "[:,:]"))["arrow"] == model


def stream(**columns: Any) -> bytes:
    fields = {name: na.Array(values) for name, values in columns.items()}
    schema = na.struct({name: array.schema for name, array in fields.items()})
    children = [na.c_array(array) for array in fields.values()]
    sink = BytesIO()
    with na.ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(na.c_array_from_buffers(schema, len(children[0]), [None], children=children))
    return sink.getvalue()


PLACE, NUMBER = na.c_array([1], na.int64()), na.c_array([1.0], na.float64())
BAD_STREAMS = {
    "not arrow": b"not arrow at all",
    "empty": b"",
    "no value": stream(dim_0=PLACE, dim_1=PLACE),
    "no dim_1": stream(dim_0=PLACE, value=NUMBER),
    "float coordinates": stream(dim_0=na.c_array([1.5], na.float64()), dim_1=PLACE, value=NUMBER),
    "negative": stream(dim_0=na.c_array([-1], na.int64()), dim_1=PLACE, value=NUMBER),
    "null": stream(dim_0=PLACE, dim_1=PLACE, value=na.c_array([None], na.float64())),
    "text": stream(dim_0=PLACE, dim_1=PLACE, value=na.c_array(["a"], na.string())),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_bad_streams_are_refused(client: RestClient, path: str, name: str) -> None:
    with pytest.raises(BadRequest):
        read_arrow(BAD_STREAMS[name], 2, np.dtype(float))
    for body in (BAD_STREAMS[name], arrow([[0, 0], [0, 50]], [1.0, 2.0])):
        await answered(client("PUT", f"{path}/value", body, headers=ARROW), 400)
    assert await defined_count(client, path) == 0


@pytest.mark.parametrize(
    ("kind", "value", "step"), [(U8, [5, 6], 1), (TEXT, ["one", ""], 3)], ids=["numbers", "text"]
)
async def test_any_flipped_byte_of_a_chunk_is_an_error_that_names_it(
    client: RestClient, store: CountingStore, kind: Any, value: list[Any], step: int
) -> None:
    path = await create(client, [8, 8], kind, layout=sparse(8, 8))
    await put(client, path, {"points": [[1, 2], [3, 4]], "value": value})
    id = path.rpartition("/")[2]
    key = chunk_key(id, (0, 0))
    good = (await store.get(key)).data
    for place in range(0, len(good), step):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        await store.put(key, bad)
        await client.service.owners.ask_all(Forget(id))
        for end, query in (
            ("value", {}),
            ("value", {"sparse": 1}),
            *((("defined", {}),) if kind == U8 else ()),
        ):
            reply = await client("GET", f"{path}/{end}", **query)
            assert (reply.status, reply["error"]["kind"]) == (500, "corrupt"), f"byte {place} is served"
            assert key in reply["error"]["message"]
    await store.put(key, good)
    await client.service.owners.ask_all(Forget(id))
    assert await defined_count(client, path) == 2


@pytest.mark.parametrize("accept", [BINARY, ARROW_TYPE])
async def test_coordinates_around_and_beyond_32_bits(client: RestClient, accept: str) -> None:
    path = await create(client, [2**40], I32, layout=sparse(1000))
    places = [5, 2**32 - 1, 2**32, 2**32 + 500, 2**40 - 1]
    await put(client, path, {"points": places, "value": [1, 2, 3, 4, 5]})
    reply = await client("GET", f"{path}/value", accept=accept, sparse=1)
    if accept == ARROW_TYPE:
        coords, values = read_arrow(reply.body, 1, np.dtype("<i4"))
    else:
        selection, values = decode_region(reply.body, np.dtype("<i4"))
        coords = selection.coords()
    assert (coords[:, 0].tolist(), values.tolist()) == (places, [1, 2, 3, 4, 5])
    assert (await client("GET", f"{path}/defined"))["selection"]["coordinates"] == [[at] for at in places]


async def test_places_that_are_too_many_name_what_has_no_limit() -> None:
    async with value_client(settings=ServiceSettings(max_request_size=10_000)) as client:
        path = await create(client, [1000, 2], I8, layout=sparse(100, 2))
        await put(client, path, {"value": 1, "select": "[:,:]"})
        reply = await client("GET", f"{path}/defined")
        assert (reply.status, reply["error"]["kind"]) == (413, "too_large")
        assert f"or read /value with sparse=1 as {ARROW_TYPE}" in reply["error"]["message"]
        reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
        assert len(read_arrow(reply.body, 2, np.dtype("i1"))[0]) == 2000


async def test_what_is_defined_of_a_dense_dataset_is_not_listed_without_bound(client: RestClient) -> None:
    path = await create(client, [2**20, 2**40], I8)
    assert (await client("GET", f"{path}/defined", select="[[0,2,5],:]")).status == 413
    assert (await client("GET", f"{path}/defined", select="[::3,::2]"))["selection"]["count"][1] == 2**39
