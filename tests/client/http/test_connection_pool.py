"""Connections that threads and processes share, and the bytes that come over them."""

from __future__ import annotations

import io
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.http.answers import ALIGNED, RECEIVED, SHARED, receive, taking
from hsparse.client.http.connection_pool import MAX_IDLE, MAX_JOINED_BYTES, ConnectionPool
from hsparse.client.http.retry import Retry
from tests.client.scripted_server import answer, scripted, scripted_server
from tests.support.endurance import repeats

PROJECT = Path(__file__).parents[3]
OK = answer(b'{"fine": 1}')
MIB = 1 << 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MAX_IDLE) as server:
        yield server


@pytest.fixture
def pool(listener: socket.socket) -> Iterator[ConnectionPool]:
    made = ConnectionPool("http", "127.0.0.1", listener.getsockname()[1], 60)
    yield made
    made.close()


def test_a_connection_is_kept_for_the_next_exchange(pool: ConnectionPool) -> None:
    first, kept = pool.take()
    second, also_kept = pool.take()
    assert first is not second
    assert (kept, also_kept) == (False, False)
    pool.give_back(first)
    assert pool.take() == (first, True)
    pool.drop(first)
    pool.drop(second)
    assert first.sock is second.sock is None
    third, kept = pool.take()
    assert not kept
    pool.drop(third)


def test_a_connection_that_the_server_closed_is_dropped(
    pool: ConnectionPool, listener: socket.socket
) -> None:
    first, _ = pool.take()
    listener.accept()[0].close()
    first.sock.recv(1)  # waits for the end
    pool.give_back(first)
    second, kept = pool.take()
    assert not kept
    assert first.sock is None
    pool.drop(second)


@pytest.mark.parametrize(
    ("size", "parts"), [(0, 1), (1, 1), (MAX_JOINED_BYTES, 1), (MAX_JOINED_BYTES + 1, 2)]
)
def test_a_small_body_is_sent_with_its_head(
    pool: ConnectionPool, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, size: int, parts: int
) -> None:
    sent: list[bytes] = []
    send = HTTPConnection.send
    monkeypatch.setattr(HTTPConnection, "send", lambda self, data: (sent.append(data), send(self, data)))
    connection, _ = pool.take()
    connection.request("PUT", "/x", bytes(size))
    pool.drop(connection)
    assert len(sent) == parts
    assert b"".join(sent).endswith(b"\r\n\r\n" + bytes(size))


def test_a_bounded_number_is_kept(pool: ConnectionPool) -> None:
    taken = [pool.open() for _ in range(MAX_IDLE + 3)]
    for one in taken:
        pool.give_back(one)
    assert [one.sock is None for one in taken] == [False] * MAX_IDLE + [True] * 3
    again = [pool.take() for _ in range(MAX_IDLE + 1)]
    assert [kept for _, kept in again] == [True] * MAX_IDLE + [False]
    for one, _ in again:
        pool.drop(one)


def test_a_closed_pool_keeps_nothing_from_before(pool: ConnectionPool) -> None:
    idle, busy = pool.open(), pool.open()
    pool.give_back(idle)
    pool.close()
    assert idle.sock is None
    assert busy.sock is not None
    pool.give_back(busy)
    assert busy.sock is None
    later = pool.open()
    pool.give_back(later)
    assert pool.take() == (later, True)
    pool.drop(later)


def test_a_server_that_is_not_there_is_an_os_error(pool: ConnectionPool, listener: socket.socket) -> None:
    listener.close()
    with pytest.raises(OSError, match="refused"):
        pool.take()


def test_threads_do_not_wait_for_each_other() -> None:
    """Two requests of one client are under way together: each is answered when the server has both."""
    together = threading.Barrier(2, timeout=60)

    def serve(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            together.wait()
            peer.sendall(OK)

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection(f"http://127.0.0.1:{listener.getsockname()[1]}") as connection,
        ThreadPoolExecutor(4) as threads,
    ):
        servers = [threads.submit(serve, listener) for _ in range(2)]
        answers = [threads.submit(connection.json, "GET", "/x") for _ in range(2)]
        assert [one.result() for one in answers] == [{"fine": 1}] * 2
        assert [one.result() for one in servers] == [None, None]


FORK = """
import os, sys
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable

connection = Connection(sys.argv[1])
connection.json("GET", "/idle")
with connection.response("GET", "/large") as response:
    assert len(response.read(1000)) == 1000
    child = os.fork()
    if not child:
        try:
            response.read(1)
            print("the child read the parent's answer")
        except OSError:
            pass
        try:
            response.readinto(bytearray(1))
            print("the child read into its own memory")
        except OSError:
            pass
        try:
            with connection.response("GET", "/own") as own:
                assert own.read() == b'{"fine": 1}'
            assert connection.json("GET", "/own") == {"fine": 1}
        finally:
            os._exit(0)
    assert len(response.read()) == (1 << 20) - 1000
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
INSIDE = """
import os, sys
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable

try:
    with Connection(sys.argv[1]).response("GET", "/large") as response:
        response.read(1)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        data = response.read()
        print(len(data))
except Unreachable as error:
    print(error.message, flush=True)
    os._exit(0)
"""


def run(code: str, url: str) -> list[str]:
    """Run a program that forks; this process has threads, so it does not."""
    done = subprocess.run(
        [sys.executable, "-c", code, url],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=PROJECT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_forked_process_has_connections_of_its_own() -> None:
    with scripted_server([OK, answer(bytes(MIB))], [OK], [OK]) as script:
        assert run(FORK, script.url) == ["done"]
    assert script.requests == ["GET /idle", "GET /large", "GET /own", "GET /own"]


def test_an_answer_is_read_by_the_process_that_asked_for_it() -> None:
    with scripted_server([answer(bytes(MIB))]) as script:
        refused, read = run(INSIDE, script.url)
    assert "Only the process that sent a request" in refused
    assert read == str(MIB - 1)


def test_a_pickle_has_the_credentials_and_no_connections() -> None:
    with scripted([OK], [OK], domain="/d", token="hsk_abc", retry=Retry(4, 7.0)) as (script, connection):
        connection.json("GET", "/a")
        copy = pickle.loads(pickle.dumps(connection))
        connection.close()
        with copy:
            assert copy.json("GET", "/b") == {"fine": 1}
        assert (copy._headers["Authorization"], copy._retry.tries) == ("Bearer hsk_abc", 4)
    assert script.requests == ["GET /a?domain=/d", "GET /b?domain=/d"]


@pytest.mark.endurance
def test_threads_and_processes_share_a_client(
    request: pytest.FixtureRequest, embedded_url: str, tmp_path: Path
) -> None:
    """16 threads, 4 forked processes and a spawned one use one client; every answer is checked."""
    calls: int = request.config.getoption("--shared-calls") or repeats(2000, short=400)
    done = subprocess.run(
        [sys.executable, "-m", "tests.client.shared_client", embedded_url, str(calls)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stdout[:2000] + done.stderr[-2000:]


SHORT, LONG = 100, RECEIVED.start + 1


class InPieces(io.BytesIO):
    """An answer of which each call receives a part."""

    def readinto(self, data: Any) -> int:
        return super().readinto(memoryview(data)[:1000])


def in_pieces(data: bytes) -> HTTPResponse:
    return cast(HTTPResponse, InPieces(data))


def test_pieces_of_any_length_are_taken_in_order() -> None:
    sizes = [4, LONG, SHORT, LONG, LONG, 0, SHARED + 1, LONG]
    data = bytes(number % 251 for number in range(sum(sizes[:-2]))) + bytes(sizes[-2] + sizes[-1])
    take = taking(in_pieces(data))
    taken = [bytes(take(size)) for size in sizes]
    assert ([len(piece) for piece in taken], b"".join(taken), take(SHORT)) == (sizes, data, b"")


def test_long_pieces_begin_where_numbers_are_aligned() -> None:
    take = taking(in_pieces(bytes(4 * LONG)))
    _, second, third = (np.frombuffer(take(LONG), np.uint8) for _ in range(3))
    assert third.ctypes.data - second.ctypes.data == -(-LONG // ALIGNED) * ALIGNED > LONG


def test_an_answer_that_ends_before_is_told() -> None:
    with pytest.raises(IncompleteRead) as caught:
        receive(in_pieces(b"abc"), memoryview(bytearray(5)))
    assert (caught.value.partial, caught.value.expected) == (b"abc", 2)
    with pytest.raises(IncompleteRead):
        taking(in_pieces(b"abc"))(LONG)
