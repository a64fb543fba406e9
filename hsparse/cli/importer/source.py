"""The file that is imported: byte ranges of it, and what tells it from any other."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Self, TypeVar

from hsparse.errors import BadRequest, Corrupt, HsparseError, NotFound, StoreFailed
from hsparse.format.hdf5.reads import ByteRange, Reads, run_reads

SCHEME = "s3://"
"""How the names of objects in buckets begin."""
Found = TypeVar("Found")


class Source(ABC):
    """A file of `size` bytes that several threads may read at once.

    `name` is what messages call it; `fingerprint` tells it from any other, and from itself before a change.
    """

    name: str
    size: int
    fingerprint: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Give back what reading takes."""

    @abstractmethod
    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        """Return the bytes of ranges; `Corrupt` where the file ends before."""

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from `address` on; `Corrupt` where the file ends before."""
        return self.fetch((ByteRange(address, size),))[0]

    def run(self, reads: Reads[Found]) -> Found:
        """Run a reader to its end."""
        return run_reads(reads, self.fetch)

    def check(self, wanted: ByteRange) -> None:
        """Raise `Corrupt` where the file ends before a range does."""
        if wanted.address + wanted.size > self.size:
            raise Corrupt(
                f"There are no {wanted.size} bytes at {wanted.address}: the file ends at {self.size}."
            )


class LocalSource(Source):
    """A file of this machine, read as it is asked for."""

    def __init__(self, path: Path) -> None:
        """Open the file; `NotFound` or `BadRequest` where it cannot be read."""
        self.name = str(path)
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
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
                raise Corrupt(f"The file {self.name} became shorter while it was read.")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Put the path of an object in front of what goes wrong with it."""
    try:
        yield
    except HsparseError as error:
        raise type(error)(f"{path}: {error.message}") from error
