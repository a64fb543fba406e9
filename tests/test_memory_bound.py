"""Reading far more than the server's memory, and requests that take much: it stays bounded, and is given back."""

from __future__ import annotations

import http.client
import io
import json
from pathlib import Path
from typing import Any

import nanoarrow as na
import numpy as np
import pytest
from nanoarrow import ipc

from hsparse.format.chunk_spec import chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.dense import encode_dense
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


def memory(server: ServerProcess, field: str = "VmRSS") -> int:
    """Return the bytes of memory that the server has resident, or, as VmHWM, ever had."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


def peak_memory(server: ServerProcess) -> int:
    return memory(server, "VmHWM")


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


BEYOND = 100 * MIB
"""What a server may have more than at the start once requests are done: caches, and what the allocator keeps."""
ROUNDS = repeats(100, short=12)
LARGE_CHUNK = repeats(1 << 22, short=1 << 20)
"""Elements of a chunk that a body of some bytes fills."""
NUMBERS = {"class": "H5D_CHUNKED", "dims": [LARGE_CHUNK]}
STRUCTURED = {"class": "H5D_STRUCT_CHUNK", "dims": [LARGE_CHUNK], "flags": ["H5D_SPARSE_DATA"]}
SMALL_CACHE = ("--cache-size", "16MiB")


def send(server: ServerProcess, method: str, path: str, body: bytes, kind: str = "application/json") -> int:
    """Send a request and read its answer to the end; return the status."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.request(method, path, body, {"Content-Type": kind})
    reply = connection.getresponse()
    while reply.read(1 << 16):
        pass
    connection.close()
    return reply.status


def made(server: ServerProcess, layout: Any, item: str, chunks: int) -> str:
    properties = {"layout": layout, "filters": [{"class": "H5Z_FILTER_DEFLATE", "level": 1}]}
    body = {"type": item, "shape": [chunks * LARGE_CHUNK], "creationProperties": properties}
    return str(ask(server, "POST", "/datasets?domain=/large", body)["id"])


def whole_chunk(number: int) -> str:
    return f"select=[{number * LARGE_CHUNK}:{(number + 1) * LARGE_CHUNK}]"


@pytest.mark.parametrize("layout", [NUMBERS, STRUCTURED], ids=["dense", "sparse"])
def test_refused_puts_leave_nothing(tmp_path: Path, layout: Any) -> None:
    """Each whole chunk is put as a new one, refused, and put again; the server was restarted, so it knows none."""
    options = ("--root", str(tmp_path), "--no-fsync", *SMALL_CACHE)
    with server_process(*options) as server:
        ask(server, "PUT", "/?domain=/large")
        id = made(server, layout, "H5T_STD_I64LE", 12)
        for number in range(12):
            path = f"/datasets/{id}/value?domain=/large&{whole_chunk(number)}"
            assert send(server, "PUT", path, b'{"value": 1}') == 200
    with server_process(*options) as server:
        for number in range(ROUNDS):
            path = f"/datasets/{id}/value?domain=/large&{whole_chunk(number % 12)}"
            assert send(server, "PUT", path, b'{"value": 2}') == 200
            if number == 11:
                start = memory(server)
        left = memory(server) - start
        assert left < BEYOND, f"{left // MIB} MiB are left"


EMPTY_BATCHES = 20_000


def empty_stream() -> bytes:
    """Return an Arrow stream of batches without elements."""
    sink = io.BytesIO()
    schema = na.c_schema(na.struct({"dim_0": na.uint32(), "value": na.int64()}))
    columns = [na.c_array_from_buffers(kind, 0, [None, b""]) for kind in (na.uint32(), na.int64())]
    batch = na.c_array_from_buffers(schema, 0, [None], children=columns)
    with ipc.StreamWriter.from_writable(sink) as writer:
        for _ in range(EMPTY_BATCHES):
            writer.write_array(batch)
    return sink.getvalue()


def test_requests_that_take_memory_give_it_back(tmp_path: Path) -> None:
    """Requests of few bytes that need much memory, each again and again: decoding, reductions, refused bodies."""
    with server_process("--root", str(tmp_path), "--no-fsync", *SMALL_CACHE) as server:
        ask(server, "PUT", "/?domain=/large")
        sparse = made(server, STRUCTURED, "H5T_STD_I64LE", 4)
        for number in range(4):
            path = f"/datasets/{sparse}/value?domain=/large&{whole_chunk(number)}"
            assert send(server, "PUT", path, b'{"value": 1}') == 200
        names = "".join(f"a{number % 7}" for number in range(120))
        stream, ids = empty_stream(), json.dumps({"ids": [sparse] * 10_000, "select": "[0:1]"}).encode()
        base = f"/datasets/{sparse}"
        requests: dict[str, tuple[str, str, bytes, str, tuple[int, ...]]] = {
            "one element": ("GET", f"{base}/value?domain=/large&select=[5:6]", b"", "", (200,)),
            "variance": ("GET", f"{base}/reduce?domain=/large&op=var&undefined=skip", b"", "", (200,)),
            "a pattern": ("GET", f"{base}/attributes?domain=/large&pattern=*{names}z", b"", "", (200,)),
            "empty batches": ("PUT", f"{base}/value?domain=/large", stream, ARROW_TYPE, (200,)),
            "no JSON": ("PUT", f"{base}/value?domain=/large", b'{"value": [' + b"1," * 500_000, "", (400,)),
            "many ids": ("POST", "/datasets/values?domain=/large", ids, "", (200, 400, 413)),
        }
        for method, path, body, kind, statuses in requests.values():
            assert send(server, method, path, body, kind or "application/json") in statuses
        start = memory(server)
        for method, path, body, kind, _ in requests.values():
            for _ in range(repeats(50, short=4)):
                send(server, method, path, body, kind or "application/json")
        left = memory(server) - start
        assert left < BEYOND, f"{left // MIB} MiB are left"
