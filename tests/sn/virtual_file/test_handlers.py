"""Domains as HDF5 files over HTTP: whole, by ranges, and what becomes of them when the domain changes."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_key
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.messages.structured_layout import decode_structured_layout
from hsparse.hdf5.virtual_file.file_plans import FilePlans, PlannedFile
from hsparse.model.dataspace import max_dims_of
from tests.format.hdf5.h5py_files import FileBytes, walk
from tests.sn.file_domain import INT, REFERENCE, TEXT, WORDS, check_file, fetch, fill_domain, place
from tests.sn.value_client import sparse, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

OVER_HTTP = """
import sys
import fsspec, h5py, numpy as np
remote = fsspec.filesystem("http", client_kwargs={"headers": {"Authorization": "admin"}})
with remote.open(sys.argv[1], block_size=1 << 16) as data, h5py.File(data) as file:
    assert (file["g/chunked"][()] == np.arange(1200).reshape(40, 30)).all()
    assert file["words"].asstr()[4] == "two"
    assert file["sparse"][3:20, 5].tolist() == [8] * 17
"""


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def test_a_whole_file(client: RestClient, tmp_path: Path) -> None:
    await fill_domain(client)
    check_file(await fetch(client))


async def test_structured_chunks_stay_as_they_are(client: RestClient) -> None:
    await fill_domain(client)
    check_file(await fetch(client, layout="structured"), structured=True)


@pytest.mark.needs("h5dump")
async def test_hdf5s_own_tools_read_it(client: RestClient, tmp_path: Path) -> None:
    await fill_domain(client)
    path = tmp_path / "f.h5"
    path.write_bytes(await fetch(client))
    done = await asyncio.to_thread(
        subprocess.run, ["h5dump", "-B", str(path)], capture_output=True, text=True, check=True
    )
    assert "error" not in done.stderr
    assert "REFERENCE { H5T_STD_REF_OBJECT }" in done.stdout
    assert 'DATASET "again.defined_"' in done.stdout


async def test_a_reader_that_is_not_libhdf5(client: RestClient) -> None:
    """Of what pyfive knows: it takes no external links, and no chunks that are not there."""
    pyfive = pytest.importorskip("pyfive", reason="pyfive is not installed")
    await fill_domain(client)
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", f"/groups/{root}/links/external")).status == 200
    file = pyfive.File(io.BytesIO(await fetch(client)))
    assert (file["g/chunked"][()] == np.arange(1200).reshape(40, 30)).all()
    assert file["whole"][()].tolist() == [1, 2, 3, 4, 5, 0.5]
    assert [word.decode() for word in file["words"][()].tolist()] == WORDS
    assert file["sparse points"][50].tolist() == (0.5, -3)
    assert file["never"][()].tolist() == [9] * 3


@pytest.mark.endurance
@pytest.mark.parametrize("layout", ["stock", "structured"])
async def test_any_range_is_that_part_of_the_whole(client: RestClient, layout: str) -> None:
    await fill_domain(client)
    whole = await fetch(client, layout=layout)
    path = f"/files{client.domain}"
    rng = np.random.default_rng(7)
    bounds = [sorted(rng.integers(0, len(whole), 2).tolist()) for _ in range(repeats(150, short=40))]
    for start, last in [[0, 0], [0, len(whole) - 1], [len(whole) - 1, len(whole) + 9], *bounds]:
        part = await client(
            "GET", path, domain=None, layout=layout, headers={"Range": f"bytes={start}-{last}"}
        )
        assert part.status == 206
        stop = min(last + 1, len(whole))
        assert part.body == whole[start:stop]
        assert part.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
        assert part.headers["Content-Length"] == str(stop - start)
    tail = await client("GET", path, domain=None, layout=layout, headers={"Range": "bytes=-77"})
    assert tail.body == whole[-77:]


async def test_what_the_headers_say(client: RestClient) -> None:
    await fill_domain(client)
    path = f"/files{client.domain}"
    whole = await client("GET", path, domain=None)
    head = await client("HEAD", path, domain=None)
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Length", "ETag", "Accept-Ranges", "Content-Type"):
        assert head.headers[name] == whole.headers[name]
    assert head.headers["Content-Length"] == str(len(whole.body))
    assert head.headers["Accept-Ranges"] == "bytes"
    etag = head.headers["ETag"]
    other = await client("HEAD", path, domain=None, layout="structured")
    assert other.headers["ETag"] != etag

    async def status(method: str = "GET", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await client(method, path, domain=None, headers=named)).status

    assert await status(Range="bytes=0-9", If_Range=etag) == 206
    assert await status(Range="bytes=0-9", If_Range='"other"') == 200
    assert await status(Range="bytes=0-9", If_Match=f'"other", {etag}') == 206
    assert await status(Range="bytes=0-9", If_Match='"other"') == 412
    assert await status("HEAD", If_Match='"other"') == 412
    assert await status(If_None_Match=f"W/{etag}") == 304
    assert await status(If_None_Match='"other"') == 200
    assert await status(Range="bytes=9-5") == 200
    assert await status(Range="bytes=0-1,5-6") == 200
    assert await status(Range="lines=0-1") == 200
    refused = await client("GET", path, domain=None, headers={"Range": "bytes=99999999-"})
    assert refused.status == 416
    assert refused.headers["Content-Range"] == f"bytes */{len(whole.body)}"
    assert (await client("GET", path, domain=None, layout="other")).status == 400


async def test_the_etag_changes_with_the_domain(client: RestClient) -> None:
    ids = await fill_domain(client)
    root = (await client("GET", "/"))["root"]
    path = f"/files{client.domain}"
    number = {"type": "H5T_STD_I32LE", "shape": [], "value": 1}
    seen = set()
    for change in (
        None,
        ("PUT", f"/datasets/{ids['/g/chunked']}/value", {"select": "[0,0]", "value": 9}, 200),
        ("PUT", f"/datasets/{ids['/never']}/value", {"value": [1, 2, 3]}, 200),
        ("PUT", f"/datasets/{ids['/sparse']}/value", {"select": "[39,0]", "value": 9}, 200),
        ("DELETE", f"/datasets/{ids['/sparse']}/value?select=[39,0]", None, 200),
        ("PUT", f"/groups/{root}/attributes/n", number, 201),
        ("PUT", f"/datasets/{ids['/g/chunked']}/shape", {"shape": [20, 30]}, 201),
        ("DELETE", f"/groups/{root}/links/again", None, 200),
    ):
        if change is not None:
            method, where, body, status = change
            made = await client(method, where, body)
            assert made.status == status, made.body
        reply = await client("HEAD", path, domain=None)
        assert reply.status == 200
        assert reply.headers["ETag"] not in seen, change
        assert (await client("HEAD", path, domain=None)).headers["ETag"] == reply.headers["ETag"]
        seen.add(reply.headers["ETag"])


@pytest.mark.parametrize("named", [True, False])
async def test_a_change_in_the_middle_is_refused(client: RestClient, named: bool) -> None:
    """Also where the client did not name the state: the next part would be of another file."""
    ids = await fill_domain(client)
    path = f"/files{client.domain}"
    head = await client("HEAD", path, domain=None)
    size = int(head.headers["Content-Length"])
    condition = {"If-Match": head.headers["ETag"]} if named else {}
    headers = {"Range": f"bytes=8-{size - 1}", **condition}
    assert (await client("GET", path, domain=None, headers=headers)).status == 206
    await client("PUT", f"/datasets/{ids['/g/chunked']}/value", {"select": "[0,0]", "value": 9})
    front = await client("GET", path, domain=None, headers={"Range": "bytes=0-99", **condition})
    assert front.status == 206, "what is planned is of the state that the etag names"
    changed = await client("GET", path, domain=None, headers=headers)
    assert (changed.status, changed["error"]["kind"]) == (412, "precondition_failed")
    assert "was changed since" in changed["error"]["message"]
    again = await client("GET", path, domain=None, headers=headers)
    assert again.status == (412 if named else 206)
    assert (await client("HEAD", path, domain=None)).headers["ETag"] != head.headers["ETag"]


async def test_a_chunk_that_is_gone(client: RestClient) -> None:
    ids = await fill_domain(client)
    path = f"/files{client.domain}"
    size = int((await client("HEAD", path, domain=None)).headers["Content-Length"])
    assert (await client("DELETE", f"/datasets/{ids['/g/chunked']}")).status == 200
    headers = {"Range": f"bytes=0-{size - 1}"}
    assert (await client("GET", path, domain=None, headers=headers)).status == 412


async def test_names_of_domains(client: RestClient) -> None:
    """A domain is found by its own name, and with .h5 behind it."""
    assert (await client("PUT", "/", {}, domain="/home/admin/plain")).status == 201
    assert (await client("GET", "/files/home/admin/plain.h5", domain=None)).status == 200
    assert (await client("GET", f"/files{client.domain}", domain=None)).status == 200
    assert (await client("GET", "/files/home/admin/none.h5", domain=None)).status == 404
    assert (await client("GET", "/files/home/admin/plain", domain=None)).status == 200
    assert (await client("PUT", "/", {"folder": 1}, domain="/home/admin/f.h5")).status == 201
    folder = await client("GET", "/files/home/admin/f.h5", domain=None)
    assert (folder.status, "is a folder" in folder["error"]["message"]) == (400, True)


async def test_h5py_opens_it_over_http_in_a_few_requests(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_domain(client)
    asked: list[str] = []
    counted = client.service.component(FilePlans).current

    async def count(root: str, *form: Any, check: bool) -> PlannedFile:
        asked.append(root)
        return await counted(root, *form, check=check)

    monkeypatch.setattr(client.service.component(FilePlans), "current", count)

    # In a process of its own: fsspec leaves its session to the collector.
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", OVER_HTTP, f"{client.url}/files{client.domain}"], check=True
    )
    assert 0 < len(asked) <= 10


@pytest.mark.skipif(
    "ros3" not in h5py.registered_drivers(), reason="h5py was built with a libhdf5 that has no driver ros3"
)
async def test_hdf5s_own_driver_opens_it_over_http(client: RestClient) -> None:
    """Read-only S3: it asks for ranges of any URL, without a name where no key is given."""
    await fill_domain(client)
    assert (await client("PUT", "/acls/default", {"read": True})).status == 201

    def read(url: str) -> list[int]:
        with h5py.File(url, driver="ros3") as file:
            return list(file["g/chunked"][3].tolist())

    found = await asyncio.to_thread(read, f"{client.url}/files{client.domain}")
    assert found == list(range(90, 120))


async def test_no_chunk_is_read_that_the_range_does_not_touch() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        layout = {"class": "H5D_CHUNKED", "dims": [256]}
        id = await place(client, "/d", "H5T_STD_I32LE", [2560], list(range(2560)), layout=layout)
        one = {"class": "H5D_CHUNKED", "dims": [40]}
        words = await place(client, "/words", TEXT, [40], WORDS, layout=one)
        store.reset()
        whole = await fetch(client)
        assert store.gets == 10 + 2, "a chunk of text is read for its size, and for its bytes"
        path = f"/files{client.domain}"
        assert store.keys["get", chunk_key(words, (0,))] == 2
        first = whole.index(np.arange(2560, dtype="<i4").tobytes())
        for start, count in ((0, 0), (first, 1), (first + 1023, 2), (first, 10)):
            stop = 100 if not count else first + 10240 if count == 10 else start + count
            store.reset()
            headers = {"Range": f"bytes={start}-{stop - 1}"}
            part = await client("GET", path, domain=None, headers=headers)
            assert part.body == whole[start:stop]
            assert store.gets == count
            assert not store.calls["list"], "for a range nothing is listed"
        assert store.keys["get", chunk_key(id, (9,))] == 1
        store.reset()
        assert (await client("HEAD", path, domain=None)).status == 200
        assert store.gets == 0


async def test_structured_chunks_are_what_is_stored(client: RestClient) -> None:
    """This project's own reader of files finds each chunk, byte for byte."""
    ids = await fill_domain(client)
    source = FileBytes(await fetch(client, layout="structured"))
    found = walk(bytes(source.data))
    for path in ("/again", "/sparse points", "/sparse words", "/sparse nothing"):
        one = found[path].dataset
        assert one is not None
        assert isinstance(one.layout, RawStructuredLayout)
        id = ids["/sparse" if path == "/again" else path]
        rows = (await client("GET", f"/datasets/{id}/chunks"))["chunks"]
        limits = max_dims_of(one.shape)
        layout = decode_structured_layout(one.layout.message, limits, filtered=True).index
        records = source.run(read_chunk_index(layout, one.shape["dims"], len(source.data)))
        assert len(records) == len(rows) == (0 if path.endswith("nothing") else len(rows))
        by_place = {tuple(row["scaled"]): row for row in rows}
        for number, (scaled, address) in enumerate(
            zip(records.scaled.tolist(), records.address.tolist(), strict=True)
        ):
            row = by_place[tuple(scaled)]
            name = "_".join(map(str, scaled))
            stored = (await client("GET", f"/datasets/{id}/chunks/{name}/value")).body
            assert bytes(source.data[address : address + row["size"]]) == stored
            told = [
                (one["offset"], one["size"], one["unfiltered_size"], one["filter_mask"])
                for one in row["sections"]
            ]
            assert [
                (one.offset, one.size, one.unfiltered, one.mask) for one in records.sections(number)
            ] == told


async def test_revisions_of_structured_chunks(client: RestClient) -> None:
    await fill_domain(client)
    files, etags = {}, set()
    path = f"/files{client.domain}"
    for revision in FormatRevision:
        reply = await client("GET", path, domain=None, layout="structured", revision=revision.value)
        assert reply.status == 200, reply.body
        files[revision] = reply.body
        etags.add(reply.headers["ETag"])
        layout = walk(reply.body)["/sparse words"].dataset
        assert layout is not None
        assert isinstance(layout.layout, RawStructuredLayout)
        found = decode_structured_layout(layout.layout.message, (None, None), filtered=True)
        assert (found.index.revision is revision) == (revision is not FormatRevision.RFC_2025_10)
    assert len(etags) == len(set(files.values())) == 3
    assert files[FormatRevision.LIB_2026_09] == await fetch(client, layout="structured")
    part = {"Range": "bytes=100-4999"}
    for revision, whole in files.items():
        reply = await client(
            "GET", path, domain=None, layout="structured", revision=revision.value, headers=part
        )
        assert reply.body == whole[100:5000]
    refused = await client("GET", path, domain=None, revision="rfc-2023-07")
    assert (refused.status, "layout=structured" in refused["error"]["message"]) == (400, True)
    refused = await client("GET", path, domain=None, layout="structured", revision="next")
    assert (refused.status, "lib-2026-09" in refused["error"]["message"]) == (400, True)


async def test_chunks_without_elements_are_in_no_file(client: RestClient) -> None:
    """Erased, a chunk's object stays in the store; HDF5 has no such chunks."""
    maxdims = [0, 30]
    numbers = await place(
        client, "/n", INT, [40, 30], 8, select="[0:40,5]", layout=sparse(16, 8), maxdims=maxdims
    )
    words = await place(client, "/w", TEXT, [40], WORDS, layout=sparse(10))
    leads = [f"datasets/{words}"] * 9
    target = await place(client, "/t", REFERENCE, [9], leads, layout=sparse(4))
    for id, select in ((numbers, "[0:32,:]"), (words, "[10:40]"), (target, "[0:8]")):
        assert (await client("DELETE", f"/datasets/{id}/value", select=select)).status == 200
        rows = (await client("GET", f"/datasets/{id}/chunks"))["chunks"]
        assert sorted(row["defined"] for row in rows)[0] == 0
    with h5py.File(io.BytesIO(await fetch(client))) as file:
        for name in ("n", "w", "t"):
            for one in (file[name], file[file[name].attrs["DEFINED_SET"]]):
                assert one.id.get_num_chunks() == 1
        assert file["n"][:, 5].tolist() == [0] * 32 + [8] * 8
        assert file["w"].asstr()[()].tolist() == WORDS[:10] + [""] * 30
        assert [bool(one) for one in file["t"][()]] == [False] * 8 + [True]
    for revision in FormatRevision:
        source = FileBytes(await fetch(client, layout="structured", revision=revision.value))
        for name, one in walk(bytes(source.data)).items():
            if one.dataset is None:
                continue
            assert isinstance(one.dataset.layout, RawStructuredLayout)
            limits = max_dims_of(one.dataset.shape)
            layout = decode_structured_layout(one.dataset.layout.message, limits, filtered=True).index
            records = source.run(read_chunk_index(layout, one.dataset.shape["dims"], len(source.data)))
            assert len(records) == 1, name


async def test_rights_are_the_domains(bare: RestClient) -> None:
    assert (await bare("PUT", "/", {}, domain="/home/test_user1/file.h5")).status == 201
    path = "/files/home/test_user1/file.h5"
    for method in ("GET", "HEAD"):
        assert (await bare(method, path)).status == 200
        assert (await bare(method, path, user="admin")).status == 200
    closed = {"read": False}
    assert (await bare("PUT", "/acls/default", closed, domain="/home/test_user1/file.h5")).status == 201
    for method in ("GET", "HEAD"):
        assert (await bare(method, path, user="test_user2")).status == 403
