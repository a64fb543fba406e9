"""JSON of bodies and answers, in one piece and in several."""

from __future__ import annotations

import gc
import json
import math
import random
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse.compute import MAX_INLINE_BYTES
from hsparse.concurrency import collector
from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.http import long_json, response
from hsparse.sn.http.long_json import MAX_DEPTH, parse_long_json
from hsparse.sn.http.request import WIDE, value_memory
from hsparse.sn.http.response import (
    PIECE_ITEMS,
    encode_json,
    encode_nulls,
    encode_pieces,
    encode_unless_long,
    items_of,
    respond_error,
    respond_pieces,
)
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient


async def test_numbers_that_json_does_not_have(rest: RestClient, root: str) -> None:
    path = f"/groups/{root}/attributes/a"
    body = b'{"type": "H5T_IEEE_F64LE", "shape": [2], "value": [NaN, -Infinity]}'
    assert (await rest("PUT", path, body)).status == 201
    assert (await rest("GET", path, ignore_nan=1))["value"] == [None, None]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b'{"a": NaN',
        b"[NaN" * 3,
        b'"Infinity',
        b"\xff\xfe",
        b'{"a": ' + b"[" * 5000,
        b"[" * 9999 + b"NaN",
    ],
)
async def test_what_is_no_json(rest: RestClient, root: str, body: bytes) -> None:
    reply = await rest("PUT", f"/groups/{root}/attributes/a", body)
    assert reply.status == 400
    assert reply["error"]["message"].endswith(".")


async def test_no_body_is_an_empty_object(rest: RestClient) -> None:
    assert (await rest("POST", "/groups")).status == 201
    assert (await rest("POST", "/groups", b"  ")).status == 201


async def test_only_lists_of_texts(rest: RestClient, root: str) -> None:
    for titles in ("x", [1], {"a": 1}, 7):
        assert (await rest("POST", f"/groups/{root}/links", {"titles": titles})).status == 400


@pytest.mark.parametrize(
    "value",
    [
        b'"NaN\\ud800"',
        b'{"NaN\\udfff": 1}',
        b"[NaN, 123456789012345678901234567890]",
        b"[" * 300 + b"]" * 300,
        b"[" * 250 + b"]" * 250,
    ],
)
async def test_what_could_not_be_stored(rest: RestClient, value: bytes) -> None:
    reply = await rest("POST", "/groups", b'{"creationProperties": {"x": ' + value + b"}}")
    assert reply.status == 400


async def test_what_is_nested_within_the_limit_is_kept(rest: RestClient) -> None:
    value = b"[" * 230 + b"]" * 230
    made = await rest("POST", "/groups", b'{"creationProperties": {"x": ' + value + b"}}")
    assert made.status == 201
    assert (await rest("GET", f"/groups/{made['id']}")).status == 200


async def test_the_collector_rests_while_a_large_body_is_parsed(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "PAUSING_LISTS", 2)
    assert (await rest("POST", "/groups", b'{"creationProperties": {"x": [[1], [2]]}}')).status == 201
    assert gc.isenabled()
    assert (await rest("POST", "/groups", b'{"creationProperties": {"x": [[1], [2]]')).status == 400
    assert gc.isenabled()


TEXTS = st.text('ab,:\\"[]{}é\U0001f600 \n', max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=200,
)
WINDOWS = st.integers(1, 40)


def in_one_piece(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except ValueError:
        return BadRequest


def in_pieces(data: bytes, window: int) -> Any:
    try:
        return parse_long_json(bytearray(data), orjson.loads, window)
    except BadRequest:
        return BadRequest


@given(VALUES, WINDOWS, st.sampled_from([None, 1]), st.booleans())
@example([], 1, None, True)
@example({"a": [[], {}, [1, 2, 3] * 9], "b": {"c": "x" * 99}}, 2, 1, False)
def test_the_same_value(value: Any, window: int, indent: int | None, plain: bool) -> None:
    data = b" \n" * 5 + json.dumps(value, indent=indent, ensure_ascii=plain).encode() + b"\t" * 9
    assert in_pieces(data, window) == in_one_piece(data)


@given(VALUES, WINDOWS, st.randoms(use_true_random=False))
def test_the_same_refusal(value: Any, window: int, chance: random.Random) -> None:
    data = bytearray(json.dumps(value, ensure_ascii=False).encode())
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(data) + 1)
        data[place : place + chance.randint(0, 2)] = chance.choice(
            [b"", b",", b"]", b"}", b"[", b"{", b'"', b"\\", b" ", b":", b"1", b"\xff", b",,", b'":']
        )
    whole = in_one_piece(bytes(data))
    assert repr(in_pieces(bytes(data), window)) == repr(whole)


@pytest.mark.parametrize(
    "data",
    [b"[1,]", b"[,1]", b"[1,,2]", b"[1}", b"[1],[2]", b'{"a":1,}', b'{"a":1]', b"[1] 2", b'["a]', b"]["],
)
def test_what_is_not_valid_is_refused(data: bytes) -> None:
    for window in (1, 2, 100):
        assert in_pieces(data, window) is in_one_piece(data) is BadRequest


def test_a_member_given_twice_has_its_last_value() -> None:
    data = b'{"a": [1, 2, 3], "b": 2, "a": {"c": [4, 5, 6]}}'
    assert in_pieces(data, 3) == in_one_piece(data)


def test_deep_nesting_is_refused_before_it_is_parsed() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert in_pieces(deepest, 16) == in_one_piece(deepest)
    assert in_pieces(b"[" + deepest + b"]", 16) is BadRequest


@pytest.mark.parametrize("value", [b"1", b'"' + b"x" * 100 + b'"'])
def test_the_members_of_an_object_are_limited(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_json, "MAX_MEMBERS", 50)
    members = [b'"%d":%b' % (number, value) for number in range(51)]
    most = b'[{"a": {%b}}, %b]' % (b",".join(members[:50]), b",".join([b"{}"] * 99))
    assert in_pieces(most, 16) == in_one_piece(most)
    with pytest.raises(TooLarge, match="more than 50 members"):
        in_pieces(b'{"a": {%b}}' % b",".join(members), 16)


def test_pieces_are_short() -> None:
    body = {"value": [[k, 0.5] for k in range(5000)], "more": {"text": [str(k) for k in range(5000)]}}
    longest = 0

    def parse(piece: bytes | bytearray) -> Any:
        nonlocal longest
        longest = max(longest, len(piece))
        return orjson.loads(piece)

    assert parse_long_json(bytearray(orjson.dumps(body)), parse, 256) == body
    assert longest <= 2 * 256 + 2


COUNT = 20_000


@pytest.mark.parametrize(
    "value",
    [
        [f"{number:x}" for number in range(COUNT)],
        {f"{number:x}": number for number in range(COUNT)},
        [1.25] * COUNT,
        [number + 1000 for number in range(COUNT)],
        [[]] * COUNT,
        [[number / 7, number] for number in range(COUNT)],
        [{"a": number} for number in range(COUNT)],
        [{}] * COUNT,
        "é" * COUNT,
        "x" * COUNT + "\U0001f600",
    ],
    ids=lambda value: json.dumps(value)[:24],
)
@pytest.mark.parametrize("plain", [True, False])
async def test_the_estimate_is_no_less_than_the_memory(value: Any, plain: bool) -> None:
    data = json.dumps(value, ensure_ascii=plain, separators=(",", ":")).encode()
    tracemalloc.start()
    try:
        parsed = json.loads(data)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert parsed == value
    assert taken <= await value_memory(data) <= 5 * taken + WIDE * len(data)


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.just("null")
)
ANSWERS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text() | st.just("null"), inner, max_size=8)
        | st.tuples(inner, inner)
    ),
    max_leaves=100,
)


@given(ANSWERS, st.integers(1, 8), st.integers(1, 100), st.integers(0, 3), st.integers(0, 1))
@example({"null": list(range(50))}, 4, 10, 1, 0)
@example([[math.nan] * 9, ("null", [None, {}, []]), np.array([math.nan, 1.0])], 2, 1, 1, 1)
def test_pieces_are_the_same_as_the_whole(value: Any, items: int, size: int, levels: int, long: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in (
            ("PIECE_ITEMS", items),
            ("PIECE_BYTES", size),
            ("TRIED_LEVELS", levels),
            ("MAX_WHOLE_ITEMS", 0),
        ):
            patch.setattr(response, name, limit)
        text = encode_json(value, long)
    expected = json.dumps(value, default=np.ndarray.tolist)
    assert repr(json.loads(text)) == repr(json.loads(expected))


def test_only_what_may_be_a_float_is_encoded_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[Any] = []
    dumps = json.dumps

    def note(value: Any, **options: Any) -> str:
        slow.append(value)
        return dumps(value, **options)

    monkeypatch.setattr(json, "dumps", note)
    row = list(range(2 * PIECE_ITEMS))
    value: dict[str, Any] = {"null": {"value": [*[row] * 40, [math.nan, 1.5]]}}
    text = encode_json(value)
    assert slow == [value["null"]["value"][-1]]
    monkeypatch.undo()
    assert repr(json.loads(text)) == repr(value)


def test_a_long_value_is_neither_made_nor_encoded_at_once() -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append([1.5, math.nan])
        return made[-1]

    assert encode_unless_long(MAX_INLINE_BYTES, make) == b"[1.5,NaN]"
    encode = encode_unless_long(MAX_INLINE_BYTES + 1, make)
    assert callable(encode)
    assert len(made) == 1
    assert encode() == b"[1.5,NaN]"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/datasets", {"type": "H5T_STD_I8LE", "shape": [["x" * 50_000]]}),
        ("/datasets", {"type": "H5T_STD_I8LE", "shape": [1], "maxdims": "x" * 50_000}),
        (
            "/datasets",
            {"type": "H5T_STD_I8LE", "shape": [1], "creationProperties": {"layout": ["x" * 50_000]}},
        ),
        (
            "/datasets",
            {"type": "H5T_STD_I8LE", "shape": [1], "creationProperties": {"filters": "x" * 50_000}},
        ),
        ("/groups", {"id": "x" * 50_000}),
        ("/groups", {"links": {"a": ["x" * 50_000]}}),
        ("/groups", {"links": {"x" * 50_000: {"h5path": "/"}}}),
        ("/groups", {"attributes": {"a": {"type": "x" * 50_000}}}),
    ],
)
async def test_an_error_does_not_echo_a_body(rest: RestClient, path: str, body: Any) -> None:
    reply = await rest("POST", path, body)
    assert reply.status == 400
    assert 20 < len(reply["error"]["message"]) < 300


def test_a_sentence_is_cut() -> None:
    answer = respond_error(BadRequest("x" * 100_000))
    assert isinstance(answer.body, bytes)
    assert len(answer.body) < 4200


async def test_they_lead_to_what_they_name(rest: RestClient, root: str) -> None:
    links = {one["rel"]: one["href"] for one in (await rest("GET", "/"))["hrefs"]}
    for rel, key in (("database", "datasets"), ("groupbase", "groups"), ("root", "id"), ("acls", "acls")):
        path, _, query = links[rel].split("/", 3)[3].partition("?")
        assert query == f"domain={DOMAIN}"
        assert key in (await rest("GET", f"/{path}")).body
    assert links["parent"].endswith("/?domain=hsparse/home/test_user1")
    assert (await rest("GET", "/", domain="hsparse/home/test_user1"))["class"] == "folder"


async def test_no_domain_in_them_where_it_came_by_header(rest: RestClient) -> None:
    reply = await rest("GET", "/", domain=None, headers={"X-Hdf-domain": DOMAIN})
    links = {one["rel"]: one["href"] for one in reply["hrefs"]}
    assert links["self"].endswith("/")
    assert links["groupbase"].endswith("/groups")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "STREAMED_ITEMS", 4)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.sampled_from(["<i8", "<f8", "?"]),
    st.sampled_from([encode_json, encode_nulls]),
    st.booleans(),
)
def test_pieces_are_the_whole(shape: list[int], kind: str, encode: Any, finite: bool) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    if kind == "<f8" and not finite and values.size:
        values.flat[values.size // 2] = np.nan
    answer = {"status": 200, "value": values, "more": {"index": values, "none": {}}}
    pieces = list(encode_pieces(answer, encode))
    assert b"".join(pieces) == encode(answer)
    assert max(map(len, pieces)) < 60


def test_no_piece_is_large() -> None:
    for shape in [(1, 300), (300, 1), (300, 0), (3, 100), (1, 1, 60, 5)]:
        pieces = list(encode_pieces(np.zeros(shape, "u1")))
        assert max(map(len, pieces)) <= 16
        assert items_of(shape) >= 300


async def test_much_is_encoded_in_a_thread() -> None:
    threads = []

    def pieces() -> Iterator[bytes]:
        threads.append(threading.current_thread())
        yield b"[1]"

    for count in (1, 1 << 20):
        assert (await respond_pieces(count, {"value": pieces()})).body == b'{"value":[1]}'
    few, many = threads
    assert few is threading.main_thread()
    assert many is not threading.main_thread()
