"""The file of a domain on a server, in one state, read by ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.source import BlockCache, Source


class DomainSource(Source):
    """The file that `open_file` returns for a connection; requests are repeated as by `RetryingClient`."""

    def __init__(
        self, name: str, connect: Callable[[], Connection], open_file: Callable[[Connection], DomainFile]
    ) -> None:
        """Request size and etag; raise the server's error."""
        self.name = name
        self._open_file = open_file
        self._server = RetryingClient(connect)
        self.size, self.fingerprint = self._server.ask(lambda one: open_file(one).state())
        self._blocks = BlockCache(self.size, self._got)

    def close(self) -> None:
        self._server.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return self._blocks.read(wanted)

    def _got(self, wanted: ByteRange) -> Future[bytes]:
        found = Future[bytes]()
        found.set_result(self._server.ask(lambda one: self._get(one, wanted)))
        return found

    def _get(self, connection: Connection, wanted: ByteRange) -> bytes:
        stop = wanted.address + wanted.size
        return self._open_file(connection).read(wanted.address, stop, self.fingerprint)
