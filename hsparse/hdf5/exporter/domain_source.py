"""An import source that reads byte ranges of the HDF5 file that a server generates of a domain."""

from __future__ import annotations

from collections.abc import Callable

from hsparse.client.connection import Connection
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.importer.server_source import ServerSource


class DomainSource(ServerSource):
    """Reads the file that `open_file` returns for a connection, in the state that the domain has at first."""

    def __init__(
        self, name: str, connect: Callable[[], Connection], open_file: Callable[[Connection], DomainFile]
    ) -> None:
        """Request the size and etag of the file; raises the error that the server returns."""
        super().__init__(connect)
        self.name = name
        self._open_file = open_file
        self._opened(*self._server.ask(lambda one: open_file(one).state()))

    def _get(self, connection: Connection, start: int, stop: int) -> bytes:
        return self._open_file(connection).read(start, stop, self.fingerprint)
