"""Connections to a store in a directory that this process reads and writes itself (the extra `server`)."""

from __future__ import annotations

import atexit
import http.client
import os
import socket
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hsparse.client.connection import Connection
from hsparse.client.http.connection_pool import ConnectionPool, OwnAnswer
from hsparse.client.http.retry import Retry
from hsparse.optional_module import OptionalModule

EMBEDDED_STORE = OptionalModule("hsparse.cli.embedded_store", "server")
HOST = "localhost"


class EmbeddedConnection(Connection):
    """A `Connection` without a server of its own process: all in this process share one over the same directory.

    The store is opened by the first request, and closed when all connections of this process to it are closed.
    No other process can have the directory meanwhile: there, and in a forked child, requests raise `Misconfigured`,
    which names the process that has it. So does a pickle, which has the path alone, where it is used.
    """

    def __init__(
        self, root: Path, domain: str | None = None, timeout: float = 60.0, retry: Retry | None = None
    ) -> None:
        self.root = root.resolve()
        super().__init__(f"http://{HOST}", domain, timeout=timeout, retry=retry)
        self.url = str(self.root)

    def _new_pool(self) -> ConnectionPool:
        return EmbeddedPool(self.root, self.timeout)

    @property
    def is_here(self) -> bool:
        return True


class EmbeddedPool(ConnectionPool):
    """Connections to the store of this process in the directory `root`, which is open until the pool is closed."""

    def __init__(self, root: Path, timeout: float) -> None:
        super().__init__("http", HOST, None, timeout)
        self._root = root
        self._lease: _Lease | None = None
        self._leasing = threading.Lock()

    def close(self) -> None:
        super().close()
        with self._leasing:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._leasing = threading.Lock()
        self._lease = None

    def _new(self) -> http.client.HTTPConnection:
        with self._leasing:
            if self._lease is None:
                self._lease = _Lease.begin(self._root)
            store = self._lease.store
        connection = EmbeddedHttp(store, self._timeout)
        connection.response_class = OwnAnswer
        return connection


class EmbeddedHttp(http.client.HTTPConnection):
    """HTTP over a pair of sockets."""

    def __init__(self, store: Any, timeout: float) -> None:
        super().__init__(HOST, timeout=timeout)
        self._store = store

    def connect(self) -> None:
        try:
            sock: socket.socket = self._store.connect()
        except RuntimeError as error:  # of its event loop
            raise ConnectionError("the embedded store has stopped") from error
        sock.settimeout(self.timeout)
        self.sock = sock


@dataclass(slots=True)
class _Lease:
    """An open store, and how many pools use it."""

    root: Path
    store: Any
    pools: int = 0

    @classmethod
    def begin(cls, root: Path) -> _Lease:
        """Return the process's lease of a directory, for one pool more; the first one opens the store."""
        with _OPENING:
            lease = _LEASES.get(root)
            if lease is None:
                lease = _LEASES[root] = cls(root, EMBEDDED_STORE.load().EmbeddedStore(root))
                _close_at_exit()
            lease.pools += 1
            return lease

    def end(self) -> None:
        """End the use by one pool; the last one closes the store."""
        with _OPENING:
            self.pools -= 1
            if not self.pools:
                del _LEASES[self.root]
                self.store.close()


_LEASES: dict[Path, _Lease] = {}
_OPENING = threading.Lock()


@cache
def _close_at_exit() -> None:
    """Have open stores closed when the interpreter ends: it would end under a running thread otherwise, and crash."""
    # Before the threads of concurrent.futures are joined, which a closing store still uses; atexit comes after.
    register: Any = getattr(threading, "_register_atexit", atexit.register)
    register(_close_all)


def _close_all() -> None:
    for lease in list(_LEASES.values()):
        lease.store.close()
    _LEASES.clear()


def _forget_parents() -> None:
    global _OPENING
    _OPENING = threading.Lock()
    _LEASES.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_parents)
