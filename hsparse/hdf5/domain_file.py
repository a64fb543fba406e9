"""Download a domain as an HDF5 file; an interrupted download can be continued.

`PartFile` is the local file during the download: it has a temporary name until it is complete, and one writer.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote

from hsparse.client.connection import OK, Connection
from hsparse.client.errors import OtherServer, Unreachable
from hsparse.client.http.address import check_domain
from hsparse.errors import Conflict, HsparseError, NotFound, PreconditionFailed, StoreFailed, unwritten
from hsparse.hdf5.format.plan.file_form import FileForm

if sys.platform != "win32":
    import fcntl

STATE = r"\d+-[\w-]+-[0-9a-f]{32}"
"""A regular expression for the etag of a domain's file."""


class PartFile:
    """The incomplete file of `target`; its name contains `mark`, an etag. Within `with`, `file` is open read-write.

    Entering raises `Conflict` if another process writes the file. Disk errors are raised as `StoreFailed`.
    """

    def __init__(self, target: Path, mark: str) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.{mark}.part")
        self.file: BinaryIO

    def __enter__(self) -> Self:
        with self._store_errors():
            self.file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
            if not _locked(self.file) or not self._is_there():
                self.file.close()
                raise Conflict(
                    f"{self.path} is being written by another export: wait for it, or choose another file."
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if isinstance(error, OSError) and not isinstance(error, HsparseError):
            raise self._failed(error) from error

    def finish(self, *, replace: bool) -> None:
        """Rename the file to `target`. Without `replace`, raises `Conflict` if `target` exists."""
        with self._store_errors():
            os.fsync(self.file.fileno())
            if replace:
                self.path.replace(self.target)
                return
            try:
                self.target.hardlink_to(self.path)
            except FileExistsError as error:
                raise Conflict(f"{self.target} was made meanwhile; add --force to replace it.") from error
            self.path.unlink()

    def remove_others(self) -> None:
        """Delete the incomplete files of `target` for other etags, except files that another process writes."""
        pattern = re.compile(rf"{re.escape(self.target.name)}\.{STATE}\.part")
        for other in self.target.absolute().parent.iterdir():
            if pattern.fullmatch(other.name) and other.name != self.path.name:
                with suppress(OSError), other.open("rb") as file:
                    if _locked(file):
                        other.unlink()

    def _is_there(self) -> bool:
        """Return whether the open file is still at `path`; a previous writer may have renamed it."""
        try:
            return os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreFailed:
        return unwritten(error, self.target)


def _locked(file: BinaryIO) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    if sys.platform == "win32":  # no such locks exist: two writers are not detected
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


PART_BYTES = 1 << 20
DOMAIN_HEADER = "X-Hdf-Domain"
"""The response header that contains the percent-encoded path of the domain whose file is sent."""
MAX_BROKEN_CONNECTIONS = 5
"""The download fails after this many consecutive connections without a received byte."""
ETAG = re.compile(r'"([\w-]{1,100})"')
ReportProgress = Callable[[int, int], None]
"""A function that is called with the number of bytes received so far and the total number."""


class DomainFile:
    """The HDF5 file that a server generates of a domain, in `form`. `connection` must have no domain of its own."""

    def __init__(self, connection: Connection, domain: str, form: FileForm) -> None:
        check_domain(domain)
        self._connection = connection
        self._domain = domain
        self._path = f"/files{domain}"
        self._asked: dict[str, Any] = form.params

    def fetch(self, target: Path, progress: ReportProgress, *, replace: bool = False) -> int:
        """Download the file to `target`; return its size in bytes.

        Until the download is complete, the file is named `<target>.<etag>.part`. An incomplete file with the same etag
        is continued; files with other etags are deleted. Raises the server's error, `Unreachable` if the server stops
        responding, `PreconditionFailed` if the domain changes during the download, and the errors of `PartFile`.
        """
        size, etag = self.state()
        with PartFile(target, etag) as part:
            part.remove_others()
            have = part.file.seek(0, os.SEEK_END)
            if have > size:
                have = part.file.seek(0)
                part.file.truncate()
            progress(have, size)
            failures = 0
            while have < size:
                before = have
                broken: Unreachable | None = None
                try:
                    for data in self._parts(have, etag):
                        part.file.write(data)
                        have += len(data)
                        progress(have, size)
                except Unreachable as error:
                    broken = error
                failures = 0 if have > before else failures + 1
                if failures == MAX_BROKEN_CONNECTIONS:  # a broken connection may look complete
                    raise broken or Unreachable(
                        f"{self._connection.url} does not send the rest of the file: try again later."
                    )
            part.finish(replace=replace)
        return size

    def state(self) -> tuple[int, str]:
        """Return a pair: the size in bytes of the file of the domain's current state, and its etag without quotes.

        Raises `NotFound` if the server returns the file of another domain, whose path lacks the suffix `.h5`.
        """
        return self._connection.repeated(self._state)

    def _state(self) -> tuple[int, str]:
        with self._connection.response("HEAD", self._path, **self._asked) as response:
            if response.status != OK:
                raise OtherServer(f"{self._connection.url} answers a file request with {response.status}.")
            size = response.headers.get("Content-Length", "")
            etag = ETAG.fullmatch(response.headers.get("ETag", ""))
            named = unquote(response.headers.get(DOMAIN_HEADER, quote(self._domain.rstrip("/"))))
        if named != self._domain.rstrip("/"):
            raise NotFound(f"There is no domain {self._domain}: use {named}.")
        if not size.isdigit() or etag is None:
            raise OtherServer(
                f"{self._connection.url} answers with {OK}, but without the file's etag or size; make sure that no "
                "proxy answers in its place."
            )
        return int(size), etag.group(1)

    def read(self, start: int, stop: int, etag: str) -> bytes:
        """Return the bytes from `start` to `stop` (exclusive) of the file with this etag.

        Raises the server's error, `Unreachable` if the response is truncated, or `PreconditionFailed` if the domain has
        changed.
        """

        def read() -> bytes:
            data = b"".join(self._parts(start, etag, stop))
            if len(data) != stop - start:
                raise Unreachable(
                    f"{self._connection.url} sent {len(data)} of {stop - start} bytes: try again."
                )
            return data

        return self._connection.repeated(read) if start < stop else b""

    def _parts(self, start: int, etag: str, stop: int | None = None) -> Iterator[bytes]:
        """Yield pieces of the bytes from `start` to `stop` (exclusive), or to the end, of the file with this etag."""
        last = "" if stop is None else stop - 1
        headers = {"Range": f"bytes={start}-{last}", "If-Match": f'"{etag}"'}
        try:
            with self._connection.response("GET", self._path, headers, **self._asked) as response:
                if response.status != 206:
                    raise OtherServer(
                        f"{self._connection.url} answers a range request with {response.status}; make sure that no "
                        "proxy answers in its place."
                    )
                while data := response.read(PART_BYTES):
                    yield data
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"The domain was changed while it was fetched: begin again. {error.message}"
            ) from error
