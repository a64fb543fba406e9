"""The messages between a posix store and its WAL process: packets of a Unix socket, little-endian.

A put is one packet: number u64, condition u8, lengths of key and etag u16, key, etag, data. A packet of replies is
any number of: number u64, length of the error's kind u8 (0: none), length of the text u32, the kind, the
text, which is the new etag or the error's sentence.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from hsparse.errors import ERRORS, ErrorKind, HsparseError
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.object_store import MAX_KEY_BYTES, Buffer
from hsparse.storage.wal.prepared_put import Put

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
