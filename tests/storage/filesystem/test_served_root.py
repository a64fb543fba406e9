"""Which servers share a root directory, and which are refused."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hsparse.errors import Misconfigured
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import create_process_file, serving_root

SERVER = """
import sys
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import serving_root
with serving_root(RootDirectory(sys.argv[1]), "hsparse serve"):
    print("serving", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    return RootDirectory(str(tmp_path / "root"), fsync=False)


def entries(root: RootDirectory) -> list[Path]:
    return list(Path(root.internal, "servers").iterdir())


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_servers_that_would_not_see_each_others_writes_are_refused(
    root: RootDirectory, first: bool, second: bool
) -> None:
    with serving_root(root, "hsparse one", shared=first):
        with pytest.raises(Misconfigured) as refused, serving_root(root, "hsparse two", shared=second):
            pytest.fail("two servers serve one directory")
        for named in (
            root.path,
            str(os.getpid()),
            socket.gethostname(),
            "hsparse one",
            "--root",
            "hsparse dn",
        ):
            assert named in refused.value.message
        assert len(entries(root)) == 1
    with serving_root(root, "hsparse two", shared=second):
        assert len(entries(root)) == 1


def test_data_nodes_of_one_cluster_share_a_directory(root: RootDirectory) -> None:
    with serving_root(root, "hsparse dn", shared=True), serving_root(root, "hsparse dn", shared=True):
        assert len(entries(root)) == 2
    assert entries(root) == []


def test_a_server_that_was_killed_is_no_hindrance(root: RootDirectory) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, root.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        with (
            pytest.raises(Misconfigured, match=f"process {process.pid} on"),
            serving_root(root, "hsparse dn"),
        ):
            pytest.fail("two servers serve one directory")
        process.send_signal(signal.SIGKILL)
    assert len(entries(root)) == 1, "it had no time to remove its entry"
    with serving_root(root, "hsparse serve"):
        assert len(entries(root)) == 1
    assert entries(root) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"shared": 0}'])
def test_an_entry_of_an_unknown_form_counts(root: RootDirectory, content: bytes) -> None:
    root.make()
    folder = Path(root.internal, "servers")
    folder.mkdir()
    file, path = create_process_file(str(folder))
    Path(path).write_bytes(content)
    with pytest.raises(Misconfigured, match="process \\? on"), serving_root(root, "hsparse dn", shared=True):
        pytest.fail("two servers serve one directory")
    os.close(file)


def test_a_file_system_without_locks_is_refused(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(Misconfigured, match="No locks available"), serving_root(root, "hsparse serve"):
        pytest.fail("it is served without a lock")
