"""The page of the OpenAPI document."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hsparse.sn.docs_page import docs_page
from hsparse.sn.openapi import specification
from hsparse.testing.rest_client import RestClient

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
