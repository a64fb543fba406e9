"""The process that puts small objects for a posix store, through a write-ahead log: the store's end.

A put is a dozen system calls. In a thread, each must take the interpreter's lock back from a busy event loop; in
a process of its own it need not, and all puts that have arrived share one fdatasync.

Puts and replies are packets of a Unix socket, little-endian. A put is one packet: number u64, condition u8, lengths of
key and etag u16, key, etag, data. A packet of replies is any number of: number u64, length of the error's kind u8 (0:
none), length of the text u32, the kind, the text, which is the new etag or the error's sentence.

`python -m hsparse.storage.wal.wal_process ROOT NAME FSYNC SOCKET`: the main program of a `WalProcess`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator

from hsparse.errors import ERRORS, ErrorKind, HsparseError, StoreFailed
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import MAX_KEY_BYTES, Buffer
from hsparse.storage.wal.recovery import recover
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import Put

END_SECONDS = 60
"""Seconds that the process may take for its last checkpoint when it is closed."""


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


class WalProcess:
    """The WAL process of the store at `root`, started by the first put, and again when it has died."""

    def __init__(self, root: RootDirectory, name: str) -> None:
        self._command = [
            sys.executable, "-m", "hsparse.storage.wal.wal_process", root.path, name, str(int(root.fsync))
        ]  # fmt: skip
        self._worker: _Worker | None = None
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The process id, None while there is no process."""
        return self._worker.process.pid if self._worker is not None else None

    async def put(self, key: str, condition: Condition, etag: str, data: Buffer) -> str:
        """Put a small object, see `ObjectStore`; return its etag."""
        self._number += 1
        number = self._number
        packet = encode_put(number, condition, key, etag, data)
        if self._worker is None or self._worker.lost:
            try:
                self._worker = _Worker(self._command)
            except OSError as error:
                raise StoreFailed(
                    f"The process that puts objects cannot be started ({error.strerror}); see the system's log."
                ) from error
        worker = self._worker
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        worker.waiting[number] = done
        worker.send(packet)
        try:
            return await done
        finally:
            worker.waiting.pop(number, None)
            del done  # an error has this frame, and would have itself

    async def close(self) -> None:
        """Let the process answer all puts, and end it."""
        if self._worker is not None:
            await self._worker.close()


class _Worker:
    """One process: our end of its socket, the puts it has not answered, and the packets not yet sent."""

    def __init__(self, command: list[str]) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.socket.setblocking(False)
            # Linux allows 208 KiB by itself and doubles it: a packet must fit.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_PACKET_SIZE)
            descriptor = theirs.fileno()
            try:
                self.process = subprocess.Popen([*command, str(descriptor)], pass_fds=[descriptor])  # noqa: S603
            except OSError:
                self.socket.close()
                raise
        self.waiting: dict[int, asyncio.Future[str]] = {}
        self.lost = False
        self._unsent: deque[bytes] = deque()
        self._reaped: asyncio.Future[int] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.socket, self._receive)

    def send(self, packet: bytes) -> None:
        """Send a packet at the end of this iteration of the event loop, so that its packets share one fdatasync."""
        self._unsent.append(packet)
        if len(self._unsent) == 1:
            self._loop.call_soon(self._send)

    async def close(self) -> None:
        """Wait for all answers, then close our end and wait for the process."""
        while unanswered := [done for done in self.waiting.values() if not done.done()]:
            await asyncio.wait(unanswered)
        if not self.lost:
            self._leave()
        try:
            await asyncio.to_thread(self.process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its disk hangs; every answered put is in its log

    def _send(self) -> None:
        if not self._unsent:
            return  # closed meanwhile
        try:
            while self._unsent:
                self.socket.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self.socket, self._send)
            return
        except OSError:
            self._lose()
            return
        self._loop.remove_writer(self.socket)

    def _receive(self) -> None:
        """Receive one packet of replies; an empty one means that the process has ended."""
        try:
            packet = self.socket.recv(MAX_REPLIES_SIZE)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._lose()
            return
        for number, result in decode_replies(packet):
            done = self.waiting.get(number)
            if done is None or done.done():
                continue
            if isinstance(result, str):
                done.set_result(result)
            else:
                done.set_exception(result)

    def _leave(self) -> None:
        """Close our end and drop the unsent packets; their callers are gone, or get an error."""
        self._loop.remove_reader(self.socket)
        self._loop.remove_writer(self.socket)
        self.socket.close()
        self._unsent.clear()

    def _lose(self) -> None:
        """Fail the puts that the ended process has not answered."""
        if self.lost:
            return
        self.lost = True
        self._leave()
        self.process.kill()
        # For as long as its disk blocks it.
        self._reaped = self._loop.run_in_executor(None, self.process.wait)
        for done in self.waiting.values():
            if not done.done():
                done.set_exception(
                    StoreFailed(
                        "The process that puts objects has ended; whether it put this one is not known."
                    )
                )


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
