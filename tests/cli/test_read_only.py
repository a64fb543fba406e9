"""Servers that only read: public buckets without keys, directories that cannot be written, beside others that write."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import h5py
import h5pyd
import hdf5plugin  # noqa: F401 - HSDS's LZ4 is Blosc's
import numpy as np
import pytest
from aiobotocore.session import AioSession

import hsparse
from hsparse.cli.data_node import serve_data_node
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.cli.serve import serve
from hsparse.cli.stores import ONLY_READS, open_stores
from hsparse.client.connection import Connection
from hsparse.config import load_settings
from hsparse.errors import HsparseError, Misconfigured, Unsupported
from hsparse.sn.app import BRACES
from hsparse.sn.routes import ROUTES, spelled_out
from hsparse.storage.s3.s3_store import S3Store
from hsparse.storage.store_settings import StoreSettings
from tests.interchange.content import SMALL, small_data
from tests.interchange.record import DATA
from tests.support.directory_state import directory_state
from tests.support.s3_servers import Answer, Application, moto_server
from tests.support.server_process import start_command
from tests.test_hsds_bucket import OBJECTS, VALUES

PUBLIC = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::*"}
    ],
}
NUMBERS = np.arange(40, dtype="<i4").reshape(8, 5)
TYPES, SMALL_DOMAIN, LINKING = "/home/a.h5", "/home/bench/small.h5", "/home/linking.h5"
REGION: dict[str, Any] = {"s3_region": "us-east-1"}
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(slots=True)
class Guard:
    """What a server of S3 was asked, and what it denies: methods, or paths that begin so."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    denied: tuple[str, ...] = ()

    def around(self, application: Application) -> Application:
        def answer(environ: dict[str, Any]) -> Answer:
            self.requests.append(environ)
            what = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
            if what.startswith(self.denied):
                body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
                return "403 Forbidden", [("Content-Type", "application/xml")], body
            return application(environ)

        return answer

    @property
    def changing(self) -> list[str]:
        methods = [one["REQUEST_METHOD"] for one in self.requests]
        return [one for one in methods if one not in ("GET", "HEAD")]

    @property
    def signed(self) -> list[dict[str, Any]]:
        keyed = (one for one in self.requests if "HTTP_AUTHORIZATION" in one)
        return [*keyed, *(one for one in self.requests if "Signature" in one["QUERY_STRING"])]


def hsds_objects() -> dict[str, bytes]:
    """Return the objects of two domains that HSDS wrote, by key."""
    found = json.loads(OBJECTS.read_text()) | json.loads((DATA / "1.0.2.json").read_text())
    return {key: base64.b64decode(text) for key, text in found.items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Guard]]:
    """A server whose bucket `hsds` was written by HSDS, with links to a file in the bucket `files`; both public."""
    guard, path = Guard(), tmp_path_factory.mktemp("files") / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=NUMBERS, chunks=(4, 5), compression="gzip")
        chunks = [file["x"].id.get_chunk_info(number) for number in range(2)]
    layout = {
        "class": "H5D_CHUNKED_REF",
        "file_uri": "s3://files/data/a.h5",
        "dims": [4, 5],
        "chunks": {f"{number}_0": [one.byte_offset, one.size] for number, one in enumerate(chunks)},
    }
    filters = [{"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4, "name": "deflate"}]
    properties = {"layout": layout, "filters": filters}
    linked = {"type": "H5T_STD_I32LE", "shape": [8, 5], "creationProperties": properties}
    with pytest.MonkeyPatch.context() as patch, moto_server(around=guard.around) as endpoint:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        asyncio.run(fill(endpoint, "hsds", hsds_objects()))
        asyncio.run(fill(endpoint, "files", {"data/a.h5": path.read_bytes()}))
        settings = load_settings(bucket="hsds,files", s3_endpoint=endpoint, port=0, lease=0.5, **REGION)
        with embedded_server(settings) as url, Connection(url, LINKING) as writer:
            root = writer.json("PUT", "/", {})["root"]
            writer.json("POST", "/datasets", linked | {"link": {"id": root, "name": "x"}})
            writer.json("PUT", f"/groups/{root}/links/far", {"h5path": "/num", "file": TYPES})
        for name in KEYS:
            patch.delenv(name)
        yield endpoint, guard


async def fill(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    """Make a public bucket with these objects."""
    async with S3Store(bucket, endpoint=endpoint, region="us-east-1") as store:
        await store._client.create_bucket(Bucket=bucket)
        await store._client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(PUBLIC))
        for key, data in objects.items():
            await store.put(key, data)


@pytest.fixture
def public(filled: tuple[str, Guard]) -> tuple[str, Guard]:
    """The same, for one test, which denies nothing and was asked nothing so far."""
    filled[1].denied = ()
    filled[1].requests.clear()
    return filled


def of_bucket(endpoint: str, **more: Any) -> StoreSettings:
    return StoreSettings(**{"bucket": ("hsds",), "read_only": True, "s3_endpoint": endpoint} | REGION | more)


def server(**flags: Any) -> AbstractContextManager[str]:
    return embedded_server(load_settings(port=0, read_only=True, **flags))


def told(url: str, method: str, path: str, domain: str | None = None, **params: object) -> HsparseError:
    """Return the error that a server answers with."""
    with Connection(url, domain) as connection, pytest.raises(HsparseError) as error:
        connection.json(method, path, **params)
    return error.value


def read_all(url: str) -> None:
    """Read both domains of HSDS, and what is linked, by the client and by REST, with all that the server computes."""
    with hsparse.open(url + SMALL_DOMAIN, "r") as file:
        check_small(file)
    with hsparse.open(url + LINKING, "r") as file:
        np.testing.assert_array_equal(file["x"][...], NUMBERS)
        np.testing.assert_array_equal(file["far"][...], VALUES["num"])
    with Connection(url, TYPES) as connection:
        top = connection.json("GET", "/", verbose=1, getobjs=1, include_attrs=1, include_links=1)
        links = connection.json("GET", f"/groups/{top['root']}/links")["links"]
        for link in (one for one in links if one["collection"] == "datasets"):
            value = connection.json("GET", f"/datasets/{link['id']}/value")["value"]
            assert link["title"] not in VALUES or value == VALUES[link["title"]]
            connection.json("GET", f"/datasets/{link['id']}", verbose=1)
        assert told(url, "GET", f"/groups/{top['root']}/attributes/none", TYPES).kind == "not_found"
        assert told(url, "GET", f"/groups/{top['root']}/links/none", TYPES).kind == "not_found"
    with urlopen(Request(f"{url}/files{TYPES}", method="HEAD")) as reply:
        assert int(reply.headers["Content-Length"]) > 0
    with urlopen(f"{url}/files{TYPES}") as reply, h5py.File(io.BytesIO(reply.read())) as whole:
        assert whole["num"][()].tolist() == VALUES["num"]


def test_a_public_bucket_is_read_whole_without_a_put_or_a_key(
    public: tuple[str, Guard], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, guard = public

    async def looked_for(self: AioSession) -> None:
        raise AssertionError("credentials are looked for")

    monkeypatch.setattr(AioSession, "get_credentials", looked_for)
    guard.denied = ("PUT", "POST", "DELETE")
    with server(bucket="hsds,files", s3_endpoint=endpoint, unsigned=True, **REGION) as url:
        read_all(url)
        read_all(url)
    assert len(guard.requests) > 50
    assert (guard.changing, guard.signed) == ([], [])
    assert warnings(caplog) == [], "nothing is tried that is refused"


def check_small(file: Any) -> None:
    for title in SMALL:
        np.testing.assert_array_equal(file[title][...], small_data())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.startswith("hsparse")]


def test_a_writing_server_is_seen_at_once(public: tuple[str, Guard], monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, _ = public
    place = {"bucket": "hsds", "s3_endpoint": endpoint} | REGION
    with server(**place, unsigned=True) as first, server(**place, unsigned=True) as second:
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        with (
            embedded_server(load_settings(port=0, **place)) as writer,
            hsparse.open(f"{writer}/new.h5", "w") as file,
        ):
            data = file.create_sparse("x", (4, 100), "u2", (2, 100))
            for number in range(1, 4):
                data[number, 3] = number
                for url in (first, second):
                    with hsparse.open(f"{url}/new.h5", "r") as seen:
                        assert seen["x"].nnz == number
                        assert seen["x"].to_scipy().todok()[number, 3] == number


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory with domains of HSDS and of hsparse, which nobody may write."""
    root = tmp_path / "store"
    for key, data in hsds_objects().items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(data)
    with (
        embedded_server(load_settings(root=root, port=0)) as url,
        hsparse.open(f"{url}/home/sparse.h5", "w") as file,
    ):
        # So many chunks have a map, which servers keep.
        data = file.create_sparse("x", (400, 100), "u2", (2, 100))
        data[:, 3] = np.arange(400) + 1
    paths = sorted(root.rglob("*"))
    modes = {path: path.stat().st_mode for path in (root, *paths)}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    yield root
    for path, mode in modes.items():
        path.chmod(mode)


def test_a_read_only_directory_stays_as_it_is(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    caplog.set_level(logging.WARNING, "hsparse")  # h5pyd sets that of the root
    before = directory_state(directory)
    with server(root=directory) as first, server(root=directory) as second:
        for url in (first, second):
            with hsparse.open(url + SMALL_DOMAIN, "r") as file:
                check_small(file)
            with h5pyd.File(SMALL_DOMAIN, "r", endpoint=url, username="admin", password="any") as file:
                check_small(file)
            with hsparse.open(f"{url}/home/sparse.h5", "r") as file:
                assert file["x"].nnz == 400
            with Connection(url, "/home/sparse.h5") as connection:
                (id,) = connection.json("GET", "/datasets")["datasets"]
                assert len(connection.json("GET", f"/datasets/{id}/chunks")["chunks"]) == 200
                connection.json("GET", "/", verbose=1)
            assert told(url, "GET", "/", "/home/admin/").status == 404
    assert (directory_state(directory), warnings(caplog)) == (before, [])


def test_a_directory_is_read_while_another_server_writes_it(tmp_path: Path) -> None:
    with (
        embedded_server(load_settings(root=tmp_path, port=0)) as writer,
        server(root=tmp_path) as reader,
        hsparse.open(f"{writer}/new.h5", "w") as file,
    ):
        data = file.create_sparse("x", (4, 100), "u2", (2, 100))
        for number in range(1, 4):
            data[number, 3] = number
            with hsparse.open(f"{reader}/new.h5", "r") as seen:
                assert (seen["x"].nnz, seen["x"][number, 3]) == (number, number)


def test_every_change_is_refused_at_once(public: tuple[str, Guard]) -> None:
    endpoint, guard = public
    changes = [route for route in ROUTES if not route.reads]
    assert len(changes) > 20
    with server(bucket="hsds", s3_endpoint=endpoint, unsigned=True, **REGION) as url:
        guard.requests.clear()
        for route in changes:
            for path in spelled_out(route.path):
                error = told(url, route.method, BRACES.sub("any", path), TYPES)
                assert (error.status, error.message) == (403, ONLY_READS), path
        assert (told(url, "POST", "/jobs").message, guard.requests) == (ONLY_READS, [])
        with Connection(url) as connection:
            assert connection.json("GET", "/about")["read_only"] is True


def test_a_server_that_writes_says_nothing_of_it(embedded_url: str) -> None:
    with Connection(embedded_url) as connection:
        assert "read_only" not in connection.json("GET", "/about")


@pytest.mark.parametrize(
    ("denied", "flags", "sentence"),
    [
        ((), {"bucket": ("none",), "unsigned": True}, "There is no bucket 'none'; create it"),
        (("GET /hsds?",), {"unsigned": True}, "denies s3:ListBucket .* leave out --unsigned"),
        (("GET /hsds/",), {"unsigned": True}, "denies s3:GetObject .* leave out --unsigned"),
        ((), {}, "no usable credentials .* --unsigned"),
        ((), {"unsigned": True, "requester_pays": True}, "leave out --unsigned or --requester-pays"),
    ],
)
async def test_a_bucket_that_cannot_be_read_is_told_at_the_start(
    public: tuple[str, Guard],
    monkeypatch: pytest.MonkeyPatch,
    denied: tuple[str, ...],
    flags: dict[str, Any],
    sentence: str,
) -> None:
    endpoint, guard = public
    guard.denied = denied
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(Misconfigured, match=sentence) as error:
        await open_stores(of_bucket(endpoint, **flags))
    assert "\n" not in error.value.message


async def test_without_read_only_a_refused_put_names_the_remedy(public: tuple[str, Guard]) -> None:
    endpoint, guard = public
    guard.denied = ("PUT",)
    with pytest.raises(Misconfigured, match=r"denies s3:PutObject .* --unsigned"):
        await open_stores(of_bucket(endpoint, unsigned=True, read_only=False))


async def test_who_asks_pays(public: tuple[str, Guard], monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, guard = public
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    (store,) = await open_stores(of_bucket(endpoint, requester_pays=True))
    guard.requests.clear()
    await store.get("home/a.h5/.domain.json")
    await store.get_range("home/a.h5/.domain.json", 0, 3)
    assert [page async for page in store.list("home/")]
    assert [one.get("HTTP_X_AMZ_REQUEST_PAYER") for one in guard.requests] == ["requester"] * 3
    with pytest.raises(Unsupported, match="cannot sign URLs"):
        await store.presigned("home/a.h5/.domain.json", 60)
    await store.close()


def test_a_public_file_is_imported_without_keys(public: tuple[str, Guard], embedded_url: str) -> None:
    endpoint, guard = public
    flags = ["--s3-endpoint", endpoint, "--s3-region", "us-east-1", "--unsigned"]
    assert main(["import", "s3://files/data/a.h5", "/public.h5", "--endpoint", embedded_url, *flags]) == 0
    assert guard.signed == []
    with hsparse.open(f"{embedded_url}/public.h5", "r") as file:
        np.testing.assert_array_equal(file["x"][...], NUMBERS)


async def test_public_objects_have_plain_urls(public: tuple[str, Guard]) -> None:
    (store,) = await open_stores(of_bucket(public[0], unsigned=True))
    url = await store.presigned("home/a.h5/.domain.json", 60)
    assert url == f"{public[0]}/hsds/home/a.h5/.domain.json"
    await store.close()


def test_a_service_node_that_only_reads_leaves_the_store_alone(directory: Path) -> None:
    before = directory_state(directory)
    flags = ("sn", "--port", "0", "--root", str(directory), "--read-only")
    process, lines = start_command(flags, None, "", {"HSPARSE_NODE_TOKEN": "secret"})
    with lines:
        try:
            url = lines.readline().rpartition(" on ")[2].split()[0]
            error = told(url, "PUT", "/", "/home/new.h5")
            assert (error.status, error.message) == (403, ONLY_READS)
        finally:
            process.kill()
            process.join()
    assert directory_state(directory) == before


def test_linked_files_of_a_bucket_that_is_not_served_are_named(public: tuple[str, Guard]) -> None:
    with server(bucket="hsds", s3_endpoint=public[0], unsigned=True, **REGION) as url:
        with Connection(url, LINKING) as connection:
            (id,) = connection.json("GET", "/datasets")["datasets"]
        error = told(url, "GET", f"/datasets/{id}/value", LINKING)
        assert error.status == 403
        assert "'files', which is not served: name it in --bucket" in error.message


async def test_nodes_that_write_leases_do_not_only_read(tmp_path: Path) -> None:
    alone = load_settings(root=tmp_path, read_only=True, dn=2)
    with pytest.raises(Misconfigured, match="omit --dn"):
        await serve(alone)
    with pytest.raises(Misconfigured, match="hsparse serve --read-only"):
        await serve_data_node(load_settings(root=tmp_path, read_only=True, node_token="secret"))
    assert directory_state(tmp_path).keys() == {"."}


async def test_an_absent_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"No such file .* name one that this process may read"):
        await open_stores(StoreSettings(root=tmp_path / "none", read_only=True))
    assert directory_state(tmp_path).keys() == {"."}
