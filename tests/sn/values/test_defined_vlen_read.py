"""Sparse datasets of variable-length types over HTTP, in all media, against a dict; pages of 4 KiB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.format.structured.region import decode_vlen_region, encode_vlen_region
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import to_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.http.request import ARROW_TYPE, JSON_TYPE
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.sn.values.media.arrow import ArrowWriter, read_vlen_arrow
from hsparse.wire.record_message import CreateObject, Forget
from tests.model.type_strategies import length_prefixed, text
from tests.sn.value_client import ARROW, BINARY, create, sparse, value_client
from tests.support.direct_driver import dataset_record
from tests.support.driver import DatasetSpec
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

SHAPE = (40, 30)
TEXT = text("H5T_VARIABLE")
INTS = {"class": "H5T_VLEN", "base": "H5T_STD_U16BE"}
RECORD = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "n", "type": "H5T_STD_I32LE"},
        {"name": "t", "type": TEXT},
        {"name": "list", "type": {"class": "H5T_VLEN", "base": INTS}},
    ],
}
KINDS: dict[str, tuple[Any, Any]] = {
    "text": (TEXT, "none"),
    "ascii": (text("H5T_VARIABLE", "H5T_CSET_ASCII"), ""),
    "ints": (INTS, [7]),
    "record": (RECORD, [3, "none", [[1], []]]),
}
UNLIMITED = ["H5S_UNLIMITED", "H5S_UNLIMITED"]
Model = dict[tuple[int, ...], Any]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


def a_value(kind: str, rng: np.random.Generator) -> Any:
    if rng.random() < 0.2:
        return KINDS[kind][1]
    word = ("ä" if kind == "text" else "b") * int(rng.integers(0, 400 if rng.random() < 0.05 else 6))
    ints = rng.integers(0, 2**16, rng.integers(0, 4)).tolist()
    if kind in ("text", "ascii"):
        return word
    return ints if kind == "ints" else [int(rng.integers(99)), word, [ints, [], ints]]


def column(item: Any, values: list[Any]) -> VlenArray:
    return VlenArray.of([length_prefixed(item, value) for value in values])


def body(item: Any, points: list[tuple[int, ...]], values: list[Any], media: str) -> Any:
    """Return what is sent to write values at points."""
    if media == JSON_TYPE:
        return {"points": points, "value": values}
    array, element, coords = column(item, values), parse_type(item).element, np.array(points, np.uint64)
    if media == BINARY:
        return encode_vlen_region(Points(SHAPE, coords), array, element)
    writer = ArrowWriter(SHAPE, np.dtype(object), element)
    return writer.batch(list(coords.T), array) + writer.end()


async def put(client: RestClient, path: str, sent: Any, media: str, **query: Any) -> None:
    headers = {} if media == JSON_TYPE else {"Content-Type": media}
    more = {"sparse": 1} if media == BINARY else {}
    reply = await client("PUT", f"{path}/value", sent, headers=headers, **more, **query)
    assert reply.status == 200, reply.body


async def everything(client: RestClient, path: str, item: Any, **query: Any) -> Model:
    """Read the defined elements in each of the three media, which must tell the same."""
    element = parse_type(item).element
    reply = await client("GET", f"{path}/value", sparse=1, **query)
    assert reply.status == 200, reply.body
    places = reply["selection"].get("coordinates", [])
    found = [(places, reply["value"])]
    reply = await client("GET", f"{path}/value", sparse=1, accept=BINARY, **query)
    selection, values = decode_vlen_region(reply.body, element)
    found.append((selection.coords().tolist(), to_json(values, element)))
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE, **query)
    coords, values = read_vlen_arrow(reply.body, 2, element)
    found.append((coords.tolist(), to_json(values, element)))
    for places, _ in found:
        assert len(set(map(tuple, places))) == len(places)
    models = [dict(zip(map(tuple, places), some, strict=True)) for places, some in found]
    assert models[0] == models[1] == models[2]
    return models[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_programs_of_writes_reads_and_erasures(client: RestClient, kind: str) -> None:
    item, fill = KINDS[kind]
    rng = np.random.default_rng(3)
    filters = [{"class": "H5Z_FILTER_SHUFFLE"}, {"class": "H5Z_FILTER_DEFLATE", "section": "H5_SECTION_VL"}]
    path = await create(
        client, SHAPE, item, maxdims=UNLIMITED, layout=sparse(16, 7), fillValue=fill, filters=filters
    )
    model: Model = {}
    extent = SHAPE
    for step in range(9):
        media = (JSON_TYPE, BINARY, ARROW_TYPE)[step % 3]
        points = [tuple(rng.integers(0, SHAPE).tolist()) for _ in range(120)]
        values = [a_value(kind, rng) for _ in points]
        drop = bool(step % 2)
        await put(
            client, path, body(item, points, values, media), media, **({"drop_fill": 1} if drop else {})
        )
        model |= {at: value for at, value in zip(points, values, strict=True) if not (drop and value == fill)}
        if step % 3 == 2:
            gone = [at for at in model if rng.random() < 0.2] or [(0, 0)]
            assert (await client("POST", f"{path}/erase", {"points": gone})).status == 200
            assert (await client("DELETE", f"{path}/value", select="[3:9,:]")).status == 200
            model = {at: v for at, v in model.items() if at not in gone and not 3 <= at[0] < 9}
        assert await everything(client, path, item) == model
    inside = {at: value for at, value in model.items() if at[0] in (1, 17, 30) and 5 <= at[1] < 22}
    assert await everything(client, path, item, select="[[30,1,17,30],5:22]") == inside
    for extent in ((20, 12), SHAPE):
        assert (await client("PUT", f"{path}/shape", {"shape": extent})).status == 201
        model = {at: value for at, value in model.items() if at[0] < extent[0] and at[1] < extent[1]}
        assert await everything(client, path, item) == model
    reply = await client("GET", f"{path}/value", select="[2:25:3,:]")
    assert reply["value"] == [[model.get((row, n), fill) for n in range(30)] for row in range(2, 25, 3)]
    reply = await client("GET", f"{path}/value", accept=BINARY)
    wanted = [model.get((row, n), fill) for row in range(40) for n in range(30)]
    assert reply.body == b"".join(length_prefixed(item, value) for value in wanted)
    defined = await client("GET", f"{path}/defined", accept=BINARY)
    assert set(map(tuple, decode_selection(defined.body).coords().tolist())) == set(model)
    places = (await client("GET", f"{path}/defined", select="[0:20,0:20]"))["selection"].get(
        "coordinates", []
    )
    assert set(map(tuple, places)) == {at for at in model if at[1] < 20 and at[0] < 20}
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": len(model)}


async def test_dense_writes_and_fields(client: RestClient) -> None:
    path = await create(client, SHAPE, RECORD, layout=sparse(16, 7), fillValue=KINDS["record"][1])
    rows = [[[n, "w" * n, [[n]]] for n in range(3)] for _ in range(2)]
    assert (await client("PUT", f"{path}/value", {"value": rows}, select="[15:17,6:9]")).status == 200
    data = b"".join(length_prefixed(RECORD, [n, "x", []]) for n in range(2))
    assert (await client("PUT", f"{path}/value", data, select="[0,0:2]")).status == 200
    sent = {"value": [["new"], ["more"]], "points": [[15, 7], [20, 20]], "fields": "t"}
    assert (await client("PUT", f"{path}/value", sent)).status == 200
    one = {"value": [1, "all", []], "select": "[39,28:30]"}
    assert (await client("PUT", f"{path}/value", one)).status == 200
    model = {(15 + row, 6 + n): rows[row][n] for row in range(2) for n in range(3)}
    model |= {(0, n): [n, "x", []] for n in range(2)} | {(39, n): [1, "all", []] for n in (28, 29)}
    model |= {(15, 7): [1, "new", [[1]]], (20, 20): [3, "more", [[1], []]]}
    assert await everything(client, path, RECORD) == model
    reply = await client("GET", f"{path}/value", select="[15,6:9]", fields="t:n")
    assert reply["value"] == [[["", 0], ["new", 1], ["ww", 2]]]
    reply = await client("GET", f"{path}/value", query="n == 3", select="[20,19:22]")
    assert reply["value"] == [[3, "none", [[1], []]], [3, "more", [[1], []]], [3, "none", [[1], []]]]


async def test_a_first_value_and_what_is_appended(client: RestClient) -> None:
    made = {
        "type": TEXT,
        "shape": [3],
        "maxdims": [0],
        "value": ["a", "", "c"],
        "creationProperties": {"layout": sparse(2)},
    }
    path = f"/datasets/{(await client('POST', '/datasets', made))['id']}"
    assert (await client("PUT", f"{path}/value", {"value": ["d", "e"], "append": 2})).status == 200
    reply = await client("GET", f"{path}/value", sparse=1)
    assert reply["value"] == ["a", "", "c", "d", "e"]
    assert (await client("POST", f"{path}/value", {"points": [4, 0, 4]}))["value"] == ["e", "a", "e"]


async def test_elements_larger_than_a_page(client: RestClient) -> None:
    """Each comes alone in the stream, however the chunk that has them is cut; none comes twice."""
    path = await create(client, [100_000], TEXT, layout=sparse(100_000))
    model = {(at,): chr(97 + n) * 9_000 for n, at in enumerate((5, 6, 50_000, 99_999))}
    sent = {"points": [at for (at,) in model], "value": list(model.values())}
    assert (await client("PUT", f"{path}/value", sent)).status == 200
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
    coords, values = read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)
    assert (
        dict(zip(map(tuple, coords.tolist()), to_json(values, parse_type(TEXT).element), strict=True))
        == model
    )
    reply = await client("POST", f"{path}/value", {"points": [6, 5, 6, 7]}, sparse=1, accept=ARROW_TYPE)
    coords, _ = read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)
    assert coords.tolist() == [[5], [6]]


SIZES = [0, 500, 3, 3, 0, 2000, 90, 1] * 25
CHOSEN: list[Selection] = [
    Orthogonal.all((400,)),
    Orthogonal.box((400,), (3,), (350,)),
    Points((400,), np.array([[10], [398], [10], [0]] * 50, np.uint64)),
]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("selection", CHOSEN, ids=["all", "box", "points"])
@pytest.mark.parametrize("page", [1, 100, 1500, 10**6])
async def test_pieces_are_within_a_page_and_in_order(nodes: int, selection: Selection, page: int) -> None:
    """Each second element is defined, in chunks of 16 that several data nodes own; a page is of each of them."""
    store, clock = MemoryStore(), SystemClock()
    names = tuple(f"dn-{number}" for number in range(nodes))
    services = {name: DataService(store, clock, id=name) for name in names}
    owners = Owners(FixedNodes(dict(services)))
    record = dataset_record(DatasetSpec(TEXT, (400,), (16,), 400))
    await owners.apply(CreateObject(record["id"], record))
    dataset = StoredDataset.of(record)
    fanout = ChunkFanout(owners, dataset)
    words = {2 * n: length_prefixed(TEXT, "w" * size) for n, size in enumerate(SIZES)}
    places = Points((400,), np.array(list(words), np.uint64)[:, None])
    await fanout.write(places, VlenArray.of(words.values()))
    read = DefinedRead(fanout, page)
    pieces = [piece async for piece in read.pieces(selection)]
    found = [(int(at), word) for (column,), values in pieces for at, word in zip(column, values, strict=True)]
    wanted = sorted(set(selection.offsets().tolist()) & set(words))
    assert found == [(at, words[at]) for at in wanted]
    assert all(len(values.heap) <= nodes * page or values.size == 1 for _, values in pieces)
    for service in services.values():
        await service.close()


async def test_answers_have_limits(client: RestClient) -> None:
    """`max_request_size` is 200 000 here; what is beyond it streams as Arrow alone."""
    path = await create(client, [100], TEXT, layout=sparse(10))
    for at in range(30):
        sent = {"points": [at], "value": ["x" * 10_000]}
        assert (await client("PUT", f"{path}/value", sent)).status == 200
    for accept in (BINARY, "application/json"):
        reply = await client("GET", f"{path}/value", sparse=1, accept=accept)
        assert reply.status == 413
        assert "arrow" in reply["error"]["message"]
    assert len((await client("GET", f"{path}/value", sparse=1, select="[0:15]"))["value"]) == 15
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
    assert len(read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)[0]) == 30


async def test_text_that_is_no_utf8_is_told_where_arrow_is_asked(client: RestClient) -> None:
    path = await create(client, [10], TEXT, layout=sparse(10))
    data = b"\2\0\0\0\xc3\xa4" + b"\1\0\0\0\xc3" + b"\1\0\0\0\xa4"
    assert (await client("PUT", f"{path}/value", data, select="[0:3]")).status == 200
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
    assert reply.status == 400
    assert "octet-stream" in reply["error"]["message"]
    reply = await client("GET", f"{path}/value", sparse=1, accept=BINARY)
    _, values = decode_vlen_region(reply.body, parse_type(TEXT).element)
    assert values.heap.tobytes() == data


BAD_BODIES = [
    b"",
    encode_vlen_region(
        Points((10,), np.array([[1]], np.uint64)), column(TEXT, ["a"]), parse_type(TEXT).element
    )[:-9],
    encode_vlen_region(
        Points((11,), np.array([[10]], np.uint64)), column(TEXT, ["a"]), parse_type(TEXT).element
    ),
    encode_vlen_region(
        Points((10,), np.array([[1]], np.uint64)), column(INTS, [[1]]), parse_type(INTS).element
    ),
]


@pytest.mark.parametrize("number", range(len(BAD_BODIES)))
async def test_bodies_that_do_not_fit(client: RestClient, number: int) -> None:
    path = await create(client, [10], RECORD if number == 3 else TEXT, layout=sparse(10))
    reply = await client("PUT", f"{path}/value", BAD_BODIES[number], sparse=1)
    assert reply.status == 400, reply.body
    writer = ArrowWriter((10,), np.dtype("<i4"))
    numbers = writer.batch([np.arange(2)], np.arange(2, dtype="<i4")) + writer.end()
    assert (await client("PUT", f"{path}/value", numbers, headers=ARROW)).status == 400
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 0}


CREATION = [
    (TEXT, ["H5D_SPARSE_DATA"], 201),
    (TEXT, ["H5D_SPARSE_DATA", "H5D_VL_DATA"], 201),
    (TEXT, ["H5D_VL_DATA"], 201),
    (TEXT, [], 400),
    ("H5T_STD_I32LE", ["H5D_SPARSE_DATA", "H5D_VL_DATA"], 400),
    ("H5T_STD_I32LE", ["H5D_VL_DATA"], 400),
]


@pytest.mark.parametrize(("item", "flags", "status"), CREATION)
async def test_flags_at_creation(client: RestClient, item: Any, flags: list[str], status: int) -> None:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": flags}
    made = {"type": item, "shape": [9], "creationProperties": {"layout": layout}}
    reply = await client("POST", "/datasets", made)
    assert reply.status == status, reply.body
    if status == 201:
        shown = await client("GET", f"/datasets/{reply['id']}")
        assert shown["creationProperties"]["layout"] == layout


async def test_dense_structured_chunks(client: RestClient) -> None:
    """All elements are always defined; the object has an empty selection, and section filters of its own."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": ["H5D_VL_DATA"]}
    filters = [{"class": "H5Z_FILTER_DEFLATE", "section": "H5_SECTION_VL"}]
    path = await create(client, [9], TEXT, layout=layout, fillValue="f", filters=filters, maxdims=[20])
    assert (await client("PUT", f"{path}/value", {"value": ["ä", ""]}, select="[3:5]")).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [*"fff", "ä", "", *"ffff"]
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 9}
    assert (await client("DELETE", f"{path}/value", select="[3]")).status == 400
    assert (await client("GET", f"{path}/value", sparse=1)).status == 400
    for length in (4, 12):
        assert (await client("PUT", f"{path}/shape", {"shape": [length]})).status == 201
    assert (await client("GET", f"{path}/value"))["value"] == [*"fff", "ä", *"ffffffff"]
    bad = filters[0] | {"section": "H5_SECTION_SELECTION"}
    made = {"type": TEXT, "shape": [9], "creationProperties": {"layout": layout, "filters": [bad]}}
    assert (await client("POST", "/datasets", made)).status == 400


async def test_a_damaged_chunk_is_an_error_that_names_it() -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        path = await create(client, [8], TEXT, layout=sparse(8))
        assert (await client("PUT", f"{path}/value", {"points": [1, 4], "value": ["one", ""]})).status == 200
        id = path.rpartition("/")[2]
        keys = [entry.key async for page in store.list("db/") for entry in page.entries]
        key = next(key for key in keys if key.endswith("/0"))
        good = (await store.get(key)).data
        for place in range(0, len(good), 3):
            bad = bytearray(good)
            bad[place] ^= 0x10
            await store.put(key, bad)
            await client.service.owners.ask_all(Forget(id))
            for query in ({}, {"sparse": 1}):
                reply = await client("GET", f"{path}/value", **query)
                assert (reply.status, reply["error"]["kind"]) == (500, "corrupt"), f"byte {place} is served"
                assert key in reply["error"]["message"]


async def test_store_requests_are_as_many_as_chunks() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, [40], TEXT, layout=sparse(10))
        sent = {"points": [1, 12, 13, 31], "value": [*"abcd"]}
        store.reset()
        assert (await client("PUT", f"{path}/value", sent)).status == 200
        assert (await client("PUT", f"{path}/value", sent | {"value": [*"efgh"]})).status == 200
        chunks = [call for call in store.keys.elements() if not call[1].endswith(".json")]
        assert sum(method.startswith("put") for method, _ in chunks) == 2 * 3
        await client.service.owners.ask_all(Forget(path.rpartition("/")[2]))
        store.reset()
        for accept in (BINARY, ARROW_TYPE, "application/json"):
            assert (await client("GET", f"{path}/value", sparse=1, accept=accept)).status == 200
        gets = [store.keys["get", key] for _, key in store.keys if not key.endswith(".json")]
        assert gets == [1] * 4, "each chunk once, and one that is not there"
