"""The file of a domain on a server, in one state, as an import source that is read by ranges."""

from __future__ import annotations

from collections.abc import Callable

from hsparse.client.connection import Connection
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.importer.server_source import ServerSource


class DomainSource(ServerSource):
    """The source whose file `open_file` returns for a connection."""

    def __init__(
        self, name: str, connect: Callable[[], Connection], open_file: Callable[[Connection], DomainFile]
    ) -> None:
        """Request the file's size and etag; raises the server's error."""
        super().__init__(connect)
        self.name = name
        self._open_file = open_file
        self._opened(*self._server.ask(lambda one: open_file(one).state()))

    def _get(self, connection: Connection, start: int, stop: int) -> bytes:
        return self._open_file(connection).read(start, stop, self.fingerprint)
