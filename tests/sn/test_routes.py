"""Every route's errors."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from hsparse.errors import Misconfigured
from tests.support.rest_client import ROUTES, RestClient, route_client


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_refuses_in_one_shape(bare: RestClient, route: Any) -> None:
    path = route.path.replace("{collection:groups|datasets|datatypes}", "groups")
    for name in ("id", "title", "name", "user", "chunk", "job", "file"):
        path = path.replace(f"{{{name}}}", "x")
    path = path.replace("{path:.+}", "x")
    reply = await bare(route.method, path, user="nobody")
    assert reply.status == 401
    if route.method == "HEAD":
        assert reply.body in (b"", {})
    else:
        assert set(reply.body) == {"error"}
        assert set(reply["error"]) == {"kind", "message"}
    if route.right is not None:
        assert (await bare(route.method, path)).status == 400, "no domain"
        assert (await bare(route.method, path, domain="/home/test_user1/none.h5")).status == 404


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
async def test_every_route_answers_a_preflight(bare: RestClient, path: str) -> None:
    path = re.sub(r"{\w+(:[^}]*)?}", "x", path.replace("{collection:groups|datasets|datatypes}", "groups"))
    asked = {"Origin": "http://viewer.example", "Access-Control-Request-Method": "PUT"}
    reply = await bare("OPTIONS", path, user=None, headers=asked)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    assert reply.headers["Access-Control-Allow-Methods"] == "PUT"
    asked["Access-Control-Request-Method"] = "BREW"
    other = await bare("OPTIONS", path, user=None, headers=asked)
    methods = set(other.headers["Access-Control-Allow-Methods"].split(", "))
    assert methods == {route.method for route in ROUTES} | {"OPTIONS"}
    assert {"Authorization", "Content-Type", "X-Hdf-domain", "X-Hdf-bucket"} <= set(
        reply.headers["Access-Control-Allow-Headers"].split(", ")
    )


async def test_no_such_method(bare: RestClient) -> None:
    assert (await bare("DELETE", "/groups")).status == 405
    assert (await bare("POST", "/about")).status == 405


async def status_of(rest: RestClient, target: str) -> int:
    """Return the status of the answer to a GET whose target is sent as it is."""
    host, port = rest.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("path", sorted(route.path for route in ROUTES if not route.queued))
async def test_what_proxies_keep_private_has_one_spelling(bare: RestClient, path: str) -> None:
    assert await status_of(bare, path) == await status_of(bare, path + "?x=1") == 200
    for number in range(1, len(path)):
        for code in (f"%{ord(path[number]):02x}", f"%{ord(path[number]):02X}"):
            assert await status_of(bare, path[:number] + code + path[number + 1 :]) == 404
    for other in (
        path + "/",
        "/" + path,
        "/x/.." + path,
        "/." + path,
        path.upper(),
        path + "%00",
        path + ";x",
    ):
        assert await status_of(bare, other) == 404


GETS = [route for route in ROUTES if route.method == "GET"]


@pytest.mark.parametrize("route", GETS, ids=lambda route: route.path)
async def test_every_get_has_its_head(rest: RestClient, root: str, route: Any) -> None:
    made = await rest(
        "POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": [4], "link": {"id": root, "name": "d"}}
    )
    await rest("PUT", f"/groups/{root}/attributes/x", {"type": "H5T_STD_I8LE", "value": 1})
    path = route.path.replace("{collection:groups|datasets|datatypes}", "groups")
    ids = {
        "id": made["id"] if path.startswith("/datasets") else root,
        "title": "d",
        "name": "x",
        "user": "test_user1",
    }
    for name, value in (ids | {"chunk": "0", "job": "j", "path:.+": "home/test_user1/file"}).items():
        path = path.replace(f"{{{name}}}", value)
    got, head = await rest("GET", path), await rest("HEAD", path)
    assert head.status == got.status
    assert head.body in (b"", {}, "")
    assert head.headers.get("Content-Type") == got.headers.get("Content-Type")
    if got.status == 200 and path not in ("/metrics", "/files/home/test_user1/file.h5"):
        assert head.headers.get("Content-Length") == got.headers.get("Content-Length")


def test_two_routes_with_one_place_prevent_the_start() -> None:
    routes = [replace(ROUTES[0], path=f"/seats/{{{name}}}") for name in ("row", "seat")]
    with pytest.raises(Misconfigured, match=r"GET /seats/\{row\}"):
        route_client(*routes)
