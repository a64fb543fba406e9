"""Handlers of `/openapi.json` and `/docs`: the OpenAPI document, and an HTML page of it.

The page needs no script, font or style of another site.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from hsparse.sn.context import Context

PATH = Path(__file__).with_name("openapi.yaml")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)
STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #888; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
nav ul { columns: 2; list-style: none; padding: 0; }
nav a { text-decoration: none; color: inherit; }
nav a:hover { text-decoration: underline; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; padding: 0.4rem 0.8rem; }
details > :last-child { margin-bottom: 0.4rem; }
summary { cursor: pointer; }
.method { display: inline-block; width: 4.5rem; font-weight: 700; }
.get { color: #2a7ae2; } .post { color: #2e8b57; } .put { color: #b8860b; } .delete { color: #c0392b; }
.quiet { color: var(--quiet); }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid var(--line); padding: 0.2rem 0.6rem 0.2rem 0; text-align: left; vertical-align: top; }
"""


@cache
def specification() -> dict[str, Any]:
    """Return the OpenAPI document (version 3.1), cached; it must not be modified."""
    found: dict[str, Any] = yaml.load(PATH.read_bytes(), Loader=yaml.CSafeLoader)
    return found


@cache
def _json() -> bytes:
    return orjson.dumps(specification())


@cache
def _page() -> bytes:
    return docs_page(specification()).encode()


async def get_openapi(context: Context) -> web.StreamResponse:
    """Answer with the OpenAPI document."""
    return web.Response(body=await asyncio.to_thread(_json), content_type="application/json")


async def get_docs(context: Context) -> web.StreamResponse:
    """Answer with the HTML page of the document."""
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    body = await asyncio.to_thread(_page)
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


def docs_page(spec: dict[str, Any]) -> str:
    """Return the HTML page of an OpenAPI document: requests by tag, then schemas."""
    info = spec["info"]
    title = escape(f"{info['title']}: {info['summary']}")
    tags = "".join(_tag(spec, tag) for tag in spec["tags"])
    schemas = "".join(_schema_entry(name, one) for name, one in spec["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f'<h1>{title}</h1><p>{_prose(info["description"])}</p><p><a href="openapi.json">openapi.json</a></p>'
        f"<nav><ul>{''.join(_entries(spec))}</ul></nav>{tags}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operations(spec: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, one) for path, methods in spec["paths"].items() for method, one in methods.items()]


def _entries(spec: dict[str, Any]) -> list[str]:
    return [
        f'<li><a href="#{escape(one["operationId"])}">{_head(method, path)}</a></li>'
        for method, path, one in _operations(spec)
    ]


def _tag(spec: dict[str, Any], tag: dict[str, str]) -> str:
    blocks = [
        _operation(spec, method, path, one)
        for method, path, one in _operations(spec)
        if tag["name"] in one["tags"]
    ]
    return f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>{''.join(blocks)}"


def _head(method: str, path: str) -> str:
    return f'<span class="method {method}">{method.upper()}</span><code>{escape(path)}</code>'


def _operation(spec: dict[str, Any], method: str, path: str, one: dict[str, Any]) -> str:
    right = one["x-right"]
    parts = [f"<p>{_prose(one['description'])}</p>"] if "description" in one else []
    if right != "-":
        parts.append(f"<p>Needs the right <code>{escape(right)}</code>.</p>")
    parts.append(_parameters(spec, one.get("parameters", [])))
    body = one.get("requestBody")
    if body is not None:
        parts.append(f"<h4>Body</h4>{_contents(body['content'])}")
    parts.append(f"<h4>Answers</h4>{''.join(_answer(spec, *item) for item in one['responses'].items())}")
    return (
        f'<details id="{escape(one["operationId"])}"><summary>{_head(method, path)} '
        f"{escape(one['summary'])}</summary>{''.join(parts)}</details>"
    )


def _parameters(spec: dict[str, Any], references: list[dict[str, str]]) -> str:
    known = spec["components"]["parameters"]
    found = [known[one["$ref"].rpartition("/")[2]] for one in references]
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
        f"<td>{_prose(one['description'])}</td></tr>"
        for one in found
    ]
    return f"<h4>Parameters</h4><table>{''.join(rows)}</table>" if rows else ""


def _answer(spec: dict[str, Any], status: str, answer: dict[str, Any]) -> str:
    if "$ref" in answer:
        answer = spec["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    text = f"<p><b>{escape(status)}</b> {_prose(answer['description'])}</p>"
    return text + _contents(answer.get("content", {}))


def _contents(content: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(media)}</code></td><td><code>{_schema_text(one['schema'])}</code></td></tr>"
        for media, one in content.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _schema_entry(name: str, schema: dict[str, Any]) -> str:
    about = f"<p>{_prose(schema['description'])}</p>" if "description" in schema else ""
    return (
        f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>{about}'
        f"<pre>{_schema_text(schema)}</pre></details>"
    )


def _schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as one short line: `{id: text, dims: [number]}`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    for key, between in (("oneOf", " or "), ("allOf", " with ")):
        if key in schema:
            return between.join(_schema_text(one) for one in schema[key])
    if "enum" in schema:
        return " | ".join(escape(str(one)) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_schema_text(schema.get('items', {}))}, ...]"
    if schema.get("type") == "object":
        return _object(schema)
    if schema.get("format") == "binary":
        return "bytes"
    return {"string": "text", "integer": "integer", None: "anything"}.get(
        schema.get("type"), escape(str(schema.get("type")))
    )


def _object(schema: dict[str, Any]) -> str:
    fields = [f"{escape(name)}: {_schema_text(one)}" for name, one in schema.get("properties", {}).items()]
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        fields.append(f"<i>name</i>: {_schema_text(others)}, ...")
    return f"{{{', '.join(fields) or '...'}}}"


def _prose(text: str) -> str:
    """Return text as HTML, text in backquotes as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
