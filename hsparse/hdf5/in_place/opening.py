"""Read the metadata of a remote file by few requests when the file is opened, and cache the bytes that were read.

All objects of a level of the group hierarchy are read concurrently: a level takes the time of a few requests, instead
of the time of one request per object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import BoundedSemaphore
from typing import Any, TypeVar

from hsparse.errors import HsparseError
from hsparse.hdf5.format.file_fields import ByteRange, Reads, concurrently
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.dataset_chunks import read_dataset_chunks
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, carried_object, parse_object
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.source import InputFile
from hsparse.model.dataspace import dims_of

Result = TypeVar("Result")
MAX_OBJECTS_AT_ONCE = 1000
"""Most objects that are read concurrently."""
MAX_READ_BYTES = 256 * 1024
"""Most bytes of one read that covers several object headers."""
OPENED = BoundedSemaphore(4)
"""Limits how many files are opened concurrently, because each needs memory for the fetched bytes."""
CACHED_BYTES = 32 * 1024 * 1024
"""Most bytes of ranges that are cached per file."""


class RememberedSource(InputFile):
    """A source that caches in memory the ranges that are read while the file is opened."""

    def __init__(self, base: InputFile) -> None:
        self.base = base
        self.name, self.size, self.fingerprint, self.is_far = (
            base.name,
            base.size,
            base.fingerprint,
            base.is_far,
        )
        self.ranges: dict[ByteRange, bytes] = {}
        self._left = CACHED_BYTES
        self._remembers = False

    def close(self) -> None:
        self.base.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        missing = tuple(one for one in dict.fromkeys(wanted) if one not in self.ranges)
        found = dict(zip(missing, self.base.fetch(missing), strict=True)) if missing else {}
        if self._remembers:
            for one, data in found.items():
                self._left -= len(data)
                if self._left >= 0:
                    self.ranges[one] = data
        return [found[one] if one in found else self.ranges[one] for one in wanted]

    def remember(self, most: int) -> None:
        """Read the file's metadata, level by level; cache these reads and all further reads until `forget`.

        Reading stops once more than `most` objects are known.
        """
        self._remembers = True
        with OPENED, self.base.opening():
            file = self.run(read_superblock(self.size))
            known = 0
            for count in _levels(self, file):
                known += count
                if known > most:
                    break

    def forget(self) -> None:
        """Stop caching, because further reads are of dataset values. Ranges in the cache stay there."""
        self._remembers = False


def beginnings(
    source: InputFile, file: Hdf5File, addresses: Sequence[int], most: int
) -> Iterator[tuple[int, memoryview]]:
    """Yield (address, up to `most` bytes from there) for ascending `addresses`; nearby addresses share one read."""
    first = 0
    while first < len(addresses):
        end = start = addresses[first]
        last = first
        while (
            last < len(addresses)
            and addresses[last] <= end
            and addresses[last] + most <= start + MAX_READ_BYTES
        ):
            end = addresses[last] + most
            last += 1
        size = min(end, file.size - file.base) - start
        data = memoryview(source.read(file.base + start, size)) if size > 0 else memoryview(b"")
        for address in addresses[first:last]:
            yield address, data[address - start : address - start + most]
        first = last


def _levels(source: InputFile, file: Hdf5File) -> Iterator[int]:
    """Read all objects, level by level; yield the number of objects of each level before reading it."""
    seen, level = {file.root}, [file.root]
    while level:
        yield len(level)
        below: dict[int, None] = {}
        for first in range(0, len(level), MAX_OBJECTS_AT_ONCE):
            some = level[first : first + MAX_OBJECTS_AT_ONCE]
            for found in source.run(concurrently(_tried(_described(file, one)) for one in some)):
                below |= dict.fromkeys(found or ())
        level = [one for one in below if one not in seen]
        seen.update(level)


def _tried(reads: Reads[Result]) -> Reads[Result | None]:
    """Run a parser; return None if it raises an error, because a later use of the object raises the error again."""
    try:
        return (yield from reads)
    except HsparseError:
        return None


def _described(file: Hdf5File, address: int) -> Reads[list[int]]:
    """Read an object, its attribute values and its chunk index; return the addresses of its hard links' targets."""
    found = carried_object((yield from parse_object(file, address)))
    yield from concurrently(map(_tried, _parts(file, found)))
    return [link.target.address for link in found.links if isinstance(link.target, StoredHardLink)]


def _parts(file: Hdf5File, found: ParsedObject) -> Iterator[Reads[Any]]:
    for one in found.attributes:
        yield parse_elements(file, one.type, one.data, dims_of(one.shape) or (), lambda _: None)
    if found.dataset is not None and isinstance(found.dataset.layout, ChunkedLayout):
        yield read_dataset_chunks(file, found.dataset, found.dataset.layout)
