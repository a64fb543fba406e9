"""`hsparse export --filter` over a server: the file, its domain imported again, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.retrying_client import MAX_TRIES
from hsparse.concurrency.attempts import Backoff
from hsparse.errors import Busy, Corrupt, HsparseError, PreconditionFailed, RateLimited
from hsparse.hdf5 import domain_file
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter.domain_source import DomainSource
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.plan.file_form import STOCK
from hsparse.hdf5.importer import block_cache
from tests.support.server_process import server_process

DOMAIN = "/home/admin/cells.h5"
NUMBERS = np.arange(600_000, dtype="i4").reshape(600, 1000) // 7


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has `DOMAIN`."""
    folder = tmp_path_factory.mktemp("served")
    with h5py.File(folder / "in.h5", "w") as file:
        file.create_dataset("numbers", data=NUMBERS, chunks=(64, 1000), compression="lzf")
        file["words"] = ["one", "", "größe"] * 100
        file["words"].attrs["to"] = file["numbers"].ref
    with server_process("--root", str(folder / "root"), "--no-fsync") as server:
        assert main(["import", str(folder / "in.h5"), DOMAIN, "--endpoint", server.url, "--quiet"]) == 0
        yield server.url
        assert server.stop() == 0


def source_of(url: str) -> DomainSource:
    return DomainSource(DOMAIN, lambda: Connection(url), lambda one: DomainFile(one, DOMAIN, STOCK))


def test_an_export_with_filters(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plain = tmp_path / "out.h5", tmp_path / "plain.h5"
    arguments = ["--endpoint", url]
    assert main(["export", DOMAIN, str(plain), *arguments, "--filter", "none"]) == 0
    assert main(["export", DOMAIN, str(path), *arguments, "--filter", "shuffle", "--filter", "gzip=4"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{path}: {path.stat().st_size} bytes"
    assert path.stat().st_size < plain.stat().st_size / 10
    with h5py.File(path) as file, h5py.File(plain) as other:
        for name, data in (("numbers", NUMBERS.tolist()), ("words", [b"one", b"", "größe".encode()] * 100)):
            assert file[name][()].tolist() == other[name][()].tolist() == data
        assert file[file["words"].attrs["to"]] == file["numbers"]
        assert (file["numbers"].compression, file["numbers"].shuffle) == ("gzip", True)
        assert other["numbers"].compression is None
    again = "/home/admin/again.h5"
    assert main(["import", str(path), again, *arguments, "--quiet"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.h5", "plain.h5"]


def test_what_cannot_be(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "out.h5")
    for flags, said in (
        (["--filter", "zip"], "unknown"),
        (["--filter", "gzip", "--filter", "none"], "cannot be combined with other filters"),
        (["--matrices", "anndata-csr", "--layout", "structured"], "layout=stock"),
    ):
        assert main(["export", DOMAIN, path, "--endpoint", url, *flags]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ranges(url: str) -> None:
    with source_of(url) as source:
        whole = source.read(0, source.size)
        assert whole.startswith(b"\x89HDF")
        wanted = (
            ByteRange(0, 10),
            ByteRange(70_000, 100_000),
            ByteRange(3, 0),
            ByteRange(source.size - 5, 5),
        )
        found = source.fetch(wanted)
        assert list(found) == [whole[one.address : one.address + one.size] for one in wanted]
        with pytest.raises(Corrupt):
            source.read(source.size - 1, 2)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits before it asks again."""
    monkeypatch.setattr("hsparse.client.http.retry.PAUSES", Backoff(0.0, 0.0))


def test_a_server_that_is_busy_or_away_is_asked_again(
    url: str, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, state = DomainFile.read, DomainFile.state
    failures: list[HsparseError] = [Busy("full"), Unreachable("gone")]

    def refused_read(self: DomainFile, start: int, stop: int, etag: str) -> bytes:
        if failures:
            raise failures.pop()
        return read(self, start, stop, etag)

    def refused_state(self: DomainFile) -> tuple[int, str]:
        if failures:
            raise failures.pop()
        return state(self)

    monkeypatch.setattr(DomainFile, "read", refused_read)
    monkeypatch.setattr(DomainFile, "state", refused_state)
    with source_of(url) as source:
        assert not failures
        failures += [Unreachable("gone"), Busy("full"), RateLimited("slower", 7), Busy("full")]
        assert source.read(0, 8) == b"\x89HDF\r\n\x1a\n"
        failures += [Unreachable("gone")] * MAX_TRIES
        with pytest.raises(Unreachable):
            source.read(100_000, 300_000)


def test_a_part_that_is_cut_short(url: str, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_file.DomainFile, "_parts", lambda *given: iter([b"short"]))
    with source_of(url) as source, pytest.raises(Unreachable, match="sent 5 of"):
        source.read(0, 100_000)


def test_a_domain_that_changes_meanwhile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = DomainFile.read
    changed: list[int] = []

    def late(self: DomainFile, start: int, stop: int, etag: str) -> bytes:
        if stop - start > 100_000 and not changed:
            changed.append(start)
            with Connection(url, DOMAIN) as connection:
                id = connection.json("GET", "/datasets/", h5path="/numbers")["id"]
                for row in range(0, 600, 64):
                    body = {"select": f"[{row}:{row + 1},0:1]", "value": [[9]]}
                    connection.json("PUT", f"/datasets/{id}/value", body=body)
        return real(self, start, stop, etag)

    monkeypatch.setattr(DomainFile, "read", late)
    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 0)
    assert main(["export", DOMAIN, str(tmp_path / "out.h5"), "--endpoint", url, "--filter", "gzip"]) == 2
    assert "The domain was changed while it was fetched" in capsys.readouterr().err
    assert changed
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    with source_of(url) as source:
        with Connection(url, DOMAIN) as connection:
            id = connection.json("GET", "/datasets/", h5path="/numbers")["id"]
            connection.json("PUT", f"/datasets/{id}/value", body={"select": "[0:1,0:1]", "value": [[8]]})
        with pytest.raises(PreconditionFailed, match="begin again"):
            source.read(source.size - 200_000, 200_000)
