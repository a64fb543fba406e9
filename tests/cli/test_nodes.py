"""`hsparse nodes`: what the store says of the members, and a damaged list rebuilt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hsparse.cli.main import main
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.storage.posix import PosixStore


async def fill(root: Path) -> None:
    store = PosixStore(root, fsync=False, wal=False)
    stored = MembershipObject(store, "secret")
    for id in ("dn-a", "dn-b"):
        await stored.join(id, f"http://{id}:1")
    await stored.leave("dn-a")
    await LeaseObjects(store).take("dn-b", 2.0)
    await store.close()


async def damage(root: Path) -> None:
    store = PosixStore(root, fsync=False, wal=False)
    await store.put(KEY, b"{")
    await store.close()


def test_members_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path))
    assert run("nodes", "--root", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "epoch 3, 1 data nodes",
        "dn-b  http://dn-b:1  owner  lease held  version 1",
        "dn-a  http://dn-a:1  leaving  no lease  version 1",
    ]


def test_a_damaged_list_is_refused_and_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(damage(tmp_path))
    assert run("nodes", "--root", str(tmp_path)) == 2
    assert "--rebuild" in capsys.readouterr().err
    assert run("nodes", "--root", str(tmp_path), "--rebuild") == 0
    assert "0 data nodes" in capsys.readouterr().out
    assert run("nodes", "--root", str(tmp_path)) == 0


def test_no_directory_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("--root", str(tmp_path / "none")), ()):
        assert run("nodes", *words) == 2
        assert "There is no directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_store_the_server_is_asked(
    two_nodes_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HSPARSE_ENDPOINT", two_nodes_url)
    assert run("nodes") == 0
    first, *nodes = capsys.readouterr().out.splitlines()
    assert first == f"{two_nodes_url}, {len(nodes)} data nodes"
    assert all("READY" in one for one in nodes)
    assert nodes
    assert run("nodes", "--rebuild") == 2  # of a store
    assert list(tmp_path.iterdir()) == []


def run(*arguments: str) -> int:
    return main(list(arguments))
