"""The imported file: byte ranges of it, and a fingerprint that identifies it.

Small ranges of a remote file are taken from a cache of blocks, so that close ones are fetched by one request.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from errno import EINVAL
from hashlib import sha256
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest, Corrupt, HsparseError, NotFound, StoreFailed
from hsparse.hdf5.format.file_fields import ByteRange, Reads, run_reads

PIECE = 4 * 1024 * 1024
"""Bytes that are fetched at once if a file is read from start to end."""
Result = TypeVar("Result")


class Opened(ABC):
    """What is imported, of `size` bytes: a file, or many.

    `name` is its name in messages. `fingerprint` identifies it and its state.
    """

    name: str
    size: int
    fingerprint: str
    is_far = False
    """Whether a read is a request to another machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release the resources of reading."""


class Source(Opened):
    """A file that many threads may read at once."""

    @abstractmethod
    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        """Return the bytes of ranges; `Corrupt` if the file ends before."""

    def opening(self) -> AbstractContextManager[None]:
        """While it lasts, one thread reads what describes the file: a request may fetch more than it asks for."""
        return nullcontext()

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from `address` on; `Corrupt` if the file ends before."""
        return self.fetch((ByteRange(address, size),))[0]

    def file(self) -> BufferedReader:
        """Return a file object that reads from the start, `PIECE` bytes at a time; closing it keeps the source open."""
        return BufferedReader(_Reader(self), PIECE)

    def run(self, reads: Reads[Result]) -> Result:
        """Run a reader to its end."""
        return run_reads(reads, self.fetch)

    def check(self, wanted: ByteRange) -> None:
        """Raise `Corrupt` if the file ends before the range."""
        if wanted.address + wanted.size > self.size:
            raise Corrupt(
                f"There are no {wanted.size} bytes at {wanted.address}: the file ends at {self.size}."
            )


class _Reader(RawIOBase):
    """A source as an open file."""

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
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        """Open the file; `NotFound` or `BadRequest` if it cannot be read."""
        self.name = str(path)
        try:
            # A pipe would wait for its writer.
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
                raise Corrupt(f"The file {self.name} became shorter while it was read.")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def path_in_errors(path: str) -> Iterator[None]:
    """Put the path of an object before the text of its errors."""
    try:
        yield
    except HsparseError as error:
        raise type(error)(f"{path}: {error.message}") from error


BLOCK = 1024 * 1024
BLOCKS = 64
"""The bytes of a block, and the most blocks in the cache."""
SMALL = 256 * 1024
"""The most bytes of a range that is read from blocks: sequential reads of four ranges cost one request."""


class Blocks:
    """The least recently used blocks of any number of files, for any number of threads."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most or BLOCKS
        self._lock = Lock()
        self._blocks: OrderedDict[tuple[object, int], Future[bytes]] = OrderedDict()

    def get(self, file: object, number: int, begin: Callable[[], Future[bytes]]) -> Future[bytes]:
        """Return a block of a file, which `begin` starts to fetch; one that failed is fetched again."""
        with self._lock:
            found = self._blocks.get((file, number))
            if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
                found = self._blocks[file, number] = begin()
                if len(self._blocks) > self._most:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end((file, number))
            return found

    def add(self, file: object, number: int, data: bytes) -> None:
        """Add a block of a file that was fetched otherwise."""
        found = Future[bytes]()
        found.set_result(data)
        self.get(file, number, lambda: found)


class BlockCache:
    """The blocks of a file of `size` bytes, for any number of threads; `blocks` may be those of other files, too.

    `begin` starts to fetch a range and returns a future of its bytes.
    """

    def __init__(
        self, size: int, begin: Callable[[ByteRange], Future[bytes]], blocks: Blocks | None = None
    ) -> None:
        self._size = size
        self._begin = begin
        self._blocks = blocks or Blocks()

    def read(self, wanted: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of ranges inside the file; all are requested before the first one is awaited."""
        parts = list(map(self._parts, wanted))
        return [_joined(one, part) for one, part in zip(wanted, parts, strict=True)]

    def add(self, start: int, data: memoryview) -> None:
        """Add the blocks that are wholly in the bytes from `start` on."""
        stop = start + len(data)
        for number in range(-(-start // BLOCK), -(-self._size // BLOCK)):
            first, end = number * BLOCK - start, min((number + 1) * BLOCK, self._size) - start
            if end > stop - start:
                break
            self._blocks.add(self, number, bytes(data[first:end]))

    def _parts(self, wanted: ByteRange) -> list[Future[bytes]]:
        """Return futures of the bytes of a range or, for a small one, of the blocks that have them."""
        if wanted.size > SMALL:
            return [self._begin(wanted)]
        stop = wanted.address + wanted.size
        return [self._block(number) for number in range(wanted.address // BLOCK, -(-stop // BLOCK))]

    def _block(self, number: int) -> Future[bytes]:
        start = number * BLOCK
        wanted = ByteRange(start, min(BLOCK, self._size - start))
        return self._blocks.get(self, number, lambda: self._begin(wanted))


def _joined(wanted: ByteRange, parts: list[Future[bytes]]) -> bytes:
    if wanted.size > SMALL:
        return parts[0].result()
    data = b"".join(part.result() for part in parts)
    start = wanted.address % BLOCK
    return data[start : start + wanted.size]
