"""Files in memory, read by this package's readers and walked from the root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from hsparse.hdf5.format.file_fields import ByteRange, Reads, concurrently, run_reads
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.format.superblock import read_superblock

Found = TypeVar("Found")


class FileBytes:
    """A file's bytes, and how much was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.steps = 0
        self.bytes_read = 0

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[memoryview]:
        self.steps += 1
        for address, size in wanted:
            assert address >= 0
            assert size >= 0
            assert address + size <= len(self.data)
            self.bytes_read += size
        return [self.data[address : address + size] for address, size in wanted]

    def run(self, reads: Reads[Found]) -> Found:
        return run_reads(reads, self.fetch)

    def open(self) -> Hdf5File:
        return self.run(read_superblock(len(self.data)))


def walk(path_or_data: Path | bytes) -> dict[str, ParsedObject]:
    """Return every object by the shortest of its paths."""
    data = path_or_data if isinstance(path_or_data, bytes) else path_or_data.read_bytes()
    source = FileBytes(data)
    file = source.open()
    found: dict[str, ParsedObject] = {}
    seen = {file.root}
    level = {"/": file.root}
    while level:
        objects = source.run(concurrently(parse_object(file, address) for address in level.values()))
        below = {}
        for path, one in zip(level, objects, strict=True):
            found[path] = one
            for link in one.links:
                if isinstance(link.target, StoredHardLink) and link.target.address not in seen:
                    seen.add(link.target.address)
                    below[path.rstrip("/") + "/" + link.name] = link.target.address
        level = below
    return found
