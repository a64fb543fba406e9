"""`hsparse import` as it is used: signing in, what stops it and what is left, going on after that."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.attempts import Backoff
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.errors import BadRequest, Busy, HsparseError, NotFound
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.cli.importer.conftest import Import, Refused, Stopped, exported, is_there, stop_after
from tests.cli.importer.domain_picture import assert_is_file, domain_differences
from tests.support.endurance import spread
from tests.support.server_process import server_process


def write_file(path: Path) -> Path:
    """Write a file with something of everything."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "everything"
        file["kind"] = np.dtype([("n", "<i4"), ("v", "<f8")])
        file.create_dataset("typed", (3,), dtype=file["kind"])[1] = (1, 2.5)
        data = rng.integers(0, 9, (600, 2000))
        options = {"chunks": (100, 2000), "compression": "gzip"}
        file.create_dataset("g/direct", data=data, **options)
        file.create_dataset("g/small", data=data[:20, :20], chunks=(3, 3), compression="gzip")
        file.create_dataset("g/text", data=["a", "", "ü" * 100] * 20, dtype=h5py.string_dtype(), chunks=(7,))
        file["g/contiguous"] = rng.random((700, 900))
        file["z again"] = file["g"]
        file["soft"] = h5py.SoftLink("/g/text")
        file["refs"] = np.array([file["g"].ref, file["typed"].ref], h5py.ref_dtype)
        file["g"].attrs["ref"] = file["g/text"].ref
    return path


@pytest.fixture(scope="module")
def small_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that takes bodies of 1 MiB at most."""
    flags = ("--root", str(tmp_path_factory.mktemp("root")), "--no-fsync", "--max-request-size", str(1 << 20))
    with server_process(*flags) as server:
        yield server.url
        assert server.stop() == 0


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("together", "count"),
    [
        *product([100], spread([3, 4, 5, 6, 7, 8, 9], short=3)),
        *product([1], spread([3, 4, 6, 9, 12, 15, 18, 22], short=4)),
    ],
)
def test_an_import_that_was_stopped_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, count: int
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_OBJECTS", together)
    monkeypatch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_INLINE_BYTES", 1000 * (together - 1))
    monkeypatch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_KEPT_ROWS", together)
    path, domain = write_file(tmp_path / "all.h5"), f"/home/admin/stopped-{together}-{count}.h5"
    command = ["import", str(path), domain, "--endpoint", url, "--requests", "2"]
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(Stopped):
            main([*command, "--keep"])
    with Connection(url, domain) as connection, h5py.File(path) as file:
        links = connection.json("GET", f"/groups/{connection.json('GET', '/')['root']}/links")["links"]
        assert links == []  # nobody sees a part
        assert main([*command, "--resume"]) == 0
        assert domain_differences(file, connection) == []
        with monkeypatch.context() as patch:
            sent = stop_after(1000, patch)
            assert main([*command, "--resume"]) == 0
        assert not any(line.endswith("value") and "chunks" in line for line in sent)
        assert domain_differences(file, connection) == []


def test_filters_that_the_server_replaces_are_named(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, values = tmp_path / "x.h5", np.arange(4000) // 7
    with h5py.File(path, "w") as file:
        for name, options in (
            ("lzf", {"compression": "lzf", "shuffle": True}),
            ("checked", {"fletcher32": True}),
            ("gzip", {"compression": "gzip", "shuffle": True, "fletcher32": True}),
            ("plain", {}),
        ):
            file.create_dataset(name, data=values, chunks=(500,), **options)
    connection = imported(path)
    said = capsys.readouterr().err
    assert "(2):\n  /checked: fletcher32 as nothing\n  /lzf: shuffle, lzf as blosc\n" in said
    with h5py.File(exported(connection, tmp_path / "copy.h5", "--filter", "shuffle+lzf")) as file:
        assert file["lzf"].compression == "lzf"
        assert np.array_equal(file["lzf"][:], values)


@pytest.mark.parametrize(("flags", "said"), [((), "deleted again"), (("--keep",), "--resume continues")])
def test_after_an_interruption_it_says_what_is_left(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    said: str,
) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hsparse.hdf5.importer.hdf5_import.Hdf5Import.run", interrupted)
    path, domain = tmp_path / "x.h5", f"/home/admin/interrupted{len(flags)}.h5"
    h5py.File(path, "w").close()
    assert main(["import", str(path), domain, "--endpoint", url, *flags]) == 130
    assert said in capsys.readouterr().err
    assert main(["info", domain, "--endpoint", url]) == (0 if flags else 2)


def write_small(path: Path) -> Path:
    """Write 60 groups with attributes, committed types, and datasets: of numbers, of text, and without values."""
    with h5py.File(path, "w") as file:
        for number in range(60):
            group = file.create_group(f"{number}")
            group.attrs["number"] = number
            group["x"] = np.arange(number % 7)
            group["text"] = f"number {number}"
            group.create_dataset("none", (1000, 1000), "f8", chunks=(100, 100))
            group["type"] = np.dtype(f"S{number + 1}")
    return path


@pytest.mark.parametrize("done", [0.5, 1])
def test_small_objects_that_are_there_are_not_asked_for_one_by_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: float
) -> None:
    path, domain = write_small(tmp_path / "small.h5"), f"/home/admin/small-{done}.h5"
    command = ["import", str(path), domain, "--endpoint", url, "--requests", "1"]
    with monkeypatch.context() as patch:
        fresh = stop_after(10_000, patch)
        assert main([*command[:2], f"/home/admin/whole-{done}.h5", *command[3:]]) == 0
    with monkeypatch.context() as patch:
        stop_after(int(done * len(fresh)) - 1, patch)
        with pytest.raises(Stopped):
            main([*command, "--keep"])
    with monkeypatch.context() as patch:
        resumed = stop_after(10_000, patch)
        assert main([*command, "--resume"]) == 0
    unfinished = 60 if done < 1 else 0  # the objects of one request, some of which may be there
    assert len(resumed) <= 2 * len(fresh) + 20 + unfinished
    with Connection(url, domain) as connection, h5py.File(path) as file:
        assert domain_differences(file, connection) == []


@pytest.mark.endurance
@pytest.mark.parametrize("count", spread(range(3, 11), short=3))
def test_a_chunk_of_which_a_part_was_sent_is_sent_again(
    small_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.dense_upload.MAX_REQUEST_BYTES", 1 << 18)
    path, domain = tmp_path / "parts.h5", f"/home/admin/parts-{count}.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.random.default_rng(2).random((3 << 17,))
    command = ["import", str(path), domain, "--endpoint", small_url, "--requests", "1", "--resume"]
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(Stopped):
            main(command)
    assert main(command) == 0
    with Connection(small_url, domain) as connection, h5py.File(path) as file:
        assert domain_differences(file, connection) == []


def write_large(path: Path) -> Path:
    """Write a file whose import takes a while."""
    path.write_bytes(large_file())
    return path


@cache
def large_file() -> bytes:
    """Return its bytes, which take two seconds to make."""
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        for number in range(20):
            data = np.random.default_rng(number).integers(0, 9, (1000, 500))
            file.create_dataset(f"x{number}", data=data, chunks=(500, 500), compression="gzip")
    return image.getvalue()


def end_import(arguments: list[str], connection: Connection, number: signal.Signals) -> int:
    """Run an import in a process of its own, send it a signal once its domain is there, return its status."""
    process = subprocess.Popen([sys.executable, "-m", "hsparse.cli.main", *arguments])
    while process.poll() is None:
        try:
            connection.json("GET", "/")
        except NotFound:
            continue
        process.send_signal(number)
        break
    return process.wait(20)


def test_ctrl_c_leaves_no_domain(url: str, tmp_path: Path) -> None:
    path, domain = write_large(tmp_path / "large.h5"), "/home/admin/interrupted.h5"
    with Connection(url, domain) as connection:
        status = end_import(["import", str(path), domain, "--endpoint", url], connection, signal.SIGINT)
        assert status == 130
        assert not is_there(connection)


def test_an_import_goes_on_where_some_objects_of_a_request_are_there(url: str, tmp_path: Path) -> None:
    """As of a server that was stopped while it created them."""
    domain = "/home/admin/stopped-in-a-request.h5"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(4):
            file[f"g/{number}"] = np.arange(number, 1000.0)
    command = ["import", str(tmp_path / "a.h5"), domain, "--endpoint", url]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_OBJECTS", 1)
        stop_after(4, patch)  # 2 datasets of 4
        with pytest.raises(Stopped):
            main([*command, "--keep"])
    assert main([*command, "--resume"]) == 0
    with Connection(url, domain) as connection, h5py.File(tmp_path / "a.h5") as file:
        assert domain_differences(file, connection) == []


def test_a_killed_import_goes_on(url: str, tmp_path: Path) -> None:
    path, domain = write_large(tmp_path / "large.h5"), "/home/admin/killed.h5"
    arguments = ["import", str(path), domain, "--endpoint", url]
    with Connection(url, domain) as connection:
        assert end_import(arguments, connection, signal.SIGKILL) == -signal.SIGKILL
        with pytest.raises(HsparseError, match="exists already"):
            main_raising(arguments)
        assert main([*arguments, "--resume"]) == 0
        assert_is_file(connection, path)


def main_raising(arguments: list[str]) -> None:
    """Run a command whose error is to be looked at."""
    stderr = sys.stderr
    sys.stderr = io.StringIO()
    try:
        status, text = main(arguments), sys.stderr.getvalue()
    finally:
        sys.stderr = stderr
    if status:
        raise HsparseError(text)


def test_another_file_does_not_go_on(url: str, tmp_path: Path) -> None:
    domain = "/home/admin/other-file.h5"
    for number, status in enumerate([0, 2]):
        path = write_file(tmp_path / f"{number}.h5")
        assert main(["import", str(path), domain, "--endpoint", url, "--resume"]) == status


def test_a_domain_that_something_else_made_is_refused(url: str, tmp_path: Path) -> None:
    path, domain = write_file(tmp_path / "some.h5"), "/home/admin/something-else.h5"
    with Connection(url, domain) as connection:
        root = connection.json("PUT", "/")["root"]
        for flags, words in (((), "exists already"), (("--resume",), "was not imported from this file")):
            with pytest.raises(HsparseError, match=words):
                main_raising(["import", str(path), domain, "--endpoint", url, *flags])
        assert connection.json("GET", "/")["root"] == root


@pytest.mark.parametrize("flags", [(), ("--keep",), ("--resume",)])
def test_what_a_failure_leaves(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    path = write_file(tmp_path / "damaged.h5")
    with h5py.File(path) as file:
        info = file["g/direct"].id.get_chunk_info(4)
    with path.open("r+b") as opened:
        opened.seek(info.byte_offset + info.size // 2)
        opened.write(bytes(20))
    connection = imported(path, *flags, status=2)
    assert "hsparse: /g/direct (chunk 4_0): " in capsys.readouterr().err
    assert is_there(connection) == bool(flags)


def test_a_failure_does_not_wait_for_a_busy_server(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("retry.PAUSES", Backoff(1e4, 1e4)),
        ("retrying_client.BUSY_SECONDS", 1e5),
    ):
        monkeypatch.setattr(f"hsparse.client.http.{name}", value)
    json: Callable[..., Any] = Connection.json
    errors = [BadRequest("No."), Busy("Later.")]

    def refusing(self: Connection, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if errors and method == "PUT" and path.startswith("/datasets/"):
            raise errors.pop()
        return json(self, method, path, body, **params)

    monkeypatch.setattr(Connection, "json", refusing)
    connection = imported(write_large(tmp_path / "large.h5"), "--requests", "2", status=2)
    assert capsys.readouterr().err.endswith("No.\n")
    assert errors == []
    assert not is_there(connection)


@pytest.mark.parametrize("size", [0, 5, 100, 2000, -100])
def test_a_file_cut_short_makes_no_domain(imported: Import, tmp_path: Path, size: int) -> None:
    path = write_file(tmp_path / "cut.h5")
    path.write_bytes(path.read_bytes()[:size])
    assert not is_there(imported(path, status=2))


def test_a_missing_file_and_a_missing_folder(url: str, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    for path, domain, words in (
        (tmp_path / "none.h5", "/home/admin/x.h5", "no file"),
        (empty, "/home/admin/x.h5", "HDF5"),
        (write_file(tmp_path / "some.h5"), "/home/admin/no folder/x.h5", "folder"),
    ):
        with pytest.raises(HsparseError, match=words):
            main_raising(["import", str(path), domain, "--endpoint", url])


def test_a_name_that_no_link_can_have_makes_no_domain(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate integer general\n3 3 1\n1 2 5\n")
    sent = stop_after(100, monkeypatch)
    assert "The title 'a/b' cannot name a link" in refused(tmp_path / "a.mtx", "--path", "a/b")
    assert sent == ["GET /"]


def test_signing_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path / "some.h5")
    users, keys = tmp_path / "passwords", tmp_path / "keys"
    PasswordFile(users).put(User("ada", PasswordHash().hash("secret"), False, ()))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    add = ["key", "add", "k", "--of", "ada", "--key-file", str(keys), "--password-file", str(users)]
    assert main(add) == 0
    (tmp_path / "key").write_text(sys.stdout.getvalue())
    flags = ("--password-file", str(users), "--key-file", str(keys), "--no-fsync")
    with server_process("--root", str(tmp_path / "root"), *flags) as server:
        command = ["import", str(path), "/home/ada/x.h5", "--endpoint", server.url]
        assert main(command) == 2
        for password, status in (("wrong", 2), ("secret", 0)):
            monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
            assert main([*command, "--user", "ada"]) == status
        command[2] = "/home/ada/y.h5"
        assert main([*command, "--token-file", str(tmp_path / "key")]) == 0
        assert main([*command, "--token-file", str(tmp_path / "key"), "--user", "ada"]) == 2
        assert server.stop() == 0


def test_many_objects_and_links(imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_LINKS", 7)
    with h5py.File(tmp_path / "many.h5", "w", track_order=True) as file:
        group = file.create_group("g", track_order=True)
        for number in range(40):
            group[f"{(number * 17) % 40}"] = h5py.SoftLink(f"/{number}")
            file[f"{(number * 13) % 40}"] = h5py.SoftLink("/g")
    assert_is_file(imported(tmp_path / "many.h5"), tmp_path / "many.h5")


def write_many(path: Path, count: int) -> Path:
    """Write a file of `count` groups with small datasets, one of them linked to by two groups."""
    with h5py.File(path, "w") as file:
        for number in range(count):
            group = file.create_group(f"g{number % 3}/{number}")
            group.attrs["n"] = number
            group["x"] = np.arange(number)
            group.create_dataset("t", data=["ü" * number, ""], dtype=h5py.string_dtype(), chunks=(1,))
        file["again"] = file["g0/0/x"]
    return path


def test_small_objects_are_made_many_by_a_request_and_with_their_values(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_many(tmp_path / "many.h5", 230)
    sent = stop_after(1000, monkeypatch)
    connection = imported(path)
    assert sum(line.startswith("POST") for line in sent) == 5 + 3
    assert not any(line.endswith("value") for line in sent)
    assert_is_file(connection, path)


def test_objects_whose_creation_was_not_answered_are_found(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lost = write_many(tmp_path / "many.h5", 110), []
    answered = Connection.json

    def losing(self: Connection, method: str, target: str, body: Any = None, **params: object) -> Any:
        answer = answered(self, method, target, body, **params)
        if method == "POST" and target not in lost:
            lost.append(target)
            raise Unreachable("The answer is lost.")
        return answer

    monkeypatch.setattr(Connection, "json", losing)
    connection = imported(path)
    assert sorted(lost) == ["/datasets", "/groups"]
    assert_is_file(connection, path)


def test_references_that_lead_nowhere_are_told(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "lost.h5", "w") as file:
        hidden = file.create_dataset(None, data=np.arange(3))
        file["refs"] = np.array([hidden.ref, file.ref], h5py.ref_dtype)
    connection = imported(tmp_path / "lost.h5")
    assert "1 references lead to objects that are not imported" in capsys.readouterr().err
    root = connection.json("GET", "/")["root"]
    id = connection.json("GET", "/datasets/", h5path="/refs")["id"]
    assert connection.json("GET", f"/datasets/{id}/value")["value"] == ["", f"groups/{root}"]


def test_a_domain_without_its_slash_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(tmp_path / "a.h5"), "home/admin/a.h5"]) == 2
    assert "must be an absolute path, such as /home/user/file.h5" in capsys.readouterr().err
