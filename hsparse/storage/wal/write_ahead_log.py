"""A log of puts: what makes many small ones durable by one write and one sync.

Layout, little-endian. A header of 4096 bytes: magic 8 bytes, generation u64, started u64 (nanoseconds since the
Unix epoch), CRC-32 u32 of what is before it, zeros. Then records, each at a multiple of 8 bytes: CRC-32 u32 of the
rest of the record, length of the data u32, generation u64, date u64 (the file's modification time, in
nanoseconds), length of the key u16, key, data, zeros. The first record that is not whole, or of another
generation, ends the log: so a log is emptied by writing its header with another generation. Generations are
random: what an earlier one has left may be the bytes of an object, and a client could make them look like records.

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
from secrets import token_bytes, token_hex
from typing import NamedTuple

from hsparse.storage.filesystem.object_file import read_at
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import Buffer

MAGIC = b"hsputlog"
HEADER = struct.Struct("<8sQQ")
CHECKSUM = struct.Struct("<I")
RECORD = struct.Struct("<IQQH")
"""A record's head after its checksum: length of the data, generation, date, length of the key."""
HEADER_SIZE = 4096
PREALLOCATION = 1024 * 1024
CAPACITY = 8 * 1024 * 1024
"""Bytes of records after which a log is to be emptied: what a restart may have to read."""


class Record(NamedTuple):
    """A put as logged: the file of `key` is to hold `data` and to have the modification time `date`."""

    key: str
    date: int
    data: Buffer


class WriteAheadLog:
    """A log open for appending. `started`: no record in it has an earlier date."""

    def __init__(self, root: RootDirectory) -> None:
        self._root = root
        folder = log_folder(root)
        Path(folder).mkdir(exist_ok=True)
        self._file, self.path = _create(folder)
        self._written = HEADER_SIZE
        try:
            self.empty()
            for path in (folder, root.own, root.path):
                root.sync_directory(path)
        except OSError:
            self.release()  # first, for then a recovery removes what cannot be removed now
            with suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108
            raise

    @property
    def used(self) -> int:
        """Bytes of records."""
        return self._end - HEADER_SIZE

    @property
    def full(self) -> bool:
        return self.used >= CAPACITY

    def append(self, records: Iterable[Record]) -> None:
        """Write records and wait until they are on the disk; where that fails none counts."""
        data = b"".join(_encode(self._generation, record) for record in records)
        while self._end + len(data) > self._written:
            _write(self._file, bytes(PREALLOCATION), self._written)
            self._written += PREALLOCATION
        _write(self._file, data, self._end)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end += len(data)

    def empty(self) -> None:
        """Forget all records: what they say must be on the disk."""
        self._generation = int.from_bytes(token_bytes(8), "little")
        self.started = self._root.now_ns()
        head = HEADER.pack(MAGIC, self._generation, self.started)
        _write(self._file, (head + CHECKSUM.pack(zlib.crc32(head))).ljust(HEADER_SIZE, b"\0"), 0)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end = HEADER_SIZE

    def remove(self) -> None:
        """Empty the log and remove its file; emptied first, for the name may come back after a crash."""
        self.empty()
        with suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108
        self.release()

    def release(self) -> None:
        """Leave the log to the next recovery, as a process does that ends."""
        os.close(self._file)


def log_folder(root: RootDirectory) -> str:
    """Return the path of the directory of all logs."""
    return f"{root.own}/puts"


def log_paths(root: RootDirectory) -> list[str]:
    """Return the paths of all logs, of living processes and of dead ones."""
    try:
        return [entry.path for entry in os.scandir(log_folder(root))]
    except FileNotFoundError:
        return []


def started_durably(path: str) -> int | None:
    """Return when a log's first record may have been made, None when it has none; sure to survive a crash.

    0 where the header is not whole: its process may be writing it.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = read_at(file, 0, HEADER_SIZE)
        os.fdatasync(file)
    finally:
        os.close(file)
    if len(content) < HEADER_SIZE:
        return None
    head = _header(content)
    return head[1] if head else 0


def read_log(file: int) -> Iterator[Record]:
    """Yield the records of a log open for reading, in the order in which they were written."""
    content = memoryview(read_at(file, 0, os.fstat(file).st_size))
    header = _header(content[:HEADER_SIZE])
    at = HEADER_SIZE
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


def latest_record(root: RootDirectory, key: str) -> Record | None:
    """Return the last record of `key` in any log, of a living process or a dead one; None where there is none."""
    found: Record | None = None
    for path in log_paths(root):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            for record in read_log(file):
                if record.key == key and (found is None or record.date > found.date):
                    found = record
        finally:
            os.close(file)
    return found


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
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, path
        except OSError:
            os.close(file)  # an empty log that the next recovery removes
            raise
        os.close(file)


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
