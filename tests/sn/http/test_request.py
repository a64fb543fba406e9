"""JSON bodies as stock clients send them."""

from __future__ import annotations

import gc

import pytest

from hsparse.concurrency import collector
from tests.support.rest_client import RestClient

JSON = {"headers": {"Content-Type": "application/json"}}


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
