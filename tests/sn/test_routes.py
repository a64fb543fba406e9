"""Every route's errors, and the OpenAPI document against the route table, the REST reference and the errors."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from hsparse.errors import ErrorKind, Misconfigured
from hsparse.sn.about import HSDS_VERSION, specification
from tests.docs_pages import PROJECT, rows
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


SPEC = specification()
COMPONENTS = SPEC["components"]
OPERATIONS: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": one
    for path, methods in SPEC["paths"].items()
    for method, one in methods.items()
}


def parameters(operation: dict[str, Any], where: str) -> list[str]:
    found = [
        COMPONENTS["parameters"][one["$ref"].rpartition("/")[2]] for one in operation.get("parameters", [])
    ]
    return [one["name"] for one in found if one["in"] == where]


def test_it_is_valid() -> None:
    from openapi_spec_validator import validate  # which takes a second, in every worker that collects tests

    validate(SPEC)


def test_docs_lead_to_it() -> None:
    assert yaml.safe_load((PROJECT / "docs" / "openapi.yaml").read_text()) == SPEC


def test_it_has_every_route_with_its_right_and_no_other() -> None:
    paths = [re.sub(r"{(\w+):[^}]*}", r"{\1}", route.path) for route in ROUTES]
    routes = {
        f"{route.method} {path}": str(route.right or "-") for route, path in zip(ROUTES, paths, strict=True)
    }
    assert {name: one["x-right"] for name, one in OPERATIONS.items()} == routes


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_whole(name: str) -> None:
    operation = OPERATIONS[name]
    path = name.partition(" ")[2]
    assert parameters(operation, "path") == re.findall(r"{(\w+)}", path)
    assert operation["summary"]
    assert set(operation["tags"]) <= {tag["name"] for tag in SPEC["tags"]}
    assert operation["responses"]["default"] == {"$ref": "#/components/responses/Error"}
    assert any(status.startswith("2") for status in operation["responses"])
    queries = parameters(operation, "query")
    assert len(queries) == len(set(queries))


def test_operations_have_names_of_their_own() -> None:
    names = [one["operationId"] for one in OPERATIONS.values()]
    assert len(names) == len(set(names))


def test_it_has_the_parameters_of_the_rest_reference() -> None:
    for row in rows("docs/rest.md", "request"):
        name = row[0].strip("`")
        cell = re.sub(r"as for `\w+`", "", row[3] if len(row) > 3 else "")
        told = set(re.findall(r"`(\w+)(?:=\w+)?`", cell))
        missing = told - set(parameters(OPERATIONS[name], "query"))
        assert not missing, f"{name} has no parameter {missing} in hsparse/sn/openapi.yaml"


def test_every_parameter_is_used_and_read_somewhere() -> None:
    used = {
        name
        for one in OPERATIONS.values()
        for where in ("path", "query", "header")
        for name in parameters(one, where)
    }
    assert used == set(COMPONENTS["parameters"])
    source = "\n".join(path.read_text() for path in (PROJECT / "hsparse").rglob("*.py"))
    for name in used:
        assert f'"{name}"' in source or f"{{{name}" in source, f"nothing reads the parameter {name}"


def test_it_has_every_kind_of_error_and_the_version() -> None:
    kinds = COMPONENTS["schemas"]["Error"]["properties"]["error"]["properties"]["kind"]["enum"]
    assert sorted(kinds) == sorted(kind.value for kind in ErrorKind)
    assert SPEC["info"]["version"] == HSDS_VERSION


def test_schemas_that_are_named_exist_and_are_used() -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", yaml.safe_dump(SPEC)))
    assert named == set(COMPONENTS["schemas"])


async def test_it_is_served(bare: RestClient) -> None:
    reply = await bare("GET", "/openapi.json", user=None)
    assert reply.status == 200
    assert reply.body == SPEC


async def test_a_page_shows_it(bare: RestClient) -> None:
    reply = await bare("GET", "/docs", user=None)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"/explorer/docs-" in reply.body
