"""`python -m hsparse.storage.wal.wal_worker ROOT NAME FSYNC SOCKET`: the process of a `PutProcess`."""

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
"""What is put together: as much as has come in, to these bounds."""
IDLE_MS = 1000
"""After so long without a put the log is emptied: files are then durable by themselves."""


def receive_puts(connection: socket.socket) -> list[tuple[int, Put]] | None:
    """Return the puts that have come in; None when the other end is closed and nothing is left."""
    puts: list[tuple[int, Put]] = []
    size = 0
    while len(puts) < MAX_BATCH_PUTS and size < MAX_BATCH_SIZE:
        try:
            packet = connection.recv(MAX_PACKET_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return puts
        except ConnectionResetError:
            packet = b""  # the other end was killed before it had read our replies
        if not packet:
            return puts or None
        puts.append(decode_put(packet))
        size += len(packet)
    return puts


def serve(connection: socket.socket, puts: WalWriter) -> None:
    """Put what is asked for until the other end is closed."""
    incoming = select.poll()
    incoming.register(connection, select.POLLIN)
    while True:
        if not incoming.poll(None if puts.idle else IDLE_MS):
            puts.empty()
            continue
        os.sched_yield()  # what is on its way may come in too, and share the sync
        asked = receive_puts(connection)
        if asked is None:
            return
        results = puts.put([put for _, put in asked])
        if not send_replies(
            connection, encode_replies(zip((number for number, _ in asked), results, strict=True))
        ):
            return


def send_replies(connection: socket.socket, packets: Iterator[bytes]) -> bool:
    """Send packets; False when nobody is left to be told."""
    try:
        for packet in packets:
            connection.send(packet)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def main() -> None:
    """Serve until the process that started this one closes its end, or is gone."""
    # Ctrl-C is for the server, which lets us finish; it reaches its whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path, name, fsync, descriptor = sys.argv[1:]
    root = RootDirectory(path, fsync=fsync == "1")
    try:
        recover(root)  # what one before this has left, that logs do not pile up
    except OSError:
        logger.exception("Logs of ended processes cannot be made good in %s.", root.own)
    puts = WalWriter(root, name)
    with socket.socket(fileno=int(descriptor)) as connection:
        serve(connection, puts)
    puts.close()


if __name__ == "__main__":
    main()
