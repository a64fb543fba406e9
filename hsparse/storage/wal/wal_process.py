"""The WAL process, which puts small objects of a posix store through a write-ahead log.

A put is a dozen system calls. In a thread, each call must take the global interpreter lock back from a busy event loop.
A separate process avoids this, and all puts that have arrived share one fdatasync.

Puts and replies are packets of a Unix socket, little-endian. A put is one packet: number u64, condition u8, lengths of
key and etag u16 each, key, etag, data. A packet of replies holds one or more replies: number u64, length of the error's
kind u8 (0: no error), length of the text u32, kind, text. The text is the new etag or the error's message.

`python -m hsparse.storage.wal.wal_process ROOT NAME FSYNC SOCKET` is the main program of the process.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Iterator

from hsparse.errors import HsparseError
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import MAX_KEY_BYTES, Buffer
from hsparse.storage.wal.recovery import recover
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import Put

END_SECONDS = 60
"""Seconds allowed for the last checkpoint when the process is closed; after that the process is killed."""


HEAD = struct.Struct("<QBHH")
REPLY = struct.Struct("<QBI")
MAX_LOGGED_SIZE = 192 * 1024
"""Size in bytes of the largest object that is put through the log. Larger objects gain nothing from the log."""
MAX_ETAG_LENGTH = 255
MAX_PACKET_SIZE = MAX_LOGGED_SIZE + HEAD.size + MAX_KEY_BYTES + MAX_ETAG_LENGTH
"""Largest size in bytes of the packet of a put."""
MAX_REPLIES_SIZE = 64 * 1024
"""Largest size in bytes of a packet of replies."""


def fits_a_packet(etag: str, data: Buffer) -> bool:
    """Tell whether a put fits into a packet; all etags of a posix store fit."""
    return memoryview(data).nbytes <= MAX_LOGGED_SIZE and len(etag) <= MAX_ETAG_LENGTH and etag.isascii()


def decode_put(packet: bytes) -> tuple[int, Put]:
    """Return a pair: the number and the put that `encode_put` encoded."""
    number, condition, name, tag = HEAD.unpack_from(packet)
    at = HEAD.size
    key, etag = packet[at : at + name].decode(), packet[at + name : at + name + tag].decode()
    return number, Put(key, memoryview(packet)[at + name + tag :], Condition(condition), etag)


def encode_replies(replies: Iterable[tuple[int, str | HsparseError]]) -> Iterator[bytes]:
    """Yield packets of replies, from pairs of a put's number and its new etag or error."""
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


def _encode_reply(number: int, result: str | HsparseError) -> bytes:
    if isinstance(result, str):
        text = result.encode()
        return REPLY.pack(number, 0, len(text)) + text
    kind, text = result.kind.value.encode(), result.message.encode()
    return b"".join((REPLY.pack(number, len(kind), len(text)), kind, text))


logger = logging.getLogger(__name__)

MAX_BATCH_PUTS = 128
MAX_BATCH_SIZE = 1024 * 1024
"""Limits of a batch: a batch takes the puts that have arrived, up to this number and this size in bytes."""
IDLE_MS = 1000
"""Milliseconds without a put after which a checkpoint makes the files durable without the log."""


def receive_puts(connection: socket.socket) -> list[tuple[int, Put]] | None:
    """Return (number, put) of each put that has arrived, or None if no put has and the other end is closed."""
    puts: list[tuple[int, Put]] = []
    size = 0
    while len(puts) < MAX_BATCH_PUTS and size < MAX_BATCH_SIZE:
        try:
            packet = connection.recv(MAX_PACKET_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return puts
        except ConnectionResetError:
            packet = b""  # the other end was killed before it read the replies
        if not packet:
            return puts or None
        puts.append(decode_put(packet))
        size += len(packet)
    return puts


def serve_puts(connection: socket.socket, puts: WalWriter) -> None:
    """Receive puts, carry them out and reply, until the other end of the socket is closed."""
    incoming = select.poll()
    incoming.register(connection, select.POLLIN)
    while True:
        if not incoming.poll(None if puts.idle else IDLE_MS):
            puts.checkpoint()
            continue
        os.sched_yield()  # lets further puts arrive and share the fdatasync
        asked = receive_puts(connection)
        if asked is None:
            return
        results = puts.put([put for _, put in asked])
        if not send_replies(
            connection, encode_replies(zip((number for number, _ in asked), results, strict=True))
        ):
            return


def send_replies(connection: socket.socket, packets: Iterator[bytes]) -> bool:
    """Send packets; return True, or False if the other end of the socket is closed."""
    try:
        for packet in packets:
            connection.send(packet)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def main() -> None:
    """Serve puts until the parent process closes its end of the socket, or ends."""
    # Ctrl-C reaches the whole process group; the server handles it and lets this process finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path, name, fsync, descriptor = sys.argv[1:]
    root = RootDirectory(path, fsync=fsync == "1")
    try:
        recover(root)  # an earlier worker may have left a log
    except OSError:
        logger.exception("Write-ahead logs of ended processes cannot be recovered in %s.", root.internal)
    puts = WalWriter(root, name)
    with socket.socket(fileno=int(descriptor)) as connection:
        serve_puts(connection, puts)
    puts.close()


if __name__ == "__main__":
    main()
