from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hsparse.client.connection import Connection
from hsparse.errors import HsparseError, NotFound, PreconditionFailed
from hsparse.hdf5.exporter.file_reads import FileReads
from hsparse.hdf5.exporter.multipart_upload import CopySource
from hsparse.hdf5.exporter.part_plan import FileChunk
from hsparse.hdf5.format.plan.file_form import STOCK
from tests.client.scripted_server import answer, scripted_server

NO_DOMAIN = answer(json.dumps({"error": {"kind": "not_found", "message": "none"}}).encode(), "404 Not Found")


def row(address: int, size: int, *, stored: bool = True) -> dict[str, Any]:
    about = {"scaled": [0], "bucket": "b", "key": f"db/{address}", "address": 0, "etag": "e", "size": size}
    return about | {"file": {"address": address, "size": size, "stored": stored}}


def map_of(*datasets: Any, etag: str = "state") -> bytes:
    found = {"version": 1, "file": {"etag": etag, "size": 1}, "datasets": dict(enumerate(datasets))}
    return answer(json.dumps(found).encode())


def chunks(*answers: bytes, domain: str = "/home/a.h5") -> tuple[list[FileChunk], list[str]]:
    """Return what is made of a server's answers, and what it was asked."""

    async def ask(url: str) -> list[FileChunk]:
        reads = FileReads(lambda: Connection(url), domain, STOCK, 1)
        try:
            return await reads.chunks("state", 100)
        finally:
            await asyncio.to_thread(reads.close)

    with scripted_server(*([one] for one in answers)) as script:
        found = asyncio.run(ask(script.url))
    return found, script.requests


def test_the_large_chunks_that_are_in_the_file_as_they_are() -> None:
    made = {"scaled": [1], "file": {"address": 0, "size": 500, "stored": False}}
    nothing = {"scaled": [1], "bucket": "b", "key": "k", "address": 0, "etag": "e", "size": 500, "defined": 0}
    first = {"id": "d-1", "chunks": [row(900, 100), row(100, 99), made, nothing], "later": [1]}
    second = {"id": "d-2", "chunks": [row(300, 200), row(500, 300, stored=False)]}
    others = ({"id": "d-1", "alias": "/x"}, {"id": "d-3", "error": {"kind": "corrupt"}})
    found, asked = chunks(map_of(first, *others, second))
    assert found == [
        FileChunk(300, CopySource("b", "db/300", "e", 0, 200)),
        FileChunk(900, CopySource("b", "db/900", "e", 0, 100)),
    ]
    assert asked == ["GET /map?domain=/home/a.h5&addresses=file&places=signed&layout=stock"]


def test_the_map_is_that_of_the_domain() -> None:
    for domain in ("/home/a", "/home/a.h5"):
        found, asked = chunks(map_of({"chunks": [row(1, 100)]}), domain=domain)
        assert len(found) == 1
        assert [one.partition("&")[0] for one in asked] == [f"GET /map?domain={domain}"]
    with pytest.raises(NotFound):
        chunks(NO_DOMAIN)


def test_a_server_without_maps_of_files() -> None:
    old = {name: value for name, value in row(0, 500).items() if name != "file"}
    found, _ = chunks(answer(json.dumps({"version": 1, "datasets": {"/a": {"chunks": [old]}}}).encode()))
    assert found == []


def test_another_state() -> None:
    with pytest.raises(PreconditionFailed, match="begin again"):
        chunks(map_of(etag="other"))


def test_nothing_is_asked_when_it_is_closed() -> None:
    async def ask() -> None:
        reads = FileReads(lambda: Connection("http://127.0.0.1:1"), "/home/a.h5", STOCK, 1)
        reads._server.stop()
        with pytest.raises(HsparseError, match="stopped"):
            await reads.state()
        reads.close()

    asyncio.run(ask())
