"""Read byte ranges of the imported file, and identify the file and its state by a fingerprint."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from errno import EINVAL
from hashlib import sha256
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from stat import S_ISREG
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest, Corrupt, HsparseError, NotFound, StoreFailed, reword
from hsparse.hdf5.format.file_fields import ByteRange, Reads, run_reads

FETCH_BYTES = 4 * 1024 * 1024
"""The number of bytes that are fetched at a time when a file is read from start to end."""
Result = TypeVar("Result")


class OpenedInput(ABC):
    """An opened input of an import, of `size` bytes: one file, or a directory of files.

    `name` is its name in messages. `fingerprint` identifies the input and its state.
    """

    name: str
    size: int
    fingerprint: str
    is_far = False
    """Whether a read is a request to another machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the files and connections."""


class InputFile(OpenedInput):
    """A file that any number of threads may read concurrently."""

    @abstractmethod
    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        """Return the bytes of each range; raises `Corrupt` if a range exceeds the end of the file."""

    def opening(self) -> AbstractContextManager[None]:
        """Return a context in which one thread reads the file's metadata; requests may fetch more than is needed."""
        return nullcontext()

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from `address` on; raises `Corrupt` if the file ends before them."""
        return self.fetch((ByteRange(address, size),))[0]

    def file(self) -> BufferedReader:
        """Return a buffered file object at the file's start; closing the file object keeps this source open."""
        return BufferedReader(_RawReader(self), FETCH_BYTES)

    def run(self, reads: Reads[Result]) -> Result:
        """Run a reader, which yields the ranges that it needs, on this file; return the reader's result."""
        return run_reads(reads, self.fetch)

    def check(self, wanted: ByteRange) -> None:
        """Raise `Corrupt` if a range exceeds the end of the file."""
        if wanted.address + wanted.size > self.size:
            raise Corrupt(
                f"There are no {wanted.size} bytes at {wanted.address}: the file ends at {self.size}."
            )


class _RawReader(RawIOBase):
    """A raw Python file object that reads a source."""

    def __init__(self, source: InputFile) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        base = {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError(EINVAL, "a place before the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._source.size - self._at))
        if count:
            view[:count] = self._source.read(self._at, count)
        self._at += count
        return count


class LocalSource(InputFile):
    """A local file."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises `NotFound` if it is missing, `BadRequest` if it is unreadable or no regular file."""
        self.name = str(path)
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            status = os.fstat(self._descriptor)
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {path}.") from error
        except OSError as error:
            raise BadRequest(f"The file {path} cannot be read: {error.strerror}.") from error
        if not S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise BadRequest(f"{path} is no file.")
        self.size = status.st_size
        self.fingerprint = sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:32]

    def close(self) -> None:
        os.close(self._descriptor)

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        return list(map(self._fetch, wanted))

    def _fetch(self, wanted: ByteRange) -> bytes:
        self.check(wanted)
        parts, left = [], wanted.size
        while left:
            try:
                part = os.pread(self._descriptor, left, wanted.address + wanted.size - left)
            except OSError as error:
                raise StoreFailed(f"The file {self.name} cannot be read: {error.strerror}.") from error
            if not part:
                raise Corrupt(f"The file {self.name} became shorter while it was read: import it again.")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def path_in_errors(path: str) -> Iterator[None]:
    """Add the path of an object to the front of the messages of errors that are raised in this context."""
    try:
        yield
    except HsparseError as error:
        reword(error, f"{path}: {error.message}")
        raise
