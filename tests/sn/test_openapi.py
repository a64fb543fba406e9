"""The OpenAPI document against the route table, the REST reference and the errors; and its page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml
from openapi_spec_validator import validate

from hsparse.errors import ErrorKind
from hsparse.sn.about import HSDS_VERSION
from hsparse.sn.openapi import docs_page, specification
from hsparse.sn.routes import ROUTES
from tests.docs_pages import PROJECT, rows
from tests.support.rest_client import RestClient

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
        name for one in OPERATIONS.values() for where in ("path", "query") for name in parameters(one, where)
    }
    assert used == set(COMPONENTS["parameters"])
    source = "\n".join(path.read_text() for path in (PROJECT / "hsparse" / "sn").rglob("*.py"))
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


VOID = {"meta"}


class Reader(HTMLParser):
    """Notes what a page has, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name == "src":
                self.loads.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    spec = specification()
    page = docs_page(spec)
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    operations = [one["operationId"] for methods in spec["paths"].values() for one in methods.values()]
    assert {*operations, *(f"schema-{name}" for name in spec["components"]["schemas"])} == set(reader.ids)
    assert {link for link in reader.links if not link.startswith("#")} == {"openapi.json"}
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert not reader.loads
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "base"}
    assert not re.search(r"@import|url\(", page)
    for path in spec["paths"]:
        assert f"<code>{path}</code>" in page


def test_what_the_document_says_is_text_not_html() -> None:
    evil = "<script>alert(1)</script>"
    spec = {
        "info": {"title": evil, "summary": evil, "description": evil},
        "tags": [{"name": evil, "description": evil}],
        "paths": {
            f"/{evil}": {
                "get": {
                    "tags": [evil],
                    "summary": evil,
                    "operationId": '"><b>',
                    "x-right": evil,
                    "parameters": [{"$ref": "#/p"}],
                    "responses": {
                        evil: {"description": evil, "content": {evil: {"schema": {"enum": [evil]}}}}
                    },
                }
            }
        },
        "components": {
            "schemas": {"A": {"type": "object", "description": evil, "properties": {evil: {"type": evil}}}},
            "parameters": {"p": {"name": evil, "in": evil, "description": evil}},
        },
    }
    assert "<script" not in docs_page(spec)
    assert "<b>" not in docs_page(spec).replace(f"<b>{evil}", "").replace("<b>&lt;script", "")


async def test_it_is_served_with_a_policy(bare: RestClient) -> None:
    reply = await bare("GET", "/docs", user=None)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert reply.body == docs_page(specification()).encode()
