"""A folder of HDF5 files to a tree of domains and back, and imports that replace what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event, current_thread, main_thread
from typing import Any

import h5py
import pytest

import hsparse
from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from hsparse.hdf5.importer.many_files import ManyFiles, OneOfMany
from hsparse.hdf5.importer.target_domain import TargetDomain

Run = Callable[..., int]


@pytest.fixture
def run(embedded_url: str) -> Run:
    return lambda *words: main([*words, "--endpoint", embedded_url])


@pytest.fixture
def home(request: pytest.FixtureRequest) -> str:
    return f"/home/admin/{request.node.originalname}"


def write(path: Path, value: int, user_block: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file["v"] = value
    return path


def read(url: str, domain: str) -> int:
    with Connection(url, domain) as one:
        found = one.json("GET", "/", h5path="/v")["id"]
        value: int = one.json("GET", f"/datasets/{found}/value")["value"]
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of any name, with what is none among them."""
    write(tmp_path / "runs" / "a.h5", 1)
    write(tmp_path / "runs" / "2026" / "no suffix", 2)
    write(tmp_path / "runs" / "2026" / "late.nwb", 3, user_block=2048)
    write(tmp_path / "runs" / ".hidden.h5", 4)
    (tmp_path / "runs" / "notes.txt").write_text("not HDF5")
    (tmp_path / "runs" / "empty").touch()
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    return tmp_path / "runs"


def test_a_folder_goes_to_a_server_and_back(
    folder: Path, tmp_path: Path, run: Run, home: str, embedded_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", str(folder), f"{home}/runs") == 0
    assert capsys.readouterr().out.endswith(f"3 of 3 files are imported into {home}/runs.\n")
    names = {"a.h5": 1, "2026/no suffix": 2, "2026/late.nwb": 3}
    assert {name: read(embedded_url, f"{home}/runs/{name}") for name in names} == names

    assert run("export", f"{home}/runs", f"{tmp_path}/back/", "--quiet") == 0
    back = tmp_path / "back" / "runs"
    found = {path.relative_to(back).as_posix(): path for path in back.rglob("*") if path.is_file()}
    assert found.keys() == names.keys()
    for name, path in found.items():
        with h5py.File(path) as file:
            assert file["v"][()] == names[name]

    (tmp_path / "some").mkdir()
    assert run("export", f"{home}/runs/*.h5", str(tmp_path / "some")) == 0
    assert run("export", f"{home}/runs/2026/late.nwb", str(tmp_path / "some")) == 0
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["a.h5", "late.nwb"]
    capsys.readouterr()
    assert run("export", f"{home}/runs/*.h5", str(tmp_path / "some")) == 2
    said = capsys.readouterr()
    assert "exists; add --force" in said.err
    assert said.out.startswith("0 of 1 domains")


@pytest.mark.parametrize("file", ["{folder}/2026/late.nwb", "/gpfs/old/a.h5"], ids=["inside", "moved"])
def test_an_absolute_link_leads_to_the_domain_of_its_file(
    folder: Path, run: Run, home: str, embedded_url: str, file: str
) -> None:
    with h5py.File(folder / "master.h5", "w") as master:
        master["e"] = h5py.ExternalLink(file.format(folder=folder), "/v")
    with h5py.File(folder / "master.h5") as master:
        right = int(master["e"][()])
    target = f"{home}/{Path(file).stem}"
    assert run("import", str(folder), target, "--quiet") == 0
    with hsparse.open(f"{target}/master.h5", endpoint=embedded_url) as master:
        assert master["e"][()] == right


def test_what_fails_is_named_and_the_others_go_on(
    folder: Path, run: Run, home: str, embedded_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", str(folder), f"{home}/runs", "--quiet") == 0
    write(folder / "z.h5", 9)
    write(folder / "a.h5", 7)
    capsys.readouterr()
    assert run("import", str(folder), f"{home}/runs") == 2
    said = capsys.readouterr()
    assert f"{folder}/a.h5: {home}/runs/a.h5 exists already" in said.err
    assert said.out.endswith(f"1 of 4 files are imported into {home}/runs.\n")
    assert (read(embedded_url, f"{home}/runs/a.h5"), read(embedded_url, f"{home}/runs/z.h5")) == (1, 9)
    assert run("import", str(folder), f"{home}/runs", "--force", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert read(embedded_url, f"{home}/runs/a.h5") == 7


def test_small_files_are_imported_side_by_side(
    folder: Path, run: Run, home: str, embedded_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, imported = Barrier(2, timeout=60), Hdf5Import.run

    def meet(self: Hdf5Import) -> None:
        both.wait()
        imported(self)

    (folder / "2026" / "late.nwb").unlink()
    monkeypatch.setattr(Hdf5Import, "run", meet)
    assert run("import", str(folder), f"{home}/runs", "--quiet") == 0
    assert read(embedded_url, f"{home}/runs/2026/no suffix") == 2


def test_what_names_files_before_it_waits_for_them(
    tmp_path: Path, run: Run, home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A virtual dataset stays virtual, and an external link leads to a domain, as if one came after the other."""
    created = TargetDomain.create
    looks = Event()

    def late(self: TargetDomain, *args: Any, **options: Any) -> None:
        if self.path.endswith("a.h5"):
            looks.wait(60)
        created(self, *args, **options)

    def look(self: OneOfMany) -> None:
        looks.set()
        waited(self)

    waited = OneOfMany.await_earlier
    monkeypatch.setattr(TargetDomain, "create", late)
    monkeypatch.setattr(OneOfMany, "await_earlier", look)
    layout = h5py.VirtualLayout((1,), "i4")
    layout[0] = h5py.VirtualSource("a.h5", "v", (), "i4")
    write(tmp_path / "runs" / "a.h5", 5)
    with h5py.File(tmp_path / "runs" / "b.h5", "w") as file:
        file.create_virtual_dataset("whole", layout)
        file["far"] = h5py.ExternalLink("a.h5", "/v")
    assert run("import", str(tmp_path / "runs"), f"{home}/runs") == 0
    assert "/whole stays virtual" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [(), ("--resume",)])
def test_ctrl_c_ends_all_imports_of_a_folder(
    folder: Path,
    run: Run,
    home: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
) -> None:
    """Those that have begun are deleted again or, with `--resume`, kept; none is told as a failure of its own."""
    target = f"{home}/{len(flags)}"
    begun, imported = Barrier(4, timeout=60), Hdf5Import.run
    stopped = Event()

    def wait(self: Hdf5Import) -> None:
        begun.wait()
        stopped.wait(60)
        imported(self)

    def stop(self: ManyFiles) -> None:
        ended(self)
        stopped.set()

    def interrupt(self: BoundedPool) -> None:
        if current_thread() is not main_thread():
            return finish(self)
        begun.wait()
        raise KeyboardInterrupt

    ended, finish = ManyFiles.stop, BoundedPool.finish
    monkeypatch.setattr(ManyFiles, "stop", stop)
    monkeypatch.setattr(Hdf5Import, "run", wait)
    monkeypatch.setattr(BoundedPool, "finish", interrupt)
    assert run("import", str(folder), target, *flags) == 130
    assert capsys.readouterr().err == "Stopped. Imported files stay; --resume continues with the rest.\n"
    monkeypatch.setattr(Hdf5Import, "run", imported)
    monkeypatch.setattr(BoundedPool, "finish", finish)
    assert run("ls", "-r", target) == 0
    assert ("a.h5" in capsys.readouterr().out) == bool(flags)
    assert run("import", str(folder), target, *flags) == 0
    assert "3 of 3 files" in capsys.readouterr().out


def test_force_replaces_a_domain_when_the_import_is_done(
    tmp_path: Path, run: Run, home: str, embedded_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("mkdir", "-p", home) == 0
    first, second = write(tmp_path / "1.h5", 1), write(tmp_path / "2.h5", 2)
    broken = tmp_path / "3.h5"
    broken.write_bytes(second.read_bytes()[:600])
    assert run("import", str(first), f"{home}/a.h5", "--force") == 0, "there may be none"
    assert run("import", str(broken), f"{home}/a.h5", "--force") == 2
    assert read(embedded_url, f"{home}/a.h5") == 1
    capsys.readouterr()
    assert run("import", str(second), f"{home}/a.h5", "--force") == 0
    assert capsys.readouterr().out == f"Imported {second} into {home}/a.h5.\n"
    assert read(embedded_url, f"{home}/a.h5") == 2
    assert run("ls", home) == 0
    assert capsys.readouterr().out.split() == [f"{home}/a.h5"]
    assert run("import", str(second), home, "--force") == 2
    assert run("import", str(second), f"{home}/a.h5", "--force", "--resume") == 2


def rights_of(connection: Connection) -> list[dict[str, Any]]:
    """Return the entries of an ACL, but for the domain that those have which were set after it was created."""
    return [one | {"domain": None} for one in connection.json("GET", "/acls")["acls"]]


def test_a_domain_that_is_replaced_keeps_its_rights_and_no_snapshot_is_lost(
    tmp_path: Path, run: Run, home: str, embedded_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("mkdir", "-p", home) == 0
    assert run("acl", home, "g:lab", "all") == 0
    domain = f"{home}/a.h5"
    assert run("import", str(write(tmp_path / "1.h5", 1)), domain) == 0
    for words in (("ann", "read,update"), ("default", "none"), ("--remove", "g:lab")):
        assert run("acl", domain, *words) == 0
    with Connection(embedded_url, domain) as one:
        rights = rights_of(one)
        owner = one.json("GET", "/")["owner"]
    second = write(tmp_path / "2.h5", 2)
    assert run("import", str(second), domain, "--force") == 0
    with Connection(embedded_url, domain) as one:
        assert rights_of(one) == rights
        assert one.json("GET", "/")["owner"] == owner
        one.json("POST", "/snapshots", {"message": "kept"})
    capsys.readouterr()
    third = write(tmp_path / "3.h5", 3)
    assert run("import", str(third), domain, "--force") == 2
    assert f"{domain} has 1 snapshots, which are deleted if it is replaced" in capsys.readouterr().err
    assert read(embedded_url, domain) == 2
    assert run("import", str(third), domain, "--force", "--drop-snapshots") == 0
    assert read(embedded_url, domain) == 3
    assert run("import", str(third), f"{home}/b.h5", "--drop-snapshots") == 2
    capsys.readouterr()
    assert run("ls", home) == 0
    assert capsys.readouterr().out.split() == [domain]


def test_an_empty_folder_and_one_of_matrices_are_told_as_before(
    tmp_path: Path, run: Run, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", str(tmp_path), f"{home}.h5") == 2
    assert "HDF5" in capsys.readouterr().err


def test_files_that_are_no_hdf5_but_by_their_name_are_failures(
    run: Run, embedded_url: str, tmp_path: Path, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An acquisition that was given up leaves an empty file; a folder without it is not whole."""
    folder = tmp_path / "runs"
    write(folder / "a.h5", 1)
    (folder / "empty.h5").touch()
    (folder / "broken.NXS").write_bytes(b"x" * 4096)
    assert run("import", str(folder), home) == 2
    told = capsys.readouterr()
    assert "1 of 3 files" in told.out + told.err
    assert all(name in told.err for name in ("empty.h5", "broken.NXS"))
    assert read(embedded_url, f"{home}/a.h5") == 1
