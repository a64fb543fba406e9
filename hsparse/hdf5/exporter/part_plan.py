"""Divide a file into the parts of an S3 multipart upload: chunks that the service copies, and bytes that are sent.

Amazon S3 User Guide, "Amazon S3 multipart upload limits".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from hsparse.errors import TooLarge
from hsparse.hdf5.exporter.multipart_upload import CopySource

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of parts: at most `most` parts of `least` to `largest` bytes; the last may be smaller than `least`.

    Parts that are sent have about `sent` bytes if the limits allow, because they are held in memory.
    """

    least: int = 5 * MIB
    largest: int = 5 * 1024 * MIB
    most: int = 10_000
    sent: int = 16 * MIB


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A chunk at `start` in the file, with the bytes of `source`."""

    start: int
    source: CopySource

    @property
    def stop(self) -> int:
        return self.start + self.source.size


@dataclass(frozen=True, slots=True)
class FilePart:
    """The bytes of the file from `start` to `stop` (exclusive): copied from `source`, or sent if that is None."""

    start: int
    stop: int
    source: CopySource | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start


def plan_parts(size: int, chunks: Sequence[FileChunk], limits: Limits = LIMITS) -> tuple[FilePart, ...]:
    """Return the parts of a file of `size` bytes, in order; `chunks` must be sorted and must not overlap.

    If the bytes before a copied chunk are too few for a part, the part also gets bytes of the chunk, or all of it. If
    there would be too many parts, small chunks are sent together. Raises `TooLarge` if the file does not fit.
    """
    least = limits.least
    while 2 * least <= limits.largest:
        large = [chunk for chunk in chunks if chunk.source.size >= least]
        sent = min(max(least, limits.sent), limits.largest // 2)
        found = _parts(size, large, replace(limits, least=least, sent=sent))
        parts = tuple(islice(found, limits.most + 1))
        if len(parts) <= limits.most:
            return parts
        least += max(1, least // 4)
    raise TooLarge(
        f"The file has {size} bytes, too many for {limits.most} parts, the limit of an upload: divide the domain."
    )


def _parts(size: int, chunks: Sequence[FileChunk], limits: Limits) -> Iterator[FilePart]:
    at = 0
    for chunk in chunks:
        between = chunk.start - at
        first = chunk.start + (max(0, limits.least - between) if between else 0)
        left = chunk.stop - first
        if left <= 0 or (left < limits.least and chunk.stop < size):
            continue
        yield from _sent(at, first, limits)
        yield from _copied(chunk, first, limits)
        at = chunk.stop
    yield from _sent(at, size, limits)


def _sent(start: int, stop: int, limits: Limits) -> Iterator[FilePart]:
    for first, last in _cut(start, stop, max(1, (stop - start) // limits.sent)):
        yield FilePart(first, last)


def _copied(chunk: FileChunk, start: int, limits: Limits) -> Iterator[FilePart]:
    """Yield the copied parts of a chunk from `start` on, an offset in the file."""
    for first, last in _cut(start, chunk.stop, -(-(chunk.stop - start) // limits.largest)):
        address = chunk.source.address + first - chunk.start
        yield FilePart(first, last, replace(chunk.source, address=address, size=last - first))


def _cut(start: int, stop: int, count: int) -> Iterator[tuple[int, int]]:
    """Divide a range into `count` ranges of about the same size, without empty ones; yield (first, last) of each."""
    cuts = (start + (stop - start) * number // count for number in range(count + 1))
    yield from ((first, last) for first, last in pairwise(cuts) if first < last)
