"""What is read of a file when it is opened: by few requests, and remembered, so that it is not read twice.

All objects of a level of the tree are asked for together: a file that is far away answers each level in the time of a
few requests, not of one for each object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import BoundedSemaphore
from typing import Any, TypeVar

from hsparse.errors import HsparseError
from hsparse.hdf5.format.file_fields import ByteRange, Reads, concurrently
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import HardLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.dataset_chunks import read_dataset_chunks
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, carried_object, parse_object
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.importer.source import Source
from hsparse.model.dataspace import dims_of

Result = TypeVar("Result")
TOGETHER = 1000
"""Objects that are asked for together."""
OPENED = BoundedSemaphore(4)
"""Files that are opened at a time: each takes memory for what is fetched."""
REMEMBERED = 32 * 1024 * 1024
"""The most bytes of ranges that are remembered of a file."""


class RememberedSource(Source):
    """A file whose ranges that were read while it was opened are kept in memory: nobody fetches them again."""

    def __init__(self, base: Source) -> None:
        self.base = base
        self.name, self.size, self.fingerprint, self.is_far = (
            base.name,
            base.size,
            base.fingerprint,
            base.is_far,
        )
        self.ranges: dict[ByteRange, bytes] = {}
        self._left = REMEMBERED
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

    def remember(self) -> None:
        """Read what describes the file and its objects, and remember that and what is read until `forget`."""
        self._remembers = True
        with OPENED, self.base.opening():
            file = self.run(read_superblock(self.size))
            for _ in _levels(self, file):
                pass

    def forget(self) -> None:
        """Remember no more: what follows are values."""
        self._remembers = False


def _levels(source: Source, file: Hdf5File) -> Iterator[int]:
    """Read all objects, those of each level together; yield the number of each. What is damaged is left out."""
    seen, level = {file.root}, [file.root]
    while level:
        yield len(level)
        below: dict[int, None] = {}
        for first in range(0, len(level), TOGETHER):
            some = level[first : first + TOGETHER]
            for found in source.run(concurrently(_tried(_described(file, one)) for one in some)):
                below |= dict.fromkeys(found or ())
        level = [one for one in below if one not in seen]
        seen.update(level)


def _tried(reads: Reads[Result]) -> Reads[Result | None]:
    """Run a reader; None where something is damaged or unsupported, which whoever needs it finds again."""
    try:
        return (yield from reads)
    except HsparseError:
        return None


def _described(file: Hdf5File, address: int) -> Reads[list[int]]:
    """Read an object, the values of its attributes and its chunk index; return what its hard links lead to."""
    found = carried_object((yield from parse_object(file, address)))
    yield from concurrently(map(_tried, _parts(file, found)))
    return [link.target.address for link in found.links if isinstance(link.target, HardLink)]


def _parts(file: Hdf5File, found: ParsedObject) -> Iterator[Reads[Any]]:
    for one in found.attributes:
        yield parse_elements(file, one.type, one.data, dims_of(one.shape) or (), lambda _: None)
    if found.dataset is not None and isinstance(found.dataset.layout, ChunkedLayout):
        yield read_dataset_chunks(file, found.dataset, found.dataset.layout)
