"""Hostile requests for a route: each parameter, and each part of a right body, gives way to every kind of bad value.

Parameters and members of bodies are those of the OpenAPI document, which other tests hold to the route table.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hsparse.sn.about import specification
from hsparse.sn.route import Route
from tests.attack.target import BINARY, USER, Target
from tests.campaign.load import http_request

MIB = 1 << 20
HUGE = 10**18
MARK = "hostile-value"
ARROW = "application/vnd.apache.arrow.stream"


def _nested(outer: bytes, inner: bytes, end: bytes, depth: int) -> bytes:
    return outer * depth + inner + end * depth


VALUES: dict[str, bytes] = {
    "lists in lists": _nested(b"[", b"", b"]", 20_000),
    "objects in objects": _nested(b'{"a":', b"1", b"}", 20_000),
    "arrays of arrays": _nested(b'{"class":"H5T_ARRAY","dims":[255],"base":', b'"H5T_STD_I8LE"', b"}", 40),
    "small arrays of arrays": _nested(
        b'{"class":"H5T_ARRAY","dims":[2,2],"base":', b'"H5T_STD_I8LE"', b"}", 12
    ),
    "vlen of vlen": _nested(b'{"class":"H5T_VLEN","base":', b'"H5T_STD_I8LE"', b"}", 200),
    "long elements": b'{"class":"H5T_STRING","length":1000000000,"charSet":"H5T_CSET_ASCII"}',
    "many fields": json.dumps(
        {
            "class": "H5T_COMPOUND",
            "fields": [{"name": f"f{number}", "type": "H5T_STD_I8LE"} for number in range(20_000)],
        }
    ).encode(),
    "huge": b"%d" % HUGE,
    "huge digits": b"9" * 4000,
    "negative": b"-1",
    "fraction": b"1e308",
    "null": b"null",
    "truth": b"true",
    "huge shape": json.dumps([HUGE] * 3).encode(),
    "many dimensions": json.dumps([1] * 10_000).encode(),
    "wide shape": json.dumps([2**31] * 2).encode(),
    "long string": b'"%b"' % (b"x" * (2 * MIB)),
    "control characters": rb'"%b"' % (rb"\u0000\ud800" * 1000),
    "huge selection": b'"[0:%d]"' % HUGE,
    "huge lists of a selection": b'"[%b]"' % b",".join([b"[%b]" % b",".join([b"1"] * 100_000)] * 2),
    "numbers": b"[%b]" % b",".join([b"1"] * 300_000),
    "strings": b"[%b]" % b",".join([b'""'] * 200_000),
    "objects": b"[%b]" % b",".join([b"{}"] * 200_000),
    "points": b"[%b]" % b",".join([b"[1,2]"] * 100_000),
    "names": json.dumps(dict.fromkeys(map(str, range(100_000)))).encode(),
    "objects by name": json.dumps({str(number): {} for number in range(50_000)}).encode(),
}
"""JSON that is bad, too much, or true where nobody expects it, by kind."""
TEXTS: dict[str, str] = {
    "huge": str(HUGE),
    "digits": "9" * 5000,
    "negative": "-1",
    "no number": "NaN",
    "long": "x" * 7000,
    "wildcards": "*a" * 3000 + "b",
    "parentheses": "(" * 3000 + "_ < 1" + ")" * 3000,
    "conditions": " OR ".join(["_ < 1"] * 700),
    "selection": f"[0:{HUGE}]",
    "selections": f"[0:{HUGE}:2,0:{HUGE}]",
    "list": "[[" + ",".join(["1"] * 3000) + "]]",
    "slashes": "/" + "a/" * 3000,
    "steps": "/step0",
    "controls": "\0\n\x7f\u202e",
    "true": "1",
    "all": "_ >= 0",
}
"""Values of parameters, by kind."""
HEADERS: dict[str, str] = {
    "Range": "bytes=" + ",".join(f"{number}-" for number in range(1000)),
    "If-None-Match": ",".join(['"x"'] * 1500),
    "Accept": ",".join(["application/json;q=0.1"] * 250),
    "Accept-Encoding": ",".join(["gzip;q=0.001"] * 400),
    "Request-Timeout": "9" * 400,
    "Idempotency-Key": "k" * 7000,
    "X-Request-ID": "r" * 7000,
}
TYPE = {"class": "H5T_ARRAY", "dims": [2], "base": "H5T_STD_I64LE"}
RIGHTS = {"create": True, "read": True, "update": True, "delete": True, "readACL": True, "updateACL": True}
LAYOUT = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 10], "flags": ["H5D_SPARSE_DATA"]}
ATTRIBUTE = {"type": TYPE, "shape": [2], "value": [[1, 2], [3, 4]]}
SELECTED = {"select": "[0:4,0:4]"}
BODIES: dict[str, Any] = {
    "POST /sign-in/token": {"code": "c", "verifier": "v" * 43, "nonce": "n" * 43, "redirect_uri": "http://x"},
    "POST /": {"h5paths": ["/", "/step0"]},
    "PUT /": {"folder": 0, "linked_domain": "/home/ann/none.h5", "flush": 0},
    "DELETE /": {"keep_root": 1, "meta_only": 1},
    "PUT /acls/{user}": RIGHTS,
    "PUT /quota": {"bytes": 1},
    "POST /snapshots": {"message": "m"},
    "POST /snapshots/{number}/restore": {},
    "POST /clones": {"target": "/home/mallory/clone.h5", "snapshot": 1},
    "POST /clones/materialize": {},
    "POST /groups": {"link": {"id": "{root}", "name": "a"}, "h5path": "/a"},
    "POST /datatypes": {"type": TYPE, "link": {"id": "{root}", "name": "a"}},
    "POST /datasets": {
        "type": TYPE,
        "shape": [20, 20],
        "maxdims": [40, 0],
        "value": 1,
        "creationProperties": {"layout": LAYOUT, "fillValue": [1, 2], "filters": [{"class": 1, "level": 1}]},
    },
    "PUT /datasets/{id}/shape": {"shape": [8, 8], "expect": [8, 8]},
    "POST /groups/{id}/links": {"titles": ["step0"], "grp_ids": {"{root}": ["step0"]}},
    "PUT /groups/{id}/links": {"links": {"b": {"h5path": "/"}}, "grp_ids": {"{root}": {"links": {}}}},
    "PUT /groups/{id}/links/{title}": {"h5path": "/", "h5domain": "/home/ann/none.h5"},
    "POST /{collection}/{id}/attributes": {"attr_names": ["a"], "obj_ids": {"{root}": ["a"]}},
    "PUT /{collection}/{id}/attributes": {"attributes": {"a": ATTRIBUTE}, "obj_ids": ["{root}"]},
    "PUT /{collection}/{id}/attributes/{name}": ATTRIBUTE,
    "PUT /{collection}/{id}/attributes/{name}/value": {"value": 1, "encoding": "base64"},
    "POST /datasets/{id}/value": SELECTED
    | {"points": [[0, 0]], "query": "_ < 1", "order_by": "a", "Limit": 5},
    "PUT /datasets/{id}/value": {"start": [0, 0], "stop": [4, 4], "step": [2, 2], "value": 1},
    "POST /datasets/{id}/defined": SELECTED,
    "POST /datasets/values": {"reads": [{"ids": ["{dense}"], **SELECTED, "sparse": True}]},
    "POST /datasets/{id}/erase": SELECTED,
    "POST /datasets/{id}/reduce": {"op": ["sum", "var"], "axis": [0], "by": ["a", "b"], **SELECTED},
    "POST /datasets/{id}/chunks/values": {"chunks": ["0_0"], "etags": ["e"], "sizes": [8]},
    "PUT /datasets/{id}/chunks/{chunk}/value": {},
    "POST /jobs": {
        "kind": "import",
        "domain": "/home/mallory/j.h5",
        "source": "{jobs}none.h5",
        "options": {},
    },
}
"""A right body, or nearly, of each route that takes one."""
BOMB = {"Content-Encoding": "deflate"}
WHOLES: tuple[tuple[bytes, str, dict[str, str]], ...] = (
    (zlib.compress(b" " * (64 * MIB), 9), "application/json", BOMB),
    (zlib.compress(b"[" * (16 * MIB), 9), "application/json", BOMB),
    (zlib.compress(bytes(64 * MIB), 9), BINARY, BOMB),
    (zlib.compress(bytes(64 * MIB), 9), ARROW, BOMB),
    (zlib.compress(bytes(MIB), 9)[:50], "application/json", BOMB),
    *(
        (b"\x7f" * size, media, {})
        for media in (BINARY, ARROW, "application/json", "text/plain")
        for size in (1, 7, 100_000, 4 * MIB)
    ),
    (b"\xff\xff\xff\xff" + (2**31 - 8).to_bytes(4, "little") + bytes(64), ARROW, {}),
    (b'{"a":' * 3, "application/json", {}),
)
"""Bodies that are hostile as a whole, with their types and headers."""
PATHS = {
    "user": ("mallory", "u" * 7000),
    "number": ("1", str(HUGE)),
    "title": ("step0", "t" * 7000),
    "name": ("a", "n" * 7000),
    "chunk": ("0_0", "0", "_".join(["0"] * 3000), f"{HUGE}_{HUGE}"),
    "job": ("j-0", "j" * 7000),
    "file": ("x", "f" * 7000),
    "path": ("home/mallory/attack.h5", "a/" * 3000),
}


def key_of(route: Route) -> str:
    """Return the method and path of a route, as the OpenAPI document has it."""
    path = re.sub(r"{(\w+):[^}]*}", r"{\1}", route.path)
    return f"{route.method} {path}"


def takes_body(route: Route) -> bool:
    """Return whether a request on a route has a body."""
    return route.method not in {"GET", "HEAD", "DELETE"} or "requestBody" in _operation(route)


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request that is made when it is sent: `value` stands where `body` has the mark."""

    method: str
    path: str
    body: bytes = b""
    media: str = "application/json"
    value: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __bytes__(self) -> bytes:
        body = self.body.replace(b'"%b"' % MARK.encode(), self.value)
        request = http_request(self.method, self.path, body, media=self.media, user=USER)
        head, _, _ = request.partition(b"\r\n\r\n")
        more = "".join(f"\r\n{name}: {value}" for name, value in self.headers.items())
        return head + more.encode() + b"\r\n\r\n" + body


def hostile_requests(route: Route, target: Target, jobs: str) -> list[HostileRequest]:
    """Return hostile requests on a route, in an order that is random and always the same."""
    method = route.method
    paths = [target.path(path) for path in _paths(route, target)]
    found = [HostileRequest(method, f"{path}&{query}") for path in paths for query in _queries(route)]
    found += [
        HostileRequest(method, path, headers={name: value})
        for path in paths
        for name, value in HEADERS.items()
    ]
    if takes_body(route):
        text = json.dumps(BODIES[key_of(route)]).replace("{jobs}", jobs)
        for name, id in {"root": target.root, **target.datasets}.items():
            text = text.replace(f"{{{name}}}", id)
        for path in paths:
            found += [
                HostileRequest(method, path, body, value=value)
                for body in _bodies(route, json.loads(text))
                for value in VALUES.values()
            ]
            found += [
                HostileRequest(method, path, body, media, headers=headers) for body, media, headers in WHOLES
            ]
    random.Random(key_of(route)).shuffle(found)
    return found


def _operation(route: Route) -> dict[str, Any]:
    method, path = key_of(route).split()
    operation: dict[str, Any] = specification()["paths"][path][method.lower()]
    return operation


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = specification()
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        schema = found
    return schema


def _paths(route: Route, target: Target) -> Iterator[str]:
    """Give paths of a route: of what is there, and with names that are long or mean too much."""
    path = key_of(route).split()[1]
    collection = path.split("/")[1]
    ids = {
        "groups": [target.root],
        "datasets": list(target.datasets.values()),
        "datatypes": ["t-" + target.root[2:]],
    }
    every = [path]
    if collection == "{collection}":
        every = [path.replace("{collection}", name) for name in ids]
    if "{id}" in path:
        every = [one.replace("{id}", id) for one in every for id in ids[one.split("/")[1]]]
    for name, values in PATHS.items():
        if f"{{{name}}}" in path:
            every = [one.replace(f"{{{name}}}", value) for one in every for value in values]
    yield from every


def _queries(route: Route) -> Iterator[str]:
    for parameter in _operation(route).get("parameters", ()):
        one = _resolved(parameter)
        if one["in"] == "query":
            yield from (f"{one['name']}={quote(text, safe='')[:7500]}" for text in TEXTS.values())


def _bodies(route: Route, right: Any) -> Iterator[bytes]:
    """Give bodies in each of which a part of the right one, or another member, is hostile."""
    content = _resolved(_operation(route).get("requestBody", {})).get("content", {})
    schema = _resolved(content.get("application/json", {}).get("schema", {}))
    members = {
        name for part in (schema, *schema.get("allOf", ())) for name in _resolved(part).get("properties", {})
    }
    more = [right | {name: MARK} for name in sorted(members - right.keys())]
    yield from (json.dumps(hole).encode() for hole in (*_holes(right), *more))


def _holes(right: Any) -> Iterator[Any]:
    """Give copies of a JSON value, each with a mark in place of one part."""
    yield MARK
    if isinstance(right, dict):
        yield from ({**right, name: hole} for name, value in right.items() for hole in _holes(value))
    elif isinstance(right, list):
        for number, value in enumerate(right):
            yield from ([*right[:number], hole, *right[number + 1 :]] for hole in _holes(value))
