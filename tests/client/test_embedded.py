"""Stores that this process reads and writes itself, and who else may."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Misconfigured
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import plain_settings

DOMAIN = "/a.h5"


def write_one(root: Path) -> None:
    with EmbeddedConnection(root, DOMAIN) as connection:
        connection.json("PUT", "/")
        dataset = SparseDataset.create(connection, "/x", (10, 10), "f4", (5, 5))
        dataset.write([[1, 2], [7, 8]], [3, 4])


def count(root: Path) -> int:
    with EmbeddedConnection(root, DOMAIN) as connection:
        return SparseDataset.open(connection, "/x").count()


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    write_one(tmp_path / "new")
    assert count(tmp_path / "new") == 2
    assert not list((tmp_path / "new/.hsparse/servers").iterdir())


def test_all_connections_of_a_process_share_the_store(tmp_path: Path) -> None:
    write_one(tmp_path)
    with (
        EmbeddedConnection(tmp_path, DOMAIN) as first,
        EmbeddedConnection(tmp_path / "sub" / "..", DOMAIN) as second,
    ):
        one, other = SparseDataset.open(first, "/x"), SparseDataset.open(second, "/x")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda row: (one, other)[row % 2].write([[row, 0]], [row]), range(8)))
        assert one.count() == other.count() == 10
        assert len(list((tmp_path / ".hsparse/servers").iterdir())) == 1
        first.close()
        assert other.count() == 10
        with pytest.raises(ValueError, match="is closed"):
            one.count()
    assert not list((tmp_path / ".hsparse/servers").iterdir())


def test_connections_about_other_domains(tmp_path: Path) -> None:
    write_one(tmp_path)
    with EmbeddedConnection(tmp_path) as connection:
        other = connection.for_domain(DOMAIN)
        assert other.json("GET", "/")["owner"] == "admin"
        assert connection.domain is None


def test_a_running_server_has_the_directory(tmp_path: Path) -> None:
    with (
        embedded_server(plain_settings(StoreSettings(root=tmp_path))),
        EmbeddedConnection(tmp_path, DOMAIN) as connection,
        pytest.raises(Misconfigured, match=rf"process {os.getpid()} on .* open the server's URL"),
    ):
        connection.json("GET", "/")
    write_one(tmp_path)


def test_another_process_is_refused_with_the_words_to_do_instead(tmp_path: Path) -> None:
    write_one(tmp_path)
    program = (
        "import pickle, sys\n"
        "connection = pickle.load(sys.stdin.buffer)\n"
        "try: print(connection.json('GET', '/'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    with EmbeddedConnection(tmp_path, DOMAIN) as connection:
        connection.json("GET", "/")
        data = pickle.dumps(connection)
        command = [sys.executable, "-c", program]
        found = subprocess.run(command, input=data, capture_output=True, check=True)
    assert found.stdout.startswith(b"Misconfigured")
    assert f"served by process {os.getpid()}".encode() in found.stdout
    assert b"run `hsparse serve --root` on the directory" in found.stdout
    found = subprocess.run(command, input=data, capture_output=True, check=True)
    assert b"'root'" in found.stdout, found.stderr  # nobody has it now
    assert not found.stderr  # and a process that does not close it ends quietly
    assert count(tmp_path) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_does_not_close_its_store_ends_well(tmp_path: Path) -> None:
    code = """if True:
        import atexit, pathlib, sys, threading
        from hsparse.client.embedded import EmbeddedConnection
        connection = EmbeddedConnection(pathlib.Path(sys.argv[1]), "/a.h5")
        connection.json("PUT", "/")
        atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))
        assert len(threading.enumerate()) > 1
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['MainThread']\n"
    assert not list((tmp_path / ".hsparse/servers").iterdir())


def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    write_one(tmp_path)
    with EmbeddedConnection(tmp_path, DOMAIN) as connection:
        dataset = SparseDataset.open(connection, "/x")
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                dataset.count()
            except Misconfigured as error:
                os.write(writer, error.message.encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        assert f"served by process {os.getpid()}" in os.read(reader, 1000).decode()
        os.close(reader)
        dataset.write(np.array([[9, 9]]), [1])
        assert dataset.count() == 3
