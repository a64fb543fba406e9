"""Requests made up from the OpenAPI document, by schemathesis: whatever comes, no 500.

`--fuzz N` makes three times N for each operation: aimed at what is there, of all that the document allows, and of
what it does not.
"""

from __future__ import annotations

import copy
import json
import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode

from hsparse.sn.about import specification
from tests.support.endurance import repeats
from tests.support.server_process import server_process

HOME = "/home/admin"
Schema = dict[str, Any]
COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "a", "type": "H5T_STD_I32LE"}, {"name": "b", "type": "H5T_IEEE_F64LE"}],
}
TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
NOTE = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "a", "type": "H5T_STD_I32LE"},
        {"name": "t", "type": TEXT},
        {"name": "l", "type": {"class": "H5T_VLEN", "base": "H5T_IEEE_F32LE"}},
    ],
}
ARRAY = {"class": "H5T_ARRAY", "base": "H5T_STD_I16LE", "dims": [2]}
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [3, 4], "flags": ["H5D_SPARSE_DATA"]}
DATASETS: list[dict[str, Any]] = [
    {"type": "H5T_STD_I32LE", "shape": [6, 8], "maxdims": [0, 0], "h5path": "dense"},
    {
        "type": "H5T_IEEE_F32LE",
        "shape": [6, 8],
        "maxdims": [20, 0],
        "h5path": "sparse",
        "creationProperties": {"layout": SPARSE},
    },
    {"type": COMPOUND, "shape": [5], "h5path": "table"},
    {"type": TEXT, "shape": [3], "h5path": "text"},
    {"type": NOTE, "shape": [4], "h5path": "notes"},
    {"type": ARRAY, "shape": [2, 2], "h5path": "arrays"},
    {"type": "H5T_STD_U8LE", "shape": "H5S_SCALAR", "h5path": "scalar"},
    {"type": "H5T_STD_U8LE", "shape": "H5S_NULL", "h5path": "null"},
]
ATTRIBUTES: list[tuple[str, Any]] = [
    ("number", {"type": "H5T_STD_I32LE", "value": 42}),
    ("numbers", {"type": "H5T_IEEE_F64LE", "shape": [2, 2], "value": [[1, 2], [3, 4]]}),
    ("text", {"type": TEXT, "value": "héllo"}),
    ("null", {"type": "H5T_STD_I32LE", "shape": "H5S_NULL"}),
]
SELECTIONS = ["[0:2,1]", "[:,:]", "[...]", "[0:6:2,[1,3]]", "[1]", "[0:3]", "[]", "[9,9]", "[-1,0]"]
PARAMETERS: dict[str, list[Any]] = {
    "title": ["g", "dense", "soft", "away", "kind"],
    "name": [name for name, _ in ATTRIBUTES],
    "h5path": ["/g", "/dense", "g", "/soft", "/away", "/"],
    "select": SELECTIONS,
    "user": ["admin", "default", "g:staff", "ann"],
    "titles": ["g/dense", "soft"],
    "attr_names": ["number/text", "numbers"],
    "fields": ["a", "a:b", "t:a", "l", "c"],
    "query": ["a == 1", "a > 1 AND b < 2"],
    "element_count": [1, 2, 48],
    "append": [1, 2],
    "append_dim": [0, 1],
    "Marker": ["number", "g", "dense"],
    "Limit": [0, 1, 2],
    "chunk": ["0_0", "1_1", "0", "2"],
    "marker": ["0_0", "0"],
    "limit": [1, 2],
    "index": [0, 1],
    "filter_mask": ["0", "0,0", "1"],
    "section_size": ["4,8", "90,4"],
    "section_unfiltered_size": ["4,8", "90,4"],
    "base": ["s3://x/"],
    "urls": [60],
    "job": ["j-" + "0" * 12 + "-" + "0" * 12 + "-" + "0" * 16],
    "path": ["home/admin/fuzz-1", "home/admin/fuzz-2", "home/admin"],
}
SMALL = {"type": "integer", "minimum": 0, "maximum": 12}
PAIR = {"type": "array", "items": SMALL, "minItems": 2, "maxItems": 2}
VALUES = {"enum": [1, 2.5, "a", [1, 2], [[1, 2], [3, 4]], None, [[1, 1.5]], [[1, "x", [2.5]]], "AAAAAA=="]}
SCHEMAS: dict[str, Schema] = {
    "Type": {"enum": ["H5T_STD_I32LE", "H5T_IEEE_F64LE", "H5T_STD_U8BE", COMPOUND, TEXT, NOTE, ARRAY]},
    "Extent": {"anyOf": [{"enum": [[6, 8], [3, 3], [9, 9]]}, PAIR]},
    "Shape": {"enum": [[2], [2, 2], "H5S_SCALAR", 1, "H5S_NULL", [0, 4], [6, 8]]},
    "Points": {"type": "array", "items": PAIR, "maxItems": 5},
}
PROPERTIES: dict[tuple[str, str], Schema] = {
    ("Attribute", "value"): VALUES,
    ("Write", "value"): VALUES,
    ("Write", "select"): {"enum": SELECTIONS},
    ("CreationProperties", "layout"): {
        "enum": [SPARSE, {"class": "H5D_CHUNKED", "dims": [2, 2]}, {"class": "H5D_CONTIGUOUS"}]
    },
    ("CreationProperties", "filters"): {
        "enum": [["gzip"], ["shuffle", "lz4"], [{"class": "H5Z_FILTER_DEFLATE", "level": 3}], ["fletcher32"]]
    },
    ("CreationProperties", "fillValue"): {"enum": [0, -1, 1.5, None]},
}
WHOLES = {
    "Write": [("value", "select"), ("value", "points"), ("value", "append"), ("value",)],
    "NewDataset": [("type", "shape"), ("type", "shape", "creationProperties")],
    "NewDomain": [("folder",), ("flush",), ("linked_domain",)],
}
"""Properties that make sense together."""
LETTERS = {"groups": "g-", "datasets": "d-", "datatypes": "t-"}


class FuzzTarget:
    """A domain of the server at `url`, made anew by `fill`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.number = 0
        self.domain = ""
        self.ids: list[str] = []
        self.dice = random.Random(0)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}domain={self.domain}", data, method=method)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return json.loads(reply.read() or b"null")

    def fill(self) -> None:
        """Make a new domain."""
        self.number += 1
        self.domain = f"{HOME}/fuzz-{self.number}.h5"
        root = self.ask("PUT", "/?")["root"]
        group = self.ask("POST", "/groups?", {"h5path": "g"})["id"]
        kind = self.ask("POST", "/datatypes?", {"type": COMPOUND, "h5path": "kind"})["id"]
        datasets = [self.ask("POST", "/datasets?", body)["id"] for body in DATASETS]
        self.ids = [root, group, kind, *datasets]
        for id, collection in ((group, "groups"), (datasets[0], "datasets"), (kind, "datatypes")):
            for name, body in ATTRIBUTES:
                self.ask("PUT", f"/{collection}/{id}/attributes/{name}?", body)
        self.ask("PUT", f"/groups/{root}/links/soft?", {"h5path": "/g"})
        self.ask("PUT", f"/groups/{root}/links/away?", {"h5path": "/x", "h5domain": f"{HOME}/none.h5"})
        self.ask("PUT", f"/datasets/{datasets[0]}/value?", {"value": [[1] * 8] * 6})
        self.ask("PUT", f"/datasets/{datasets[1]}/value?", {"points": [[0, 1], [5, 7]], "value": [1.5, 2]})

    def aimed(self) -> Schema:
        """Return the document narrowed to what fits the domain, so that most requests get past its checks."""
        spec = copy.deepcopy(specification())
        schemas = spec["components"]["schemas"]
        for name, values in PARAMETERS.items():
            spec["components"]["parameters"][name]["schema"] = {"enum": values}
        schemas |= copy.deepcopy(SCHEMAS)
        for (name, key), schema in PROPERTIES.items():
            schemas[name]["properties"][key] = schema
        schemas["Link"]["properties"] |= {"id": {"enum": self.ids}, "h5path": {"enum": PARAMETERS["h5path"]}}
        for name, wholes in WHOLES.items():
            schemas[name] = {"anyOf": [_part(schemas[name], whole) for whole in wholes]}
        return spec

    def hit(self, case: Case) -> None:
        """Aim a case at the domain, nine times of ten, and at a fitting object in it, eight times of ten.

        Of the parameters for a query at most two are left, half of the time: more of them seldom go together.
        """
        die = self.dice.randrange(10)
        query = dict(case.query or {})
        if die % 2:
            names = self.dice.sample(sorted(query), min(2, len(query)))
            query = {name: query[name] for name in names}
        if die > 0:
            query["domain"] = self.domain
            query.pop("bucket", None)
        if case.method == "PUT" and case.path == "/" and die > 4:
            query["domain"] = f"{HOME}/new-{self.dice.randrange(10**9)}"
        case.query = query
        path = case.path_parameters or {}
        if die > 1 and "id" in path:
            letter = LETTERS.get(str(path.get("collection") or case.path.split("/")[1]), "")
            path["id"] = self.dice.choice([one for one in self.ids if one.startswith(letter)])


def _part(schema: Schema, names: tuple[str, ...]) -> Schema:
    """Return the schema of objects that have these properties and no others."""
    properties = (schema["allOf"][1] if "allOf" in schema else schema)["properties"]
    chosen = {name: properties[name] for name in names}
    return {"type": "object", "properties": chosen, "required": list(names), "additionalProperties": False}


OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in specification()["paths"].items()
    for method, operation in methods.items()
    if "parameters" in operation  # else there is nothing to make up
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzTarget]:
    root: Path = tmp_path_factory.mktemp("root")
    flags = ("--no-fsync", "--max-request-size", "2000000")
    with server_process("--root", str(root), *flags, log=root / "log") as server:
        yield FuzzTarget(server.url)
        assert server.stop() == 0


@pytest.mark.endurance
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.timeout(3600)
def test_no_request_is_a_defect(name: str, target: FuzzTarget, request: pytest.FixtureRequest) -> None:
    target.fill()
    method, path = name.split()
    few = settings(
        max_examples=request.config.getoption("--fuzz") or repeats(3, short=1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def send(case: Case) -> None:
        target.hit(case)
        answer = case.call(base_url=target.url, session=session, timeout=60)
        sent = f"{answer.request.method} {answer.request.url} {answer.request.body!r:.2000}"
        assert answer.status_code < 500, f"{sent} is answered {answer.status_code}: {answer.content!r:.400}"
        if answer.status_code >= 400 and method != "HEAD":
            body = json.loads(answer.content)
            assert set(body["error"]) == {"kind", "message"}, sent
            assert body["error"]["message"], sent

    with requests.Session() as session:
        for spec, mode in (
            (target.aimed(), GenerationMode.POSITIVE),
            (specification(), GenerationMode.POSITIVE),
            (specification(), GenerationMode.NEGATIVE),
        ):
            operation = schemathesis.openapi.from_dict(spec)[path][method]
            few(given(case=operation.as_strategy(generation_mode=mode))(send))()
