"""The messages between a posix store and its WAL process: packets of a Unix socket, little-endian.

A put is one packet: number u64, condition u8, lengths of key and etag u16, key, etag, data. A packet of replies is
any number of: number u64, length of the error's kind u8 (0: none), length of the text u32, the kind, the
text, which is the new etag or the error's sentence.

A put of a small object on its way through the write-ahead log: prepared, logged, then applied to its file.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from hsparse.errors import ERRORS, ErrorKind, HsparseError
from hsparse.storage.filesystem.object_file import Condition, file_etag, unlink_if_exists, write_all
from hsparse.storage.object_store import MAX_KEY_BYTES, Buffer
from hsparse.storage.wal.write_ahead_log import LogRecord


class NotLoggable(Exception):
    """A put of this file cannot be logged; it must use a temporary file and a rename."""


@dataclass(frozen=True, slots=True)
class Put:
    """A requested put."""

    key: str
    data: Buffer
    condition: Condition = Condition.NONE
    etag: str = ""


@dataclass(frozen=True, slots=True)
class PreparedPut:
    """A put ready to be logged, under its key's lock.

    `temporary` is the file to rename, None to write in place.
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
        """Discard the put; the key stays as it was."""
        if self.temporary is not None:
            with suppress(OSError):  # the disk fails; the temporary file is swept later
                unlink_if_exists(self.temporary)


def open_for_writing(path: str) -> int | None:
    """Open a path that may be an object for writing; None when there is no file.

    `NotLoggable` when it is no regular file.
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


HEAD = struct.Struct("<QBHH")
REPLY = struct.Struct("<QBI")
MAX_LOGGED_SIZE = 192 * 1024
"""Size in bytes of the largest object that is put through the log: one packet. Larger ones are not put faster so."""
MAX_ETAG_LENGTH = 255
MAX_PACKET_SIZE = MAX_LOGGED_SIZE + HEAD.size + MAX_KEY_BYTES + MAX_ETAG_LENGTH
"""Bytes of a put with the longest key."""
MAX_REPLIES_SIZE = 64 * 1024
"""Bytes of a packet of replies."""


def fits_a_packet(etag: str, data: Buffer) -> bool:
    """Tell whether a put fits a packet; an etag that does not fit is no etag of a posix store."""
    return memoryview(data).nbytes <= MAX_LOGGED_SIZE and len(etag) <= MAX_ETAG_LENGTH and etag.isascii()


def encode_put(number: int, condition: Condition, key: str, etag: str, data: Buffer) -> bytes:
    """Return the packet of a put."""
    name, tag = key.encode(), etag.encode()
    return b"".join((HEAD.pack(number, condition, len(name), len(tag)), name, tag, data))


def decode_put(packet: bytes) -> tuple[int, Put]:
    """Return the number and the put that `encode_put` was given."""
    number, condition, name, tag = HEAD.unpack_from(packet)
    at = HEAD.size
    key, etag = packet[at : at + name].decode(), packet[at + name : at + name + tag].decode()
    return number, Put(key, memoryview(packet)[at + name + tag :], Condition(condition), etag)


def encode_replies(replies: Iterable[tuple[int, str | HsparseError]]) -> Iterator[bytes]:
    """Yield packets of replies: the new etag of each put, or its error."""
    parts: list[bytes] = []
    size = 0
    for number, result in replies:
        part = _encode_reply(number, result)
        if size + len(part) > MAX_REPLIES_SIZE:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield b"".join(parts)


def decode_replies(packet: bytes) -> Iterator[tuple[int, str | HsparseError]]:
    """Yield the numbers and results that `encode_replies` was given."""
    at = 0
    while at < len(packet):
        number, kind, size = REPLY.unpack_from(packet, at)
        at += REPLY.size
        name, text = packet[at : at + kind].decode(), packet[at + kind : at + kind + size].decode()
        yield number, ERRORS[ErrorKind(name)](text) if name else text
        at += kind + size


def _encode_reply(number: int, result: str | HsparseError) -> bytes:
    if isinstance(result, str):
        text = result.encode()
        return REPLY.pack(number, 0, len(text)) + text
    kind, text = result.kind.value.encode(), result.message.encode()
    return b"".join((REPLY.pack(number, len(kind), len(text)), kind, text))
