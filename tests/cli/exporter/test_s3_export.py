"""`hsparse export DOMAIN s3://bucket/key` from a server in a bucket, and from one in a directory."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import StoreFailed
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import encode_region
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter import s3_export
from hsparse.hdf5.exporter.multipart_upload import Part, S3Upload
from hsparse.hdf5.exporter.part_plan import MIB
from hsparse.storage.s3.s3_store import S3Store
from tests.support import s3_servers
from tests.support.endurance import spread
from tests.support.s3_servers import make_bucket
from tests.support.server_process import server_process

DOMAIN = "/home/admin/export.h5"
COUNT = 1_600_000
HUNG = 60
"""Seconds after which an export that Ctrl-C does not stop says why."""
LAYOUTS = ("stock", "structured")
NUMBERS = itertools.count()
Range = tuple[int, int]


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


Export = Callable[..., str]


@pytest.fixture
def export(service: tuple[str, ...]) -> Export:
    """Export to a key, a new one where none is given, and return the key."""

    def run(url: str, *flags: str, key: str | None = None, status: int = 0) -> str:
        key = key or f"some/{next(NUMBERS)}.h5"
        arguments = ["export", DOMAIN, f"s3://exports/{key}", "--endpoint", url, *service, *flags]
        assert main(arguments) == status
        return key

    return run


@pytest.fixture
def stored(moto_endpoint: str) -> Callable[[str], tuple[dict[str, bytes], list[str]]]:
    """Return the objects whose keys begin with one, and the keys of uploads that have not ended."""

    async def look(key: str, result: list[tuple[dict[str, bytes], list[str]]]) -> None:
        async with S3Store("exports", endpoint=moto_endpoint, region="us-east-1") as store:
            keys = [entry.key async for page in store.list(key) for entry in page.entries]
            reply = await store.call("a", lambda client: client.list_multipart_uploads(Bucket="exports"))
            found = {key: (await store.get(key)).data for key in keys}
            result.append((found, [one["Key"] for one in reply.get("Uploads", ())]))

    def run(key: str) -> tuple[dict[str, bytes], list[str]]:
        result: list[tuple[dict[str, bytes], list[str]]] = []
        asyncio.run(look(key, result))  # which spells what the coroutine returns, if only to throw it away
        return result[0]

    return run


Stored = Callable[[str], tuple[dict[str, bytes], list[str]]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Range]:
    """The ranges of the file that are asked of the server."""
    asked: list[Range] = []
    real = DomainFile.read

    def read(self: DomainFile, start: int, stop: int, etag: str) -> bytes:
        asked.append((start, stop))
        return real(self, start, stop, etag)

    monkeypatch.setattr(DomainFile, "read", read)
    return asked


def to_disk(url: str, path: Path, layout: str) -> bytes:
    assert main(["export", DOMAIN, str(path), "--endpoint", url, "--layout", layout, "--force"]) == 0
    return path.read_bytes()


def file_chunks(url: str, layout: str) -> list[Range]:
    """Return where the stored chunks of a part's size and more are in the file."""
    with Connection(url, DOMAIN) as connection:
        map = connection.json("GET", "/map", addresses="file", layout=layout)
    rows = [row["file"] for dataset in map["datasets"].values() for row in dataset["chunks"]]
    return [
        (row["address"], row["address"] + row["size"])
        for row in rows
        if row["stored"] and row["size"] >= 5 * MIB
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_chunks_do_not_come_through_here(
    in_bucket: str, export: Export, stored: Stored, reads: list[Range], tmp_path: Path, layout: str
) -> None:
    key = export(in_bucket, "--layout", layout)
    asked = list(reads)
    objects, pending = stored(key)
    expected = to_disk(in_bucket, tmp_path / "file.h5", layout)
    assert objects[key] == expected
    assert pending == []
    with h5py.File(tmp_path / "file.h5") as file:
        assert file["a"].shape == (COUNT,)
        assert (file["a"][-3:] == file["c"][-3:]).all()
    chunks = file_chunks(in_bucket, layout)
    assert len(chunks) == 4 + (layout == "structured")
    touched = [sum(max(0, min(b, d) - max(a, c)) for c, d in asked) for a, b in chunks]
    # At the most, what a part has before the first chunk of a dataset.
    assert all(
        size < 5 * MIB or size == b - a < 10 * MIB for size, (a, b) in zip(touched, chunks, strict=True)
    )
    assert sum(size == 0 for size in touched) >= 2
    assert sum(d - c for c, d in asked) < len(expected) - sum(b - a for a, b in chunks) + sum(touched) + 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_that_the_service_cannot_copy(
    in_directory: str,
    export: Export,
    stored: Stored,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    layout: str,
) -> None:
    key = export(in_directory, "--layout", layout)
    objects, pending = stored(key)
    assert objects[key] == to_disk(in_directory, tmp_path / "file.h5", layout)
    assert pending == []
    told = capsys.readouterr()
    assert told.err.count("cannot be copied to 'exports'") == 1
    assert f"s3://exports/{key}: {len(objects[key])} bytes" in told.out


def test_an_object_that_is_there(
    in_bucket: str, export: Export, stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    key = export(in_bucket)
    export(in_bucket, key=key, status=2)
    assert f"s3://exports/{key} exists; add --force" in capsys.readouterr().err
    export(in_bucket, "--force", "--layout", "structured", key=key)
    objects, pending = stored(key)
    assert pending == []
    assert len(objects[key]) < 8 * COUNT * 3


def test_one_that_comes_meanwhile_stays(
    in_bucket: str, export: Export, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = S3Upload.complete

    async def complete(self: S3Upload, *args: Any, **flags: Any) -> str:
        await self._store.put(self._key, b"another's")
        return await real(self, *args, **flags)

    monkeypatch.setattr(S3Upload, "complete", complete)
    key = export(in_bucket, status=2)
    objects, pending = stored(key)
    assert (objects[key], pending) == (b"another's", [])


def test_a_service_that_ignores_the_condition_of_a_copy_is_not_asked_to_copy(
    in_bucket: str,
    export: Export,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(s3_servers, "_refused_source", lambda environ: None)
    key = export(in_bucket)
    assert "ignores the etag condition of a copy" in capsys.readouterr().err
    assert stored(key) == ({key: to_disk(in_bucket, tmp_path / "file.h5", "auto")}, [])


def counted(patch: pytest.MonkeyPatch, made: list[int], failing: str = "", after: int = 0) -> None:
    """Note the numbers of parts that are made; the method `failing` fails from its `after`th call on."""

    def method(name: str, real: Callable[..., Awaitable[Part]]) -> Callable[..., Awaitable[Part]]:
        calls = itertools.count()

        async def call(self: S3Upload, number: int, *args: Any) -> Part:
            if name == failing and next(calls) >= after:
                raise StoreFailed("it fails")
            found = await real(self, number, *args)
            made.append(number)
            return found

        return call

    for name in ("put", "copy"):
        patch.setattr(S3Upload, name, method(name, getattr(S3Upload, name)))


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("url", "failing", "after"),
    spread([("in_bucket", "copy", 2), ("in_bucket", "put", 0), ("in_directory", "put", 1)], short=2),
)
def test_what_fails_leaves_nothing_or_is_gone_on_with(
    request: pytest.FixtureRequest,
    url: str,
    failing: str,
    after: int,
    export: Export,
    stored: Stored,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = request.getfixturevalue(url)
    key = f"some/failed-{url}-{failing}.h5"
    before: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_export, "AT_ONCE", 1)
        counted(patch, before, failing, after)
        export(server, key=key, status=2)
        assert "it fails" in capsys.readouterr().err
        assert stored(key) == ({}, [])
    before.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_export, "AT_ONCE", 1)
        counted(patch, before, failing, after)
        export(server, "--resume", key=key, status=2)
    objects, pending = stored(key)
    assert pending == [key]
    (left,) = objects
    assert left.endswith(".part")
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, made)
        export(server, "--resume", key=key)
    assert before
    assert sorted(before + made) == list(range(1, len(before + made) + 1))
    assert stored(key) == ({key: to_disk(server, tmp_path / "file.h5", "auto")}, [])


@pytest.mark.parametrize("resume", [False, True])
def test_a_domain_that_is_changed_meanwhile(
    in_bucket: str,
    export: Export,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    resume: bool,
) -> None:
    """A chunk is written anew when the plan is made: neither the service nor the server gives what it was."""
    real = s3_export.plan_parts

    def late(*args: Any) -> Any:
        with Connection(in_bucket, DOMAIN) as connection:
            root = connection.json("GET", "/")["root"]
            id = connection.json("GET", f"/groups/{root}/links/a")["link"]["id"]
            value = [int.from_bytes(np.random.default_rng().bytes(4), "little")]
            connection.json("PUT", f"/datasets/{id}/value", {"value": value}, select="[0:1]")
        return real(*args)

    flags = ("--resume",) if resume else ()
    with monkeypatch.context() as patch:
        patch.setattr(s3_export, "plan_parts", late)
        key = export(in_bucket, *flags, status=2)
    assert "The domain was changed while it was" in capsys.readouterr().err
    assert stored(key) == ({}, [])
    export(in_bucket, *flags, key=key)
    assert stored(key) == ({key: to_disk(in_bucket, tmp_path / "file.h5", "auto")}, [])


def test_parts_that_are_not_those_of_now(
    in_bucket: str, export: Export, stored: Stored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after another version of hsparse: they are given up."""
    key = "some/other-parts.h5"
    with monkeypatch.context() as patch:
        patch.setattr(s3_export, "plan_digest", lambda parts: "other")
        counted(patch, [], "put", 0)
        export(in_bucket, "--resume", key=key, status=2)
    assert stored(key)[1] == [key]
    export(in_bucket, "--resume", key=key)
    assert stored(key) == ({key: to_disk(in_bucket, tmp_path / "file.h5", "auto")}, [])


@pytest.mark.parametrize("resume", [False, True])
def test_ctrl_c(
    in_bucket: str,
    export: Export,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    resume: bool,
) -> None:
    async def interrupted(self: S3Upload, *args: Any) -> Part:
        handler = signal.getsignal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), HUNG)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        raise AssertionError(f"nothing was cancelled by {handler}; {blocked=}, {asyncio.all_tasks()}")

    monkeypatch.setattr(S3Upload, "put", interrupted)
    # A server that was refused in this process, by another test, has left a handler of its own.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    key = export(in_bucket, *(("--resume",) if resume else ()), status=130)
    assert ("--resume continues" if resume else "nothing was left") in capsys.readouterr().err
    objects, pending = stored(key)
    assert (len(objects), pending) == ((1, [key]) if resume else (0, []))
    monkeypatch.undo()
    if resume:
        export(in_bucket, "--resume", key=key)
        assert stored(key)[1] == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://exports", "s3://exports names no object"),
        ("s3://none/a.h5", "There is no bucket 'none'"),
        ("s3://exports/a//b", "a//b"),
    ],
)
def test_what_is_no_target(
    in_bucket: str, service: tuple[str, ...], where: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", DOMAIN, where, "--endpoint", in_bucket, *service, "--force"]) == 2
    assert words in capsys.readouterr().err
