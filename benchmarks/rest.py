"""A thin client of the HDF REST API that mostly sends and returns bytes without decoding them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import aiohttp
import numpy as np

from benchmarks import arrow
from benchmarks.failure import Failed
from benchmarks.workloads.case import Box
from benchmarks.workloads.points import PointData

BINARY = "application/octet-stream"
JSON = "application/json"
RETRIES = 10
BACKOFF = 0.1  # seconds before the first retry; doubled for each one after it


class UnexpectedAnswer(Failed):
    """A server answered with a status that a measurement cannot use."""

    def __init__(self, request: str, status: int, body: bytes) -> None:
        super().__init__(f"{request} answered {status}: {body[:500]!r}")
        self.status = status


class Rest:
    """A session with the server `name`, in one domain at a time; `auth` as (user, password)."""

    def __init__(self, name: str, base: str, auth: tuple[str, str] | None = None) -> None:
        self.name = name
        self.base = base
        token = base64.b64encode(":".join(auth).encode()).decode() if auth else ""
        self._credentials = {"Authorization": f"Basic {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._domain: dict[str, str] = {}
        self.root = ""
        self.refused = 0

    async def __aenter__(self) -> Rest:
        self._session = aiohttp.ClientSession(
            self.base,
            headers=self._credentials,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=900),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Use Rest in an async with block.")
        return self._session

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        params: dict[str, str] | None = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send a request and return the body of the answer; raise `UnexpectedAnswer` unless the status is 2xx.

        After a 5xx status the request is retried after a pause, as by common clients; `refused` counts such answers.
        """
        headers = {"Accept": accept, **self._domain}
        if body is not None:
            headers["Content-Type"] = content
        for attempt in range(RETRIES):
            async with self._open().request(
                method, path, data=body, params=params, headers=headers
            ) as answer:
                data = await answer.read()
                if answer.status < 300:
                    return data
                if answer.status < 500 or attempt == RETRIES - 1:
                    raise UnexpectedAnswer(f"{self.name}: {method} {path}", answer.status, data)
            self.refused += 1
            await asyncio.sleep(BACKOFF * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def stream(self, path: str, accept: str) -> AsyncIterator[bytes]:
        """GET an answer of any size in pieces; raise `UnexpectedAnswer` unless the status is 2xx."""
        async with self._open().get(path, headers={"Accept": accept, **self._domain}) as answer:
            if answer.status >= 300:
                raise UnexpectedAnswer(f"{self.name}: GET {path}", answer.status, await answer.read())
            async for block in answer.content.iter_any():
                yield block

    async def json(self, method: str, path: str, body: object = None, **params: str) -> dict[str, Any]:
        """Send a JSON request and return the decoded answer, `{}` if the answer is empty."""
        data = await self.send(method, path, None if body is None else encode(body), params=params)
        answer: dict[str, Any] = json.loads(data) if data else {}
        return answer

    async def domain(self, path: str) -> None:
        """Create the domain `path` and its folders; later requests use this domain."""
        folders = path.strip("/").split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            self._domain = {"X-Hdf-domain": "/" + "/".join(folders[:depth])}
            try:
                await self.json("PUT", "/", {"folder": True})
            except UnexpectedAnswer as error:
                if error.status != 409:
                    raise
        self._domain = {"X-Hdf-domain": path}
        self.root = (await self.json("PUT", "/", {}))["root"]

    async def flush(self) -> None:
        """Wait until all writes to the domain are stored."""
        await self.json("PUT", "/", {"flush": 1})

    async def dataset(self, body: dict[str, Any]) -> str:
        """Create an anonymous dataset and return its id."""
        name: str = (await self.json("POST", "/datasets", body))["id"]
        return name

    async def extend(self, dataset: str, count: int) -> int:
        """Grow the first dimension by `count`; return the index of the first new row."""
        answer = await self.json("PUT", f"/datasets/{dataset}/shape", {"extend": count, "extend_dim": 0})
        return int(answer["selection"].strip("[]").partition(":")[0])

    async def write(self, dataset: str, body: bytes, box: Box | None = None) -> None:
        """Write binary values to `box`."""
        params = {"select": select(box)} if box else None
        await self.send("PUT", f"/datasets/{dataset}/value", body, params=params, content=BINARY)

    async def read(self, dataset: str, box: Box, dtype: np.dtype[np.generic]) -> np.ndarray[Any, Any]:
        """Read all elements of `box` as a dense array."""
        data = await self.send(
            "GET", f"/datasets/{dataset}/value", params={"select": select(box)}, accept=BINARY
        )
        return np.frombuffer(data, dtype).reshape([b - a for a, b in zip(*box, strict=True)])

    async def write_points(self, dataset: str, stream: bytes) -> None:
        """Write points from an Arrow IPC stream made by `arrow.encode`."""
        await self.send("PUT", f"/datasets/{dataset}/value", stream, content=arrow.MEDIA_TYPE)

    async def append_points(self, dataset: str, stream: bytes, count: int) -> None:
        """Grow the first dimension by `count`, and write points whose rows are relative to the first new row."""
        params = {"append": str(count)}
        await self.send("PUT", f"/datasets/{dataset}/value", stream, params=params, content=arrow.MEDIA_TYPE)

    async def read_points(self, dataset: str, box: Box | None = None) -> PointData:
        """Read the defined elements of `box`, or of the whole dataset."""
        params = {"sparse": "1"} | ({"select": select(box)} if box else {})
        data = await self.send("GET", f"/datasets/{dataset}/value", params=params, accept=arrow.MEDIA_TYPE)
        return arrow.decode(data)


def select(box: Box) -> str:
    """Return a box in the API's selection syntax."""
    return "[" + ",".join(f"{start}:{stop}" for start, stop in zip(*box, strict=True)) + "]"


def encode(body: object) -> bytes:
    """Return a JSON body."""
    return json.dumps(body, separators=(",", ":")).encode()
