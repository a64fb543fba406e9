"""The file that is imported: byte ranges of it, and what tells it from any other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import TypeVar

from hsparse.errors import BadRequest, Corrupt, HsparseError, NotFound, StoreFailed
from hsparse.format.hdf5.reads import ByteRange, Reads, run_reads

Found = TypeVar("Found")


class Source:
    """A local file, open for reading; several threads may read at once."""

    def __init__(self, path: Path) -> None:
        """Open the file; `NotFound` or `BadRequest` where it cannot be read."""
        self.path = path
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

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def fetch(self, wanted: tuple[ByteRange, ...]) -> list[bytes]:
        """Return the bytes of ranges; `Corrupt` where the file ends before."""
        return [self.read(address, size) for address, size in wanted]

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from `address` on; `Corrupt` where the file ends before."""
        if address + size > self.size:
            raise Corrupt(f"There are no {size} bytes at {address}: the file ends at {self.size}.")
        parts, left = [], size
        while left:
            try:
                part = os.pread(self._descriptor, left, address + size - left)
            except OSError as error:
                raise StoreFailed(f"The file {self.path} cannot be read: {error.strerror}.") from error
            if not part:
                raise Corrupt(f"The file {self.path} became shorter while it was read.")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def run(self, reads: Reads[Found]) -> Found:
        """Run a reader to its end."""
        return run_reads(reads, self.fetch)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Put the path of an object in front of what goes wrong with it."""
    try:
        yield
    except HsparseError as error:
        raise type(error)(f"{path}: {error.message}") from error
