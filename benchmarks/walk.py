"""`python -m benchmarks walk`: how much of the code a request passes, and how much code there is; fails beyond limits.

A server in this process, as `hsparse serve` runs it, answers four requests that are warm: all that it needs is in its
cache, and the same request was answered before. A tracer (`sys.setprofile`) notes each function of hsparse that is
called, in every thread. The limits are in `limits.toml` beside this module: they are tightened, never loosened.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlencode, urlsplit

from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "hsparse")
LIMITS = Path(__file__).with_name("limits.toml")
WARM = 3
"""Requests before the one that is traced."""
TRIES = 5
"""Of so many walks the shortest is taken: what a server does from time to time falls into some."""
FIGURES = ("files", "lines of files", "moves", "functions", "lines of functions")
DOMAIN = {"domain": "/walk.h5"}
ARROW = "application/vnd.apache.arrow.stream"


@dataclass(slots=True)
class Walk:
    """The functions of the package that a request called, and how often the next call was in another file."""

    functions: set[CodeType] = field(default_factory=set)
    moves: int = 0
    last_file: str = ""

    @property
    def figures(self) -> dict[str, int]:
        """The figures by their names."""
        files = {code.co_filename for code in self.functions}
        return {
            "files": len(files),
            "lines of files": sum(count_lines(Path(file)) for file in files),
            "moves": self.moves,
            "functions": len(self.functions),
            "lines of functions": sum(map(length, self.functions)),
        }


class Tracer:
    """Notes calls in all threads that begin after `install`, while it is `on`.

    A coroutine is called each time it goes on.
    """

    def __init__(self) -> None:
        self.walk = Walk()
        self.on = False

    def install(self) -> None:
        """Trace threads that are started from now on."""
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        file = frame.f_code.co_filename
        self.walk.functions.add(frame.f_code)
        self.walk.moves += file != self.walk.last_file
        self.walk.last_file = file


def length(code: CodeType) -> int:
    """Return how many lines a function has, from its first to the last that has code."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return max(lines, default=code.co_firstlineno) - code.co_firstlineno + 1


def count_lines(path: Path) -> int:
    """Return how many lines a file has."""
    return path.read_bytes().count(b"\n")


class Client:
    """One connection to a server."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(
        self, method: str, path: str, body: Any = None, accept: str = "application/json", **params: Any
    ) -> bytes:
        """Send a request; return the answer's body."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Accept": accept, "Content-Type": "application/json"}
        self._connection.request(method, f"{path}?{urlencode(DOMAIN | params)}", data, headers)
        reply = self._connection.getresponse()
        found = reply.read()
        assert reply.status in (200, 201), found
        return found


def prepare(client: Client) -> str:
    """Make a domain with a sparse dataset that has some elements; return the dataset's path."""
    client.ask("PUT", "/")
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 1000], "flags": ["H5D_SPARSE_DATA"]}
    body = {"type": "H5T_STD_I32LE", "shape": [100, 1000], "creationProperties": {"layout": layout}}
    path = f"/datasets/{json.loads(client.ask('POST', '/datasets', body))['id']}"
    client.ask("PUT", f"{path}/value", {"points": [[5, 5], [15, 7]], "value": [1, 2]})
    return path


def walks(client: Client, tracer: Tracer, path: str) -> Iterator[tuple[str, Walk]]:
    """Yield the walk of each request, by its name."""
    attribute = {"type": "H5T_STD_I32LE", "value": 42}
    points = {"points": [[5, 5], [15, 7]], "value": [3, 4]}
    requests: dict[str, tuple[Any, ...]] = {
        "sparse read": ("GET", f"{path}/value", None, ARROW, {"select": "[0:20,0:10]", "sparse": 1}),
        "sparse write": ("PUT", f"{path}/value", points, "application/json", {}),
        "attribute PUT": ("PUT", f"{path}/attributes/a", attribute, "application/json", {"replace": 1}),
        "GET of a dataset": ("GET", path, None, "application/json", {}),
    }
    for name, (method, target, body, accept, params) in requests.items():
        for _ in range(WARM):
            client.ask(method, target, body, accept, **params)
        found = []
        for _ in range(TRIES):
            tracer.walk, tracer.on = Walk(), True
            client.ask(method, target, body, accept, **params)
            tracer.on = False
            found.append(tracer.walk)
        yield name, min(found, key=lambda walk: sorted(walk.figures.items()))


def measured_walks() -> dict[str, dict[str, int]]:
    """Return the figures of each request."""
    tracer = Tracer()
    tracer.install()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(root=Path(folder), port=0, fsync=False)
        with embedded_server(settings) as url:
            client = Client(url)
            return {name: walk.figures for name, walk in walks(client, tracer, prepare(client))}


def measured_sizes(parts: dict[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Return how many Python files and lines there are in each part, given by patterns of paths in the checkout."""
    found = {}
    for part, patterns in parts.items():
        files = {path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix == ".py"}
        found[part] = {"files": len(files), "lines": sum(map(count_lines, files))}
    return found


def beyond(figures: dict[str, dict[str, int]], limits: dict[str, dict[str, int]]) -> list[str]:
    """Return a sentence for each figure that is larger than its limit."""
    return [
        f"{name}: {figures[name][figure]} {figure}; the limit is {most}"
        for name, limit in limits.items()
        for figure, most in limit.items()
        if figures[name][figure] > most
    ]


def table(figures: dict[str, dict[str, int]], titles: Sequence[str]) -> str:
    """Return a table in Markdown."""
    rows = [f"| | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    rows += [
        f"| {name} | {' | '.join(f'{one[title]:,}' for title in titles)} |" for name, one in figures.items()
    ]
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str] = ()) -> int:
    """Print both tables; return 1 if a limit is passed."""
    argparse.ArgumentParser("python -m benchmarks walk", description=__doc__).parse_args(arguments)
    limits: dict[str, Any] = tomllib.loads(LIMITS.read_text())
    walked, sizes = measured_walks(), measured_sizes(limits["parts"])
    sys.stdout.write(f"{table(walked, FIGURES)}\n{table(sizes, ('files', 'lines'))}")
    wrong = beyond(walked, limits["walks"]) + beyond(sizes, limits["sizes"])
    for one in wrong:
        sys.stderr.write(f"beyond its limit: {one}\n")
    return bool(wrong)
