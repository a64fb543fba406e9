"""JSON of answers, floats in it, and links between answers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.sn.http.response import encode_json, encode_json_members, respond_error
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient


def test_floats_that_are_not_finite() -> None:
    found = json.loads(encode_json([math.inf, -math.inf, math.nan, None, DOMAIN]))
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3:] == [None, DOMAIN]


@pytest.mark.parametrize("odd", [1.5, math.nan, None, "null", np.array([1.0, math.inf])])
def test_members_are_encoded_together_as_one_by_one(odd: Any) -> None:
    members = {"a": {"value": [1, 2]}, 'b"': odd, "c": "é"}
    one_by_one = b",".join(encode_json(name) + b":" + encode_json(item) for name, item in members.items())
    assert encode_json_members(members) == one_by_one
    assert encode_json_members({}) == b""


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
