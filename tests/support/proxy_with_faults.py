"""A proxy over TCP in front of a server, which does one thing wrong to one request, as proxies and networks do."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlsplit

PAGE = b"<html><body>something else</body></html>"
STATUSES = {
    "301": "301 Moved Permanently\r\nLocation: https://elsewhere.example.org/",
    "401": "401 Unauthorized",
    "403": "403 Forbidden",
    "404": "404 Not Found",
    "200": "200 OK",
    "204": "204 No Content",
    "429": "429 Too Many Requests\r\nRetry-After: 0",
    "500": "500 Internal Server Error",
    "502": "502 Bad Gateway",
    "503": "503 Service Unavailable\r\nRetry-After: 0",
    "504": "504 Gateway Timeout",
    "520": "520 Web Server Returned an Unknown Error",
}
"""The answers of a proxy itself; all have a page in HTML."""
BROKEN = ("cut", "reset", "stall", "slow")
FAULTS = (*BROKEN, *STATUSES)
PASSING = (*BROKEN, "429", "500", "502", "503", "504", "520")
"""The faults after which a request that only reads is sent again."""


@dataclass
class FaultyServer:
    """The URL of the proxy, and its fault: the `fault` is done to request number `at`, once.

    With `passed_on` the server has carried the request out. `requests` are the lines of what came since `set`.
    """

    url: str
    requests: list[str] = field(default_factory=list)
    fault: str = ""
    at: int = 0
    passed_on: bool = True
    met: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def set(self, fault: str = "", at: int = 0, *, passed_on: bool = True) -> None:
        """Do a fault to the request number `at` from now on, or none."""
        self.released.set()  # the one before stalls no more
        with self.lock:
            self.requests.clear()
            self.fault, self.at, self.passed_on, self.met = fault, at, passed_on, False
            self.released = threading.Event()

    def next(self, line: str) -> str:
        """Return what is done to a request."""
        with self.lock:
            self.requests.append(line)
            if self.met or len(self.requests) <= self.at:
                return ""
            self.met = bool(self.fault)
            return self.fault


@contextmanager
def proxy_with_faults(upstream: str) -> Iterator[FaultyServer]:
    """Serve while the context lasts; a connection serves one request."""
    parts = urlsplit(upstream)
    place = parts.hostname or "", parts.port or 80
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        server = FaultyServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_accept, args=(listener, place, server), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, place: tuple[str, int], server: FaultyServer) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(peer, place, server), daemon=True).start()


def _serve(peer: socket.socket, place: tuple[str, int], server: FaultyServer) -> None:
    with peer, peer.makefile("rb") as reader, suppress(OSError):
        head, body = _request(reader)
        if not head:
            return
        fault, released = server.next(head.split(b"\r\n", 1)[0].decode().rsplit(" ", 1)[0]), server.released
        answer = _forwarded(place, head, body) if server.passed_on or fault in ("", *BROKEN) else b""
        _answer(peer, fault, answer, head.startswith(b"HEAD "), released)


def _answer(peer: socket.socket, fault: str, answer: bytes, is_head: bool, released: threading.Event) -> None:
    if fault == "stall":
        peer.sendall(answer[: len(answer) // 2])
        released.wait()
    elif fault == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif fault == "cut":
        start = answer.index(b"\r\n\r\n") + 4
        peer.sendall(
            answer[: start + (len(answer) - start) // 2] if len(answer) > start else answer[: start - 3]
        )
    elif fault == "slow":
        for at in range(0, len(answer), len(answer) // 3 + 1):
            peer.sendall(answer[at : at + len(answer) // 3 + 1])
    elif fault:
        body = b"" if fault == "204" else PAGE
        about = "" if fault == "204" else f"Content-Type: text/html\r\nContent-Length: {len(body)}\r\n"
        own = f"HTTP/1.1 {STATUSES[fault]}\r\n{about}Connection: close\r\n\r\n"
        peer.sendall(own.encode() + (b"" if is_head else body))
    else:
        peer.sendall(answer)


def _request(reader: BinaryIO) -> tuple[bytes, bytes]:
    """Return the head of a request, with `Connection: close` in it, and its body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return b"", b""
        if not line.lower().startswith(b"connection:"):
            head += line
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head[:-2] + b"Connection: close\r\n\r\n", reader.read(int(length[1])) if length else b""


def _forwarded(place: tuple[str, int], head: bytes, body: bytes) -> bytes:
    with socket.create_connection(place) as upstream:
        upstream.sendall(head + body)
        pieces = []
        while piece := upstream.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
