"""Sparse datasets of variable-length types over HTTP, in all media, against a dict; pages of 4 KiB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import decode_vlen_region, encode_vlen_region
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import to_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.http.request import ARROW_TYPE, JSON_TYPE
from hsparse.sn.values.media.arrow import ArrowWriter, read_vlen_arrow
from hsparse.wire.record_message import Forget
from tests.model.type_strategies import length_prefixed, text
from tests.sn.dataset_kinds import I32, compound, sparse, vlen_of
from tests.sn.value_client import ARROW, BINARY, create, defined_count, json_of, put
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.store_wrapper import CountingStore

SHAPE = (40, 30)
TEXT = text("H5T_VARIABLE")
INTS = vlen_of("H5T_STD_U16BE")
RECORD = compound(n=I32, t=TEXT, list=vlen_of(INTS))
KINDS: dict[str, tuple[Any, Any]] = {
    "text": (TEXT, "none"),
    "ascii": (text("H5T_VARIABLE", "H5T_CSET_ASCII"), ""),
    "ints": (INTS, [7]),
    "record": (RECORD, [3, "none", [[1], []]]),
}
UNLIMITED = ["H5S_UNLIMITED", "H5S_UNLIMITED"]
Model = dict[tuple[int, ...], Any]


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


async def put_as(client: RestClient, path: str, sent: Any, media: str, **query: Any) -> None:
    headers = {} if media == JSON_TYPE else {"Content-Type": media}
    await put(client, path, sent, headers=headers, **{"sparse": 1} if media == BINARY else {}, **query)


async def everything(client: RestClient, path: str, item: Any, **query: Any) -> Model:
    """Read the defined elements in each of the three media, which must tell the same."""
    element = parse_type(item).element
    reply = await answered(client("GET", f"{path}/value", sparse=1, **query))
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
        await put_as(
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
    assert await defined_count(client, path) == len(model)


async def test_dense_writes_and_fields(client: RestClient) -> None:
    path = await create(client, SHAPE, RECORD, layout=sparse(16, 7), fillValue=KINDS["record"][1])
    rows = [[[n, "w" * n, [[n]]] for n in range(3)] for _ in range(2)]
    await put(client, path, {"value": rows}, select="[15:17,6:9]")
    data = b"".join(length_prefixed(RECORD, [n, "x", []]) for n in range(2))
    await put(client, path, data, select="[0,0:2]")
    await put(client, path, {"value": [["new"], ["more"]], "points": [[15, 7], [20, 20]], "fields": "t"})
    await put(client, path, {"value": [1, "all", []], "select": "[39,28:30]"})
    model = {(15 + row, 6 + n): rows[row][n] for row in range(2) for n in range(3)}
    model |= {(0, n): [n, "x", []] for n in range(2)} | {(39, n): [1, "all", []] for n in (28, 29)}
    model |= {(15, 7): [1, "new", [[1]]], (20, 20): [3, "more", [[1], []]]}
    assert await everything(client, path, RECORD) == model
    reply = await client("GET", f"{path}/value", select="[15,6:9]", fields="t:n")
    assert reply["value"] == [[["", 0], ["new", 1], ["ww", 2]]]
    reply = await client("GET", f"{path}/value", query="n == 3", select="[20,19:22]")
    assert reply["value"] == [[3, "none", [[1], []]], [3, "more", [[1], []]], [3, "none", [[1], []]]]


@pytest.mark.parametrize("properties", [{}, {"layout": sparse(2)}], ids=["dense", "sparse"])
async def test_a_first_value_and_what_is_appended(client: RestClient, properties: dict[str, Any]) -> None:
    made = {"type": TEXT, "shape": [2], "maxdims": [0], "value": ["a", ""], "creationProperties": properties}
    path = f"/datasets/{(await client('POST', '/datasets', made))['id']}"
    await put(client, path, {"value": ["c"], "append": 1})
    await put(client, path, b"".join(length_prefixed(TEXT, word) for word in "de"), append=2)
    assert await json_of(client, path, sparse=len(properties)) == ["a", "", "c", "d", "e"]
    assert (await client("POST", f"{path}/value", {"points": [4, 0, 4]}))["value"] == ["e", "a", "e"]


async def test_elements_larger_than_a_page(client: RestClient) -> None:
    """Each comes alone in the stream, however the chunk that has them is cut; none comes twice."""
    path = await create(client, [100_000], TEXT, layout=sparse(100_000))
    model = {(at,): chr(97 + n) * 9_000 for n, at in enumerate((5, 6, 50_000, 99_999))}
    sent = {"points": [at for (at,) in model], "value": list(model.values())}
    await put(client, path, sent)
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
    coords, values = read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)
    found = to_json(values, parse_type(TEXT).element)
    assert dict(zip(map(tuple, coords.tolist()), found, strict=True)) == model
    reply = await client("POST", f"{path}/value", {"points": [6, 5, 6, 7]}, sparse=1, accept=ARROW_TYPE)
    coords, _ = read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)
    assert coords.tolist() == [[5], [6]]


async def test_answers_have_limits(client: RestClient) -> None:
    """`max_request_size` is 200 000 here; what is beyond it streams as Arrow alone."""
    path = await create(client, [100], TEXT, layout=sparse(10))
    for at in range(30):
        await put(client, path, {"points": [at], "value": ["x" * 10_000]})
    for accept in (BINARY, "application/json"):
        await refuses(client("GET", f"{path}/value", sparse=1, accept=accept), 413, "arrow")
    assert len(await json_of(client, path, sparse=1, select="[0:15]")) == 15
    reply = await client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE)
    assert len(read_vlen_arrow(reply.body, 1, parse_type(TEXT).element)[0]) == 30


async def test_text_that_is_no_utf8_is_told_where_arrow_is_asked(client: RestClient) -> None:
    path = await create(client, [10], TEXT, layout=sparse(10))
    data = b"\2\0\0\0\xc3\xa4" + b"\1\0\0\0\xc3" + b"\1\0\0\0\xa4"
    await put(client, path, data, select="[0:3]")
    await refuses(client("GET", f"{path}/value", sparse=1, accept=ARROW_TYPE), 400, "octet-stream")
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
    await answered(client("PUT", f"{path}/value", BAD_BODIES[number], sparse=1), 400)
    writer = ArrowWriter((10,), np.dtype("<i4"))
    numbers = writer.batch([np.arange(2)], np.arange(2, dtype="<i4")) + writer.end()
    assert (await client("PUT", f"{path}/value", numbers, headers=ARROW)).status == 400
    assert await defined_count(client, path) == 0


@pytest.mark.parametrize(
    "flags", [["H5D_SPARSE_DATA"], ["H5D_SPARSE_DATA", "H5D_VL_DATA"], ["H5D_VL_DATA"]], ids=str
)
async def test_flags_at_creation(client: RestClient, flags: list[str]) -> None:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": flags}
    path = await create(client, [9], TEXT, layout=layout)
    assert (await client("GET", path))["creationProperties"]["layout"] == layout


async def test_dense_structured_chunks(client: RestClient) -> None:
    """All elements are always defined; the object has an empty selection, and section filters of its own."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": ["H5D_VL_DATA"]}
    filters = [{"class": "H5Z_FILTER_DEFLATE", "section": "H5_SECTION_VL"}]
    path = await create(client, [9], TEXT, layout=layout, fillValue="f", filters=filters, maxdims=[20])
    await put(client, path, {"value": ["ä", ""]}, select="[3:5]")
    assert await json_of(client, path) == [*"fff", "ä", "", *"ffff"]
    assert await defined_count(client, path) == 9
    assert (await client("DELETE", f"{path}/value", select="[3]")).status == 400
    assert (await client("GET", f"{path}/value", sparse=1)).status == 400
    for length in (4, 12):
        assert (await client("PUT", f"{path}/shape", {"shape": [length]})).status == 201
    assert await json_of(client, path) == [*"fff", "ä", *"ffffffff"]
    bad = filters[0] | {"section": "H5_SECTION_SELECTION"}
    made = {"type": TEXT, "shape": [9], "creationProperties": {"layout": layout, "filters": [bad]}}
    assert (await client("POST", "/datasets", made)).status == 400


async def test_store_requests_are_as_many_as_chunks(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [40], TEXT, layout=sparse(10))
    sent = {"points": [1, 12, 13, 31], "value": [*"abcd"]}
    store.reset()
    await put(client, path, sent)
    await put(client, path, sent | {"value": [*"efgh"]})
    chunks = [call for call in store.keys.elements() if not call[1].endswith(".json")]
    assert sum(method.startswith("put") for method, _ in chunks) == 2 * 3
    await client.service.owners.ask_all(Forget(path.rpartition("/")[2]))
    store.reset()
    for accept in (BINARY, ARROW_TYPE, "application/json"):
        assert (await client("GET", f"{path}/value", sparse=1, accept=accept)).status == 200
    gets = [store.keys["get", key] for _, key in store.keys if not key.endswith(".json")]
    assert gets == [1] * 4, "each chunk once, and one that is not there"
