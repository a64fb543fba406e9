"""The route table against literal requests and replies of HSDS 1.0.2, and every route's errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hsparse.sn.routes import ROUTES
from hsparse.testing.rest_client import BINARY, RestClient
from tests.sn.conftest import DOMAIN

SHAPES = json.loads((Path(__file__).parent.parent / "data" / "rest" / "hsds-1.0.2.json").read_text())
DOMAIN_THERE = "/home/test_user1/shapes_1795150605.h5"
VOLATILE = {"created", "lastModified", "hrefs", "href", "target", "bucket"}
OTHERWISE = {
    # HSDS answers with all attributes of each object, though it was asked for one.
    "get attributes POST several objects",
    # Two of the recorded groups were made by implicit=1, and no reply has told their ids.
    "list groups",
    # Recorded with two data nodes.
    "flush + dn ids (h5pyd File.flush sends it in the body)",
}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in VOLATILE}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def missing(expected: Any, got: Any, where: str = "reply") -> list[str]:
    """Return where `got` lacks, or has otherwise, what `expected` has; more keys are no fault."""
    if isinstance(expected, dict) and isinstance(got, dict):
        faults = [f"{where}.{key} is missing" for key in expected if key not in got]
        same = [key for key in expected if key in got]
        return faults + [
            fault for key in same for fault in missing(expected[key], got[key], f"{where}.{key}")
        ]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [fault for n, (one, other) in pairs for fault in missing(one, other, f"{where}[{n}]")]
    return [] if expected == got else [f"{where} is {got!r}, not {expected!r}"]


class Replay:
    """Sends recorded requests, with the ids that this server has given in place of the recorded ones."""

    def __init__(self, rest: RestClient, root: str) -> None:
        self._rest = rest
        self._ours = {"g-32927009-260e806f-ba1a-f881ae-8608e7": root, DOMAIN_THERE: DOMAIN}

    async def __call__(self, shape: dict[str, Any]) -> list[str]:
        path, _, query = self._to_ours(shape["path"]).partition("?")
        params = dict(part.split("=", 1) for part in query.split("&")) if query else {}
        body = bytes(shape["request_bytes"]) if "request_bytes" in shape else self._body(shape.get("request"))
        accept = {"accept": BINARY} if "accept" in shape.get("headers", {}) else {}
        got = await self._rest(shape["method"], path, body, **params, **accept)
        if got.status != shape["status"]:
            return [f"the status is {got.status}, not {shape['status']}: {got.body}"]
        expected = shape.get("reply")
        if isinstance(expected, dict) and "id" in expected and shape["method"] == "POST":
            self._ours[expected["id"]] = got["id"]
        if not isinstance(expected, dict):
            return []
        theirs = json.loads(self._to_theirs(json.dumps(without_times(got.body))))
        return missing(sorted_lists(without_times(expected)), sorted_lists(theirs))

    def _body(self, request: Any) -> Any:
        return None if request is None else json.loads(self._to_ours(json.dumps(request)))

    def _to_ours(self, text: str) -> str:
        for theirs, ours in self._ours.items():
            text = text.replace(theirs, ours)
        return text

    def _to_theirs(self, text: str) -> str:
        for theirs, ours in self._ours.items():
            text = text.replace(ours, theirs)
        return text


def sorted_lists(value: Any) -> Any:
    """Sort lists of ids, whose order follows from the ids."""
    if isinstance(value, dict):
        return {key: sorted_lists(part) for key, part in value.items()}
    if isinstance(value, list) and all(isinstance(part, str) and part[1:2] == "-" for part in value):
        return sorted(value)
    return value


async def test_replies_have_what_hsds_answers(rest: RestClient, root: str) -> None:
    replay = Replay(rest, root)
    faults = {shape["name"]: found for shape in SHAPES if (found := await replay(shape))}
    assert {name: found for name, found in faults.items() if name not in OTHERWISE} == {}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_refuses_in_one_shape(bare: RestClient, route: Any) -> None:
    path = route.path.replace("{collection:groups|datasets|datatypes}", "groups")
    for name in ("id", "title", "name", "user"):
        path = path.replace(f"{{{name}}}", "x")
    reply = await bare(route.method, path, user="nobody")
    assert reply.status == 401
    assert set(reply.body) == {"error"}
    assert set(reply["error"]) == {"kind", "message"}
    if route.right is not None:
        assert (await bare(route.method, path)).status == 400, "no domain"
        assert (await bare(route.method, path, domain="/home/test_user1/none.h5")).status == 404


async def test_no_such_method(bare: RestClient) -> None:
    assert (await bare("DELETE", "/groups")).status == 405
    assert (await bare("POST", "/about")).status == 405
