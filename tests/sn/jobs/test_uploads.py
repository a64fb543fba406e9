"""Where jobs read and write: below the places and nowhere else, and what was uploaded."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.errors import BadRequest, Forbidden, Misconfigured
from hsparse.hdf5.jobs.job_queue import JobPlaces
from hsparse.model.acl import Principal
from tests.cli.importer.domain_picture import domain_differences
from tests.sn.jobs.conftest import Open, until
from tests.sn.jobs.test_served_jobs import ended
from tests.support.file_upload import attributes_body, dataset_body, pieces, upload
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock


@pytest.mark.parametrize(
    "url", ["s3://lab/in/x.h5", "s3://lab/in/a/b.h5", "s3://all/x.h5", "s3://homes/ada/x.h5"]
)
def test_objects_in_places(url: str) -> None:
    places = JobPlaces(("s3://lab/in/", "s3://all", "s3://homes/{user}"))
    for writes in (False, True):
        assert places.argument(url, "ada", writes=writes) == url


@pytest.mark.parametrize(
    "url",
    [
        "s3://lab/x.h5", "s3://lab/input/x.h5", "s3://LAB/in/x.h5", "s3://all-other/x.h5",
        "s3://homes/ben/x.h5", "s3://homes/{user}/x.h5", "file:///lab/in/x.h5",
    ],
)  # fmt: skip
def test_objects_elsewhere(url: str) -> None:
    places = JobPlaces(("s3://lab/in/", "s3://all", "s3://homes/{user}/"))
    with pytest.raises(Forbidden, match="outside of the places"):
        places.argument(url, "ada", writes=False)


@pytest.mark.parametrize("entry", ["s3://lab", "s3://lab/", "s3://lab/db/", "s3://lab/DB/x"])
def test_a_place_has_none_of_the_servers_objects(entry: str) -> None:
    assert JobPlaces((entry,), ("other",)).entries
    with pytest.raises(Misconfigured, match="another place"):
        JobPlaces((entry,), ("other", "lab"))


def test_a_place_has_nothing_of_the_root_directory(tmp_path: Path) -> None:
    (tmp_path / "to-root").symlink_to(tmp_path / "root")
    for entry in ("", "/root", "/root/home", "/to-root/x"):
        with pytest.raises(Misconfigured, match="another place"):
            JobPlaces((f"file://{tmp_path}{entry}",), (), f"{tmp_path}/root")
    places = JobPlaces((f"file://{tmp_path}/{{user}}",), (), f"{tmp_path}/root")
    assert places.folders("ada") == (f"{tmp_path}/ada/",)
    assert places.folders("root") == ()


def test_records_in_a_served_bucket_are_no_files() -> None:
    places = JobPlaces(("s3://lab/{user}", "s3://lab/home"), ("lab",))
    for name, url, right in (
        ("ada", "s3://lab/ada/x.h5", True),
        ("ada", "s3://lab/home/ben/.domain.json", False),
        ("db", "s3://lab/db/0-0/d/0-0-0/0", False),
    ):
        if right:
            assert places.argument(url, name, writes=True) == url
            continue
        for writes in (False, True):
            with pytest.raises(Forbidden):
                places.argument(url, name, writes=writes)
    assert places.folders("db") == ("s3://lab/home/",)


def test_a_name_that_is_no_path_has_no_place_of_its_own() -> None:
    for name in ("a/b", "..", ""):
        with pytest.raises(Forbidden):
            JobPlaces(("s3://homes/{user}/",)).argument("s3://homes/a/b/x.h5", name, writes=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x.h5",
        "/data/x.h5",
        "http://host/x.h5",
        "s3://",
        "s3://lab",
        "s3://lab/",
        "s3:///x.h5",
        "s3://lab/in/",
        "s3://lab/in//x.h5",
        "s3://lab/in/../x.h5",
        "s3://lab/in/./x.h5",
        "s3://lab/in/a\nb",
        "s3://lab/in/a\0b",
        "s3://lab/in/" + "x" * 3000,
        "file://x.h5",
        "file://host/data/x.h5",
        "file:///",
        "file:///data/../x.h5",
    ],
)
def test_what_names_no_file(url: str) -> None:
    with pytest.raises(BadRequest):
        JobPlaces(("s3://lab/in/", "file:///data/")).argument(url, "ada", writes=False)


@pytest.mark.parametrize(
    "entry", ["", "data", "/data", "http://host/", "s3://", "file://data/", "file:///a/../b"]
)
def test_what_is_no_place(entry: str) -> None:
    with pytest.raises(Misconfigured, match="job_places"):
        JobPlaces((entry,))


def test_files_are_followed_to_where_they_are(tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    for folder in (place / "sub", outside):
        folder.mkdir(parents=True)
        (folder / "x.h5").write_bytes(b"")
    (tmp_path / "way").symlink_to(place)
    (place / "out.h5").symlink_to(outside / "x.h5")
    (place / "outfolder").symlink_to(outside)
    (place / "in.h5").symlink_to(place / "sub" / "x.h5")
    (place / "nothing.h5").symlink_to(place / "none.h5")
    places = JobPlaces((f"file://{tmp_path}/way/",))

    def argument(name: str, *, writes: bool) -> str:
        return places.argument(f"file://{tmp_path}/way/{name}", "ada", writes=writes)

    assert argument("sub/x.h5", writes=False) == str(place / "sub" / "x.h5")
    assert argument("in.h5", writes=False) == str(place / "sub" / "x.h5")
    assert argument("sub/new.h5", writes=True) == str(place / "sub" / "new.h5")
    for name in ("out.h5", "outfolder/x.h5"):
        for writes in (False, True):
            with pytest.raises(Forbidden, match="symbolic link"):
                argument(name, writes=writes)
    for name in ("in.h5", "nothing.h5"):
        with pytest.raises(Forbidden, match="symbolic link"):
            argument(name, writes=True)


def test_folders_are_arguments_of_a_command() -> None:
    places = JobPlaces(("s3://lab/in", "file:///data", "file:///homes/{user}/"))
    assert places.folders("ada") == ("s3://lab/in/", "/data/", "/homes/ada/")
    assert places.folders("../eve") == ("s3://lab/in/", "/data/")


@pytest.mark.parametrize("writes", [False, True])
def test_only_regular_files_are_read_and_written(tmp_path: Path, writes: bool) -> None:
    places = JobPlaces((f"file://{tmp_path}",))
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "folder.h5").mkdir()
    for name in ("pipe.h5", "folder.h5"):
        with pytest.raises(BadRequest, match="not a regular file"):
            places.argument(f"file://{tmp_path}/{name}", "ada", writes=writes)


UPLOAD = "/home/ada/run.h5.upload"
NOBODY = {
    "read": False,
    "create": False,
    "update": False,
    "delete": False,
    "readACL": False,
    "updateACL": False,
}


async def begun(
    rest: RestClient, path: str, size: int, received: int = 0, chunk: int = 1 << 20
) -> tuple[str, str]:
    """Make the domain of an upload without bytes; return its root group and dataset."""
    root = (await rest("PUT", "/", {}, domain=path))["root"]
    dataset = await rest("POST", "/datasets", dataset_body(root, size, chunk), domain=path)
    body = attributes_body(path.rpartition("/")[2].removesuffix(".upload"), size, received)
    assert (await rest("PUT", f"/groups/{root}/attributes", body, domain=path)).status == 201
    return root, dataset["id"]


async def hide(rest: RestClient, path: str) -> None:
    """Let ada alone see a domain."""
    assert (await rest("PUT", "/acls/default", NOBODY, domain=path)).status in (200, 201)


def upload_body(domain: str = "/home/ada/run.h5", source: str = f"upload://{UPLOAD}") -> dict[str, Any]:
    return {"kind": "import", "domain": domain, "source": source}


def copy_body(domain: str, source: str) -> dict[str, Any]:
    return {"kind": "copy", "domain": domain, "source": source}


async def test_an_upload_needs_no_place_and_gives_none(open_node: Open) -> None:
    for places in ((), ("s3://lab/{user}/",)):
        rest = await open_node(job_places=places)
        if not places:
            await begun(rest, UPLOAD, 9, 9)
        reply = await rest("POST", "/jobs", upload_body())
        assert (reply.status, reply["source"]) == (202, f"upload://{UPLOAD}")
        done = await until(rest, reply["id"], "done")
        words = f"--piped --progress json upload://{UPLOAD} /home/ada/run.h5"
        assert done["messages"][0].endswith(words)


async def test_a_copy_is_run_as_cp(open_node: Open) -> None:
    rest = await open_node(job_places=())
    await rest("PUT", "/", {}, domain="/home/ada/a[1].h5")
    reply = await rest("POST", "/jobs", copy_body("/home/ada/b*.h5", "/home/ada/a[1].h5"))
    assert reply.status == 202
    assert {key: reply[key] for key in ("kind", "source", "domain")} == copy_body(
        "/home/ada/b*.h5", "/home/ada/a[1].h5"
    )
    done = await until(rest, reply["id"], "done")
    assert "ada: cp --endpoint" in done["messages"][0]
    assert done["messages"][0].endswith("--piped --progress json --exact /home/ada/a[1].h5 /home/ada/b*.h5")
    assert (done["done"], done["total"]) == (10, 10)


async def test_what_is_no_whole_upload_is_refused(rest: RestClient) -> None:
    async def refused(status: int, *words: str, **change: Any) -> None:
        reply = await rest("POST", "/jobs", upload_body() | change)
        assert reply.status == status, reply.body
        assert all(word in reply["error"]["message"] for word in words), reply.body

    await refused(404, UPLOAD)
    root, _ = await begun(rest, UPLOAD, 9, 7)
    await refused(409, f"{UPLOAD} has 7 of the 9 bytes of 'run.h5'", "go on with its upload")
    await rest("PUT", f"/groups/{root}/attributes/received/value", {"value": 9}, domain=UPLOAD)
    await rest("PUT", "/", {}, domain="/home/ada/there.h5")
    await refused(409, "/home/ada/there.h5 exists already", domain="/home/ada/there.h5")
    await rest("DELETE", f"/groups/{root}/links/bytes", domain=UPLOAD)
    await refused(400, f"{UPLOAD} is no upload", "no dataset bytes")
    await rest("PUT", "/", {"folder": 1}, domain="/home/ada/f.upload")
    await refused(400, "it is a folder", source="upload:///home/ada/f.upload")
    for source in ("upload://", "upload://home/ada/run.h5.upload", "upload:///home/ada/there.h5"):
        await refused(400, "names no upload", source=source)
    for path in ("/home/ada/../ada/run.h5.upload", "/home//run.h5.upload", "/home/ada/a\n.upload"):
        await refused(400, "path", source=f"upload://{path}")
    await refused(400, "resume", options={"resume": 1})
    assert (await rest("GET", "/jobs"))["jobs"] == []


async def test_jobs_need_the_rights_of_what_they_do(rest: RestClient) -> None:
    await begun(rest, UPLOAD, 9, 9)
    await rest("PUT", "/", {}, domain="/home/ada/a.h5")
    await rest("PUT", "/", {"folder": 1}, domain="/home/ada/runs")
    for path in (UPLOAD, "/home/ada/a.h5"):
        await hide(rest, path)
    for body, user, status in (
        (upload_body("/home/ben/run.h5"), "ben", 403),  # may create, not read
        (upload_body(), "ben", 403),
        (upload_body(), None, 401),
        (upload_body("/run.h5"), "ada", 403),
        (copy_body("/home/ben/b.h5", "/home/ada/a.h5"), "ben", 403),
        (copy_body("/home/ben/b.h5", "/home/ada/a.h5"), "ada", 403),
        (copy_body("/home/ada/b.h5", "/home/ada/a.h5"), None, 401),
        (copy_body("/home/ada/b.h5", "/home/ada/none.h5"), "ada", 404),
        (copy_body("/home/ada/b.h5", "/home/ada/runs"), "ada", 400),
        (copy_body("/home/ada/b.h5", "file:///etc/passwd"), "ada", 400),
        (copy_body("/home/ada/a.h5", "/home/ada/a.h5"), "ada", 409),
        (copy_body("/home/ada/none/b.h5", "/home/ada/a.h5"), "ada", 404),
        (copy_body("/home/ada/b.h5", "/home/ada/a.h5") | {"options": {"resume": True}}, "ada", 400),
    ):
        reply = await rest("POST", "/jobs", body, user=user)
        assert reply.status == status, (body, reply.body)
    assert (await rest("GET", "/jobs", user="admin"))["jobs"] == []
    assert (await rest("POST", "/jobs", upload_body("/home/ben/run.h5"), user="admin")).status == 202


def test_a_server_as_it_is_imports_and_copies(embedded_url: str, tmp_path: Path) -> None:
    """Without users and without settings."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(600).reshape(20, 30), chunks=(5, 30), compression="gzip")
    data, folder = (tmp_path / "a.h5").read_bytes(), "/home/admin/served uploads"
    with Connection(embedded_url) as connection:
        connection.json("PUT", "/", {"folder": 1}, domain=folder)
        path, copy, bad = (f"{folder}/{name}" for name in ("<b>[1]*.h5", "copy.h5", "bad.h5"))
        body = upload_body(path, upload(connection, f"{path}.upload", data, "<b>[1]*.h5"))
        job = ended(connection, connection.json("POST", "/jobs", body))
        assert (job["status"], job["done"], job["total"]) == ("done", len(data), len(data)), job
        job = ended(connection, connection.json("POST", "/jobs", copy_body(copy, path)))
        assert (job["status"], job["done"]) == ("done", job["total"]), job
        assert job["total"] > 0
        body = upload_body(bad, upload(connection, f"{bad}.upload", data[:600], "bad.h5"))
        job = ended(connection, connection.json("POST", "/jobs", body))
        assert (job["status"], job["error"]["kind"]) == ("failed", "corrupt"), job
        assert job["error"]["message"].startswith("bad.h5: ")
        left = [one["name"] for one in connection.json("GET", "/domains", domain=f"{folder}/")["domains"]]
        assert left == [path, f"{bad}.upload", copy]
        with h5py.File(tmp_path / "a.h5") as file:
            for domain in (path, copy):
                assert domain_differences(file, connection.for_domain(domain)) == []


class Uploader:
    """Uploads `data` over connections that are cut: each of `cuts` is how much of a request is sent, the next no more.

    A request that is sent whole is answered, but the answer is lost. After a cut it goes on from what the server says.
    """

    def __init__(self, rest: RestClient, path: str, root: str, id: str, cuts: Iterator[float]) -> None:
        self._rest, self._path, self._root, self._id, self._cuts = rest, path, root, id, cuts

    async def run(self, data: bytes, piece: int) -> None:
        received = f"/groups/{self._root}/attributes/received"
        while (start := (await self._rest("GET", received, domain=self._path))["value"]) < len(data):
            for first, stop in pieces(len(data), start, piece):
                value = f"/datasets/{self._id}/value"
                if await self._cut(value, data[first:stop], select=f"[{first}:{stop}]"):
                    break
                if await self._cut(f"{received}/value", json.dumps({"value": stop}).encode()):
                    break

    async def _cut(self, path: str, body: bytes, **params: str) -> bool:
        """Send a request; say whether the connection was cut."""
        place, part = urlsplit(self._rest.url), next(self._cuts, None)
        kind = "application/octet-stream" if params else "application/json"
        lines = (
            f"PUT {path}?{urlencode({'domain': self._path, **params})} HTTP/1.1",
            f"Host: {place.netloc}",
            "Authorization: ada",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
        )
        request = "\r\n".join((*lines, "", "")).encode() + body
        sent = len(request) if part is None else round(part * len(request))
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request[:sent])
        await writer.drain()
        if sent == len(request):
            status = await reader.readline()
            assert status.split()[1] in (b"200", b"201"), status
        writer.close()
        return part is not None


@given(
    st.binary(min_size=1, max_size=3000),
    st.integers(1, 900),
    st.lists(st.one_of(st.floats(0, 1), st.just(1.0), st.none()), max_size=12),
)
async def test_an_upload_that_is_cut_at_any_byte_goes_on(
    data: bytes, piece: int, cuts: list[float | None]
) -> None:
    clock = ManualClock()
    async with RestClient(MemoryNode(clock), clock, Principal("ada")) as rest:
        root, id = await begun(rest, UPLOAD, len(data), chunk=256)
        await Uploader(rest, UPLOAD, root, id, iter(cuts)).run(data, max(piece, -(-len(data) // 40)))
        options = {"domain": UPLOAD, "accept": "application/octet-stream"}
        assert (await rest("GET", f"/datasets/{id}/value", **options)).body == data
