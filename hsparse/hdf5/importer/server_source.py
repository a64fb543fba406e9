"""Read byte ranges of files over the REST API, such as the upload `upload:///home/ada/run.h5.upload`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hsparse.client.connection import Connection, Json
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import HsparseError
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.block_cache import BlockCache
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.upload import Upload, bytes_id, root_id, upload_path


class ServerSource(InputFile):
    """The base class of files that are read over a server's connections, which `connect` opens, with retries.

    A subclass sets `name`, and calls `_opened` with the file's size and fingerprint.
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
        """Return the bytes of the file from `start` up to, not including, `stop`."""


class UploadSource(ServerSource):
    """An uploaded file; its `name` is the name of the original file."""

    def __init__(self, url: str, connect: Callable[[str | None], Connection]) -> None:
        """Look up the upload; raises the errors of the server and of `Upload.parse`."""
        self._path = upload_path(url)
        super().__init__(lambda: connect(self._path))
        try:
            self._root, upload = self._parsed()
        except BaseException:
            self.close()
            raise
        self.name = upload.name
        self._id = upload.id
        self._opened(upload.size, upload.state)

    def delete(self) -> str:
        """Delete the upload after its import; return a message if this fails, else ""."""
        try:
            TargetDomain(self._server, self._path).delete(self._root)
        except HsparseError as error:
            return f"The upload {self._path} is still there: {error.message}"
        return ""

    def _parsed(self) -> tuple[str, Upload]:
        id = root_id(self._path, self._server.json("GET", "/"))
        root: Json = self._server.json("GET", f"/groups/{id}", include_attrs=True, include_links=True)
        dataset = self._server.json("GET", f"/datasets/{bytes_id(self._path, root)}")
        return id, Upload.parse(self._path, root, dataset)

    def _get(self, connection: Connection, start: int, stop: int) -> bytes:
        return connection.binary("GET", f"/datasets/{self._id}/value", select=f"[{start}:{stop}]")
