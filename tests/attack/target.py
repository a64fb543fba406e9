"""What is attacked: a server with users, one of whom is hostile, and has the rights of any in a folder of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.campaign.load import HEAD_END, LOST, http_request
from tests.support.rest_client import RemoteRest
from tests.support.server_process import ServerProcess, server_process

USER = "mallory"
DOMAIN = f"/home/{USER}/attack.h5"
ROWS, COLUMNS = 1024, 4096
STEPS = 200
"""Soft links, each to the next one."""
NO_CONTENT = 204
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
    domain: str = DOMAIN

    def path(self, path: str, **arguments: str) -> str:
        """Return a path with arguments, in which `{name}` is the id of a dataset or of the root."""
        text = path.format(root=self.root, **self.datasets)
        every = {"domain": self.domain, **arguments}
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
                has_body = not request.startswith(b"HEAD") and int(head[9:12]) != NO_CONTENT
                while has_body and not writer.is_closing() and await reader.read(1 << 20):
                    if b"onnection: close" not in head:
                        break
                return int(head[9:12])
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return LOST
        finally:
            writer.transport.abort()


@contextmanager
def attacked_server(path: Path, *flags: str) -> Iterator[ServerProcess]:
    """Run a server with two users, whose passwords are their names; its files and its log are below `path`."""
    passwords, hashes = PasswordFile(path / "passwords"), PasswordHash()
    for user in ("ann", USER):
        passwords.put(User(user, hashes.hash(user)))
    (path / "store").mkdir()
    own = ("--root", str(path / "store"), "--password-file", str(path / "passwords"), "--no-fsync")
    with server_process(*own, *flags, log=path / "log") as running:
        yield running
        assert running.stop() == 0


def authorization(user: str) -> str:
    """Return the header by which a user signs in."""
    return http_request("GET", "/", user=user).decode().split("\r\n")[2].removeprefix("Authorization: ")


async def prepared(url: str, domain: str = DOMAIN) -> Target:
    """Return the server as a target, after the hostile user has made a domain, its datasets and soft links."""
    rest = RemoteRest(url)
    rest.domain = domain
    head = {"headers": {"Authorization": authorization(USER)}}
    root = (await rest("PUT", "/", {}, **head))["root"]
    ids = {}
    for name, body in DATASETS.items():
        reply = await rest("POST", "/datasets", body, **head)
        assert reply.status == 201, reply.body
        ids[name] = reply["id"]
    links = {f"step{number}": {"h5path": f"/step{number + 1}"} for number in range(STEPS)}
    assert (await rest("PUT", f"/groups/{root}/links", {"links": links}, **head)).status == 201
    await rest.close()
    return Target(url, root, ids, domain)
