"""The process that puts small objects for a posix store, through a write-ahead log: the store's end.

A put is a dozen system calls. In a thread, each must take the interpreter's lock back from a busy event loop; in
a process of its own it need not, and all puts that have arrived share one fdatasync.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import deque

from hsparse.errors import StoreFailed
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import Buffer
from hsparse.storage.wal.put_packets import MAX_PACKET_SIZE, MAX_REPLIES_SIZE, decode_replies, encode_put

END_SECONDS = 60
"""Seconds that the process may take for its last checkpoint when it is closed."""


class WalProcess:
    """The WAL process of the store at `root`, started by the first put, and again when it has died."""

    def __init__(self, root: RootDirectory, name: str) -> None:
        self._command = [
            sys.executable, "-m", "hsparse.storage.wal.wal_worker", root.path, name, str(int(root.fsync))
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
