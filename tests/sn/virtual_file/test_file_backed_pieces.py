"""Files of domains whose data stays in other files: the same elements, and a refusal once those files change."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest

from hsparse.errors import TooLarge
from hsparse.hdf5.virtual_file.domain_state import read_domain_state
from tests.sn.file_domain import INT, fetch, place
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

FILE = "files/original.h5"
VALUES = np.arange(40 * 30, dtype="<i4").reshape(40, 30)
NOISE = np.random.default_rng(1).integers(-(2**31), 2**31, VALUES.shape).astype("<i4")
GZIP = [{"id": 2}, {"id": 1, "level": 4}]
ENTRY = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "offset", "type": "H5T_STD_I64LE"},
        {"name": "size", "type": "H5T_STD_I32LE"},
        {"name": "filter_mask", "type": "H5T_STD_U32LE"},
    ],
}


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[RestClient]:
    async with value_client(store) as client:
        yield client


@pytest.fixture
def original(tmp_path: Path) -> Iterator[h5py.File]:
    """A file with a dataset of each kind that can be linked to."""
    path = tmp_path / "original.h5"
    with h5py.File(path, "w") as file:
        file["contiguous"] = VALUES
        for name, options in {
            "plain": {},
            "gzip": {"compression": "gzip", "shuffle": True},
            "checked": {"fletcher32": True},
            "gzip checked": {"compression": "gzip", "shuffle": True, "fletcher32": True},
            "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="lz4")),
        }.items():
            file.create_dataset(name, data=VALUES, chunks=(16, 16), **options)
        # Some of its chunks cannot be made smaller.
        mixed = np.where(np.arange(30) < 16, VALUES, NOISE)
        file.create_dataset("lzf", data=mixed, chunks=(16, 16), compression="lzf")
        part = file.create_dataset(
            "part", (40, 30), "<i4", chunks=(16, 16), maxshape=(None, 30), fillvalue=-1
        )
        part[20:, :] = VALUES[20:]
    with h5py.File(path) as file:
        yield file


@pytest.fixture
def data(original: h5py.File) -> bytes:
    return Path(original.filename).read_bytes()


def chunks_of(dataset: h5py.Dataset) -> dict[str, list[int]]:
    """Return offset, size and filter mask of a dataset's chunks by their scaled coordinates."""
    found: dict[str, list[int]] = {}

    def note(info: Any) -> None:
        scaled = [at // step for at, step in zip(info.chunk_offset, dataset.chunks, strict=True)]
        found["_".join(map(str, scaled))] = [info.byte_offset, info.size, info.filter_mask]

    dataset.id.chunk_iter(note)
    return found


async def link(client: RestClient, dataset: h5py.Dataset, filters: list[Any], **more: Any) -> str:
    chunks = {key: entry[: 2 + more.pop("masks", True)] for key, entry in chunks_of(dataset).items()}
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": FILE, "dims": [16, 16], "chunks": chunks}
    return await place(client, dataset.name, INT, [40, 30], layout=layout, filters=filters, **more)


async def test_contiguous_data(
    client: RestClient,
    store: CountingStore,
    original: h5py.File,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hsparse.hdf5.virtual_file.file_backed_pieces.RUN_BYTES", 1000)
    await store.put(FILE, data)
    offset = original["contiguous"].id.get_offset()
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": offset, "size": VALUES.nbytes}
    await place(client, "/d", INT, [40, 30], layout=layout)
    await place(client, "/none", INT, [40], layout=layout | {"size": 0}, fillValue=7)
    whole = await fetch(client)
    with h5py.File(io.BytesIO(whole)) as file:
        assert file["d"].chunks is None
        np.testing.assert_array_equal(file["d"][()], VALUES)
        assert file["none"][()].tolist() == [7] * 40
    at = whole.index(VALUES.tobytes())
    store.reset()
    headers = {"Range": f"bytes={at + 1500}-{at + 2500}"}
    part = await client("GET", f"/files{client.domain}", domain=None, headers=headers)
    assert part.body == whole[at + 1500 : at + 2501]
    assert store.gets == 2, "no more is read than the range has"


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("plain", []),
        ("gzip", GZIP),
        ("checked", [{"id": 3}]),
        ("gzip checked", [*GZIP, {"id": 3}]),
        ("part", []),
        ("lzf", ["lzf"]),
        ("bitshuffle", [{"class": "H5Z_FILTER_BITSHUFFLE", "parameters": [0, 4, 4, 0, 2]}]),
    ],
)
@pytest.mark.parametrize("layout", ["stock", "structured"])
async def test_chunks(
    client: RestClient,
    store: CountingStore,
    original: h5py.File,
    data: bytes,
    name: str,
    filters: list[Any],
    layout: str,
) -> None:
    await store.put(FILE, data)
    await link(client, original[name], filters, fillValue=-1, maxdims=[0, 30])
    with h5py.File(io.BytesIO(await fetch(client, layout=layout))) as file:
        found = file[name]
        np.testing.assert_array_equal(found[()], original[name][()])
        assert (found.chunks, found.maxshape) == ((16, 16), (None, 30))
        assert found.id.get_num_chunks() == original[name].id.get_num_chunks()
        for key in chunks_of(original[name]):
            place = tuple(16 * int(part) for part in key.split("_"))
            assert found.id.read_direct_chunk(place) == original[name].id.read_direct_chunk(place)


@pytest.mark.parametrize(("name", "filters"), [("gzip checked", GZIP), ("checked", []), ("lzf", ["lzf"])])
async def test_what_was_not_told_is_found_out(
    client: RestClient, store: CountingStore, original: h5py.File, data: bytes, name: str, filters: list[Any]
) -> None:
    """hsload leaves out fletcher32, and the filters that were skipped."""
    await store.put(FILE, data)
    await link(client, original[name], filters, masks=False)
    with h5py.File(io.BytesIO(await fetch(client))) as file:
        np.testing.assert_array_equal(file[name][()], original[name][()])
        assert file[name].fletcher32 == original[name].fletcher32


async def test_chunk_tables(
    client: RestClient, store: CountingStore, original: h5py.File, data: bytes
) -> None:
    await store.put(FILE, data)
    entries = chunks_of(original["gzip"])
    rows = [[entries[f"{row}_{column}"] for column in range(2)] for row in range(3)]
    rows[1][1] = [0, 0, 0]
    table = await place(client, "/table", ENTRY, [3, 2], rows)
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [16, 16], "chunk_table": table}
    one = await place(client, "/d", INT, [40, 30], layout=layout | {"file_uri": FILE}, filters=GZIP)
    with h5py.File(io.BytesIO(await fetch(client))) as file:
        expected = VALUES.copy()
        expected[16:32, 16:] = 0
        np.testing.assert_array_equal(file["d"][()], expected)
        assert file["d"].id.get_num_chunks() == 5
    assert (
        await client("PUT", f"/datasets/{table}/value", {"value": [[0, 0, 0]], "select": "[0:1,0:1]"})
    ).status == 200
    with h5py.File(io.BytesIO(await fetch(client))) as file:
        assert file["d"].id.get_num_chunks() == 4
    assert (await client("DELETE", f"/datasets/{one}")).status == 200
    uri = {"class": "H5T_STRING", "length": 40, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
    named = {"class": "H5T_COMPOUND", "fields": [*ENTRY["fields"][:2], {"name": "file_uri", "type": uri}]}
    files = await place(client, "/files", named, [3, 2])
    made = await place(client, "/e", INT, [40, 30], layout=layout | {"chunk_table": files})
    refused = await client("GET", f"/files{client.domain}", domain=None)
    assert (refused.status, refused["error"]["kind"]) == (400, "unsupported")
    assert made in refused["error"]["message"]


async def test_a_file_that_changes(
    client: RestClient, store: CountingStore, original: h5py.File, data: bytes
) -> None:
    await store.put(FILE, data)
    await link(client, original["gzip"], GZIP)
    path = f"/files{client.domain}"
    etag = (await client("HEAD", path, domain=None)).headers["ETag"]
    await store.put(FILE, data + b"more")  # it begins as before: values are still read
    size = (await client("HEAD", path, domain=None, headers={"If-None-Match": etag})).headers[
        "Content-Length"
    ]
    other = (await client("HEAD", path, domain=None)).headers["ETag"]
    assert other != etag
    await store.put(FILE, data + b"again")
    headers = {"Range": f"bytes=0-{int(size) - 1}"}
    refused = await client("GET", path, domain=None, headers=headers)
    assert (refused.status, refused["error"]["kind"]) == (412, "precondition_failed")
    await store.put(FILE, bytes(len(data)))
    refused = await client("GET", path, domain=None)
    assert (refused.status, "was changed after datasets were linked" in refused["error"]["message"]) == (
        409,
        True,
    )
    await store.delete(FILE)
    refused = await client("GET", path, domain=None)
    assert (refused.status, "no longer exists" in refused["error"]["message"]) == (409, True)


async def test_what_does_not_decode(
    client: RestClient, store: CountingStore, original: h5py.File, data: bytes
) -> None:
    changed = bytearray(data)
    entries = chunks_of(original["gzip"])
    offset, size, _ = entries["2_1"]
    changed[offset : offset + size] = bytes(size)
    await store.put(FILE, bytes(changed))
    await link(client, original["gzip"], GZIP)
    path = f"/files{client.domain}"
    size = int((await client("HEAD", path, domain=None)).headers["Content-Length"])
    refused = await client("GET", path, domain=None, headers={"Range": f"bytes={size - 8}-{size - 1}"})
    assert (refused.status, f" at {offset} of the file" in refused["error"]["message"]) == (409, True)


async def test_filters_that_are_not_the_files(
    client: RestClient, store: CountingStore, original: h5py.File, data: bytes
) -> None:
    await store.put(FILE, data)
    made = await link(client, original["gzip"], ["lzf"])
    refused = await client("GET", f"/files{client.domain}", domain=None)
    assert (refused.status, refused["error"]["kind"]) == (400, "unsupported")
    assert made in refused["error"]["message"]


async def test_the_limit_of_chunks_is_the_domains(
    client: RestClient,
    store: CountingStore,
    original: h5py.File,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hsparse.hdf5.virtual_file.file_backed_pieces.RUN_BYTES", 1000)
    await store.put(FILE, data)
    for name in ("plain", "gzip"):
        await link(client, original[name], GZIP if name == "gzip" else [])
    place_of = {"offset": original["contiguous"].id.get_offset(), "size": VALUES.nbytes}
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, **place_of}
    await place(client, "/run", INT, [40, 30], layout=layout)
    await place(client, "/own", INT, [4], [1, 2, 3, 4])
    root = (await client("GET", "/"))["root"]
    count = 6 + 6 + 5 + 1
    monkeypatch.setattr("hsparse.hdf5.virtual_file.domain_state.MAX_FILE_CHUNKS", count)
    state = await read_domain_state(client.service.owners, root)
    assert sum(map(len, state.chunks.values())) == count
    monkeypatch.setattr("hsparse.hdf5.virtual_file.domain_state.MAX_FILE_CHUNKS", count - 1)
    with pytest.raises(TooLarge, match=f"The domain has more than {count - 1} chunks"):
        await read_domain_state(client.service.owners, root)
    monkeypatch.setattr("hsparse.hdf5.virtual_file.domain_state.MAX_FILE_CHUNKS", 4)
    for name in ("plain", "gzip", "own"):
        assert (await client("DELETE", f"/groups/{root}/links/{name}")).status == 200
    with pytest.raises(TooLarge, match="The domain has more than 4 chunks"):
        await read_domain_state(client.service.owners, root)
