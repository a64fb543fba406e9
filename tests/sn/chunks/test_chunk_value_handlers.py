"""Direct reads and writes of chunks, alone and many at once: bytes as HDF5 makes them, and what is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import aiohttp
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.codec_library import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection
from hsparse.model.acl import Principal
from hsparse.sn.chunks import stored_chunk_read
from hsparse.sn.chunks.stored_chunk_read import PAGE_BYTES, NamedChunks
from hsparse.sn.http import stream
from hsparse.wire.chunk_info_message import ReadObjectBytes
from tests.sn.dataset_kinds import F64, I16, I32, TEXT, chunked, sparse
from tests.sn.value_client import create, defined_count, json_of, put, read
from tests.support.rest_client import Reply, RestClient, answered
from tests.testing.store_wrapper import CountingStore

DENSE = chunked(256)
DEFLATE = ["shuffle", {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4}]
HEADERS = ("X-Hdf-filter-mask", "X-Hdf-section-size", "X-Hdf-section-unfiltered-size")


def told(reply: Reply) -> dict[str, str]:
    """Return what a chunk's headers say as parameters of a write."""
    names = ("filter_mask", "section_size", "section_unfiltered_size")
    return {
        name: reply.headers[header]
        for name, header in zip(names, HEADERS, strict=True)
        if header in reply.headers
    }


def sections(selection: Selection, values: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """Return an unfiltered structured chunk, and the parameters that describe it."""
    where = encode_selection(selection)
    where += struct.pack("<I", lookup3(where))
    sizes = f"{len(where)},{values.nbytes}"
    return where + values.tobytes(), {"section_size": sizes, "section_unfiltered_size": sizes}


async def stored(store: CountingStore) -> dict[str, bytes]:
    found = {}
    async for page in store.list("db/"):
        for entry in page.entries:
            found[entry.key] = (await store.get(entry.key)).data
    return found


async def refused(client: RestClient, store: CountingStore, path: str, data: bytes, **options: Any) -> str:
    """Return why a chunk is refused; nothing has changed."""
    before = await stored(store)
    reply = await client("PUT", f"{path}/value", data, **options)
    assert (reply.status, reply["error"]["kind"]) == (400, "bad_request")
    assert await stored(store) == before
    message = reply["error"]["message"]
    assert isinstance(message, str)
    return message


# --- what is read can be written ------------------------------------------------------------------


@pytest.mark.parametrize("filters", [[], DEFLATE, ["lz4", "fletcher32"]], ids=["plain", "deflate", "blosc"])
async def test_a_dense_chunk_goes_to_another_dataset(
    client: RestClient, store: CountingStore, filters: Any
) -> None:
    one, two = [await create(client, [1000], I32, layout=DENSE, filters=filters) for _ in range(2)]
    await put(client, one, np.arange(1000, dtype="<i4").tobytes())
    reply = await client("GET", f"{one}/chunks/1/value")
    assert reply.headers["Content-Type"] == "application/octet-stream"
    info = (await client("GET", f"{one}/chunks/1")).body
    assert len(reply.body) == info["size"]
    assert reply.headers["ETag"] == f'"{info["etag"]}"'
    assert (await client("PUT", f"{two}/chunks/1/value", reply.body, **told(reply))).status == 200
    assert (await client("GET", f"{two}/chunks/1/value")).body == reply.body
    values = await read(client, two, "<i4", (1000,))
    expected = np.zeros(1000, "<i4")
    expected[256:512] = np.arange(256, 512)
    assert (values == expected).all()


@pytest.mark.parametrize("filters", [["none"], DEFLATE, None], ids=["plain", "deflate", "default"])
async def test_a_sparse_chunk_goes_to_another_dataset(client: RestClient, filters: Any) -> None:
    options = {} if filters is None else {"filters": filters}
    one, two = [await create(client, [40, 40], I32, layout=sparse(16, 16), **options) for _ in range(2)]
    await put(client, one, {"value": 5, "select": "[20,17:30:2]"})
    reply = await client("GET", f"{one}/chunks/1_1/value")
    assert len(reply.body) == (await client("GET", f"{one}/chunks/1_1"))["size"]
    assert (await client("PUT", f"{two}/chunks/1_1/value", reply.body, **told(reply))).status == 200
    again = await client("GET", f"{two}/chunks/1_1/value")
    assert again.body == reply.body
    assert told(again) == told(reply)
    for path in (one, two):
        assert await defined_count(client, path) == 7
    assert (await read(client, two, "<i4", (40, 40)) == await read(client, one, "<i4", (40, 40))).all()


async def test_a_chunk_made_by_hand(client: RestClient, store: CountingStore) -> None:
    """Points in any order: the bytes are kept as they came."""
    path = await create(client, [8, 8], I16, layout=sparse(4, 4), filters=["none"])
    points = Points((4, 4), np.array([[3, 3], [0, 1]], np.uint64))
    data, about = sections(points, np.array([7, 9], "<i2"))
    store.reset()
    assert (await client("PUT", f"{path}/chunks/1_0/value", data, **about)).status == 200
    assert store.puts == 1
    assert store.gets == 0
    assert (await client("GET", f"{path}/chunks/1_0/value")).body == data
    values = await read(client, path, "<i2", (8, 8))
    assert (values[7, 3], values[4, 1], np.count_nonzero(values)) == (7, 9, 2)
    # It goes on as any chunk does.
    await put(client, path, {"value": 1, "select": "[4,0]"})
    assert (await client("GET", f"{path}/chunks/1_0"))["defined"] == 3


async def test_a_written_chunk_replaces_what_was_there(client: RestClient) -> None:
    path = await create(client, [8], I32, layout=sparse(8), filters=["none"])
    await put(client, path, {"value": 1, "select": "[0:8]"})
    assert await defined_count(client, path) == 8
    data, about = sections(Orthogonal.box((8,), (2,), (4,)), np.array([5, 6], "<i4"))
    assert (await client("PUT", f"{path}/chunks/0/value", data, **about)).status == 200
    assert (await read(client, path, "<i4", (8,))).tolist() == [0, 0, 5, 6, 0, 0, 0, 0]


async def test_sections_with_filters_left_out_are_stored_with_their_masks(client: RestClient) -> None:
    path = await create(client, [8], I32, layout=sparse(8), filters=DEFLATE)
    data, about = sections(Orthogonal.all((8,)), np.arange(8, dtype="<i4"))
    await answered(client("PUT", f"{path}/chunks/0/value", data, filter_mask="3,3", **about))
    row = (await client("GET", f"{path}/chunks/0")).body
    assert [section["filter_mask"] for section in row["sections"]] == [3, 3]
    assert (await client("GET", f"{path}/chunks/0/value")).body == data
    assert (await read(client, path, "<i4", (8,))).tolist() == list(range(8))


async def test_a_dense_chunk_with_filters_left_out_goes_through_them(client: RestClient) -> None:
    """Its object has no place for a mask."""
    path = await create(client, [512], I32, layout=DENSE, filters=DEFLATE)
    values = np.arange(256, dtype="<i4")
    compressed = zlib.compress(values.tobytes())
    assert (await client("PUT", f"{path}/chunks/1/value", compressed, filter_mask=1)).status == 200
    row = (await client("GET", f"{path}/chunks/1")).body
    assert row["filter_mask"] == 0
    pipeline = (Filter(2, (4,)), Filter(1, (4,)))
    assert (await client("GET", f"{path}/chunks/1/value")).body == bytes(
        apply_filters(pipeline, values.tobytes())[0]
    )
    assert (await read(client, path, "<i4", (512,)))[256:].tolist() == values.tolist()


async def test_variable_length_chunks_in_counted_form(client: RestClient, store: CountingStore) -> None:
    layout = chunked(4)
    one, two = [await create(client, [6], TEXT, layout=layout, maxdims=[0]) for _ in range(2)]
    await put(client, one, {"value": list("abcdef")})
    for name in ("0", "1"):
        reply = await client("GET", f"{one}/chunks/{name}/value")
        assert (await client("PUT", f"{two}/chunks/{name}/value", reply.body)).status == 200
    assert await json_of(client, two) == list("abcdef")
    whole = (await client("GET", f"{one}/chunks/0/value")).body
    assert "extent" in await refused(client, store, f"{two}/chunks/1", whole)
    assert "no chunk" in await refused(client, store, f"{two}/chunks/0", whole[:-1])


# --- against libhdf5 ------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [False, True])
async def test_dense_chunks_go_from_a_file_and_back(
    client: RestClient, tmp_path: Path, checksum: bool
) -> None:
    """The same filters: chunks are what libhdf5 writes and reads, filter mask and all."""
    values = np.random.default_rng(1).integers(0, 50, (40, 60)).astype("<i4")
    options: Any = {"chunks": (16, 32), "shuffle": True, "compression": "gzip", "compression_opts": 4}
    filters = [*DEFLATE, "fletcher32"] if checksum else DEFLATE
    path = await create(client, [40, 60], I32, layout=chunked(16, 32), filters=filters, maxdims=[0, 0])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        one = file.create_dataset("one", data=values, fletcher32=checksum, **options)
        file.flush()
        for number in range(one.id.get_num_chunks()):
            offset = one.id.get_chunk_info(number).chunk_offset
            mask, data = one.id.read_direct_chunk(offset)
            name = "_".join(str(at // step) for at, step in zip(offset, (16, 32), strict=True))
            await answered(client("PUT", f"{path}/chunks/{name}/value", data, filter_mask=mask))
        assert (await read(client, path, "<i4", (40, 60)) == values).all()
        two = file.create_dataset("two", values.shape, "<i4", fletcher32=checksum, **options)
        for row in (await client("GET", f"{path}/chunks"))["chunks"]:
            name = "_".join(map(str, row["scaled"]))
            reply = await client("GET", f"{path}/chunks/{name}/value")
            two.id.write_direct_chunk(tuple(row["offset"]), reply.body, row["filter_mask"])
        assert (two[:] == values).all()


async def test_a_selection_that_libhdf5_encoded(client: RestClient) -> None:
    path = await create(client, [32, 32], F64, layout=sparse(16, 16), filters=["none"])
    space = h5py.h5s.create_simple((16, 16))
    space.select_hyperslab((1, 2), (2, 3), (3, 5), (2, 1))
    space.select_hyperslab((15, 15), (1, 1), op=h5py.h5s.SELECT_OR)
    where = space.encode()
    where += struct.pack("<I", lookup3(where))
    count = space.get_select_npoints()
    values = np.arange(1.0, count + 1)
    sizes = f"{len(where)},{values.nbytes}"
    options = {"section_size": sizes, "section_unfiltered_size": sizes}
    await answered(client("PUT", f"{path}/chunks/1_0/value", where + values.tobytes(), **options))
    assert (await client("GET", f"{path}/chunks/1_0"))["defined"] == count
    found = (await read(client, path, "<f8", (32, 32)))[16:, :16]
    marked = np.zeros((16, 16), bool)
    marked[np.ix_([1, 2, 4, 5], [2, 7, 12])] = True
    marked[15, 15] = True
    assert (found[marked] == values).all()
    assert not found[~marked].any()


# --- what is refused ------------------------------------------------------------------------------


async def test_what_is_not_stored_cannot_be_read(client: RestClient) -> None:
    path = await create(client, [512], I32, layout=DENSE)
    reply = await client("GET", f"{path}/chunks/1/value")
    assert (reply.status, reply["error"]["kind"]) == (404, "not_found")


async def test_dense_bytes_that_are_no_chunk(client: RestClient, store: CountingStore) -> None:
    plain = await create(client, [600], I32, layout=DENSE)
    filtered = await create(client, [512], I32, layout=DENSE, filters=[*DEFLATE, "fletcher32"])
    values = np.zeros(256, "<i4")
    for data in (b"", values.tobytes()[:-1], values.tobytes() + b"x"):
        assert "bytes" in await refused(client, store, f"{plain}/chunks/0", data)
    await put(client, filtered, {"value": 7, "select": "[0:256]"})
    good = (await client("GET", f"{filtered}/chunks/0/value")).body
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 4
        assert "no chunk" in await refused(client, store, f"{filtered}/chunks/1", bytes(bad))
    assert "mask" in await refused(client, store, f"{filtered}/chunks/0", good, filter_mask=8)
    assert "dense" in await refused(client, store, f"{filtered}/chunks/0", good, section_size=5)
    assert "filter_mask" in await refused(client, store, f"{filtered}/chunks/0", good, filter_mask="a")
    assert "32 bits" in await refused(client, store, f"{filtered}/chunks/0", good, filter_mask=2**32)


async def test_values_beyond_the_extent_must_be_fill_values(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [300], I32, layout=DENSE, maxdims=[0], fillValue=3)
    data = np.full(256, 3, "<i4")
    data[:44] = 8
    assert (await client("PUT", f"{path}/chunks/1/value", data.tobytes())).status == 200
    data[44] = 8
    assert "[44]" in await refused(client, store, f"{path}/chunks/1", data.tobytes())
    assert (await client("PUT", f"{path}/shape", {"shape": [400]})).status == 201
    assert (await read(client, path, "<i4", (400,)))[300:].tolist() == [3] * 100


async def test_structured_bytes_that_are_no_chunk(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [8, 6], I32, layout=sparse(4, 4), filters=["none"])
    one = np.ones(1, "<i4")

    def point(*coord: int, extent: tuple[int, ...] = (4, 4)) -> tuple[bytes, dict[str, str]]:
        return sections(Points(extent, np.array([coord], np.uint64)), one)

    data, about = point(1, 1)
    assert (await client("PUT", f"{path}/chunks/1_1/value", data, **about)).status == 200
    two = sections(Points((4, 4), np.array([[1, 1], [2, 2]], np.uint64)), one)
    for name, (wrong, options), why in (
        ("1_1", point(1, 2), "beyond the extent"),
        ("0_0", point(1, 1, extent=(4, 5)), "extent [4, 5]"),
        ("0_0", two, "2 elements, but there are 1 values"),
    ):
        assert why in await refused(client, store, f"{path}/chunks/{name}", wrong, **options)
    size = int(about["section_size"].split(",")[0])
    for place in range(size):
        bad = bytearray(data)
        bad[place] ^= 1
        message = await refused(client, store, f"{path}/chunks/0_0", bytes(bad), **about)
        assert "ection 0" in message
    assert "body" in await refused(client, store, f"{path}/chunks/0_0", data + b"x", **about)
    assert "body" in await refused(client, store, f"{path}/chunks/0_0", data[:-1], **about)
    assert "section_size" in await refused(client, store, f"{path}/chunks/0_0", data)
    short = {"section_size": "1", "section_unfiltered_size": "1"}
    assert "2 sections" in await refused(client, store, f"{path}/chunks/0_0", b"x", **short)
    masked = about | {"filter_mask": "0,1"}
    assert "mask" in await refused(client, store, f"{path}/chunks/0_0", data, **masked)
    huge = about | {"section_unfiltered_size": f"{size},{2**40}"}
    reply = await client("PUT", f"{path}/chunks/0_0/value", data, **huge)
    assert (reply.status, reply["error"]["kind"]) == (413, "too_large")


async def test_who_may_not_update_may_not_write(client: RestClient) -> None:
    path = await create(client, [512], I32, layout=DENSE)
    assert (await client("PUT", f"{path}/chunks/0/value", bytes(1024), user=None)).status in (401, 403)


CHANGED = 2**64 - 1


@pytest.fixture(params=["sparse", "dense"])
async def path(client: RestClient, request: pytest.FixtureRequest) -> str:
    """A dataset of five chunks."""
    layout = sparse(256) if request.param == "sparse" else DENSE
    path = await create(client, [1280], I32, layout=layout, maxdims=[0])
    await put(client, path, {"value": list(range(1, 1281))})
    return path


async def mapped(client: RestClient, path: str, *order: int) -> dict[str, Any]:
    """Return the body about some chunks of the map, by their numbers there."""
    rows = (await client("GET", f"{path}/map"))["chunks"]
    some = [rows[number] for number in order]
    return {
        "chunks": ["_".join(map(str, row["scaled"])) for row in some],
        "etags": [row["etag"] for row in some],
        "sizes": [row["size"] for row in some],
    }


async def stored_objects(client: RestClient, path: str, store: CountingStore, *order: int) -> list[bytes]:
    rows = (await client("GET", f"{path}/map"))["chunks"]
    return [(await store.store.get(rows[number]["key"])).data for number in order]


def frames(body: bytes) -> list[bytes | None]:
    """Return the stored_objects of an answer, None for one that has changed."""
    found: list[bytes | None] = []
    while body:
        length = int.from_bytes(body[:8], "little")
        size = 0 if length == CHANGED else length
        found.append(None if length == CHANGED else body[8 : 8 + size])
        body = body[8 + size :]
    return found


@pytest.mark.parametrize("page", [1, 1500, PAGE_BYTES])
async def test_objects_in_the_order_of_the_request(
    client: RestClient, store: CountingStore, path: str, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(stored_chunk_read, "PAGE_BYTES", page)
    monkeypatch.setattr(stored_chunk_read, "MIN_PIECE_BYTES", 100)
    order = (3, 0, 4, 3)
    body, expected = await mapped(client, path, *order), await stored_objects(client, path, store, *order)
    store.reset()
    reply = await client("POST", f"{path}/chunks/values", body)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/octet-stream")
    assert frames(reply.body) == expected
    assert store.calls["get_range"] in (3, 4)  # twice if both are read at the same time
    await client("POST", f"{path}/chunks/values", body)
    assert store.calls["get_range"] in (3, 4)


class NotedNode:
    """A data node that notes the messages about stored_objects."""

    def __init__(self, store: CountingStore, id: str) -> None:
        self.node = DataService(store, SystemClock(), id=id)
        self.messages: list[ReadObjectBytes] = []

    async def send(self, message: Any) -> Any:
        if isinstance(message, ReadObjectBytes):
            self.messages.append(message)
        return await self.node.send(message)

    async def close(self) -> None:
        await self.node.close()


async def test_one_message_to_each_owner(store: CountingStore) -> None:
    nodes = {f"dn-{number}": NotedNode(store, f"dn-{number}") for number in range(3)}
    client = await RestClient(dict(nodes), SystemClock(), Principal("admin", admin=True)).open()
    client.domain = "/home/admin/three.h5"
    await client("PUT", "/", {})
    path = await create(client, [300], I32, layout=sparse(10))
    await put(client, path, {"value": list(range(1, 301))})
    body = await mapped(client, path, *range(30))
    expected = await stored_objects(client, path, store, *range(30))
    assert frames((await client("POST", f"{path}/chunks/values", body)).body) == expected
    assert [len(node.messages) for node in nodes.values()] == [1, 1, 1]
    assert sum(len(node.messages[0].etags) for node in nodes.values()) == 30
    await client.close()
    for node in nodes.values():
        await node.close()


async def test_chunks_in_another_state_say_so(client: RestClient, store: CountingStore, path: str) -> None:
    body = await mapped(client, path, 0, 1, 2)
    await put(client, path, {"value": 7}, select="[300:301]")
    expected = await stored_objects(client, path, store, 0, 1, 2)
    body["chunks"].append("5")  # not stored
    body["etags"].append("none")
    body["sizes"].append(100)
    reply = await client("POST", f"{path}/chunks/values", body)
    assert frames(reply.body) == [expected[0], None, expected[2], None]
    none = await client("POST", f"{path}/chunks/values", {"chunks": [], "etags": [], "sizes": []})
    assert (none.status, none.body) == (200, b"")


async def test_a_shrink_meanwhile(
    client: RestClient, store: CountingStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first dataset is one of before; the answer has the chunks that are left."""
    body, real, loaded = await mapped(client, path, 0, 4), stored_chunk_read.load_dataset, []

    async def load(context: Any) -> Any:
        loaded.append(await real(context))
        return loaded[0] if len(loaded) == 2 else loaded[-1]

    monkeypatch.setattr(stored_chunk_read, "load_dataset", load)
    await client("POST", f"{path}/chunks/values", body)
    expected = await stored_objects(client, path, store, 0)
    assert (await client("PUT", f"{path}/shape", {"shape": [700]})).status == 201
    reply = await client("POST", f"{path}/chunks/values", body)
    assert frames(reply.body) == [*expected, None]
    assert len(loaded) == 3


async def test_a_corrupt_object_is_an_error(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [1280], I32, layout=sparse(256))
    await put(client, path, {"value": list(range(1, 1281))})
    row = (await client("GET", f"{path}/map"))["chunks"][4]
    data = bytearray((await store.get(row["key"])).data)
    data[5] ^= 1
    etag = await store.put(row["key"], data)
    body = await mapped(client, path, 0, 1)
    body["chunks"].append("4")
    body["etags"].append(etag)
    body["sizes"].append(row["size"])
    reply = await client("POST", f"{path}/chunks/values", body)
    assert (reply.status, reply["error"]["kind"]) == (500, "corrupt")
    assert row["key"] in reply["error"]["message"]


async def test_a_failure_after_the_first_bytes_aborts(
    client: RestClient, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_chunk_read, "PAGE_BYTES", 1)
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(stored_chunk_read, "MIN_PIECE_BYTES", 1)
    path = await create(client, [1280], I32, layout=sparse(256))
    await put(client, path, {"value": list(range(1, 1281))})
    body = await mapped(client, path, 0, 1)
    key = (await client("GET", f"{path}/map"))["chunks"][1]["key"]
    data = bytearray((await store.get(key)).data)
    data[5] ^= 1
    body["etags"][1] = await store.put(key, data)
    with pytest.raises(aiohttp.ClientError):
        await client("POST", f"{path}/chunks/values", body)


GOOD = {"chunks": ["0"], "etags": ["a"], "sizes": [5]}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"chunks": None}, 400),
        ({"etags": None}, 400),
        ({"sizes": 5}, 400),
        ({"sizes": []}, 400),
        ({"sizes": [0]}, 400),
        ({"sizes": [-1]}, 400),
        ({"sizes": [True]}, 400),
        ({"sizes": [1.5]}, 400),
        ({"sizes": ["5"]}, 400),
        ({"sizes": [2**63]}, 413),
        ({"sizes": [200_001]}, 413),
        ({"chunks": ["0_0"]}, 400),
        ({"chunks": ["../0"]}, 400),
        ({"chunks": ["-1"]}, 400),
        ({"chunks": [str(2**63)]}, 400),
        ({"chunks": [0]}, 400),
        ({"etags": ["x" * 2000]}, 400),
        ({name: [*GOOD[name]] * 10_001 for name in GOOD}, 413),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_refused(client: RestClient, path: str, wrong: dict[str, Any], status: int) -> None:
    reply = await answered(client("POST", f"{path}/chunks/values", GOOD | wrong), status)
    assert reply["error"]["kind"] == ("bad_request" if status == 400 else "too_large")


async def test_who_may_not_read(client: RestClient, path: str) -> None:
    body = await mapped(client, path, 0)
    assert (await client("POST", f"{path}/chunks/values", body, user=None)).status in (401, 403)


@given(st.lists(st.integers(1, 3 * PAGE_BYTES), max_size=20))
def test_pages_are_small_and_complete(sizes: list[int]) -> None:
    count = len(sizes)
    named = NamedChunks(
        np.arange(count, dtype=np.uint64).reshape(-1, 1), ("",) * count, np.array(sizes, np.uint64)
    )
    pages = list(named.pages())
    assert [size for page in pages for size in page.sizes.tolist()] == sizes
    assert all(len(page.sizes) == 1 or page.sizes.sum() <= PAGE_BYTES for page in pages)
    assert all(int(page.sizes.sum()) <= max(named.memory // 2, 0) for page in pages)
