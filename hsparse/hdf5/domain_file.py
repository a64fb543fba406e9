"""A domain downloaded as an HDF5 file; an interrupted download continues.

A file on a disk that has another name until it is complete, with one writer at a time.

A streaming JSON reader: only the requested values of a long answer are in memory.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.address import check_domain
from hsparse.errors import Conflict, HsparseError, NotFound, PreconditionFailed, StoreFailed
from hsparse.hdf5.format.plan.file_plan import FileForm

if sys.platform != "win32":
    import fcntl

STATE = r"\d+-[\w-]+-[0-9a-f]{32}"
"""The etag of a domain's file."""


class PartFile:
    """The incomplete file `target` in the state `mark`; `file` is open for reading and writing.

    Entering raises `Conflict` if there is another writer. Errors of the disk are `StoreFailed`.
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
                    f"{self.path} is written by another export: wait for it, or choose another file."
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if isinstance(error, OSError) and not isinstance(error, HsparseError):
            raise self._failed(error) from error

    def finish(self, *, replace: bool) -> None:
        """Give the file its final name; without `replace`, `Conflict` if that exists by now."""
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
        """Remove the files of other states without a writer."""
        pattern = re.compile(rf"{re.escape(self.target.name)}\.{STATE}\.part")
        for other in self.target.absolute().parent.iterdir():
            if pattern.fullmatch(other.name) and other.name != self.path.name:
                with suppress(OSError), other.open("rb") as file:
                    if _locked(file):
                        other.unlink()

    def _is_there(self) -> bool:
        """Say whether the file still has its name: a former writer may have finished it."""
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
        return StoreFailed(f"{self.target} cannot be written: {error.strerror}.")


def _locked(file: BinaryIO) -> bool:
    """Lock a file until it is closed; return False if it is locked."""
    if sys.platform == "win32":  # without such locks, two writers are not detected
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


PART = 1 << 20
DOMAIN_HEADER = "X-Hdf-Domain"
"""The path of the domain of a file, percent-encoded."""
ATTEMPTS = 5
"""The most connections in a row that break without a byte received."""
ETAG = re.compile(r'"([\w-]{1,100})"')
ReportProgress = Callable[[int, int], None]
"""Called with the bytes received, and their total."""


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


SPACE = re.compile(r"[ \t\n\r]*")
BEHIND = frozenset(" \t\n\r:,]}")
"""The characters that end a value."""


class JsonReader:
    """Reads one JSON value, from start to end, from pieces of its text in UTF-8.

    Text that is no JSON, and a value of another kind than requested, raise `HsparseError`.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._texts = codecs.iterdecode(pieces, "utf-8")
        self._text = ""
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def members(self) -> Iterator[str]:
        """Yield the names in the next value, an object; read the value of each before the next name."""
        for _ in self._elements("{", "}"):
            name = str(self.value())
            self._expect(":")
            yield name

    def items(self) -> Iterator[None]:
        """Yield once for each value in the next value, an array; read each before the next."""
        return self._elements("[", "]")

    def value(self) -> Any:
        """Return the next value."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError as error:
                if not self._more():
                    raise self._wrong() from error
                continue
            # A number may go on in the next piece.
            if self._text[end : end + 1] in BEHIND or not self._more():
                self._at = end
                return value

    def _elements(self, first: str, last: str) -> Iterator[None]:
        self._expect(first)
        if self._peek() == last:
            self._at += 1
            return
        while True:
            yield
            if self._peek() == last:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._wrong()
        self._at += 1

    def _peek(self) -> str:
        """Return the next character that is no white space, empty at the end."""
        while True:
            found = SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read another piece of text; say whether there was one."""
        try:
            text = next(self._texts, None)
        except UnicodeDecodeError as error:
            raise self._wrong() from error
        if text is None:
            return False
        self._text, self._at = self._text[self._at :] + text, 0
        return True

    def _wrong(self) -> HsparseError:
        here = self._text[self._at : self._at + 20]
        return HsparseError(f"The answer is not the JSON it should be, at {here!r}: see what answers there.")
