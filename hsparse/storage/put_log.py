"""A log of puts: what makes many small ones durable by one write and one sync.

Layout, little-endian. A header of 4096 bytes: magic 8 bytes, generation u64, started u64 (nanoseconds since the
Unix epoch), CRC-32 u32 of what is before it, zeros. Then records, each at a multiple of 8 bytes: CRC-32 u32 of the
rest of the record, length of the data u32, generation u64, date u64 (the file's modification time, in
nanoseconds), length of the key u16, key, data, zeros. The first record that is not whole, or of another
generation, ends the log: so a log is emptied by writing its header with the next generation.

Zeros are written ahead of the records, in steps: a write into blocks that the file has costs no commit of the
file system's journal. Its process holds an exclusive `flock` on a log as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from hsparse.storage.object_store import Buffer
from hsparse.storage.posix_file import read_at
from hsparse.storage.posix_root import PosixRoot

MAGIC = b"hsputlog"
HEADER = struct.Struct("<8sQQ")
CHECKSUM = struct.Struct("<I")
RECORD = struct.Struct("<IQQH")
"""A record's head after its checksum: length of the data, generation, date, length of the key."""
FIRST = 4096
STEP = 1024 * 1024
CAPACITY = 8 * 1024 * 1024
"""Bytes of records after which a log is to be emptied: what a restart may have to read."""


class Record(NamedTuple):
    """A put as logged: the file of `key` is to hold `data` and to have the modification time `date`."""

    key: str
    date: int
    data: Buffer


class PutLog:
    """A log open for appending. `started`: no record in it has an earlier date."""

    def __init__(self, root: PosixRoot) -> None:
        self._root = root
        folder = log_folder(root)
        Path(folder).mkdir(exist_ok=True)
        self._file, self.path = _create(folder)
        self._generation = 0
        self._end = FIRST
        self._written = FIRST
        self.empty()
        root.sync_directory(folder)
        root.sync_directory(root.own)

    @property
    def used(self) -> int:
        """Bytes of records."""
        return self._end - FIRST

    @property
    def full(self) -> bool:
        return self.used >= CAPACITY

    def append(self, records: Iterable[Record]) -> None:
        """Write records and wait until they are on the disk; where that fails none counts."""
        data = b"".join(_encode(self._generation, record) for record in records)
        while self._end + len(data) > self._written:
            _write(self._file, bytes(STEP), self._written)
            self._written += STEP
        _write(self._file, data, self._end)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end += len(data)

    def empty(self) -> None:
        """Forget all records: what they say must be on the disk."""
        self._generation += 1
        self.started = self._root.now_ns()
        head = HEADER.pack(MAGIC, self._generation, self.started)
        _write(self._file, (head + CHECKSUM.pack(zlib.crc32(head))).ljust(FIRST, b"\0"), 0)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end = FIRST

    def remove(self) -> None:
        """Empty the log and remove its file; emptied first, for the name may come back after a crash."""
        self.empty()
        with suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108
        os.close(self._file)


def log_folder(root: PosixRoot) -> str:
    """Return the path of the directory of all logs."""
    return f"{root.own}/puts"


def log_paths(root: PosixRoot) -> list[str]:
    """Return the paths of all logs, of living processes and of dead ones."""
    try:
        return [entry.path for entry in os.scandir(log_folder(root))]
    except FileNotFoundError:
        return []


def started_durably(path: str) -> int | None:
    """Return when a log's first record may have been made, None when it has none; sure to survive a crash."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        head = _header(read_at(file, 0, FIRST))
        os.fdatasync(file)
    finally:
        os.close(file)
    return head[1] if head else None


def read_log(file: int) -> Iterator[Record]:
    """Yield the records of a log open for reading, in the order in which they were written."""
    content = memoryview(read_at(file, 0, os.fstat(file).st_size))
    header = _header(content[:FIRST])
    at = FIRST
    while header and at + CHECKSUM.size + RECORD.size <= len(content):
        body = at + CHECKSUM.size
        size, generation, date, name = RECORD.unpack_from(content, body)
        data = body + RECORD.size + name
        (checksum,) = CHECKSUM.unpack_from(content, at)
        if generation != header[0] or data + size > len(content):
            return
        if zlib.crc32(content[body : data + size]) != checksum:
            return
        yield Record(str(content[data - name : data], "utf-8"), date, content[data : data + size])
        at = -(-(data + size) // 8) * 8


def _encode(generation: int, record: Record) -> bytes:
    name = record.key.encode()
    body = b"".join((RECORD.pack(len(record.data), generation, record.date, len(name)), name, record.data))
    padding = -(CHECKSUM.size + len(body)) % 8
    return b"".join((CHECKSUM.pack(zlib.crc32(body)), body, bytes(padding)))


def _header(content: Buffer) -> tuple[int, int] | None:
    """Return generation and start of a log, None where it has no whole header."""
    if len(content) < HEADER.size + CHECKSUM.size:
        return None
    magic, generation, started = HEADER.unpack_from(content)
    (checksum,) = CHECKSUM.unpack_from(content, HEADER.size)
    if magic != MAGIC or zlib.crc32(content[: HEADER.size]) != checksum:
        return None
    return generation, started


def _create(folder: str) -> tuple[int, str]:
    """Make a log's file and lock it; one that a recovery removed before it was locked is made again."""
    while True:
        path = f"{folder}/{token_hex(8)}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return file, path
        os.close(file)


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
