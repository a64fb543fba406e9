"""The process of a job: a command that reads its credential from standard input and reports progress line by line."""

from __future__ import annotations

import asyncio
import resource
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from hsparse.errors import HsparseError, TooLarge
from hsparse.wire.message import Failure

GRACE = 10.0
"""Seconds that a process has for undoing its changes after its standard input was closed."""
KILLED = Failure.of(
    HsparseError(
        "The job was killed, as it did not end when it was stopped: delete what it made, or POST it again with resume."
    )
)
LONGEST_LINE = 1 << 20
LONGEST_MESSAGE = 2000
MAX_MESSAGES = 10


@dataclass(frozen=True, slots=True)
class JobCommand:
    """How commands are run: the words before their arguments, their environment, and the URL of this node.

    A process has `memory` bytes of address space and `seconds` of time; 0 is any.
    """

    prefix: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    endpoint: str
    memory: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """What a process has reported: bytes done, their total if known, messages, and its failure."""

    done: int = 0
    total: int | None = None
    messages: list[str] = field(default_factory=list)
    failure: Failure | None = None

    def parse_line(self, line: bytes) -> None:
        """Parse a line of a process; other lines are ignored."""
        try:
            report = orjson.loads(line)
        except orjson.JSONDecodeError:
            return
        match report:
            case {"done": int(done), "total": int() | None as total}:
                self.done, self.total = done, total
            case {"message": str(text)} if len(self.messages) < MAX_MESSAGES:
                self.messages.append(text[:LONGEST_MESSAGE])
            case {"error": {"kind": str(kind), "message": str(text)}}:
                self.failure = Failure(kind, text[:LONGEST_MESSAGE])
            case _:
                return


class JobProcess:
    """A process that runs once; `progress` is what it has reported so far."""

    def __init__(self, command: JobCommand, arguments: tuple[str, ...], authorization: str | None) -> None:
        self.progress = Progress()
        self._command = command
        self._arguments = arguments
        self._authorization = authorization
        self._process: Process | None = None
        self._stopped = False

    async def run(self, heard: Callable[[], Any] = lambda: None) -> None:
        """Run the process to its end, calling `heard` after each line; raise the failure it reports, or `HsparseError`.

        Its standard error is that of this process. A cancellation of this call kills it.
        """
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command.prefix,
                *self._arguments,
                stdin=PIPE,
                stdout=PIPE,
                env=dict(self._command.environment),
                limit=LONGEST_LINE,
                start_new_session=True,  # Ctrl-C at the terminal must reach the node only
            )
        except OSError as error:
            raise HsparseError(f"The process of the job cannot be started: {error.strerror}.") from error
        timer = None
        try:
            self._limit_memory(process)
            if self._command.seconds:
                timer = asyncio.get_running_loop().call_later(self._command.seconds, self._expire)
            self._sign_in(process)
            await self._listen(process, heard)
            status = await process.wait()
        finally:
            if timer is not None:
                timer.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        if self.progress.failure is not None:
            raise self.progress.failure.error()
        if status:
            memory = f" Does it need more than job_memory, {self._command.memory} bytes?" * bool(
                self._command.memory
            )
            raise HsparseError(
                f"The process of the job ended with status {status}, and did not tell why.{memory}"
            )

    def stop(self) -> None:
        """Interrupt the process, and kill it if it does not end within `GRACE`."""
        self._stopped = True
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        asyncio.get_running_loop().call_later(GRACE, self._kill, self._process)

    def _limit_memory(self, process: Process) -> None:
        """Limit the memory of the process, which does nothing before it is signed in."""
        if self._command.memory and hasattr(resource, "prlimit"):
            with suppress(ProcessLookupError):  # it has ended; the exit status has the reason
                limit_memory(process.pid, self._command.memory)

    def _expire(self) -> None:
        self.progress.failure = self.progress.failure or Failure.of(
            TooLarge(
                f"The job took longer than {self._command.seconds:g} s, the limit (job_time): divide it, or run the "
                "command hsparse import or export."
            )
        )
        self.stop()

    def _sign_in(self, process: Process) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # it has ended; the exit status has the reason
            process.stdin.write(f"{self._authorization or ''}\n".encode())
        self._authorization = None
        if self._stopped:
            self.stop()

    async def _listen(self, process: Process, heard: Callable[[], Any]) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError as error:
                raise HsparseError("The process of the job told a line that is too long.") from error
            if not line:
                return
            self.progress.parse_line(line)
            heard()

    def _kill(self, process: Process) -> None:
        if process.returncode is None:
            process.kill()
            self.progress.failure = self.progress.failure or KILLED


def limit_memory(pid: int, most: int) -> None:
    """Limit the address space of a process, to less than `most` if it has a lower limit: only root can raise that."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
