"""JSON of answers, floats in it, and links between answers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse.compute import MAX_INLINE_BYTES
from hsparse.errors import BadRequest
from hsparse.sn.http import response
from hsparse.sn.http.response import PIECE_ITEMS, encode_json, encode_unless_long, respond_error
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient


def test_floats_that_are_not_finite() -> None:
    found = json.loads(encode_json([math.inf, -math.inf, math.nan, None, DOMAIN]))
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3:] == [None, DOMAIN]


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.just("null")
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text() | st.just("null"), inner, max_size=8)
        | st.tuples(inner, inner)
    ),
    max_leaves=100,
)


@given(VALUES, st.integers(1, 8), st.integers(1, 100), st.integers(0, 3), st.integers(0, 1))
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
