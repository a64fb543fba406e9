"""JSON in pieces: the same values as in one piece, and the same refusals."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.http import long_json
from hsparse.sn.http.long_json import MAX_DEPTH, parse_long_json

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
    with pytest.raises(TooLarge, match="can have 50 members"):
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
