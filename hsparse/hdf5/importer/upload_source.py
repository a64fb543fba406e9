"""The file of an upload, `upload:///home/ada/run.h5.upload`, read by ranges of the dataset that has its bytes."""

from __future__ import annotations

from collections.abc import Callable

from hsparse.client.connection import Connection, Json
from hsparse.errors import HsparseError
from hsparse.hdf5.importer.server_source import ServerSource
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.upload import Upload, bytes_id, root_id, upload_path


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
