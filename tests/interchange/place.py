"""A place that two servers keep objects in, one after the other: a directory, or a bucket of moto's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5pyd
import requests

from benchmarks.environment import Environment
from benchmarks.peers.hsds import BUCKET, PASSWORD, USER, serve_nodes
from tests.support.server_process import server_process

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
HOME = f"/home/{USER}/"
TIMEOUT = 30
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server, `name` being `hsds` or `hsparse`."""

    name: str
    url: str

    def open(self, domain: str, mode: str) -> Any:
        """Open a file of the user's home as h5pyd does."""
        return h5pyd.File(HOME + domain, mode, endpoint=self.url, username=USER, password=PASSWORD)

    def send(
        self,
        method: str,
        path: str,
        domain: str,
        body: Any = None,
        *,
        allow: tuple[int, ...] = (),
        **params: Any,
    ) -> Json:
        """Send a JSON request about the domain or folder at an absolute path; return the answer.

        `RuntimeError` unless the status is a success or in `allow`.
        """
        answer = requests.request(
            method,
            self.url + path,
            json=body,
            params={"domain": domain, **params},
            auth=(USER, PASSWORD),
            timeout=TIMEOUT,
        )
        if answer.status_code in allow:
            return {}
        if answer.status_code >= 300:
            raise RuntimeError(
                f"{self.name}: {method} {path} of {domain}: {answer.status_code} {answer.text}"
            )
        found: Json = answer.json() if answer.content else {}
        return found

    def get_bytes(self, path: str, domain: str) -> bytes | str:
        """Read a value in binary; what the server says where it has none."""
        answer = requests.get(
            self.url + path,
            params={"domain": domain},
            headers={"Accept": "application/octet-stream"},
            auth=(USER, PASSWORD),
            timeout=TIMEOUT,
        )
        return answer.content if answer.status_code < 300 else f"status {answer.status_code}"

    def put_bytes(self, path: str, domain: str, body: bytes) -> None:
        """Write a value in binary."""
        answer = requests.put(
            self.url + path,
            data=body,
            params={"domain": domain},
            headers={"Content-Type": "application/octet-stream"},
            auth=(USER, PASSWORD),
            timeout=TIMEOUT,
        )
        if answer.status_code >= 300:
            raise RuntimeError(f"{self.name}: PUT {path} of {domain}: {answer.status_code} {answer.text}")

    def flush(self, domain: str) -> None:
        """Return when all of the domain is stored."""
        self.send("PUT", "/", HOME + domain, {"flush": 1})


@dataclass(frozen=True, slots=True)
class Place:
    """A directory `work` for logs and, without an S3 `endpoint`, for the objects."""

    work: Path
    environment: Environment
    endpoint: str | None = None
    bucket: str = BUCKET

    @property
    def store(self) -> Path:
        """The directory of the objects."""
        return self.work / "store" / self.bucket

    @asynccontextmanager
    async def serve(self, name: str) -> AsyncIterator[Peer]:
        """Run the server `name`; when the context ends it is gone and all it was told is stored."""
        serve = {"hsds": self._hsds, "hsparse": self._hsparse}[name]
        async with serve() as url:
            yield Peer(name, url)

    @asynccontextmanager
    async def _hsds(self) -> AsyncIterator[str]:
        if self.endpoint is None:
            self.store.mkdir(parents=True, exist_ok=True)
            where = [f"--root_dir={self.store.parent}"]
        else:
            where = [f"--aws_s3_gateway={self.endpoint}", "--aws_region=us-east-1"]
            where += ["--aws_access_key_id=test", "--aws_secret_access_key=test"]
        async with serve_nodes(self.environment, self.work, where, self.bucket, KEYS) as server:
            yield server.base

    @asynccontextmanager
    async def _hsparse(self) -> AsyncIterator[str]:
        if self.endpoint is None:
            self.store.mkdir(parents=True, exist_ok=True)
            where = ("--root", str(self.store))
        else:
            where = ("--bucket", self.bucket, "--s3-endpoint", self.endpoint, "--s3-region", "us-east-1")
        with server_process(*where, "--user", USER, **KEYS) as server:
            yield server.url
            status = await asyncio.to_thread(server.stop)
            assert status == 0, f"hsparse ended with {status}"
