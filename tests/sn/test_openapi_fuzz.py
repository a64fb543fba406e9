"""Requests made up from the OpenAPI document, by schemathesis: whatever comes, no 500.

`--fuzz N` makes N requests for each operation that the document allows, and N that it does not.
"""

from __future__ import annotations

import copy
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from hsparse.sn.openapi import specification
from hsparse.testing.server_process import server_process

HOME = "/home/admin"
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in specification()["paths"].items()
    for method, operation in methods.items()
    if "parameters" in operation  # else there is nothing to make up
]
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
SPARSE = {"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [3, 4], "flags": ["H5D_SPARSE_DATA"]}}
DATASETS: list[dict[str, Any]] = [
    {"type": "H5T_STD_I32LE", "shape": [6, 8], "maxdims": [0, 0], "h5path": "dense"},
    {
        "type": "H5T_IEEE_F32LE",
        "shape": [6, 8],
        "maxdims": [20, 0],
        "h5path": "sparse",
        "creationProperties": SPARSE,
    },
    {"type": COMPOUND, "shape": [5], "h5path": "table"},
    {"type": TEXT, "shape": [3], "h5path": "text"},
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


class Target:
    """A server, and a domain in it with some of everything."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.number = 0
        self.domain = ""
        self.ids: list[str] = []

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
        self.ids = [root, group, kind, *datasets, "g-none", root.replace("a", "b")]
        for id, collection in ((group, "groups"), (datasets[0], "datasets")):
            for name, body in ATTRIBUTES:
                self.ask("PUT", f"/{collection}/{id}/attributes/{name}?", body)
        self.ask("PUT", f"/groups/{root}/links/soft?", {"h5path": "/g"})
        self.ask("PUT", f"/groups/{root}/links/away?", {"h5path": "/x", "h5domain": f"{HOME}/none.h5"})
        self.ask("PUT", f"/datasets/{datasets[0]}/value?", {"value": [[1] * 8] * 6})
        self.ask("PUT", f"/datasets/{datasets[1]}/value?", {"points": [[0, 1], [5, 7]], "value": [1.5, 2]})

    def aimed(self) -> dict[str, Any]:
        """Return the document with parameters that hit what is there, most of the time."""
        spec = copy.deepcopy(specification())
        known = {
            "domain": [self.domain, HOME, f"{HOME}/none.h5", "/", ""],
            "id": self.ids,
            "title": ["g", "dense", "soft", "away", "kind"],
            "name": [name for name, _ in ATTRIBUTES],
            "h5path": ["/g", "/dense", "g", "/soft", "/away", "/"],
            "select": SELECTIONS,
            "user": ["admin", "default", "g:staff", "ann"],
            "titles": ["g/dense", "soft"],
            "attr_names": ["number/text", "numbers"],
            "fields": ["a", "a:b", "c"],
            "query": ["a == 1", "a > 1 AND b < 2"],
        }
        for name, values in known.items():
            parameter = spec["components"]["parameters"][name]
            texts = [{"enum": values}] * 4 + [{"type": "string", "minLength": int(parameter["in"] == "path")}]
            parameter["schema"] = {"anyOf": texts}
        spec["components"]["parameters"]["bucket"]["schema"] = {"enum": ["", "other"]}
        return spec


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    root: Path = tmp_path_factory.mktemp("root")
    flags = ("--no-fsync", "--max-request-size", "2000000")
    with server_process("--root", str(root), *flags, log=root / "log") as server:
        yield Target(server.url)
        assert server.stop() == 0


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.timeout(3600)
def test_no_request_is_a_defect(name: str, target: Target, request: pytest.FixtureRequest) -> None:
    target.fill()
    method, path = name.split()
    operation = schemathesis.openapi.from_dict(target.aimed())[path][method]
    few = settings(
        max_examples=request.config.getoption("--fuzz"),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def send(case: schemathesis.Case) -> None:
        answer = case.call(base_url=target.url, session=session, timeout=60)
        sent = f"{answer.request.method} {answer.request.url} {answer.request.body!r:.2000}"
        assert answer.status_code < 500, f"{sent} is answered {answer.status_code}: {answer.content!r:.400}"
        if answer.status_code >= 400:
            body = json.loads(answer.content)
            assert set(body["error"]) == {"kind", "message"}, sent
            assert body["error"]["message"], sent

    with requests.Session() as session:
        for mode in GenerationMode:  # what the document allows, and what it does not
            few(given(case=operation.as_strategy(generation_mode=mode))(send))()
