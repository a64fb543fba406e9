"""The client of the WAL process: it starts the process, sends puts and receives replies.

`hsparse.storage.wal.wal_process` describes the packets.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator

from hsparse.errors import ERRORS, ErrorKind, HsparseError, StoreFailed
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import Buffer
from hsparse.storage.wal.wal_process import END_SECONDS, HEAD, MAX_PACKET_SIZE, MAX_REPLIES_SIZE, REPLY


def encode_put(number: int, condition: Condition, key: str, etag: str, data: Buffer) -> bytes:
    """Return the packet of a put."""
    name, tag = key.encode(), etag.encode()
    return b"".join((HEAD.pack(number, condition, len(name), len(tag)), name, tag, data))


def decode_replies(packet: bytes) -> Iterator[tuple[int, str | HsparseError]]:
    """Yield the pairs of number and result that `encode_replies` encoded."""
    at = 0
    while at < len(packet):
        number, kind, size = REPLY.unpack_from(packet, at)
        at += REPLY.size
        name, text = packet[at : at + kind].decode(), packet[at + kind : at + kind + size].decode()
        yield number, ERRORS[ErrorKind(name)](text) if name else text
        at += kind + size


class WalProcess:
    """The WAL process of the store at `root`. The first put starts it; if it dies, the next put starts it again."""

    def __init__(self, root: RootDirectory, name: str) -> None:
        self._command = [
            sys.executable, "-m", "hsparse.storage.wal.wal_process", root.path, name, str(int(root.fsync))
        ]  # fmt: skip
        self._worker: _Worker | None = None
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The process id, or None if there is no process."""
        return self._worker.process.pid if self._worker is not None else None

    async def put(self, key: str, condition: Condition, etag: str, data: Buffer) -> str:
        """Put a small object and return its etag; raise the errors of `ObjectStore`'s puts."""
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
            del done  # breaks the cycle from the future's error to this frame and back

    async def close(self) -> None:
        """Wait until the process has answered all puts, then end it."""
        if self._worker is not None:
            await self._worker.close()


class _Worker:
    """One run of the WAL process: the server's end of the socket, unanswered puts, and unsent packets."""

    def __init__(self, command: list[str]) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.socket.setblocking(False)
            # A packet must fit into the send buffer. Linux allows 208 KiB without privileges, and doubles it.
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
        """Send a packet on the event loop's next iteration, so that the puts of one iteration share one fdatasync."""
        self._unsent.append(packet)
        if len(self._unsent) == 1:
            self._loop.call_soon(self._send)

    async def close(self) -> None:
        """Wait for all answers, close the socket, and wait until the process has ended."""
        while unanswered := [done for done in self.waiting.values() if not done.done()]:
            await asyncio.wait(unanswered)
        if not self.lost:
            self._leave()
        try:
            await asyncio.to_thread(self.process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the disk hangs; every answered put is in the log

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
        """Receive one packet of replies; an empty packet means that the process has ended."""
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
        """Close the socket and drop the unsent packets, whose callers are gone or get an error."""
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
        # Wait in a thread: a disk may block the process for a long time.
        self._reaped = self._loop.run_in_executor(None, self.process.wait)
        for done in self.waiting.values():
            if not done.done():
                done.set_exception(
                    StoreFailed(
                        "The process that puts objects has ended, perhaps before this put; read the object again."
                    )
                )
