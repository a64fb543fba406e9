"""The file that is imported: byte ranges of it, and a fingerprint that tells it from any other.

Small ranges of a remote file come from a cache of blocks: what is close together is fetched by one request.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from errno import EINVAL
from hashlib import sha256
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest, Corrupt, HsparseError, NotFound, StoreFailed
from hsparse.format.hdf5.reads import ByteRange, Reads, run_reads

PIECE = 4 * 1024 * 1024
"""Bytes that are fetched at once where a file is read from front to back."""
Result = TypeVar("Result")


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

    def file(self) -> BufferedReader:
        """Return the file to be read from its begin on, in pieces of `PIECE` bytes; closing it leaves the source."""
        return BufferedReader(_Reader(self), PIECE)

    def run(self, reads: Reads[Result]) -> Result:
        """Run a reader to its end."""
        return run_reads(reads, self.fetch)

    def check(self, wanted: ByteRange) -> None:
        """Raise `Corrupt` where the file ends before a range does."""
        if wanted.address + wanted.size > self.size:
            raise Corrupt(
                f"There are no {wanted.size} bytes at {wanted.address}: the file ends at {self.size}."
            )


class _Reader(RawIOBase):
    """A source as a file that is open for reading."""

    def __init__(self, source: Source) -> None:
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
def path_in_errors(path: str) -> Iterator[None]:
    """Put the path of an object in front of what goes wrong with it."""
    try:
        yield
    except HsparseError as error:
        raise type(error)(f"{path}: {error.message}") from error


BLOCK = 1024 * 1024
BLOCKS = 64
"""Blocks of so many bytes, and how many of them, that small ranges are taken from."""
SMALL = 256 * 1024
"""Bytes of a range that is read from blocks: of what is read in the order of the file, four share a request."""


class BlockCache:
    """The blocks of a file of `size` bytes that were used last, for any number of threads.

    `begin` starts to get a range, and returns what will have its bytes; or gets it, one at a time.
    """

    def __init__(self, size: int, begin: Callable[[ByteRange], Future[bytes]]) -> None:
        self._size = size
        self._begin = begin
        self._lock = Lock()
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()

    def read(self, wanted: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of ranges that are in the file; all are under way before the first one is waited for."""
        parts = list(map(self._parts, wanted))
        return [_joined(one, part) for one, part in zip(wanted, parts, strict=True)]

    def _parts(self, wanted: ByteRange) -> list[Future[bytes]]:
        """Return what a range is made of: its bytes or, where it is small, the blocks that have them."""
        if wanted.size > SMALL:
            return [self._begin(wanted)]
        stop = wanted.address + wanted.size
        return [self._block(number) for number in range(wanted.address // BLOCK, -(-stop // BLOCK))]

    def _block(self, number: int) -> Future[bytes]:
        with self._lock:
            found = self._blocks.get(number)
            if found is None:
                start = number * BLOCK
                found = self._begin(ByteRange(start, min(BLOCK, self._size - start)))
                self._blocks[number] = found
                if len(self._blocks) > BLOCKS:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
            return found


def _joined(wanted: ByteRange, parts: list[Future[bytes]]) -> bytes:
    if wanted.size > SMALL:
        return parts[0].result()
    data = b"".join(part.result() for part in parts)
    start = wanted.address % BLOCK
    return data[start : start + wanted.size]
