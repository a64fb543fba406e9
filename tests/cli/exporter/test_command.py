"""`hsparse export` against a server: whole, with other filters, continued, refused."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.attempts import Backoff
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http import retrying_client
from hsparse.client.http.retrying_client import MAX_TRIES
from hsparse.errors import Busy, Corrupt, HsparseError, PreconditionFailed, RateLimited
from hsparse.hdf5 import domain_file
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter.domain_source import DomainSource
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.plan.file_form import STOCK
from hsparse.hdf5.importer import block_cache
from tests.support.server_process import server_process

DOMAIN = "/home/admin/export.h5"
COUNT = 300_000


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    target = f"{url}{path}{'&' if '?' in path else '?'}domain={DOMAIN}"
    request = urllib.request.Request(target, data, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(params=["embedded", "two data nodes"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server, of either kind, with a domain that has a dense dataset and a sparse one."""
    url: str = request.getfixturevalue("embedded_url" if request.param == "embedded" else "two_nodes_url")
    ask(url, "PUT", "/", {})
    values = {"type": "H5T_STD_I32LE", "shape": [COUNT], "h5path": "values"}
    made = ask(url, "POST", "/datasets", values)
    ask(url, "PUT", f"/datasets/{made['id']}/value", {"value": list(range(COUNT))})
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [100], "flags": ["H5D_SPARSE_DATA"]}
    sparse = values | {"h5path": "sparse", "creationProperties": {"layout": layout}}
    made = ask(url, "POST", "/datasets", sparse)
    ask(url, "PUT", f"/datasets/{made['id']}/value?select=[50:52]", {"value": [1, 2]})
    yield url
    ask(url, "DELETE", "/")


def export(url: str, path: Path, *flags: str, domain: str = DOMAIN) -> int:
    return main(["export", domain, str(path), "--endpoint", url, *flags])


def check(path: Path) -> None:
    with h5py.File(path) as file:
        assert (file["values"][()] == np.arange(COUNT)).all()
        assert file["sparse"][49:53].tolist() == [0, 1, 2, 0]


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.part"))


def test_the_size_of_a_large_file_is_said_before(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.exporter.command.ANNOUNCED_BYTES", 1000)
    path = tmp_path / "out.h5"
    assert export(url, path) == 0
    assert (
        f"The file will have {path.stat().st_size} bytes; --filter shuffle+gzip=4" in capsys.readouterr().err
    )


def test_a_domain_becomes_a_file(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.h5"
    assert export(url, path) == 0
    check(path)
    assert capsys.readouterr().out == f"{path}: {path.stat().st_size} bytes\n"
    assert not parts(tmp_path)
    assert export(url, path) == 2
    assert "--force" in capsys.readouterr().err
    assert export(url, path, "--force", "--layout", "structured") == 0
    with h5py.File(path) as file:
        assert (file["values"][:5] == np.arange(5)).all()
        with pytest.raises(KeyError):
            file["sparse"]
    newest = path.read_bytes()
    structured = ("--force", "--layout", "structured", "--revision")
    assert (export(url, path, *structured, "lib-2026-09"), path.read_bytes()) == (0, newest)
    assert export(url, path, *structured, "rfc-2023-07") == 0
    assert path.read_bytes() != newest
    assert export(url, path, "--force", "--revision", "rfc-2023-07") == 2
    assert "layout=structured" in capsys.readouterr().err


def test_it_goes_on_where_it_stopped(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.h5"
    asked: list[int] = []
    real = domain_file.DomainFile._parts

    def broken(self: domain_file.DomainFile, start: int, etag: str) -> Iterator[bytes]:
        asked.append(start)
        for data in real(self, start, etag):
            if len(asked) > 2:
                raise Unreachable("gone")
            yield data[:1000]
            raise Unreachable("gone")

    monkeypatch.setattr(retrying_client, "MAX_TRIES", 1)
    (tmp_path / f"out.h5.1-stock-{'0' * 32}.part").write_bytes(b"of another state")
    monkeypatch.setattr(domain_file.DomainFile, "_parts", broken)
    assert export(url, path) == 2
    assert "gone" in capsys.readouterr().err
    assert asked == [0, 1000] + [2000] * domain_file.MAX_BROKEN_CONNECTIONS
    (part,) = parts(tmp_path)
    assert part.stat().st_size == 2000
    assert not path.exists()

    def whole(self: domain_file.DomainFile, start: int, etag: str) -> Iterator[bytes]:
        asked.append(start)
        yield from real(self, start, etag)

    asked.clear()
    monkeypatch.setattr(domain_file.DomainFile, "_parts", whole)
    assert (export(url, path), asked) == (0, [2000])
    check(path)
    assert not parts(tmp_path)


def test_a_domain_that_is_changed_meanwhile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.h5"
    real = domain_file.DomainFile.state

    def late(self: domain_file.DomainFile) -> tuple[int, str]:
        state = real(self)
        root = ask(url, "GET", "/")["root"]
        dataset = ask(url, "GET", f"/groups/{root}/links/values")["link"]["id"]
        ask(url, "PUT", f"/datasets/{dataset}/value?select=[0:1]", {"value": [9]})
        return state

    monkeypatch.setattr(domain_file.DomainFile, "state", late)
    assert export(url, path) == 2
    assert "The domain was changed while it was fetched" in capsys.readouterr().err
    assert not path.exists()
    monkeypatch.undo()
    assert export(url, path) == 0
    with h5py.File(path) as file:
        assert file["values"][:2].tolist() == [9, 1]
    assert not parts(tmp_path)


def test_what_cannot_be(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["/home/admin/none.h5", str(tmp_path / "a.h5")], "hsparse: /home/admin/none.h5 does not exist."),
        (["/home/admin/größe.h5", str(tmp_path / "a.h5")], "hsparse: /home/admin/größe.h5 does not exist."),
        ([DOMAIN.removesuffix(".h5"), str(tmp_path / "a.h5")], "/home/admin/export does not exist"),
        (["home/admin", str(tmp_path / "a.h5")], "absolute path"),
        ([DOMAIN, str(tmp_path / "none" / "a.h5")], "There is no directory"),
        ([DOMAIN, str(tmp_path / "a.h5"), "--token-file", str(tmp_path / "none")], "cannot be read"),
    ):
        assert main(["export", *arguments, "--endpoint", url]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("a.h5*"))


SOURCE_DOMAIN = "/home/admin/cells.h5"
NUMBERS = np.arange(600_000, dtype="i4").reshape(600, 1000) // 7


@pytest.fixture(scope="module")
def source_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has `DOMAIN`."""
    folder = tmp_path_factory.mktemp("served")
    with h5py.File(folder / "in.h5", "w") as file:
        file.create_dataset("numbers", data=NUMBERS, chunks=(64, 1000), compression="lzf")
        file["words"] = ["one", "", "größe"] * 100
        file["words"].attrs["to"] = file["numbers"].ref
    with server_process("--root", str(folder / "root"), "--no-fsync") as server:
        words = ["import", str(folder / "in.h5"), SOURCE_DOMAIN, "--quiet"]
        assert main([*words, "--endpoint", server.url]) == 0
        yield server.url
        assert server.stop() == 0


def source_of(source_url: str) -> DomainSource:
    return DomainSource(
        SOURCE_DOMAIN, lambda: Connection(source_url), lambda one: DomainFile(one, SOURCE_DOMAIN, STOCK)
    )


def test_an_export_with_filters(source_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plain = tmp_path / "out.h5", tmp_path / "plain.h5"
    assert export(source_url, plain, "--filter", "none", domain=SOURCE_DOMAIN) == 0
    assert export(source_url, path, "--filter", "shuffle", "--filter", "gzip=4", domain=SOURCE_DOMAIN) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{path}: {path.stat().st_size} bytes"
    assert path.stat().st_size < plain.stat().st_size / 10
    with h5py.File(path) as file, h5py.File(plain) as other:
        for name, data in (("numbers", NUMBERS.tolist()), ("words", [b"one", b"", "größe".encode()] * 100)):
            assert file[name][()].tolist() == other[name][()].tolist() == data
        assert file[file["words"].attrs["to"]] == file["numbers"]
        assert (file["numbers"].compression, file["numbers"].shuffle) == ("gzip", True)
        assert other["numbers"].compression is None
    assert main(["import", str(path), "/home/admin/again.h5", "--endpoint", source_url, "--quiet"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.h5", "plain.h5"]


def test_filters_that_cannot_be(source_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, said in (
        (["--filter", "zip"], "unknown"),
        (["--filter", "gzip", "--filter", "none"], "cannot be combined with other filters"),
        (["--matrices", "anndata-csr", "--layout", "structured"], "layout=stock"),
    ):
        assert export(source_url, tmp_path / "out.h5", *flags, domain=SOURCE_DOMAIN) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ranges(source_url: str) -> None:
    with source_of(source_url) as source:
        whole = source.read(0, source.size)
        assert whole.startswith(b"\x89HDF")
        spans = ((0, 10), (70_000, 100_000), (3, 0), (source.size - 5, 5))
        wanted = tuple(ByteRange(*span) for span in spans)
        found = source.fetch(wanted)
        assert list(found) == [whole[one.address : one.address + one.size] for one in wanted]
        with pytest.raises(Corrupt):
            source.read(source.size - 1, 2)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits before it asks again."""
    monkeypatch.setattr("hsparse.client.http.retry.PAUSES", Backoff(0.0, 0.0))


def test_a_server_that_is_busy_or_away_is_asked_again(
    source_url: str, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[HsparseError] = [Busy("full"), Unreachable("gone")]

    def refused(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_fail(*arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return call(*arguments)

        return call_or_fail

    for name in ("read", "state"):
        monkeypatch.setattr(DomainFile, name, refused(getattr(DomainFile, name)))
    with source_of(source_url) as source:
        assert not failures
        failures += [Unreachable("gone"), Busy("full"), RateLimited("slower", 7), Busy("full")]
        assert source.read(0, 8) == b"\x89HDF\r\n\x1a\n"
        failures += [Unreachable("gone")] * MAX_TRIES
        with pytest.raises(Unreachable):
            source.read(100_000, 300_000)


def test_a_part_that_is_cut_short(source_url: str, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_file.DomainFile, "_parts", lambda *given: iter([b"short"]))
    with source_of(source_url) as source, pytest.raises(Unreachable, match="sent 5 of"):
        source.read(0, 100_000)


def test_a_domain_that_changes_meanwhile(
    source_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = DomainFile.read
    changed: list[int] = []

    def late(self: DomainFile, start: int, stop: int, etag: str) -> bytes:
        if stop - start > 100_000 and not changed:
            changed.append(start)
            with Connection(source_url, SOURCE_DOMAIN) as connection:
                id = connection.json("GET", "/datasets/", h5path="/numbers")["id"]
                for row in range(0, 600, 64):
                    body = {"select": f"[{row}:{row + 1},0:1]", "value": [[9]]}
                    connection.json("PUT", f"/datasets/{id}/value", body=body)
        return real(self, start, stop, etag)

    monkeypatch.setattr(DomainFile, "read", late)
    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 0)
    assert export(source_url, tmp_path / "out.h5", "--filter", "gzip", domain=SOURCE_DOMAIN) == 2
    assert "The domain was changed while it was fetched" in capsys.readouterr().err
    assert changed
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    with source_of(source_url) as source:
        with Connection(source_url, SOURCE_DOMAIN) as connection:
            id = connection.json("GET", "/datasets/", h5path="/numbers")["id"]
            connection.json("PUT", f"/datasets/{id}/value", body={"select": "[0:1,0:1]", "value": [[8]]})
        with pytest.raises(PreconditionFailed, match="begin again"):
            source.read(source.size - 200_000, 200_000)
