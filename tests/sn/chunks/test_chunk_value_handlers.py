"""Direct reads and writes of chunks: bytes as HDF5 makes them, and what is no chunk refused before anything changes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.format.codec_library import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection
from tests.sn.value_client import create, read, sparse, value_client
from tests.support.rest_client import Reply, RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

INT = "H5T_STD_I32LE"
DENSE = {"class": "H5D_CHUNKED", "dims": [256]}
DEFLATE = ["shuffle", {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4}]
HEADERS = ("X-Hdf-filter-mask", "X-Hdf-section-size", "X-Hdf-section-unfiltered-size")


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[RestClient]:
    async with value_client(store) as client:
        yield client


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
    one, two = [await create(client, [1000], INT, layout=DENSE, filters=filters) for _ in range(2)]
    await client("PUT", f"{one}/value", np.arange(1000, dtype="<i4").tobytes())
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
    one, two = [await create(client, [40, 40], INT, layout=sparse(16, 16), **options) for _ in range(2)]
    await client("PUT", f"{one}/value", {"value": 5, "select": "[20,17:30:2]"})
    reply = await client("GET", f"{one}/chunks/1_1/value")
    assert len(reply.body) == (await client("GET", f"{one}/chunks/1_1"))["size"]
    assert (await client("PUT", f"{two}/chunks/1_1/value", reply.body, **told(reply))).status == 200
    again = await client("GET", f"{two}/chunks/1_1/value")
    assert again.body == reply.body
    assert told(again) == told(reply)
    for path in (one, two):
        assert (await client("GET", f"{path}/defined", count_only=1))["count"] == 7
    assert (await read(client, two, "<i4", (40, 40)) == await read(client, one, "<i4", (40, 40))).all()


async def test_a_chunk_made_by_hand(client: RestClient, store: CountingStore) -> None:
    """Points in any order: the bytes are kept as they came."""
    path = await create(client, [8, 8], "H5T_STD_I16LE", layout=sparse(4, 4), filters=["none"])
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
    await client("PUT", f"{path}/value", {"value": 1, "select": "[4,0]"})
    assert (await client("GET", f"{path}/chunks/1_0"))["defined"] == 3


async def test_a_written_chunk_replaces_what_was_there(client: RestClient) -> None:
    path = await create(client, [8], INT, layout=sparse(8), filters=["none"])
    await client("PUT", f"{path}/value", {"value": 1, "select": "[0:8]"})
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == 8
    data, about = sections(Orthogonal.box((8,), (2,), (4,)), np.array([5, 6], "<i4"))
    assert (await client("PUT", f"{path}/chunks/0/value", data, **about)).status == 200
    assert (await read(client, path, "<i4", (8,))).tolist() == [0, 0, 5, 6, 0, 0, 0, 0]


async def test_sections_with_filters_left_out_are_stored_with_their_masks(client: RestClient) -> None:
    path = await create(client, [8], INT, layout=sparse(8), filters=DEFLATE)
    data, about = sections(Orthogonal.all((8,)), np.arange(8, dtype="<i4"))
    reply = await client("PUT", f"{path}/chunks/0/value", data, filter_mask="3,3", **about)
    assert reply.status == 200, reply.body
    row = (await client("GET", f"{path}/chunks/0")).body
    assert [section["filter_mask"] for section in row["sections"]] == [3, 3]
    assert (await client("GET", f"{path}/chunks/0/value")).body == data
    assert (await read(client, path, "<i4", (8,))).tolist() == list(range(8))


async def test_a_dense_chunk_with_filters_left_out_goes_through_them(client: RestClient) -> None:
    """Its object has no place for a mask."""
    path = await create(client, [512], INT, layout=DENSE, filters=DEFLATE)
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
    text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    layout = {"class": "H5D_CHUNKED", "dims": [4]}
    one, two = [await create(client, [6], text, layout=layout, maxdims=[0]) for _ in range(2)]
    await client("PUT", f"{one}/value", {"value": list("abcdef")})
    for name in ("0", "1"):
        reply = await client("GET", f"{one}/chunks/{name}/value")
        assert (await client("PUT", f"{two}/chunks/{name}/value", reply.body)).status == 200
    assert (await client("GET", f"{two}/value"))["value"] == list("abcdef")
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
    path = await create(
        client,
        [40, 60],
        INT,
        layout={"class": "H5D_CHUNKED", "dims": [16, 32]},
        filters=filters,
        maxdims=[0, 0],
    )
    with h5py.File(tmp_path / "a.h5", "w") as file:
        one = file.create_dataset("one", data=values, fletcher32=checksum, **options)
        file.flush()
        for number in range(one.id.get_num_chunks()):
            offset = one.id.get_chunk_info(number).chunk_offset
            mask, data = one.id.read_direct_chunk(offset)
            name = "_".join(str(at // step) for at, step in zip(offset, (16, 32), strict=True))
            reply = await client("PUT", f"{path}/chunks/{name}/value", data, filter_mask=mask)
            assert reply.status == 200, reply.body
        assert (await read(client, path, "<i4", (40, 60)) == values).all()
        two = file.create_dataset("two", values.shape, "<i4", fletcher32=checksum, **options)
        for row in (await client("GET", f"{path}/chunks"))["chunks"]:
            name = "_".join(map(str, row["scaled"]))
            reply = await client("GET", f"{path}/chunks/{name}/value")
            two.id.write_direct_chunk(tuple(row["offset"]), reply.body, row["filter_mask"])
        assert (two[:] == values).all()


async def test_a_selection_that_libhdf5_encoded(client: RestClient) -> None:
    path = await create(client, [32, 32], "H5T_IEEE_F64LE", layout=sparse(16, 16), filters=["none"])
    space = h5py.h5s.create_simple((16, 16))
    space.select_hyperslab((1, 2), (2, 3), (3, 5), (2, 1))
    space.select_hyperslab((15, 15), (1, 1), op=h5py.h5s.SELECT_OR)
    where = space.encode()
    where += struct.pack("<I", lookup3(where))
    count = space.get_select_npoints()
    values = np.arange(1.0, count + 1)
    sizes = f"{len(where)},{values.nbytes}"
    options = {"section_size": sizes, "section_unfiltered_size": sizes}
    reply = await client("PUT", f"{path}/chunks/1_0/value", where + values.tobytes(), **options)
    assert reply.status == 200, reply.body
    assert (await client("GET", f"{path}/chunks/1_0"))["defined"] == count
    found = (await read(client, path, "<f8", (32, 32)))[16:, :16]
    marked = np.zeros((16, 16), bool)
    marked[np.ix_([1, 2, 4, 5], [2, 7, 12])] = True
    marked[15, 15] = True
    assert (found[marked] == values).all()
    assert not found[~marked].any()


# --- what is refused ------------------------------------------------------------------------------


async def test_what_is_not_stored_cannot_be_read(client: RestClient) -> None:
    path = await create(client, [512], INT, layout=DENSE)
    reply = await client("GET", f"{path}/chunks/1/value")
    assert (reply.status, reply["error"]["kind"]) == (404, "not_found")


async def test_dense_bytes_that_are_no_chunk(client: RestClient, store: CountingStore) -> None:
    plain = await create(client, [600], INT, layout=DENSE)
    filtered = await create(client, [512], INT, layout=DENSE, filters=[*DEFLATE, "fletcher32"])
    values = np.zeros(256, "<i4")
    for data in (b"", values.tobytes()[:-1], values.tobytes() + b"x"):
        assert "bytes" in await refused(client, store, f"{plain}/chunks/0", data)
    await client("PUT", f"{filtered}/value", {"value": 7, "select": "[0:256]"})
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
    path = await create(client, [300], INT, layout=DENSE, maxdims=[0], fillValue=3)
    data = np.full(256, 3, "<i4")
    data[:44] = 8
    assert (await client("PUT", f"{path}/chunks/1/value", data.tobytes())).status == 200
    data[44] = 8
    assert "[44]" in await refused(client, store, f"{path}/chunks/1", data.tobytes())
    assert (await client("PUT", f"{path}/shape", {"shape": [400]})).status == 201
    assert (await read(client, path, "<i4", (400,)))[300:].tolist() == [3] * 100


async def test_structured_bytes_that_are_no_chunk(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [8, 6], INT, layout=sparse(4, 4), filters=["none"])
    one = np.ones(1, "<i4")

    def point(*coord: int, extent: tuple[int, ...] = (4, 4)) -> tuple[bytes, dict[str, str]]:
        return sections(Points(extent, np.array([coord], np.uint64)), one)

    data, about = point(1, 1)
    assert (await client("PUT", f"{path}/chunks/1_1/value", data, **about)).status == 200
    two = sections(Points((4, 4), np.array([[1, 1], [2, 2]], np.uint64)), one)
    for name, (wrong, options), why in (
        ("1_1", point(1, 2), "beyond the extent"),
        ("0_0", point(1, 1, extent=(4, 5)), "extent [4, 5]"),
        ("0_0", two, "2 elements for 1 values"),
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
    path = await create(client, [512], INT, layout=DENSE)
    reply = await client("PUT", f"{path}/chunks/0/value", bytes(1024), user=None)
    assert reply.status in (401, 403)
