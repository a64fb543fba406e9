"""The OpenAPI document against the route table, the REST reference and the errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from hsparse.errors import ErrorKind
from hsparse.sn.about import HSDS_VERSION, specification
from tests.docs_pages import PROJECT, rows
from tests.support.rest_client import ROUTES, RestClient

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
