"""Bytes that a server of the REST API has, read by ranges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.source import BlockCache, Source


class ServerSource(Source):
    """A file that is read over the connections that `connect` opens; requests are repeated as by `RetryingClient`.

    A subclass sets `name`, and the rest by `_opened`.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._server = RetryingClient(connect)

    def _opened(self, size: int, fingerprint: str) -> None:
        self.size, self.fingerprint = size, fingerprint
        self._blocks = BlockCache(size, self._got)

    def close(self) -> None:
        self._server.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return self._blocks.read(wanted)

    def _got(self, wanted: ByteRange) -> Future[bytes]:
        found = Future[bytes]()
        stop = wanted.address + wanted.size
        found.set_result(self._server.ask(lambda one: self._get(one, wanted.address, stop)))
        return found

    @abstractmethod
    def _get(self, connection: Connection, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to before `stop`."""
