"""A TCP proxy before a server that cuts connections after given numbers of bytes, of requests and answers together."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that ends a connection at once, by RST."""


class CuttingProxy:
    """Passes bytes on until `cut_after` has told it to cut."""

    def __init__(self, url: str) -> None:
        self._server = (str(urlsplit(url).hostname), int(urlsplit(url).port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left: list[int] = []
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, counts: Iterable[int]) -> None:
        """Cut all connections after so many bytes, then after the next number, and so on."""
        with self._lock:
            self._left = list(counts)

    @property
    def is_done(self) -> bool:
        """Whether all cuts were made."""
        return not self._left

    def close(self) -> None:
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                with self._lock:
                    self._open |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                count = self._allowed(len(data))
                target.sendall(data[:count])
                if count < len(data):
                    self.cuts += 1
                    self._cut()
                    return
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _allowed(self, count: int) -> int:
        """Return how many of the next bytes pass before the next cut."""
        with self._lock:
            if not self._left:
                return count
            if count < self._left[0]:
                self._left[0] -= count
                return count
            return min(self._left.pop(0), count - 1)

    def _cut(self) -> None:
        with self._lock:
            gone, self._open = self._open, set()
        for one in gone:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def cutting_proxy(url: str) -> Iterator[CuttingProxy]:
    """A proxy before the server at `url`."""
    proxy = CuttingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
