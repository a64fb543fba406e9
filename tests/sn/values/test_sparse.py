"""Sparse over HTTP: defined, sparse reads and writes in three media, erasing, resizing, against a dict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import nanoarrow as na
import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import decode_region, encode_region
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.media.arrow import ArrowWriter, read_arrow
from hsparse.wire.record_message import Forget
from tests.sn.value_client import ARROW, BINARY, create, read, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

SHAPE = (40, 50)
Model = dict[tuple[int, ...], float]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


@pytest.fixture
async def path(client: RestClient) -> str:
    unlimited = ["H5S_UNLIMITED", "H5S_UNLIMITED"]
    return await create(
        client, list(SHAPE), "H5T_IEEE_F64LE", maxdims=unlimited, fillValue=-1.0, layout=sparse(16, 16)
    )


def arrow(coords: Any, values: Any, dtype: Any = float) -> bytes:
    coords = np.array(coords).reshape(len(values), -1)
    writer = ArrowWriter((2**20,) * coords.shape[1], np.dtype(dtype))
    return writer.batch(list(coords.T), np.array(values, dtype)) + writer.end()


async def write(client: RestClient, path: str, model: Model, seed: int, count: int = 300) -> None:
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, length, count) for length in SHAPE], axis=1)
    values = rng.random(count)
    reply = await client("PUT", f"{path}/value", arrow(coords, values), headers=ARROW)
    assert reply.status == 200, reply.body
    model.update(zip(map(tuple, coords.tolist()), values.tolist(), strict=True))


def inside(model: Model, rows: slice, columns: slice) -> Model:
    in_rows, in_columns = range(*rows.indices(SHAPE[0])), range(*columns.indices(SHAPE[1]))
    return {at: value for at, value in model.items() if at[0] in in_rows and at[1] in in_columns}


async def points_of(client: RestClient, path: str, select: str) -> dict[str, Model]:
    """Read the defined elements in each of the three media."""
    found: dict[str, Model] = {}
    reply = await client("GET", f"{path}/value", select=select, sparse=1)
    assert reply.status == 200, reply.body
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
            expected = inside(model, *index)
            assert await points_of(client, path, select) == dict.fromkeys(
                ("json", "arrow", "structured"), expected
            )


async def test_dense_reads_have_the_fill_value_elsewhere(client: RestClient, path: str) -> None:
    model: Model = {}
    await write(client, path, model, 0)
    dense = np.full(SHAPE, -1.0)
    for at, value in model.items():
        dense[at] = value
    np.testing.assert_array_equal(await read(client, path, float, SHAPE), dense)


async def test_defined(client: RestClient, path: str) -> None:
    model: Model = {}
    assert (await client("GET", f"{path}/defined"))["selection"] == {"class": "H5S_SEL_NONE"}
    await write(client, path, model, 0)
    expected = inside(model, np.s_[3:20], np.s_[:])
    reply = await client("GET", f"{path}/defined", select="[3:20,:]")
    assert reply["selection"]["class"] == "H5S_SEL_POINTS"
    assert {tuple(at) for at in reply["selection"]["coordinates"]} == set(expected)
    assert (await client("GET", f"{path}/defined", select="[3:20,:]", count_only=1)).body == {
        "count": len(expected)
    }
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
    assert (await client("POST", f"{path}/defined", select, count_only=1)).body == {"count": len(inside)}
    places = (await client("POST", f"{path}/defined", select))["selection"]["coordinates"]
    assert set(map(tuple, places)) == set(inside)
    points = {"points": [list(at) for at in inside]}
    assert (await client("POST", f"{path}/defined", points, count_only=1)).body == {"count": len(inside)}
    await client("POST", f"{path}/erase", select)
    left = (await client("GET", f"{path}/defined", count_only=1)).body
    assert left == {"count": len(model) - len(inside)}
    for wrong in ({"points": [[0, 0]], "orthogonal": True}, select | {"orthogonal": 1}, {"orthogonal": True}):
        for where in ("value", "defined", "erase"):
            assert (await client("POST", f"{path}/{where}", wrong)).status == 400


async def test_all_of_a_dense_dataset_is_defined(client: RestClient) -> None:
    path = await create(client, [4, 4], "H5T_STD_U8LE")
    assert (await client("GET", f"{path}/defined"))["selection"] == {"class": "H5S_SEL_ALL"}
    assert (await client("GET", f"{path}/defined", select="[0:2,1]", count_only=1)).body == {"count": 2}


async def test_zero_is_defined_once_written(client: RestClient, path: str) -> None:
    assert (await client("PUT", f"{path}/value", bytes(8 * 4), select="[0:2,0:2]")).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 4}


async def test_drop_fill_defines_only_what_differs(client: RestClient, path: str) -> None:
    values = np.full(SHAPE, -1.0)
    values[3, 4], values[30, 40] = 0.0, 2.0
    assert (await client("PUT", f"{path}/value", values.tobytes(), drop_fill=1)).status == 200
    assert (await points_of(client, path, "[:,:]"))["json"] == {(3, 4): 0.0, (30, 40): 2.0}
    assert (
        await client("PUT", f"{path}/value", np.full((4, 4), -1.0).tobytes(), select="[1:5,2:6]", drop_fill=1)
    ).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 2}


async def test_writing_a_box_defines_all_of_it(client: RestClient, path: str) -> None:
    assert (await client("PUT", f"{path}/value", {"value": 5}, select="[10:20,10:20]")).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 100}
    assert (await read(client, path, float, SHAPE)).sum() == 500 - (2000 - 100)


async def test_structured_bytes_are_accepted(client: RestClient, path: str) -> None:
    points = Points(SHAPE, np.array([[1, 2], [39, 49], [1, 2]], np.uint64))
    body = encode_region(points, np.array([1.0, 2.0, 3.0]))
    assert (await client("PUT", f"{path}/value", body, sparse=1)).status == 200
    assert (await points_of(client, path, "[:,:]"))["arrow"] == {(1, 2): 3.0, (39, 49): 2.0}
    for broken in (body[:-1], body[:40], b"", body[:-25] + b"\0" + body[-24:]):
        reply = await client("PUT", f"{path}/value", broken, sparse=1)
        assert reply.status == 400, reply.body
    for wrong in (
        Points((99, 99), np.full((1, 2), 50, np.uint64)),
        Points((5,), np.zeros((1, 1), np.uint64)),
    ):
        body = encode_region(wrong, np.zeros(1))
        assert (await client("PUT", f"{path}/value", body, sparse=1)).status == 400


ERASURES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "select": ("DELETE", None, {"select": "[5:30,10:20]"}),
    "select in the body": ("POST", {"select": "[5:30,10:20]"}, {}),
    "points": ("POST", {"points": [[r, c] for r in range(5, 30) for c in range(10, 20)]}, {}),
    "hyperslab": (
        "POST",
        {
            "selection": {
                "class": "H5S_SEL_HYPERSLABS",
                "start": [5, 10],
                "stride": [1, 1],
                "count": [25, 10],
                "block": [1, 1],
            }
        },
        {},
    ),
}


@pytest.mark.parametrize("way", ERASURES)
async def test_erasing(client: RestClient, path: str, way: str) -> None:
    model: Model = {}
    await write(client, path, model, 0, 1500)
    method, body, query = ERASURES[way]
    target = f"{path}/value" if method == "DELETE" else f"{path}/erase"
    reply = await client(method, target, body, **query)
    assert reply.status == 200, reply.body
    for at in inside(model, np.s_[5:30], np.s_[10:20]):
        del model[at]
    assert (await points_of(client, path, "[:,:]"))["arrow"] == model
    assert (await client("DELETE", f"{path}/value", select="[:,:]")).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 0}


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
    path = await create(client, [4, 4], "H5T_IEEE_F64LE")
    assert (await client("DELETE", f"{path}/value", select="[0,0]")).status == 400
    assert (await client("POST", f"{path}/erase", {"points": [[0, 0]]})).status == 400
    assert (await client("GET", f"{path}/value", sparse=1)).status == 400
    assert (await client("PUT", f"{path}/value", arrow([[0, 0]], [1.0]), headers=ARROW)).status == 400


async def test_shrinking_erases_and_growing_shows_nothing_old(client: RestClient, path: str) -> None:
    model: Model = {}
    await write(client, path, model, 0, 1500)
    for dims in ([33, 20], [64, 64], [64, 5], [40, 50], [0, 0], [40, 50]):
        reply = await client("PUT", f"{path}/shape", {"shape": dims})
        assert reply.status == 201, reply.body
        model = {at: value for at, value in model.items() if at[0] < dims[0] and at[1] < dims[1]}
        assert (await points_of(client, path, "[:,:]"))["arrow"] == model
    record = (await client("GET", path)).body
    assert "generation" not in record
    assert "trim" not in record


@pytest.mark.parametrize("dtype", ["<i4", ">f4", "u1", "S3", "?", [("a", "<i2"), ("b", ">f8")]])
def test_arrow_round_trip(dtype: Any) -> None:
    kind = np.dtype(dtype)
    values = np.frombuffer(np.random.default_rng(1).bytes(20 * kind.itemsize), kind)
    values = values.astype(bool).copy() if kind.kind == "b" else values
    coords = np.arange(40).reshape(20, 2)
    writer = ArrowWriter((100, 2**40), kind)
    data = writer.batch(list(coords.T), values) + writer.batch(list(coords.T), values) + writer.end()
    back, got = read_arrow(data, 2, kind)
    assert back.tolist() == np.concatenate([coords, coords]).tolist()
    assert got.dtype == kind
    assert got.tobytes() == np.concatenate([values, values]).astype(kind).tobytes()


def test_arrow_without_points() -> None:
    coords, values = read_arrow(ArrowWriter((5, 5), np.dtype(float)).end(), 2, np.dtype(float))
    assert coords.shape == (0, 2)
    assert values.shape == (0,)


def stream(**columns: Any) -> bytes:
    fields = {name: na.Array(values) for name, values in columns.items()}
    schema = na.struct({name: array.schema for name, array in fields.items()})
    children = [na.c_array(array) for array in fields.values()]
    sink = BytesIO()
    with na.ipc.StreamWriter.from_writable(sink) as writer:
        writer.write_array(na.c_array_from_buffers(schema, len(children[0]), [None], children=children))
    return sink.getvalue()


BAD_STREAMS = {
    "not arrow": b"not arrow at all",
    "empty": b"",
    "no value": stream(dim_0=na.c_array([1], na.int64()), dim_1=na.c_array([1], na.int64())),
    "no dim_1": stream(dim_0=na.c_array([1], na.int64()), value=na.c_array([1.0], na.float64())),
    "float coordinates": stream(
        dim_0=na.c_array([1.5], na.float64()),
        dim_1=na.c_array([1], na.int64()),
        value=na.c_array([1.0], na.float64()),
    ),
    "negative": stream(
        dim_0=na.c_array([-1], na.int64()),
        dim_1=na.c_array([1], na.int64()),
        value=na.c_array([1.0], na.float64()),
    ),
    "null": stream(
        dim_0=na.c_array([1], na.int64()),
        dim_1=na.c_array([1], na.int64()),
        value=na.c_array([None], na.float64()),
    ),
    "text": stream(
        dim_0=na.c_array([1], na.int64()),
        dim_1=na.c_array([1], na.int64()),
        value=na.c_array(["a"], na.string()),
    ),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_bad_streams_are_refused(client: RestClient, path: str, name: str) -> None:
    with pytest.raises(BadRequest):
        read_arrow(BAD_STREAMS[name], 2, np.dtype(float))
    reply = await client("PUT", f"{path}/value", BAD_STREAMS[name], headers=ARROW)
    assert reply.status == 400
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 0}


async def test_arrow_outside_the_extent(client: RestClient, path: str) -> None:
    body = arrow([[0, 0], [0, 50]], [1.0, 2.0])
    assert (await client("PUT", f"{path}/value", body, headers=ARROW)).status == 400
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 0}


async def test_any_flipped_byte_of_a_chunk_is_an_error_that_names_it() -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        path = await create(client, [8, 8], "H5T_STD_U8LE", layout=sparse(8, 8))
        assert (
            await client("PUT", f"{path}/value", {"points": [[1, 2], [3, 4]], "value": [5, 6]})
        ).status == 200
        keys = [entry.key async for page in store.list("db/") for entry in page.entries]
        key = next(key for key in keys if key.endswith("/0_0"))
        good = (await store.get(key)).data
        id = path.rpartition("/")[2]
        for place in range(len(good)):
            bad = bytearray(good)
            bad[place] ^= 1 << place % 8
            await store.put(key, bad)
            await client.service.owners.ask_all(Forget(id))
            for resource, query in (
                (f"{path}/value", {}),
                (f"{path}/value", {"sparse": 1}),
                (f"{path}/defined", {}),
            ):
                reply = await client("GET", resource, **query)
                assert reply.status == 500, f"byte {place} of {len(good)} is served"
                assert key in reply["error"]["message"]
                assert reply["error"]["kind"] == "corrupt"
        await store.put(key, good)
        await client.service.owners.ask_all(Forget(id))
        assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 2}


CREATION = [
    ({"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [4]}}, [8, 8]),
    ({"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_NONSENSE"]}}, [8, 8]),
    ({"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_VL_DATA"]}}, [8, 8]),
    ({"layout": sparse(16, 16)}, [8, 8]),
    ({"layout": sparse(0, 4)}, [8, 8]),
    ({"layout": sparse(2**17, 2**17)}, [2**20, 2**20]),
    ({"layout": sparse(4, 4), "filters": ["nonsense"]}, [8, 8]),
    (
        {"layout": sparse(4, 4), "filters": [{"class": "H5Z_FILTER_DEFLATE", "section": "H5_SECTION_OTHER"}]},
        [8, 8],
    ),
]


@pytest.mark.parametrize(("properties", "shape"), CREATION)
async def test_what_is_refused_at_creation(
    client: RestClient, properties: dict[str, Any], shape: list[int]
) -> None:
    reply = await client(
        "POST", "/datasets", {"type": "H5T_IEEE_F64LE", "shape": shape, "creationProperties": properties}
    )
    assert reply.status == 400, reply.body
    assert reply["error"]["message"]


async def test_sections_and_their_filters_come_back(client: RestClient) -> None:
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle", "section": "H5_SECTION_SELECTION"},
        {
            "class": "H5Z_FILTER_DEFLATE",
            "id": 1,
            "level": 6,
            "name": "deflate",
            "section": "H5_SECTION_FIXED",
        },
    ]
    path = await create(client, [100, 100], "H5T_STD_I32LE", layout=sparse(10, 10), filters=filters)
    shown = (await client("GET", path))["creationProperties"]
    assert shown["layout"] == sparse(10, 10)
    assert shown["filters"] == filters


@pytest.mark.parametrize("accept", [BINARY, ARROW_TYPE])
async def test_coordinates_around_and_beyond_32_bits(client: RestClient, accept: str) -> None:
    path = await create(client, [2**40], "H5T_STD_I32LE", layout=sparse(1000))
    places = [5, 2**32 - 1, 2**32, 2**32 + 500, 2**40 - 1]
    assert (await client("PUT", f"{path}/value", {"points": places, "value": [1, 2, 3, 4, 5]})).status == 200
    reply = await client("GET", f"{path}/value", accept=accept, sparse=1)
    if accept == ARROW_TYPE:
        coords, values = read_arrow(reply.body, 1, np.dtype("<i4"))
    else:
        selection, values = decode_region(reply.body, np.dtype("<i4"))
        coords = selection.coords()
    assert dict(zip(coords[:, 0].tolist(), values.tolist(), strict=True)) == dict(
        zip(places, [1, 2, 3, 4, 5], strict=True)
    )
    assert (await client("GET", f"{path}/defined"))["selection"]["coordinates"] == [[at] for at in places]


async def test_places_that_are_too_many_name_what_has_no_limit() -> None:
    async with value_client(settings=ServiceSettings(max_request_size=10_000)) as client:
        path = await create(client, [1000, 2], "H5T_STD_I8LE", layout=sparse(100, 2))
        assert (await client("PUT", f"{path}/value", {"value": 1, "select": "[:,:]"})).status == 200
        reply = await client("GET", f"{path}/defined")
        assert (reply.status, reply["error"]["kind"]) == (413, "too_large")
        assert f"or read /value with sparse=1 as {ARROW_TYPE}" in reply["error"]["message"]
        reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
        assert len(read_arrow(reply.body, 2, np.dtype("i1"))[0]) == 2000


async def test_what_is_defined_of_a_dense_dataset_is_not_listed_without_bound(client: RestClient) -> None:
    path = await create(client, [2**20, 2**40], "H5T_STD_I8LE")
    assert (await client("GET", f"{path}/defined", select="[[0,2,5],:]")).status == 413
    assert (await client("GET", f"{path}/defined", select="[::3,::2]"))["selection"]["count"][1] == 2**39
