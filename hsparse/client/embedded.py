"""Connections to a store in a local directory that this process itself serves; they need the extra `server`."""

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
    """A `Connection` to a store in a directory that this process serves; connections to a directory share one store.

    The first request opens the store. The store closes when all its connections are closed. While the store is open, no
    other process can use the directory: requests in another process, including a forked child, raise a `Misconfigured`
    that names the process that uses the directory. A pickle of this object has only the path of the directory.
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
    """Connections to the store of the directory `root`; the store stays open until the pool is closed."""

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
    """An HTTP connection over a socket pair; the server of the embedded store has the other end of the pair."""

    def __init__(self, store: Any, timeout: float) -> None:
        super().__init__(HOST, timeout=timeout)
        self._store = store

    def connect(self) -> None:
        try:
            sock: socket.socket = self._store.connect()
        except RuntimeError as error:  # the event loop is closed
            raise ConnectionError("the embedded store has stopped: open it again") from error
        sock.settimeout(self.timeout)
        self.sock = sock


@dataclass(slots=True)
class _Lease:
    """An open store, and the number of pools that use it."""

    root: Path
    store: Any
    pools: int = 0

    @classmethod
    def begin(cls, root: Path) -> _Lease:
        """Count one more pool that uses the store of `root`, and return the lease; the first pool opens the store."""
        with _OPENING:
            lease = _LEASES.get(root)
            if lease is None:
                lease = _LEASES[root] = cls(root, EMBEDDED_STORE.load().EmbeddedStore(root))
                _close_at_exit()
            lease.pools += 1
            return lease

    def end(self) -> None:
        """Count one pool less that uses the store; if no pool is left, close the store."""
        with _OPENING:
            self.pools -= 1
            if not self.pools:
                del _LEASES[self.root]
                self.store.close()


_LEASES: dict[Path, _Lease] = {}
_OPENING = threading.Lock()


@cache
def _close_at_exit() -> None:
    """Register a function that closes open stores at exit: the interpreter could crash if their threads still ran."""
    # This must run before concurrent.futures joins its threads, which a closing store uses; `atexit` runs later.
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
