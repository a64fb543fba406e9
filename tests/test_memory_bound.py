"""Reading far more than the server's memory: the answer is streamed, and memory stays bounded."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import nanoarrow as na
import numpy as np
import pytest

from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.dense import encode_dense
from hsparse.model.ids import chunk_key
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.storage.posix import PosixStore
from tests.support.endurance import repeats
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.endurance
MIB = 2**20
LIMIT = 512 * MIB
CACHE = ("--cache-size", "128MiB")
ROWS, COLUMNS = repeats(256, short=128), 524_288
CHUNK = (16, 65_536)
"""1 GiB of 8-byte integers, in short as much as the limit; a row of chunks has 64 MiB: a page cuts through 8 chunks."""


def ask(server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body or {})
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    connection.request(method, path, data, {"Content-Type": kind})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    connection.close()
    assert reply.status in (200, 201), answer
    return answer


def create(server: ServerProcess) -> str:
    ask(server, "PUT", "/?domain=/large")
    layout = {"class": "H5D_CHUNKED", "dims": CHUNK}
    filters = [{"class": "H5Z_FILTER_DEFLATE", "level": 1}]
    properties = {"layout": layout, "filters": filters, "fillValue": 7}
    body = {"type": "H5T_STD_I64LE", "shape": [ROWS, COLUMNS], "creationProperties": properties}
    return str(ask(server, "POST", "/datasets?domain=/large", body)["id"])


def check_rows(server: ServerProcess, id: str, expected: np.ndarray[Any, Any], query: str = "") -> None:
    """Read the dataset as one stream, row by row; `expected` has one value a chunk."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    path = f"/datasets/{id}/value?domain=/large&query={query}"
    connection.request("GET", path, headers={"Accept": "application/octet-stream"})
    reply = connection.getresponse()
    assert reply.status == 200
    row = np.empty((COLUMNS // CHUNK[1], CHUNK[1]), "<i8")
    for number in range(ROWS):
        view = memoryview(row.reshape(-1).view(np.uint8))
        while len(view):
            count = reply.readinto(view)
            assert count, f"the answer ends in row {number}"
            view = view[count:]
        assert (row == expected[number // CHUNK[0]][:, np.newaxis]).all(), f"row {number} is wrong"
    assert reply.read() == b""
    connection.close()


def peak_memory(server: ServerProcess) -> int:
    """Return the most bytes of memory the server ever had resident."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


async def store_chunks(root: Path, id: str, values: np.ndarray[Any, Any]) -> None:
    """Put each chunk's object, all elements its value, as the server would."""
    store = PosixStore(root, fsync=False)
    for scaled in np.ndindex(values.shape):
        data = encode_dense(np.full(CHUNK, values[scaled], "<i8"), (Filter(1, (1,)),))
        await store.put(chunk_key(id, scaled), data)
    await store.close()


@pytest.mark.parametrize("stored", ["few", "all"])
async def test_a_gigabyte_in_half_of_it(tmp_path: Path, stored: str) -> None:
    values = np.full((ROWS // CHUNK[0], COLUMNS // CHUNK[1]), 7, "<i8")
    with server_process("--root", str(tmp_path), "--no-fsync", *CACHE) as server:
        id = create(server)
        if stored == "all":
            values = np.arange(values.size, dtype="<i8").reshape(values.shape)
            await store_chunks(tmp_path, id, values)
        else:
            last = ROWS // CHUNK[0] - 1
            for number, scaled in enumerate(((0, 0), (last - 2, 5), (last, 7)), 100):
                edges = zip(scaled, CHUNK, strict=True)
                select = ",".join(f"{place * dim}:{(place + 1) * dim}" for place, dim in edges)
                path = f"/datasets/{id}/value?domain=/large&select=[{select}]&element_count=1"
                ask(server, "PUT", path, np.array([number], "<i8").tobytes())
                values[scaled] = number
        check_rows(server, id, values)
        assert peak_memory(server) < LIMIT
        assert server.stop() == 0


def test_one_value_written_to_a_gigabyte(tmp_path: Path) -> None:
    values = np.full((ROWS // CHUNK[0], COLUMNS // CHUNK[1]), 9, "<i8")
    with server_process("--root", str(tmp_path), "--no-fsync", *CACHE) as server:
        id = create(server)
        path = f"/datasets/{id}/value?domain=/large&element_count=1"
        ask(server, "PUT", path, np.array([9], "<i8").tobytes())
        assert peak_memory(server) < LIMIT
        check_rows(server, id, values)
        assert peak_memory(server) < LIMIT
        assert server.stop() == 0


async def test_a_query_that_finds_a_gigabyte(tmp_path: Path) -> None:
    values = np.arange((ROWS // CHUNK[0]) * (COLUMNS // CHUNK[1]), dtype="<i8")
    values = values.reshape(ROWS // CHUNK[0], COLUMNS // CHUNK[1])
    with server_process("--root", str(tmp_path), "--no-fsync", *CACHE) as server:
        id = create(server)
        await store_chunks(tmp_path, id, values)
        check_rows(server, id, values, query="_%3E=0")
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        path = f"/datasets/{id}/value?domain=/large&query=_%3E=0"
        connection.request("PUT", path, json.dumps({"value": 0}), {"Content-Type": "application/json"})
        assert connection.getresponse().status == 413, "more indices than an answer may have"
        connection.close()
        assert peak_memory(server) < LIMIT
        assert server.stop() == 0


def test_a_sparse_dataset_that_is_full_streamed_with_its_places(tmp_path: Path) -> None:
    count, chunk = repeats(2**26, short=2**25), 2**20
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [chunk], "flags": ["H5D_SPARSE_DATA"]}
    filters = [{"class": "H5Z_FILTER_DEFLATE", "level": 1}]
    body = {"type": "H5T_STD_I64LE", "shape": [count]}
    body["creationProperties"] = {"layout": layout, "filters": filters}
    with server_process("--root", str(tmp_path), "--no-fsync", *CACHE) as server:
        ask(server, "PUT", "/?domain=/large")
        id = ask(server, "POST", "/datasets?domain=/large", body)["id"]
        value = f"/datasets/{id}/value?domain=/large"
        ask(server, "PUT", f"{value}&element_count=1", np.array([9], "<i8").tobytes())
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        connection.request("GET", f"{value}&sparse=1", headers={"Accept": ARROW_TYPE})
        reply = connection.getresponse()
        assert reply.status == 200
        with na.ArrayStream.from_readable(reply) as stream:
            rows = sum(len(batch) for batch in stream.iter_chunks())
        connection.close()
        assert rows == count
        assert peak_memory(server) < LIMIT
        assert server.stop() == 0
