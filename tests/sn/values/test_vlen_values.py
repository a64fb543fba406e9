"""Values of variable-length types over HTTP, against lists in Python; pages so small that answers are streamed."""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from tests.model.type_strategies import BOOLEAN, OBJECT, REGION, length_prefixed, text, values_of
from tests.model.type_strategies import ITEMS as ITEMS_OF_ALL
from tests.sn.dataset_kinds import I8, I32, array_of, chunked, compound, sparse, vlen_of
from tests.sn.value_client import BINARY, create, json_of, put, value_client
from tests.support.characters import CHARACTERS
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.memory_store import MemoryStore

TEXT = text("H5T_VARIABLE")
INTS = vlen_of(I32)
RECORD = compound(n=I32, größe=TEXT, list=vlen_of(INTS), pair=array_of(TEXT, 2), ok=BOOLEAN)
PLAIN_RECORD = compound(é=array_of(BOOLEAN, 2), o={"class": "H5T_OPAQUE", "size": 2}, r=OBJECT)
EMPTY: dict[str, Any] = {"text": "", "ints": [], "record": [0, "", [], ["", ""], False]}
ITEMS = {"text": TEXT, "ints": INTS, "record": RECORD}


def random_value(kind: str, rng: np.random.Generator) -> Any:
    word = "äbc" * int(rng.integers(0, 40 if rng.random() < 0.1 else 4))
    if kind == "text":
        return word
    ints = rng.integers(-9, 9, rng.integers(0, 4)).tolist()
    return (
        ints
        if kind == "ints"
        else [int(rng.integers(99)), word, [ints, []], [word, "z"], bool(rng.random() < 0.5)]
    )


def filled(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, object)
    for place in np.ndindex(shape):
        array[place] = value
    return array


async def read_bytes(client: RestClient, path: str, **query: Any) -> bytes:
    reply = await answered(client("GET", f"{path}/value", accept=BINARY, **query))
    return bytes(reply.body)


def packed(item: Any, values: Any) -> bytes:
    return b"".join(length_prefixed(item, value) for value in np.asarray(values, object).reshape(-1))


SELECTIONS = [
    ("[:,:]", np.s_[:, :]),
    ("[3:17:2,1:5]", np.s_[3:17:2, 1:5]),
    ("[[0,7,19],2:4]", np.s_[[0, 7, 19], 2:4]),
    ("[5,:]", np.s_[5:6, :]),
    ("[[1,8],[0,5]]", np.s_[[1, 8], [0, 5]]),
]


@pytest.mark.parametrize("kind", list(ITEMS))
async def test_programs_of_reads_and_writes(client: RestClient, kind: str) -> None:
    item, rng = ITEMS[kind], np.random.default_rng(7)
    filters = [{"class": "H5Z_FILTER_SHUFFLE"}, "gzip"]
    path = await create(client, [20, 6], item, layout=chunked(6, 4), maxdims=[40, 6], filters=filters)
    model = filled(EMPTY[kind], (20, 6))
    for _ in range(12):
        text_, index = SELECTIONS[rng.integers(len(SELECTIONS))]
        part = filled(None, model[index].shape)
        for place in np.ndindex(part.shape):
            part[place] = random_value(kind, rng)
        model[index] = part
        query = {"select": text_}
        if rng.random() < 0.5:
            reply = await client("PUT", f"{path}/value", {"value": part.tolist()}, **query)
        else:
            reply = await client("PUT", f"{path}/value", packed(item, part), **query)
        assert reply.status == 200, reply.body
        text_, index = SELECTIONS[rng.integers(len(SELECTIONS))]
        assert await json_of(client, path, select=text_) == model[index].tolist()
        assert await read_bytes(client, path, select=text_) == packed(item, model[index])
    points = np.array([[19, 5], [0, 0], [7, 3], [0, 0]])
    reply = await client("POST", f"{path}/value", points.astype("<u8").tobytes(), accept=BINARY)
    assert reply.body == packed(item, model[tuple(points.T)])
    reply = await client("POST", f"{path}/value", {"points": points.tolist()})
    assert reply["value"] == model[tuple(points.T)].tolist()
    news = [random_value(kind, rng) for _ in range(4)]
    body = {
        "points": points.tolist(),
        "value_base64": base64.b64encode(packed(item, _objects(news))).decode(),
    }
    await put(client, path, body)
    for (row, column), value in zip(points.tolist(), news, strict=True):
        model[row, column] = value
    assert await json_of(client, path) == model.tolist()
    for extent in ([8, 6], [25, 6]):
        assert (await client("PUT", f"{path}/shape", {"shape": extent})).status == 201
    model = np.concatenate((model[:8], filled(EMPTY[kind], (17, 6))))
    assert await json_of(client, path) == model.tolist()


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


async def test_an_answer_in_bounded_pieces(client: RestClient) -> None:
    """Elements of 0 to 30 kB where a page has 4 kB: what is streamed is cut by bytes, not by elements."""
    sizes = [0, 30_000, 5, 0, 9_000, 1, 4_090, 2] * 4
    values = ["x" * size for size in sizes]
    path = await create(client, [len(values)], TEXT, layout=chunked(5))
    for first in range(0, len(values), 8):
        body = packed(TEXT, values[first : first + 8])
        await put(client, path, body, select=f"[{first}:{first + 8}]")
    assert await read_bytes(client, path) == packed(TEXT, values)
    assert await read_bytes(client, path, select="[::3]") == packed(TEXT, values[::3])
    points = np.array([1, 0, 1, 25, 1])
    reply = await client("POST", f"{path}/value", points.astype("<u8").tobytes(), accept=BINARY)
    assert reply.body == packed(TEXT, [values[at] for at in points])
    assert (await client("GET", f"{path}/value")).status == 200
    await refuses(client("POST", f"{path}/value", {"points": [1] * 8}), 413, "octet-stream")


@pytest.mark.parametrize(
    ("item", "fill", "shown"),
    [
        (TEXT, "größe", "größe"),
        (INTS, [1, -2], [1, -2]),
        (RECORD, [7, "f", [[1], []], ["a", "b"], True], [7, "f", [[1], []], ["a", "b"], True]),
        (REGION, None, None),
        (array_of(TEXT, 2), ["p", "q"], ["p", "q"]),
    ],
)
@pytest.mark.parametrize("coded", [False, True])
async def test_fill_values(client: RestClient, item: Any, fill: Any, shown: Any, coded: bool) -> None:
    properties: dict[str, Any] = {} if fill is None else {"fillValue": fill}
    if coded and fill is not None:
        data = base64.b64encode(length_prefixed(item, fill)).decode()
        properties = {"fillValue": data, "fillValue_encoding": "base64"}
    path = await create(client, [7], item, layout=chunked(3), **properties)
    assert await json_of(client, path) == [shown] * 7
    assert await read_bytes(client, path, select="[2:5]") == length_prefixed(item, shown) * 3
    element = parse_type(item).element
    empty = to_json(from_json([0], (1,), element), element)[0] if item in (TEXT, INTS) else shown
    await put(client, path, {"value": [empty]}, select="[4:5]")
    assert await json_of(client, path) == [shown] * 4 + [empty] + [shown] * 2


@pytest.mark.parametrize("shape", [[], [0], [0, 3], "H5S_NULL"])
@pytest.mark.parametrize("item", [TEXT, INTS, RECORD, REGION, OBJECT])
async def test_spaces_of_one_and_of_none(client: RestClient, shape: Any, item: Any) -> None:
    path = await create(client, shape, item)
    if shape == "H5S_NULL":
        assert (await client("GET", f"{path}/value")).status == 400
        return
    if shape == []:
        value = {
            "H5T_STRING": "x",
            "H5T_VLEN": [1],
            "H5T_REFERENCE": None if item == REGION else "groups/g-1",
        }.get(item["class"], [1, "a", [[1]], ["x", "y"], True])
        await put(client, path, {"value": value})
        assert await json_of(client, path) == value
        assert await read_bytes(client, path) == length_prefixed(item, value)
        return
    assert await json_of(client, path) == []
    assert await read_bytes(client, path) == b""


async def test_fields(client: RestClient) -> None:
    path = await create(client, [3], RECORD)
    rows = [[n, "t" * n, [[n]], ["a", "b"], True] for n in range(3)]
    await put(client, path, {"value": rows})
    assert await json_of(client, path, fields="pair:n") == [[["a", "b"], n] for n in range(3)]
    assert await json_of(client, path, fields="n") == [[n] for n in range(3)]
    assert await read_bytes(client, path, fields="ok:größe") == b"".join(
        b"\1" + length_prefixed(TEXT, "t" * n) for n in range(3)
    )
    assert (await client("GET", f"{path}/value", fields="nope")).status == 400
    await put(client, path, {"value": [7, 8, 9]}, fields="n")
    pairs = [[["p", "q" * n], False] for n in range(2)]
    await put(client, path, {"value": pairs}, fields="pair:ok", select="[1:3]")
    body = packed(TEXT, ["new"])
    await put(client, path, body, fields="größe", select="[0:2]", element_count=1)
    assert await json_of(client, path) == [
        [7, "new", [[0]], ["a", "b"], True],
        [8, "new", [[1]], ["p", ""], False],
        [9, "tt", [[2]], ["p", "q"], False],
    ]
    for fields, value in (("nope", [1] * 3), ("n:n", [[1, 1]] * 3), ("größe", [1] * 3)):
        assert (await client("PUT", f"{path}/value", {"value": value}, fields=fields)).status == 400


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (array_of(I32, 2, 2), [[1, 2], [3, 4]]),
        (array_of(BOOLEAN, 2), [True, False]),
        (array_of(text(3), 1), ["ab"]),
        (BOOLEAN, True),
        (OBJECT, "groups/g-1"),
        ({"class": "H5T_OPAQUE", "size": 3}, "AQID"),
        ({"class": "H5T_BITFIELD", "base": "H5T_STD_B16LE"}, 7),
        (text(4), "ä"),
        (PLAIN_RECORD, [[True, False], "AQI=", "groups/g-1"]),
    ],
)
async def test_fixed_types_that_are_no_numbers(client: RestClient, item: Any, value: Any) -> None:
    empty = bytes(parse_type(item).item_size or 0)
    path = await create(client, [2, 3], item, layout=chunked(1, 2), fillValue=value)
    one = length_prefixed(item, value)
    assert await json_of(client, path) == [[value] * 3] * 2
    await put(client, path, empty * 6)
    await put(client, path, {"value": [[value]] * 2}, select="[:,1]")
    assert await read_bytes(client, path) == (empty + one + empty) * 2
    await put(client, path, {"value": value}, select="[0,0:2]")
    assert await read_bytes(client, path, select="[0,:]") == one + one + empty
    scalar = await create(client, [], item)
    await put(client, scalar, one)
    assert await json_of(client, scalar) == value
    assert await read_bytes(client, scalar) == one
    made = await client("POST", "/datasets", {"type": item, "shape": [2], "value": [value, value]})
    assert made.status == 201, made.body
    assert await read_bytes(client, f"/datasets/{made['id']}") == one + one


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\xff\xff",
        struct.pack("<I", 2**32 - 1) + b"x" * 100,
        packed(TEXT, ["a", "b"]),
        packed(TEXT, ["a"] * 4),
        packed(TEXT, ["a"] * 3) + b"\0",
        {"value": ["a", "b"]},
        {"value": [1, 2, 3]},
        {"value": [["a"], ["b"], ["c"]]},
        {"value": {}},
        {"value_base64": "AAAA"},
    ],
)
async def test_bodies_that_are_refused(client: RestClient, body: Any) -> None:
    path = await create(client, [3], TEXT)
    await answered(client("PUT", f"{path}/value", body), 400)
    assert await json_of(client, path) == ["", "", ""]


async def test_what_is_not_supported_and_what_is_no_text(client: RestClient) -> None:
    layout = sparse(3) | {"flags": []}
    body = {"type": TEXT, "shape": [9], "creationProperties": {"layout": layout}}
    assert (await answered(client("POST", "/datasets", body), 400))["error"]["kind"] == "unsupported"
    path = await create(client, [1], TEXT)
    await put(client, path, b"\1\0\0\0\xff")
    assert await read_bytes(client, path) == b"\1\0\0\0\xff"
    await refuses(client("GET", f"{path}/value"), 400, "octet-stream")
    assert (await client("GET", f"{path}/value", sparse=1)).status == 400


async def test_the_stored_chunk_is_the_counted_form() -> None:
    store = MemoryStore()
    async with value_client(store) as client:
        path = await create(client, [5], TEXT, layout=chunked(4), filters=["shuffle"])
        await put(client, path, {"value": list("abcde")})
        keys = [entry.key async for page in store.list("db/") for entry in page.entries]
        chunks = [bytes((await store.get(key)).data) for key in keys if key.endswith(("/0", "/1"))]
        assert chunks == [packed(TEXT, list("abcd")), packed(TEXT, ["e", "", "", ""])]


@pytest.mark.endurance
@settings(max_examples=repeats(40, short=15), deadline=None)
@given(st.data())
async def test_any_type_and_values(data: st.DataObject) -> None:
    """Of any nested type: what is written in JSON or bytes is read in both, beside the fill value."""
    item = data.draw(ITEMS_OF_ALL)
    fill, *rows = data.draw(st.lists(values_of(item), min_size=6, max_size=6))
    async with value_client() as client:
        properties = {} if fill is None else {"fillValue": fill}
        path = await create(client, [9], item, layout=chunked(4), **properties)
        model = [fill] * 9
        model[1:4], model[4:6] = rows[:3], rows[3:]
        await put(client, path, {"value": rows[:3]}, select="[1:4]")
        body = b"".join(length_prefixed(item, row) for row in rows[3:])
        await put(client, path, body, select="[4:6]")
        assert await json_of(client, path) == model
        assert await read_bytes(client, path) == b"".join(length_prefixed(item, row) for row in model)
        body = {"type": item, "shape": [9], "value": model}
        assert (await client("PUT", f"{path}/attributes/a", body)).status == 201
        assert (await client("GET", f"{path}/attributes/a"))["value"] == model
        reply = await client("GET", f"{path}/attributes/a/value", accept=BINARY)
        assert reply.body == b"".join(length_prefixed(item, row) for row in model)
        assert (await client("PUT", f"{path}/attributes/a/value", bytes(reply.body))).status == 200
        assert (await client("GET", f"{path}/attributes/a"))["value"] == model


async def test_sparse_elements_of_an_array_type(client: RestClient) -> None:
    item = array_of(I8, 2)
    path = await create(client, [9], item, layout=sparse(4), fillValue=[7, 7])
    await put(client, path, {"value": [[7, 7], [1, 2], [7, 8]]}, select="[3:6]", drop_fill=1)
    reply = await client("GET", f"{path}/value", sparse=1)
    assert (reply["selection"]["coordinates"], reply["value"]) == ([[4], [5]], [[1, 2], [7, 8]])
    assert await json_of(client, path, select="[3:5]") == [[7, 7], [1, 2]]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(CHARACTERS, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=2), inner, max_size=2)
    ),
    max_leaves=8,
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Draw a type, and bodies for two elements: bytes that are right, changed or of nothing, and JSON."""
    item = draw(ITEMS_OF_ALL)
    raw = length_prefixed(item, draw(values_of(item))) * 2
    found: list[Any] = [raw]
    for _ in range(3):
        flipped = bytearray(raw)
        flipped[draw(st.integers(0, len(raw) - 1))] ^= draw(st.integers(0, 255))
        found.append(bytes(flipped))
    found += draw(st.lists(st.binary(max_size=40), max_size=2))
    lists = st.lists(ANY_JSON, min_size=2, max_size=2)
    return item, found + [{"value": value} for value in draw(st.lists(lists | ANY_JSON, max_size=3))]


@pytest.mark.endurance
@settings(max_examples=repeats(50, short=10), deadline=None)
@given(bodies())
async def test_any_body_is_taken_or_refused(drawn: tuple[Any, list[Any]]) -> None:
    item, found = drawn
    async with value_client() as client:
        path = await create(client, [2], item)
        for body in found:
            reply = await client("PUT", f"{path}/value", body)
            assert reply.status in (200, 400), reply.body
            assert (await client("GET", f"{path}/value", accept=BINARY)).status == 200
            assert (await client("GET", f"{path}/value")).status in (200, 400)
