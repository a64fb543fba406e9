"""Read the metadata of a remote file with few requests while the file is opened.

A file of up to `MAX_WHOLE_BYTES` bytes is read in larger and larger parts, and then whole, which takes no longer than a
few consecutive requests. In a larger file, the ranges of a read are fetched concurrently; nearby ranges share a
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from hsparse.hdf5.format.file_fields import ByteRange

Begin = Callable[[ByteRange], Future[bytes]]
"""Starts to fetch a range of a file; returns a future of the bytes in the range."""
MIB = 1024 * 1024
PAGE_BYTES = 64 * 1024
MAX_WHOLE_BYTES = 64 * MIB
"""The maximum size in bytes of a file that may be read whole."""
MAX_REQUEST_BYTES = 32 * MIB
"""The maximum number of bytes of a request."""
MAX_GAP_BYTES = MIB
"""The maximum gap in bytes between ranges that one request fetches; a larger gap takes longer than a request."""
FIRST, GROWS, MOST_AHEAD = MIB, 4, 4 * MIB
"""The bytes of the first request, the growth factor of later requests, and the maximum bytes of a grown request."""
KEPT_PAGES = MAX_WHOLE_BYTES // PAGE_BYTES


class OpeningReads:
    """A page cache of about `MAX_WHOLE_BYTES`, used by one thread while it opens a file of `size` bytes."""

    def __init__(self, size: int, begin: Begin) -> None:
        self._size = size
        self._begin = begin
        self._pages: dict[int, tuple[Future[bytes], int]] = {}
        """Maps each page number to the request that fetches the page, and to the page's offset in the fetched bytes."""
        self._ahead = FIRST

    def read(self, wanted: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of ranges inside the file."""
        numbers = {number for one in wanted for number in _pages(one)}
        for first, end in self._runs(sorted(numbers - self._pages.keys())):
            self._fetch(first, end)
        found = [self._joined(one) for one in wanted]
        for number in [*self._pages][: max(0, len(self._pages) - KEPT_PAGES)]:
            del self._pages[number]
        return found

    def fetched(self) -> Iterator[tuple[int, memoryview]]:
        """Yield pairs of the address and the bytes of each fetched range."""
        wholes = {id(whole): (number * PAGE_BYTES - at, whole) for number, (whole, at) in self._pages.items()}
        for start, whole in wholes.values():
            yield start, memoryview(whole.result())

    def _runs(self, missing: list[int]) -> Iterator[tuple[int, int]]:
        """Yield runs of pages to fetch, (first, end), which contain the sorted page numbers `missing`."""
        if not missing:
            return
        last = -(-self._size // PAGE_BYTES)
        if self._size <= MAX_WHOLE_BYTES and self._ahead > MOST_AHEAD:
            missing = [number for number in range(last) if number not in self._pages]
        runs: list[tuple[int, int]] = []
        for number in missing:
            if runs and (
                self._size <= MAX_WHOLE_BYTES or (number - runs[-1][1]) * PAGE_BYTES <= MAX_GAP_BYTES
            ):
                runs[-1] = runs[-1][0], number + 1
            else:
                runs.append((number, number + 1))
        if len(runs) == 1:
            first, end = runs[0]
            runs = [(first, max(end, first + min(self._ahead, MOST_AHEAD) // PAGE_BYTES))]
            self._ahead *= GROWS
        for first, end in runs:
            for start in range(first, min(end, last), MAX_REQUEST_BYTES // PAGE_BYTES):
                yield start, min(start + MAX_REQUEST_BYTES // PAGE_BYTES, end, last)

    def _fetch(self, first: int, end: int) -> None:
        start = first * PAGE_BYTES
        whole = self._begin(ByteRange(start, min(end * PAGE_BYTES, self._size) - start))
        self._pages |= {number: (whole, (number - first) * PAGE_BYTES) for number in range(first, end)}

    def _joined(self, wanted: ByteRange) -> bytes:
        stop = wanted.address + wanted.size
        parts = []
        for number in _pages(wanted):
            whole, at = self._pages[number]
            begin, end = (
                max(wanted.address - number * PAGE_BYTES, 0),
                min(stop - number * PAGE_BYTES, PAGE_BYTES),
            )
            parts.append(whole.result()[at + begin : at + end])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _pages(wanted: ByteRange) -> range:
    """Return the numbers of the pages that a range covers."""
    return range(wanted.address // PAGE_BYTES, -(-(wanted.address + wanted.size) // PAGE_BYTES))
