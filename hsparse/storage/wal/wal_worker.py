"""`python -m hsparse.storage.wal.wal_worker ROOT NAME FSYNC SOCKET`: the main program of a `WalProcess`."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator

from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal.prepared_put import Put
from hsparse.storage.wal.put_packets import MAX_PACKET_SIZE, decode_put, encode_replies
from hsparse.storage.wal.recovery import recover
from hsparse.storage.wal.wal_writer import WalWriter

logger = logging.getLogger(__name__)

MAX_BATCH_PUTS = 128
MAX_BATCH_SIZE = 1024 * 1024
"""Limits of a batch: the puts that have arrived, up to these many and these many bytes."""
IDLE_MS = 1000
"""Milliseconds without a put until a checkpoint; the files are then durable without the log."""


def receive_puts(connection: socket.socket) -> list[tuple[int, Put]] | None:
    """Return the puts that have arrived; None when the other end is closed and none is left."""
    puts: list[tuple[int, Put]] = []
    size = 0
    while len(puts) < MAX_BATCH_PUTS and size < MAX_BATCH_SIZE:
        try:
            packet = connection.recv(MAX_PACKET_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return puts
        except ConnectionResetError:
            packet = b""  # the other end was killed before it read our replies
        if not packet:
            return puts or None
        puts.append(decode_put(packet))
        size += len(packet)
    return puts


def serve_puts(connection: socket.socket, puts: WalWriter) -> None:
    """Serve puts until the other end is closed."""
    incoming = select.poll()
    incoming.register(connection, select.POLLIN)
    while True:
        if not incoming.poll(None if puts.idle else IDLE_MS):
            puts.checkpoint()
            continue
        os.sched_yield()  # puts under way may arrive too, and share the fdatasync
        asked = receive_puts(connection)
        if asked is None:
            return
        results = puts.put([put for _, put in asked])
        if not send_replies(
            connection, encode_replies(zip((number for number, _ in asked), results, strict=True))
        ):
            return


def send_replies(connection: socket.socket, packets: Iterator[bytes]) -> bool:
    """Send packets; False when the other end is closed."""
    try:
        for packet in packets:
            connection.send(packet)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def main() -> None:
    """Serve until the parent process closes its end, or ends."""
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
