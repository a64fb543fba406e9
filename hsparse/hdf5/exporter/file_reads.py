"""Concurrent reads of a domain's file on a server: its state, its map and its ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import PreconditionFailed
from hsparse.hdf5.domain_file import PART, DomainFile
from hsparse.hdf5.exporter.multipart_upload import CopySource
from hsparse.hdf5.exporter.part_plan import FileChunk
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.json_reader import JsonReader

Result = TypeVar("Result")


class FileReads:
    """Reads the file of a domain in one form, with at most `readers` requests at a time.

    Requests are repeated while the server is busy or unreachable. Call `close` at the end.
    """

    def __init__(self, connect: Callable[[], Connection], domain: str, form: FileForm, readers: int) -> None:
        self._domain = domain
        self._form = form
        self._server = RetryingClient(connect)
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="file")

    def close(self) -> None:
        """Wait for pending requests, and send no more."""
        self._server.stop()
        self._pool.shutdown(cancel_futures=True)
        self._server.close()

    async def state(self) -> tuple[int, str]:
        """Return the size in bytes and the etag of the file of the domain's current state."""
        return await self._ask(lambda one: self._file(one).state())

    async def read(self, start: int, stop: int, etag: str) -> bytes:
        """Return the bytes from `start` to `stop` (exclusive); `PreconditionFailed` if the file's etag has changed."""
        return await self._ask(lambda one: self._file(one).read(start, stop, etag))

    async def chunks(self, etag: str, least: int) -> list[FileChunk]:
        """Return the chunks of at least `least` bytes whose stored bytes the file has unchanged, in file order.

        The list is empty if the form has `matrices`, because their chunks are converted. Raises `PreconditionFailed`
        if the file's etag has changed.
        """
        if self._form.matrices is not None:
            return []
        return await self._ask(lambda one: self._chunks(one, self._domain, etag, least))

    async def _ask(self, send: Callable[[Connection], Result]) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._server.ask, send)

    def _file(self, connection: Connection) -> DomainFile:
        return DomainFile(connection, self._domain, self._form)

    def _chunks(self, connection: Connection, domain: str, etag: str, least: int) -> list[FileChunk]:
        asked: dict[str, Any] = self._form.params
        answer = connection.response("GET", "/map", domain=domain, addresses="file", places="signed", **asked)
        with answer as response:
            rows = _stored(JsonReader(iter(lambda: response.read(PART), b"")), etag, least)
            return sorted(rows, key=lambda chunk: chunk.start)


def _stored(map: JsonReader, etag: str, least: int) -> Iterator[FileChunk]:
    """Yield the chunks of a map that `chunks` returns; in the map, the file precedes the datasets."""
    for name in map.members():
        if name == "file":
            if (found := map.value()["etag"]) != etag:
                raise PreconditionFailed(
                    f"The domain was changed while it was fetched: begin again. The file has the etag {found} now."
                )
        elif name == "datasets":
            for _ in map.members():
                yield from _rows(map, least)
        else:
            map.value()


def _rows(map: JsonReader, least: int) -> Iterator[FileChunk]:
    for name in map.members():
        if name != "chunks":
            map.value()
            continue
        for _ in map.items():
            row = map.value()
            place = row.get("file")
            if place is not None and "key" in row and place["stored"] and place["size"] >= least:
                source = CopySource(row["bucket"], row["key"], row["etag"], row["address"], place["size"])
                yield FileChunk(place["address"], source)
