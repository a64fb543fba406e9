"""`python -m benchmarks walk`: measure the code that a request passes and the size of the code; fail beyond limits.

Servers in this process answer requests of a user who signed in by a password: one as `hsparse serve` runs it, and a
cluster of a service node and two data nodes. Each request reads or writes other elements than the previous
request, in chunks and objects that are cached. A tracer (`sys.setprofile`) records each call and return of a function
of hsparse in every thread. The limits are in `limits.toml` beside this module; they are tightened, never loosened.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import sys
import tempfile
import threading
import tomllib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlencode, urlsplit

from argon2 import PasswordHasher

from hsparse.cli.data_node import serve_until
from hsparse.cli.embedded_server import embedded_server, in_thread
from hsparse.cli.node_process import listening
from hsparse.cli.serve import wait_until_ready
from hsparse.cli.service_node import cluster_owners, make_app, make_service, service_parts
from hsparse.cli.store_watch import StoreWatch
from hsparse.cli.stores import opened_stores
from hsparse.clock import SystemClock
from hsparse.config import Settings, load_settings
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.sn.server import AppRunner

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "hsparse")
LIMITS = Path(__file__).with_name("limits.toml")
WARM = 3
"""Number of untraced requests before the traced one."""
TRIES = 15
"""Number of walks per request; the shortest counts, because periodic work of a server adds to some walks."""
FIGURES = ("files", "lines of files", "moves", "functions", "lines of functions")
USER, PASSWORD = "ann", "password of ann"
DOMAIN = {"domain": "/home/ann/walk.h5"}
ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the user, without the parameter `domain`."""

    method: str
    target: str
    body: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Fixture:
    """The id of the domain's root group, and the URL paths of its two datasets."""

    root: str
    paths: list[str]


@dataclass(slots=True)
class Walk:
    """The functions of the package that a request called, and the number of calls and returns into another file."""

    functions: set[CodeType] = field(default_factory=set)
    moves: int = 0
    last_file: str = ""

    def move_to(self, file: str) -> None:
        """Record that the code of a file runs next."""
        self.moves += file != self.last_file
        self.last_file = file

    @property
    def figures(self) -> dict[str, int]:
        """The figures of the walk by name."""
        files = {code.co_filename for code in self.functions}
        return {
            "files": len(files),
            "lines of files": sum(count_lines(Path(file)) for file in files),
            "moves": self.moves,
            "functions": len(self.functions),
            "lines of functions": sum(map(length, self.functions)),
        }


class Tracer:
    """Records calls and returns in all threads that start after `install`, while `on` is set.

    Each resumption of a coroutine counts as a call, and each wait as a return.
    """

    def __init__(self) -> None:
        self.walk = Walk()
        self.on = False

    def install(self) -> None:
        """Trace all threads that are started after this call."""
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            self.walk.functions.add(frame.f_code)
            self.walk.move_to(frame.f_code.co_filename)
        elif event == "return" and (caller := frame.f_back) and caller.f_code.co_filename.startswith(PACKAGE):
            self.walk.move_to(caller.f_code.co_filename)


def length(code: CodeType) -> int:
    """Return the number of lines of a function, from its first line to the last line with code."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return max(lines, default=code.co_firstlineno) - code.co_firstlineno + 1


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_bytes().count(b"\n")


class Client:
    """One connection to a server."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(
        self, method: str, path: str, body: Any = None, accept: str = "application/json", **params: Any
    ) -> bytes:
        """Send a request and return the body of the answer."""
        data = json.dumps(body).encode() if body is not None else None
        credentials = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {
            "Accept": accept,
            "Content-Type": "application/json",
            "Authorization": f"Basic {credentials}",
        }
        self._connection.request(method, f"{path}?{urlencode(DOMAIN | params)}", data, headers)
        reply = self._connection.getresponse()
        found = reply.read()
        assert reply.status in (200, 201), found
        return found


def prepare(client: Client) -> Fixture:
    """Create the domain with two sparse datasets that have equal elements; return their ids and paths."""
    root = json.loads(client.ask("PUT", "/"))["root"]
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 1000], "flags": ["H5D_SPARSE_DATA"]}
    body = {"type": "H5T_STD_I32LE", "shape": [100, 1000], "creationProperties": {"layout": layout}}
    paths = [f"/datasets/{json.loads(client.ask('POST', '/datasets', body))['id']}" for _ in range(2)]
    for path in paths:
        client.ask("PUT", f"{path}/value", {"points": [[5, 5], [15, 7]], "value": [1, 2]})
    return Fixture(root, paths)


def requests(fixture: Fixture, number: int) -> dict[str, Request]:
    """Return the requests by name; requests with another `number` read and write other elements."""
    path = fixture.paths[number % 2]
    points = {"points": [[5, 5], [15, 7]], "value": [2 * number, 2 * number + 1]}
    attribute = {"type": "H5T_STD_I32LE", "value": number}
    created = {"type": "H5T_STD_I32LE", "shape": [10], "link": {"id": fixture.root, "name": f"n{number}"}}
    select = {"select": f"[0:20,{number % 5}:{10 + number}]", "sparse": 1}
    return {
        "sparse read": Request("GET", f"{path}/value", None, select, ARROW),
        "sparse write": Request("PUT", f"{path}/value", points),
        "attribute PUT": Request("PUT", f"{path}/attributes/a", attribute, {"replace": 1}),
        "GET of a dataset": Request("GET", path),
        "create with link": Request("POST", "/datasets", created),
    }


def walks(client: Client, tracer: Tracer) -> dict[str, dict[str, int]]:
    """Return the figures of each request's walk with the least code, by the request's name."""
    fixture = prepare(client)
    found: dict[str, list[dict[str, int]]] = {}
    for number in range(WARM + TRIES):
        for name, request in requests(fixture, number).items():
            tracer.walk, tracer.on = Walk(), number >= WARM
            client.ask(request.method, request.target, request.body, request.accept, **request.params)
            tracer.on = False
            if number >= WARM:
                found.setdefault(name, []).append(tracer.walk.figures)
    return {name: min(figures, key=lambda one: sorted(one.items())) for name, figures in found.items()}


@asynccontextmanager
async def data_node(settings: Settings) -> AsyncIterator[None]:
    """Run a data node of a cluster during the context."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve_until(stop, settings))
        yield
        stop.set()


@asynccontextmanager
async def service_node(settings: Settings) -> AsyncIterator[str]:
    """Run a service node over the data nodes of a cluster during the context; yield its URL."""
    watch = StoreWatch(SystemClock())
    async with (
        opened_stores(settings.store, watch=watch) as stores,
        cluster_owners(stores, settings.cluster.node_token, watch) as owners,
    ):
        await wait_until_ready(owners, settings.cluster.lease, asyncio.Event())
        parts = service_parts(settings)
        service = make_service(settings, owners, tuple(store.name for store in stores), parts)
        runner = AppRunner(make_app(service, settings.server, parts), settings.server.stop_timeout)
        async with listening(runner, settings) as url:
            yield url


@contextmanager
def cluster(settings: Settings) -> Iterator[str]:
    """Run two data nodes and a service node, each in a thread of its own; yield the URL of the service node."""
    with ExitStack() as nodes, redirect_stdout(io.StringIO()):
        for _ in range(2):
            nodes.enter_context(in_thread(lambda: data_node(settings)))
        url, _ = nodes.enter_context(in_thread(lambda: service_node(settings)))
        yield url


SERVERS: dict[str, Callable[[Settings], AbstractContextManager[str]]] = {
    "": embedded_server,
    ", two data nodes": cluster,
}


def measured_walks() -> dict[str, dict[str, int]]:
    """Return the figures of each request, in one process and in a cluster."""
    tracer = Tracer()
    tracer.install()
    found: dict[str, dict[str, int]] = {}
    for suffix, server in SERVERS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hasher = PasswordHash(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
            PasswordFile(folder / "passwords").put(User(USER, hasher.hash(PASSWORD)))
            settings = load_settings(
                root=folder / "store",
                port=0,
                fsync=False,
                password_file=folder / "passwords",
                node_token="a token of this measurement",
            )
            with server(settings) as url:
                found |= {name + suffix: figures for name, figures in walks(Client(url), tracer).items()}
    return found


def measured_sizes(parts: dict[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Return the numbers of Python files and lines in each part; a part is given by path patterns in the checkout."""
    found: dict[str, dict[str, int]] = {}
    for part, patterns in parts.items():
        files = {path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix == ".py"}
        found[part] = {"files": len(files), "lines": sum(map(count_lines, files))}
    return found


def beyond(figures: dict[str, dict[str, int]], limits: dict[str, dict[str, int]]) -> list[str]:
    """Return a message for each figure that is larger than its limit."""
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
    """Print the tables of walks and sizes; return 1 if a limit is exceeded."""
    argparse.ArgumentParser("python -m benchmarks walk", description=__doc__).parse_args(arguments)
    limits: dict[str, Any] = tomllib.loads(LIMITS.read_text())
    walked, sizes = measured_walks(), measured_sizes(limits["parts"])
    sys.stdout.write(f"{table(walked, FIGURES)}\n{table(sizes, ('files', 'lines'))}")
    wrong = beyond(walked, limits["walks"]) + beyond(sizes, limits["sizes"])
    for one in wrong:
        sys.stderr.write(f"beyond its limit: {one}\n")
    return bool(wrong)
