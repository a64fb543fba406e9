"""What is attacked: a server with users, one of whom is hostile, and has the rights of any in a folder of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tests.campaign.load import HEAD_END, LOST, http_request
from tests.support.rest_client import RemoteRest

USER = "mallory"
DOMAIN = f"/home/{USER}/attack.h5"
ROWS, COLUMNS = 1024, 4096
STEPS = 200
"""Soft links, each to the next one."""
BINARY = "application/octet-stream"
DATASETS = {
    "dense": {"type": "H5T_IEEE_F64LE", "shape": [ROWS, COLUMNS]},
    "tall": {
        "type": "H5T_IEEE_F64LE",
        "shape": [131_000_000],
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [131_072]}},
    },
    "sparse": {
        "type": "H5T_IEEE_F32LE",
        "shape": [60_000, 60_000],
        "creationProperties": {
            "layout": {"class": "H5D_STRUCT_CHUNK", "dims": [60_000, 60_000], "flags": ["H5D_SPARSE_DATA"]}
        },
    },
    "deflated": {
        "type": "H5T_STD_I8LE",
        "shape": [1 << 20],
        "creationProperties": {
            "layout": {"class": "H5D_CHUNKED", "dims": [1 << 20]},
            "filters": [{"class": "H5Z_FILTER_DEFLATE", "level": 1}],
        },
    },
    "computed": {
        "type": "H5T_STD_I64LE",
        "shape": [1 << 60],
        "creationProperties": {"initializer": ["arange"]},
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the root group of the hostile user's domain, and the user's datasets by name."""

    url: str
    root: str
    datasets: dict[str, str]

    def path(self, path: str, **arguments: str) -> str:
        """Return a path with arguments, in which `{name}` is the id of a dataset or of the root."""
        text = path.format(root=self.root, **self.datasets)
        every = {"domain": DOMAIN, **arguments}
        return f"{text}?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in every.items())

    def request(
        self, method: str, path: str, body: bytes = b"", media: str = "application/json", **arguments: str
    ) -> bytes:
        """Return the bytes of a request of the hostile user."""
        accept = arguments.pop("accept", "")
        return http_request(method, self.path(path, **arguments), body, media=media, user=USER, accept=accept)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.url)
        return await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 16)

    async def hold(self, data: bytes, count: int, seconds: float, tally: Counter[int]) -> None:
        """Send the beginning of a request over each of `count` connections, and nothing more, for so long."""
        writers = []
        for _ in range(count):
            with suppress(OSError):
                _, writer = await self.connect()
                writer.write(data)
                writers.append(writer)
                tally[LOST] += 1
        await asyncio.sleep(seconds)
        for writer in writers:
            writer.transport.abort()

    async def repeat(
        self,
        request: Callable[[], bytes],
        clients: int,
        seconds: float,
        tally: Counter[int],
        patience: float = 600.0,
    ) -> None:
        """Send requests from so many clients at once, each over a new connection, for so long.

        A client that has waited `patience` seconds for an answer hangs up.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds

        async def client() -> None:
            while True:
                tally[await self.exchange(request(), patience)] += 1
                if loop.time() >= end:
                    return

        await asyncio.gather(*(client() for _ in range(clients)))

    async def exchange(self, request: bytes, patience: float) -> int:
        """Send a request over a new connection and read the answer; return the status, `LOST` without one."""
        try:
            reader, writer = await self.connect()
        except OSError:
            return LOST
        try:
            async with asyncio.timeout(patience):
                writer.write(request)
                head = await reader.readuntil(HEAD_END)
                while not writer.is_closing() and await reader.read(1 << 20):
                    if b"onnection: close" not in head:
                        break
                return int(head[9:12])
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return LOST
        finally:
            writer.transport.abort()


async def prepared(url: str, authorization: str) -> Target:
    """Return the server as a target, after the hostile user has made a domain and its datasets."""
    rest = RemoteRest(url)
    rest.domain = DOMAIN
    head = {"headers": {"Authorization": authorization}}
    root = (await rest("PUT", "/", {}, **head))["root"]
    ids = {}
    for name, body in DATASETS.items():
        reply = await rest("POST", "/datasets", body, **head)
        assert reply.status == 201, reply.body
        ids[name] = reply["id"]
    links = {f"step{number}": {"h5path": f"/step{number + 1}"} for number in range(STEPS)}
    assert (await rest("PUT", f"/groups/{root}/links", {"links": links}, **head)).status == 201
    await rest.close()
    target = Target(url, root, ids)
    values = target.request("PUT", "/datasets/{dense}/value", bytes(8 * ROWS * COLUMNS), BINARY)
    assert await target.exchange(values, 60) == 200
    return target
