"""The write-ahead log (WAL): one append and one fdatasync make many small puts durable.

Layout, little-endian. A header of 4096 bytes: magic 8 bytes, generation u64, started u64 (nanoseconds since the
Unix epoch), CRC-32 u32 of the bytes before it, zeros. Then records, each at a multiple of 8 bytes: CRC-32 u32 of the
rest of the record, length of the data u32, generation u64, date u64 (the file's modification time, in
nanoseconds), length of the key u16, key, data, zeros. Records of another generation do not count, so writing the
header with a new generation resets the log. Generations are random, because the bytes left from an earlier generation
may be an object's data, which a client could make look like records.

Records whose checksum does not match are skipped: a disk may have changed them, or a power loss may have left any
subset of the last append's records. If one field of the header is damaged, it is restored from the first record.

Space is preallocated by writing zeros ahead of the records: a write into allocated blocks needs no commit of the
file system's journal. A log is locked as long as its process lives (`hsparse.storage.filesystem.served_root`).

A put of a small object is prepared, logged, then applied to its file.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

from hsparse.storage.filesystem.object_file import (
    DIRECTORY_MODE,
    Condition,
    file_etag,
    read_at,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import create_process_file
from hsparse.storage.object_store import Buffer

MAGIC = b"hsputlog"
HEADER = struct.Struct("<8sQQ")
CHECKSUM = struct.Struct("<I")
RECORD = struct.Struct("<IQQH")
"""The fields of a record after its checksum: length of the data, generation, date, length of the key."""
MARK = 8
"""Offset of the generation in a record, in bytes."""
HEADER_SIZE = 4096
PREALLOCATED_BYTES = 1024 * 1024
CAPACITY = 32 * 1024 * 1024
"""Bytes of records after which a checkpoint is due; the bytes that a recovery reads of a log are about this limit."""


class LogRecord(NamedTuple):
    """A logged put: the file of `key` must hold `data` and have the modification time `date` (ns)."""

    key: str
    date: int
    data: Buffer


class NotLoggable(Exception):
    """A put of this file cannot be logged; it must use a temporary file and a rename."""


@dataclass(frozen=True, slots=True)
class Put:
    """A requested put: if `condition` holds, the object `key` gets `data`. `etag` is used by `Condition.MATCH` only."""

    key: str
    data: Buffer
    condition: Condition = Condition.NONE
    etag: str = ""


@dataclass(frozen=True, slots=True)
class PreparedPut:
    """A put ready to be logged, under its key's lock; `date` is the file's new modification time (ns).

    The open `file` is `temporary`, to be renamed to `path`, or `path` itself if `temporary` is None.
    """

    put: Put
    path: str
    file: int
    date: int
    temporary: str | None

    @property
    def record(self) -> LogRecord:
        return LogRecord(self.put.key, self.date, self.put.data)

    def apply(self) -> str:
        """Apply the logged put to the file; return the new etag."""
        if self.temporary is not None:
            os.rename(self.temporary, self.path)  # noqa: PTH104
            return file_etag(os.fstat(self.file))
        before = os.fstat(self.file)
        mode = stat.S_IMODE(before.st_mode)
        os.fchmod(self.file, mode | stat.S_ISVTX)
        write_all(self.file, self.put.data)
        if before.st_size > len(self.put.data):
            os.ftruncate(self.file, len(self.put.data))
        os.utime(self.file, ns=(self.date, self.date))
        os.fchmod(self.file, mode)
        return file_etag(os.fstat(self.file))

    def abandon(self) -> None:
        """Discard the put; the object stays unchanged."""
        if self.temporary is not None:
            with suppress(OSError):  # the disk fails; the temporary file is swept later
                unlink_if_exists(self.temporary)


def open_for_writing(path: str) -> int | None:
    """Open the path of an object for writing, or return None if there is no file.

    Raises `NotLoggable` when the path is not a regular file.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise NotLoggable from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotLoggable
    return file


class WriteAheadLog:
    """A log open for appending. No record in it has an earlier date than `started`."""

    def __init__(self, root: RootDirectory) -> None:
        self._root = root
        folder = log_folder(root)
        Path(folder).mkdir(DIRECTORY_MODE, exist_ok=True)
        self._file, self.path = create_process_file(folder)
        self._written = HEADER_SIZE
        try:
            self.reset()
            for path in (folder, root.internal, root.path):
                root.sync_directory(path)
        except OSError:
            self.release()  # before the removal: if that fails, a recovery removes the log
            with suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108
            raise

    @property
    def used(self) -> int:
        """Bytes of records in the log."""
        return self._end - HEADER_SIZE

    @property
    def full(self) -> bool:
        return self.used >= CAPACITY

    def append(self, records: Iterable[LogRecord]) -> None:
        """Write records and wait until they reach stable storage; after a failure, any subset may be stored."""
        data = b"".join(_encode(self._generation, record) for record in records)
        while self._end + len(data) > self._written:
            _write(self._file, bytes(PREALLOCATED_BYTES), self._written)
            self._written += PREALLOCATED_BYTES
        _write(self._file, data, self._end)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end += len(data)

    def reset(self) -> None:
        """Invalidate all records; their files must be durable before the call."""
        self._generation = int.from_bytes(token_bytes(8), "little")
        self.started = self._root.now_ns()
        head = HEADER.pack(MAGIC, self._generation, self.started)
        _write(self._file, (head + CHECKSUM.pack(zlib.crc32(head))).ljust(HEADER_SIZE, b"\0"), 0)
        if self._root.fsync:
            os.fdatasync(self._file)
        self._end = HEADER_SIZE

    def remove(self) -> None:
        """Reset the log, then remove its file; the reset is needed because a crash may undo the removal."""
        self.reset()
        with suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108
        self.release()

    def release(self) -> None:
        """Close the log without resetting it; the next recovery applies it like the log of a dead process."""
        os.close(self._file)


def log_folder(root: RootDirectory) -> str:
    """Return the path of the directory of logs."""
    return f"{root.internal}/puts"


def log_paths(root: RootDirectory) -> list[str]:
    """Return the paths of all logs, of live and of dead processes."""
    try:
        return [entry.path for entry in os.scandir(log_folder(root))]
    except FileNotFoundError:
        return []


def started_durably(path: str) -> int | None:
    """Sync a log, which has no record from before its `started` time, and return this time.

    The result is None if the log is gone or shorter than its header, and 0 if the header is invalid, because the log's
    process may be writing the header.
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


def read_log(file: int) -> Iterator[LogRecord]:
    """Yield the undamaged records of a log open for reading, in the order in which they were written."""
    for _, _, record in _records(read_at(file, 0, os.fstat(file).st_size)):
        yield record


def is_damaged(file: int) -> bool:
    """Tell whether a log is damaged in its header, in a record before an undamaged record, or in its length."""
    content = read_at(file, 0, os.fstat(file).st_size)
    if content and (len(content) < HEADER_SIZE or (len(content) - HEADER_SIZE) % PREALLOCATED_BYTES):
        return True
    if _header(content) is None and content[HEADER_SIZE:].strip(b"\0"):
        return True
    expected = HEADER_SIZE
    for at, end, _ in _records(content):
        if at != expected:
            return True
        expected = end
    return False


def logged_records(root: RootDirectory) -> Iterator[LogRecord]:
    """Yield the records of all logs, of live and of dead processes."""
    for path in log_paths(root):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            yield from read_log(file)
        finally:
            os.close(file)


def latest_record(root: RootDirectory, key: str) -> LogRecord | None:
    """Return the latest record of `key` in any log, or None if there is no record."""
    found = (record for record in logged_records(root) if record.key == key)
    return max(found, key=lambda record: record.date, default=None)


def _encode(generation: int, record: LogRecord) -> bytes:
    name = record.key.encode()
    body = b"".join((RECORD.pack(len(record.data), generation, record.date, len(name)), name, record.data))
    padding = -(CHECKSUM.size + len(body)) % 8
    return b"".join((CHECKSUM.pack(zlib.crc32(body)), body, bytes(padding)))


def _records(content: bytes) -> Iterator[tuple[int, int, LogRecord]]:
    """Yield (begin, end, record) of each undamaged record; begin and end are byte offsets in the log."""
    generation, view = _generation(content), memoryview(content)
    if generation is None:
        return
    mark, at = generation.to_bytes(8, "little"), HEADER_SIZE
    while at >= 0:
        found = _record(view, at, generation)
        if found is None:
            at = _next_mark(content, mark, at + 8)
            continue
        size, record = found
        end = -(-(at + size) // 8) * 8
        yield at, end, record
        at = end


def _record(content: memoryview, at: int, generation: int) -> tuple[int, LogRecord] | None:
    """Return a pair: size in bytes and record at offset `at`; or None if no undamaged record begins there."""
    body = at + CHECKSUM.size
    if body + RECORD.size > len(content):
        return None
    size, of, date, name = RECORD.unpack_from(content, body)
    (checksum,) = CHECKSUM.unpack_from(content, at)
    data = body + RECORD.size + name
    end = data + size
    if of != generation or end > len(content) or zlib.crc32(content[body:end]) != checksum:
        return None
    return end - at, LogRecord(str(content[data - name : data], "utf-8"), date, content[data:end])


def _next_mark(content: bytes, mark: bytes, at: int) -> int:
    """Return the first offset from `at` where a record of this generation may begin, or -1 if there is none."""
    found = content.find(mark, at + MARK)
    while found >= 0 and found % 8:
        found = content.find(mark, found + 1)
    return found - MARK if found >= 0 else -1


def _generation(content: bytes) -> int | None:
    """Return a log's generation, from the header or, if it is damaged, the first record; None if neither is valid."""
    header = _header(content)
    if header is not None:
        return header[0]
    if len(content) < HEADER_SIZE + CHECKSUM.size + RECORD.size:
        return None
    _, generation, started = HEADER.unpack_from(content)
    (checksum,) = CHECKSUM.unpack_from(content, HEADER.size)
    first = int.from_bytes(content[HEADER_SIZE + MARK : HEADER_SIZE + MARK + 8], "little")
    mended = zlib.crc32(HEADER.pack(MAGIC, first, started)) == checksum
    return first if first and (mended or first == generation) else None


def _header(content: Buffer) -> tuple[int, int] | None:
    """Return a pair: a log's generation and `started`; or None if its header is incomplete or damaged."""
    if len(content) < HEADER.size + CHECKSUM.size:
        return None
    magic, generation, started = HEADER.unpack_from(content)
    (checksum,) = CHECKSUM.unpack_from(content, HEADER.size)
    if magic != MAGIC or zlib.crc32(content[: HEADER.size]) != checksum:
        return None
    return generation, started


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
