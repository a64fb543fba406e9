"""`hsparse export` against a server: whole, continued, refused."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.errors import Unreachable
from hsparse.client.http import retrying_client
from hsparse.hdf5 import domain_file

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
    assert main(["export", DOMAIN, str(path), "--endpoint", url]) == 0
    assert (
        f"The file will have {path.stat().st_size} bytes; --filter shuffle+gzip=4" in capsys.readouterr().err
    )


def test_a_domain_becomes_a_file(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.h5"
    arguments = ["export", DOMAIN, str(path), "--endpoint", url]
    assert main(arguments) == 0
    check(path)
    assert capsys.readouterr().out == f"{path}: {path.stat().st_size} bytes\n"
    assert not parts(tmp_path)
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force", "--layout", "structured"]) == 0
    with h5py.File(path) as file:
        assert (file["values"][:5] == np.arange(5)).all()
        with pytest.raises(KeyError):
            file["sparse"]
    newest = path.read_bytes()
    structured = [*arguments, "--force", "--layout", "structured", "--revision"]
    assert main([*structured, "lib-2026-09"]) == 0
    assert path.read_bytes() == newest
    assert main([*structured, "rfc-2023-07"]) == 0
    assert path.read_bytes() != newest
    assert main([*arguments, "--force", "--revision", "rfc-2023-07"]) == 2
    assert "layout=structured" in capsys.readouterr().err


def test_it_goes_on_where_it_stopped(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.h5"
    arguments = ["export", DOMAIN, str(path), "--endpoint", url]
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
    assert main(arguments) == 2
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
    assert main(arguments) == 0
    assert asked == [2000]
    check(path)
    assert not parts(tmp_path)


def test_a_domain_that_is_changed_meanwhile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.h5"
    arguments = ["export", DOMAIN, str(path), "--endpoint", url]
    real = domain_file.DomainFile.state

    def late(self: domain_file.DomainFile) -> tuple[int, str]:
        state = real(self)
        root = ask(url, "GET", "/")["root"]
        dataset = ask(url, "GET", f"/groups/{root}/links/values")["link"]["id"]
        ask(url, "PUT", f"/datasets/{dataset}/value?select=[0:1]", {"value": [9]})
        return state

    monkeypatch.setattr(domain_file.DomainFile, "state", late)
    assert main(arguments) == 2
    assert "The domain was changed while it was fetched" in capsys.readouterr().err
    assert not path.exists()
    monkeypatch.undo()
    assert main(arguments) == 0
    with h5py.File(path) as file:
        assert file["values"][:2].tolist() == [9, 1]
    assert not parts(tmp_path)


def test_what_cannot_be(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["/home/admin/none.h5", str(tmp_path / "a.h5")], "hsparse: /home/admin/none.h5 does not exist."),
        (["/home/admin/größe.h5", str(tmp_path / "a.h5")], "hsparse: /home/admin/größe.h5 does not exist."),
        (["home/admin", str(tmp_path / "a.h5")], "absolute path"),
        ([DOMAIN, str(tmp_path / "none" / "a.h5")], "There is no directory"),
        ([DOMAIN, str(tmp_path / "a.h5"), "--token-file", str(tmp_path / "none")], "cannot be read"),
    ):
        assert main(["export", *arguments, "--endpoint", url]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("a.h5*"))


def test_a_domain_of_another_name(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = DOMAIN.removesuffix(".h5")
    assert main(["export", plain, str(tmp_path / "out.h5"), "--endpoint", url]) == 2
    assert f"{plain} does not exist" in capsys.readouterr().err
    assert not list(tmp_path.glob("out.h5*"))
