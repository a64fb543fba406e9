"""A server that answers as scripted, connection by connection, and remembers what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from hsparse.client.connection import Connection

HANG_UP = b""


@dataclass(slots=True)
class Script:
    """`connections` are lists of raw answers: after the last one the connection is closed.

    `HANG_UP` reads a request and closes instead of answering. `requests` are the request lines in order, `bodies`
    what was sent with them, `keys` their `Idempotency-Key`; `closed` has an event a connection.
    """

    connections: list[list[bytes]]
    url: str = ""
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    closed: list[threading.Event] = field(default_factory=list)


def answer(body: bytes, status: str = "200 OK", media: str = "application/json") -> bytes:
    """Return a raw answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def scripted_server(*connections: list[bytes]) -> Iterator[Script]:
    """Serve the script while the context lasts."""
    script = Script(list(connections), closed=[threading.Event() for _ in connections])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=_serve, args=(listener, script))
        thread.start()
        try:
            yield script
        finally:
            for event in script.closed:
                if not event.is_set():  # a connection that never came
                    socket.create_connection(listener.getsockname()).close()
                    event.wait()
            thread.join()


@contextmanager
def scripted(*connections: list[bytes], **options: Any) -> Iterator[tuple[Script, Connection]]:
    """Serve the script to a connection with these options."""
    with scripted_server(*connections) as script, Connection(script.url, **options) as connection:
        yield script, connection


def _serve(listener: socket.socket, script: Script) -> None:
    for answers, closed in zip(script.connections, script.closed, strict=True):
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as reader:
            for raw in answers:
                if not _request(reader, script):
                    break
                peer.sendall(raw)
        closed.set()


def _request(reader: BinaryIO, script: Script) -> bool:
    """Read a request whole; False when the peer closed instead."""
    line = reader.readline()
    if not line:
        return False
    length, key = 0, ""
    while (header := reader.readline()) != b"\r\n":
        name, _, value = header.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
        key = value.decode().strip() if name.lower() == b"idempotency-key" else key
    script.bodies.append(reader.read(length))
    script.keys.append(key)
    script.requests.append(line.decode().rsplit(" ", 1)[0])
    return True
