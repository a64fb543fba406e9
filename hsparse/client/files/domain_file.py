"""A domain downloaded as an HDF5 file; an interrupted download continues."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.files.part_file import PartFile
from hsparse.errors import BadRequest, HsparseError, NotFound, PreconditionFailed
from hsparse.format.hdf5.plan.file_plan import FileForm

PART = 1 << 20
DOMAIN_HEADER = "X-Hdf-Domain"
"""The path of the domain of a file, percent-encoded."""
ATTEMPTS = 5
"""The most connections in a row that break without a byte received."""
ETAG = re.compile(r'"([\w-]{1,100})"')
ReportProgress = Callable[[int, int], None]
"""Called with the bytes received, and their total."""


def check_domain(path: str) -> None:
    """Raise `BadRequest` for text that is no domain path, before any request."""
    if not path.startswith("/"):
        raise BadRequest(f"The domain {path!r} must be an absolute path, such as /home/user/file.h5.")


class DomainFile:
    """The file of a domain, in some form, on the server of `connection`, which has no domain of its own."""

    def __init__(self, connection: Connection, domain: str, form: FileForm) -> None:
        check_domain(domain)
        self._connection = connection
        self._domain = domain
        self._path = f"/files{domain}"
        self._asked: dict[str, Any] = form.params

    def fetch(self, target: Path, progress: ReportProgress, *, replace: bool = False) -> int:
        """Write the file to `target` and return its size in bytes.

        Until it is complete, its name is `target` with the etag and `.part`. One of the same state is continued, those
        of others are removed. Raises the server's error, `Unreachable` if it stops answering,
        `PreconditionFailed` if the domain was changed meanwhile, and the errors of `PartFile`.
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
                if failures == ATTEMPTS:  # a broken connection may look like a complete one
                    raise broken or Unreachable(
                        f"{self._connection.url} sends nothing more: ask again later."
                    )
            part.finish(replace=replace)
        return size

    def state(self) -> tuple[int, str]:
        """Return the file's size in bytes, and its etag without quotes, in the current state of the domain.

        `NotFound` if the file is another domain's: one without the suffix `.h5`.
        """
        with self._connection.response("HEAD", self._path, **self._asked) as response:
            size = response.headers.get("Content-Length", "")
            etag = ETAG.fullmatch(response.headers.get("ETag", ""))
            named = unquote(response.headers.get(DOMAIN_HEADER, quote(self._domain.rstrip("/"))))
        if named != self._domain.rstrip("/"):
            raise NotFound(f"There is no domain {self._domain}; there is {named}.")
        if not size.isdigit() or etag is None:
            raise HsparseError(f"{self._connection.url} does not say which state the file is of.")
        return int(size), etag.group(1)

    def read(self, start: int, stop: int, etag: str) -> bytes:
        """Return the bytes from `start` to before `stop` of the file with that etag.

        Raises the server's error, `Unreachable` if the answer is cut short, and `PreconditionFailed` if the domain was
        changed.
        """
        data = b"".join(self._parts(start, etag, stop)) if start < stop else b""
        if len(data) != stop - start:
            raise Unreachable(f"{self._connection.url} sent {len(data)} of {stop - start} bytes: ask again.")
        return data

    def _parts(self, start: int, etag: str, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to before `stop`, or to the end, of the file with that etag."""
        last = "" if stop is None else stop - 1
        headers = {"Range": f"bytes={start}-{last}", "If-Match": f'"{etag}"'}
        try:
            with self._connection.response("GET", self._path, headers, **self._asked) as response:
                if response.status != 206:
                    raise HsparseError(f"{self._connection.url} does not answer with parts of files.")
                while data := response.read(PART):
                    yield data
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"The domain was changed while it was fetched: begin again. {error.message}"
            ) from error
