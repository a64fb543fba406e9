"""`hsparse export DOMAIN s3://bucket/key` from a server in a bucket, and from one in a directory."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import StoreFailed, TooLarge
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import encode_region
from hsparse.hdf5.exporter import s3_export
from hsparse.hdf5.exporter.multipart_upload import S3Upload
from hsparse.hdf5.exporter.s3_export import part_bounds
from hsparse.storage.s3.s3_store import S3Store
from tests.support.s3_servers import make_bucket
from tests.support.server_process import server_process

DOMAIN = "/home/admin/export.h5"
COUNT = 1_600_000
MIB = 1024 * 1024
HUNG = 60
"""Seconds after which an export that Ctrl-C does not stop says why."""
LAYOUTS = ("stock", "structured")
NUMBERS = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


@pytest.fixture(scope="module")
def service(moto_endpoint: str) -> tuple[str, ...]:
    make_bucket(moto_endpoint, "server")
    make_bucket(moto_endpoint, "exports")
    return ("--s3-endpoint", moto_endpoint, "--s3-region", "us-east-1")


@pytest.fixture(scope="module")
def in_bucket(service: tuple[str, ...]) -> Iterator[str]:
    """A server whose store the service can read."""
    with server_process("--bucket", "server", *service) as server:
        fill(server.url)
        yield server.url
        assert server.stop() == 0


@pytest.fixture(scope="module")
def in_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process("--root", str(tmp_path_factory.mktemp("root")), "--no-fsync") as server:
        fill(server.url)
        yield server.url
        assert server.stop() == 0


def fill(url: str) -> None:
    """Make a domain with large chunks, dense and sparse, and a small dataset between them."""
    rng = np.random.default_rng(1)
    noise = rng.bytes(8 * COUNT)
    with Connection(url, DOMAIN) as connection:
        connection.json("PUT", "/", {})
        for name, count, filters in (("a", COUNT, []), ("b", 100, []), ("c", COUNT, [{"id": 1, "level": 1}])):
            layout = {"class": "H5D_CHUNKED", "dims": [max(50, count // 2)]}
            properties = {"layout": layout, "filters": filters}
            id = made(connection, name, count, properties)
            connection.json("PUT", f"/datasets/{id}/value", noise[: 8 * count])
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [COUNT], "flags": ["H5D_SPARSE_DATA"]}
        id = made(connection, "d", COUNT, {"layout": layout})
        places = np.flatnonzero(rng.random(COUNT) < 0.6).astype(np.uint64)
        body = encode_region(Points((COUNT,), places[:, None]), np.frombuffer(noise, "<i8")[places])
        connection.json("PUT", f"/datasets/{id}/value", body, sparse=1)


def made(connection: Connection, name: str, count: int, properties: dict[str, Any]) -> str:
    body = {"type": "H5T_STD_I64LE", "shape": [count], "h5path": name, "creationProperties": properties}
    return str(connection.json("POST", "/datasets", body)["id"])


class Exports:
    """Exports to keys, new ones where none is given; what is stored then, and what was printed."""

    def __init__(self, service: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
        self._service = service
        self._capsys = capsys

    def __call__(self, url: str, *flags: str, key: str | None = None, status: int = 0) -> str:
        key = key or f"some/{next(NUMBERS)}.h5"
        arguments = ["export", DOMAIN, f"s3://exports/{key}", "--endpoint", url, *self._service, *flags]
        assert main(arguments) == status
        return key

    def printed(self) -> str:
        return "".join(self._capsys.readouterr())

    def stored(self, key: str) -> tuple[dict[str, bytes], list[str]]:
        """Return the objects whose keys begin with one, and the keys of uploads that have not ended."""
        found: dict[str, bytes] = {}
        pending: list[str] = []

        async def look() -> None:
            async with S3Store("exports", endpoint=self._service[1], region="us-east-1") as store:
                async for page in store.list(key):
                    for entry in page.entries:
                        found[entry.key] = (await store.get(entry.key)).data
                reply = await store.call("a", lambda client: client.list_multipart_uploads(Bucket="exports"))
                pending.extend(one["Key"] for one in reply.get("Uploads", ()))

        asyncio.run(look())
        return found, pending


@pytest.fixture
def exports(service: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Exports:
    return Exports(service, capsys)


def to_disk(url: str, path: Path, layout: str) -> bytes:
    assert main(["export", DOMAIN, str(path), "--endpoint", url, "--layout", layout, "--force"]) == 0
    return path.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("url", ["in_bucket", "in_directory"])
def test_the_object_is_the_file(
    request: pytest.FixtureRequest, url: str, layout: str, exports: Exports, tmp_path: Path
) -> None:
    server = request.getfixturevalue(url)
    key = exports(server, "--layout", layout)
    objects, pending = exports.stored(key)
    assert objects[key] == to_disk(server, tmp_path / "file.h5", layout)
    assert len(objects[key]) > 16 * MIB
    assert pending == []
    assert f"s3://exports/{key}: {len(objects[key])} bytes" in exports.printed()
    with h5py.File(tmp_path / "file.h5") as file:
        assert file["a"].shape == (COUNT,)


@given(st.integers(1, 10_000 * 5 * 1024 * MIB))
def test_the_parts_of_a_file(size: int) -> None:
    bounds = part_bounds(size)
    assert len(bounds) <= 10_000
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == size
    assert all(16 * MIB <= stop - start <= 5 * 1024 * MIB for start, stop in bounds[:-1])


def test_a_file_that_no_object_can_be() -> None:
    with pytest.raises(TooLarge, match="divide the domain"):
        part_bounds(10_000 * 5 * 1024 * MIB + 1)


def test_an_object_that_is_there(in_bucket: str, exports: Exports) -> None:
    key = exports(in_bucket)
    exports(in_bucket, key=key, status=2)
    assert f"s3://exports/{key} exists: add --force" in exports.printed()
    exports(in_bucket, "--force", "--layout", "structured", key=key)
    objects, pending = exports.stored(key)
    assert pending == []
    assert len(objects[key]) < 8 * COUNT * 3


def test_one_that_comes_meanwhile_stays(
    in_bucket: str, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = S3Upload.complete

    async def complete(self: S3Upload, *args: Any, **flags: Any) -> str:
        await self._store.put(self._key, b"another's")
        return await real(self, *args, **flags)

    monkeypatch.setattr(S3Upload, "complete", complete)
    key = exports(in_bucket, status=2)
    objects, pending = exports.stored(key)
    assert (objects[key], pending) == (b"another's", [])


def test_a_part_that_fails_leaves_nothing(
    in_directory: str, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = S3Upload.put, itertools.count()

    async def put(self: S3Upload, number: int, data: bytes) -> str:
        if next(calls):
            raise StoreFailed("it fails")
        return await real(self, number, data)

    monkeypatch.setattr(S3Upload, "put", put)
    key = exports(in_directory, status=2)
    assert "it fails" in exports.printed()
    assert exports.stored(key) == ({}, [])


def test_a_domain_that_is_changed_meanwhile(
    in_bucket: str, exports: Exports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = s3_export.part_bounds

    def late(size: int) -> list[tuple[int, int]]:
        with Connection(in_bucket, DOMAIN) as connection:
            root = connection.json("GET", "/")["root"]
            id = connection.json("GET", f"/groups/{root}/links/a")["link"]["id"]
            value = [int.from_bytes(np.random.default_rng().bytes(4), "little")]
            connection.json("PUT", f"/datasets/{id}/value", {"value": value}, select="[0:1]")
        return real(size)

    with monkeypatch.context() as patch:
        patch.setattr(s3_export, "part_bounds", late)
        key = exports(in_bucket, status=2)
    assert "The domain was changed while it was" in exports.printed()
    assert exports.stored(key) == ({}, [])
    exports(in_bucket, key=key)
    assert exports.stored(key) == ({key: to_disk(in_bucket, tmp_path / "file.h5", "auto")}, [])


def test_ctrl_c(in_bucket: str, exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(self: S3Upload, *args: Any) -> str:
        handler = signal.getsignal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), HUNG)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        raise AssertionError(f"nothing was cancelled by {handler}; {blocked=}, {asyncio.all_tasks()}")

    monkeypatch.setattr(S3Upload, "put", interrupted)
    # A server that was refused in this process, by another test, has left a handler of its own.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    key = exports(in_bucket, status=130)
    assert "nothing was left" in exports.printed()
    assert exports.stored(key) == ({}, [])


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://exports", "s3://exports does not name an object"),
        ("s3://none/a.h5", "There is no bucket 'none'"),
        ("s3://exports/a//b", "a//b"),
    ],
)
def test_what_is_no_target(
    in_bucket: str, service: tuple[str, ...], where: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", DOMAIN, where, "--endpoint", in_bucket, *service, "--force"]) == 2
    assert words in capsys.readouterr().err
