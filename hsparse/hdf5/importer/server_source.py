"""Files that a server of the REST API has, read by ranges: an upload, `upload:///home/ada/run.h5.upload`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hsparse.client.connection import Connection, Json
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import HsparseError
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.source import BlockCache, Source
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.upload import Upload, bytes_id, root_id, upload_path


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


class UploadSource(ServerSource):
    """The uploaded file, called by its own name."""

    def __init__(self, url: str, connect: Callable[[str | None], Connection]) -> None:
        """Ask what is uploaded; raise the server's error, and as `Upload.parse`."""
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
        """Delete the upload, which is imported; return why it cannot be deleted, or nothing."""
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
