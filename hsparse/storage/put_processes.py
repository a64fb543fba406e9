"""Processes that put small objects for a posix store, so that its calls do not queue for one interpreter.

A put is about twenty system calls. Made in threads, each must get the interpreter's lock back from a busy
event loop; made in another process they need not. Measured with 16 puts of 3 kB at a time beside a loop
that is busy for 0.25 ms between them, 2 cores: threads 1 450 to 1 760 puts/s, two processes 2 550 to 2 930.

A message is one packet of a Unix socket: number u64, kind u8, lengths of key and etag u16 (little-endian), key,
etag, data. A reply: number u64, error's kind u8-length and text or 0, then the new etag or the error's sentence.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from enum import IntEnum

from hsparse.errors import ERRORS, ErrorKind, HsparseError, StoreFailed
from hsparse.storage.object_store import Buffer

HEAD = struct.Struct("<QBHH")
REPLY = struct.Struct("<QB")
MOST = 64 * 1024
"""Bytes of the largest object that is put so: one packet, and little to copy."""
PACKET = MOST + HEAD.size + 2 * 65535
END_SECONDS = 10


class Condition(IntEnum):
    """What a put asks of the object that is there."""

    NONE = 0
    ABSENT = 1
    MATCH = 2


def encode_put(number: int, condition: Condition, key: str, etag: str, data: Buffer) -> bytes:
    """Return the message of a put."""
    name, tag = key.encode(), etag.encode()
    return b"".join((HEAD.pack(number, condition, len(name), len(tag)), name, tag, data))


def decode_put(message: bytes) -> tuple[int, Condition, str, str, memoryview]:
    """Return what `encode_put` was given."""
    number, condition, name, tag = HEAD.unpack_from(message)
    at = HEAD.size
    key, etag = message[at : at + name].decode(), message[at + name : at + name + tag].decode()
    return number, Condition(condition), key, etag, memoryview(message)[at + name + tag :]


def encode_reply(number: int, result: str | HsparseError) -> bytes:
    """Return the reply to a put: the etag, or what it failed with."""
    if isinstance(result, str):
        return REPLY.pack(number, 0) + result.encode()
    kind = result.kind.value.encode()
    return REPLY.pack(number, len(kind)) + kind + result.message.encode()


def decode_reply(reply: bytes) -> tuple[int, str | HsparseError]:
    """Return what `encode_reply` was given."""
    number, length = REPLY.unpack_from(reply)
    kind, text = reply[REPLY.size : REPLY.size + length].decode(), reply[REPLY.size + length :].decode()
    return number, ERRORS[ErrorKind(kind)](text) if kind else text


@dataclass(slots=True, eq=False)
class _Worker:
    """One process, our end of its socket, and the puts it has not answered."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    waiting: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class PutProcesses:
    """Up to `count` processes over the store at `root`, started when they are first needed."""

    def __init__(self, root: str, count: int, *, fsync: bool) -> None:
        self._command = [sys.executable, "-m", "hsparse.storage.put_worker", root, str(int(fsync))]
        self._count = count
        self._workers: list[_Worker] = []
        self._number = 0

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [worker.process.pid for worker in self._workers]

    async def put(self, key: str, condition: Condition, etag: str, data: Buffer) -> str:
        """Put a small object, see `ObjectStore`; return its etag."""
        while len(self._workers) < self._count:
            self._start()
        worker = min(self._workers, key=lambda one: len(one.waiting))
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number
        done: asyncio.Future[str] = loop.create_future()
        worker.waiting[number] = done
        try:
            async with worker.sending:
                await loop.sock_sendall(worker.socket, encode_put(number, condition, key, etag, data))
        except asyncio.CancelledError:
            worker.waiting.pop(number, None)
            raise
        except OSError as error:
            worker.waiting.pop(number, None)
            self._lose(worker)
            raise StoreFailed(f"{key!r} was not put: the process that puts objects has ended.") from error
        return await done

    async def close(self) -> None:
        """Let the processes finish what they have, and end them."""
        workers, self._workers = self._workers, []
        for worker in workers:
            asyncio.get_running_loop().remove_reader(worker.socket)
            worker.socket.close()
        for worker in workers:
            await asyncio.to_thread(worker.process.wait, END_SECONDS)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            descriptor = theirs.fileno()
            process = subprocess.Popen([*self._command, str(descriptor)], pass_fds=[descriptor])  # noqa: S603
        worker = _Worker(process, ours)
        asyncio.get_running_loop().add_reader(ours, self._receive, worker)
        self._workers.append(worker)

    def _receive(self, worker: _Worker) -> None:
        """Take one reply; none at all says that the process has ended."""
        try:
            reply = worker.socket.recv(PACKET)
        except BlockingIOError:
            return
        except OSError:
            reply = b""
        if not reply:
            self._lose(worker)
            return
        number, result = decode_reply(reply)
        done = worker.waiting.pop(number, None)
        if done is None or done.done():
            return
        if isinstance(result, str):
            done.set_result(result)
        else:
            done.set_exception(result)

    def _lose(self, worker: _Worker) -> None:
        """Fail what an ended process has not answered; another is started by the next put."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        asyncio.get_running_loop().remove_reader(worker.socket)
        worker.socket.close()
        worker.process.kill()
        worker.process.wait()
        for done in worker.waiting.values():
            if not done.done():
                done.set_exception(
                    StoreFailed(
                        "The process that puts objects has ended; whether it put this one is not known."
                    )
                )
