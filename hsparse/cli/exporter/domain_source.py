"""A domain's file on a server, read by ranges of one state of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, local

from hsparse.cli.importer.block_cache import BlockCache
from hsparse.cli.importer.source import Source
from hsparse.client.connection import Connection, Unreachable
from hsparse.client.domain_file import ATTEMPTS, DomainFile
from hsparse.format.hdf5.reads import ByteRange


class DomainSource(Source):
    """The file that `open_file` makes of a connection; each thread has a connection of its own, by `connect`."""

    def __init__(
        self, name: str, connect: Callable[[], Connection], open_file: Callable[[Connection], DomainFile]
    ) -> None:
        """Ask for size and etag; raises what the server names."""
        self.name = name
        self._connect = connect
        self._open_file = open_file
        self._lock = Lock()
        self._opened: list[Connection] = []
        self._local = local()
        self.size, self.fingerprint = self._file().state()
        self._blocks = BlockCache(self.size, self._got)

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return self._blocks.read(wanted)

    def _got(self, wanted: ByteRange) -> Future[bytes]:
        found = Future[bytes]()
        found.set_result(self._get(wanted))
        return found

    def _get(self, wanted: ByteRange) -> bytes:
        for _ in range(ATTEMPTS - 1):
            with suppress(Unreachable):
                return self._file().read(wanted.address, wanted.address + wanted.size, self.fingerprint)
        return self._file().read(wanted.address, wanted.address + wanted.size, self.fingerprint)

    def _file(self) -> DomainFile:
        found: DomainFile | None = getattr(self._local, "file", None)
        if found is None:
            connection = self._connect()
            with self._lock:
                self._opened.append(connection)
            found = self._local.file = self._open_file(connection)
        return found
