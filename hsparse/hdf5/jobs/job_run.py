"""Run a job of this node: wait for its start, run its process, and renew its record until the job ends.

The process is a command that reads its credential from standard input and reports its progress line by line.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from hsparse.clock import Clock
from hsparse.errors import Busy, ErrorKind, HsparseError, TooLarge
from hsparse.hdf5.jobs.job import CANCEL, Job, JobStatus, job_change
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.message import Failure, Record

UNDO_SECONDS = 10.0
"""The seconds that a process has to undo its changes after its standard input is closed."""
KILLED = Failure.of(
    HsparseError(
        "The job was killed because it did not stop in time: delete what it created, or POST it again with resume."
    )
)
FIRST_TO_END = "1000"
"""The largest `oom_score_adj`: Linux kills such a process first, see proc_pid_oom_score_adj(5)."""
LONGEST_LINE = 1 << 20
LONGEST_MESSAGE = 2000
MAX_MESSAGES = 10


@dataclass(frozen=True, slots=True)
class JobCommand:
    """How jobs run their commands: the words before the arguments, the environment, and the URL of this node.

    A process may use `memory` bytes of address space and `seconds` of time; 0 is unlimited.
    """

    prefix: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    endpoint: str
    memory: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """The reports of a process: bytes done, total bytes if known, messages, and its failure."""

    done: int = 0
    total: int | None = None
    messages: list[str] = field(default_factory=list)
    failure: Failure | None = None

    def parse_line(self, line: bytes) -> None:
        """Parse a line of a process's output; ignore lines that are not reports."""
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
    """The process of a job, which runs once; `progress` has the reports of the process so far."""

    def __init__(self, command: JobCommand, arguments: tuple[str, ...], authorization: str | None) -> None:
        self.progress = Progress()
        self._command = command
        self._arguments = arguments
        self._authorization = authorization
        self._process: Process | None = None
        self._stopped = False

    async def run(self, heard: Callable[[], Any] = lambda: None) -> None:
        """Run the process to its end, and call `heard` after each line of its output.

        Raises the failure that the process reports, or `HsparseError` if it fails without a report. The process
        inherits standard error. Cancelling this call kills the process.
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
            memory = f" It may need more than job_memory, {self._command.memory} bytes." * bool(
                self._command.memory
            )
            raise HsparseError(
                f"The process of the job ended with status {status} without an error message.{memory}"
            )

    def stop(self) -> None:
        """Interrupt the process, and kill it if it does not end within `UNDO_SECONDS`."""
        self._stopped = True
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        asyncio.get_running_loop().call_later(UNDO_SECONDS, self._kill, self._process)

    def _limit_memory(self, process: Process) -> None:
        """Limit the memory of the process before it gets its credential, for which it waits.

        If the machine's memory runs out nevertheless, Linux kills this process rather than the server.
        """
        with suppress(OSError):  # not Linux, or the process has ended
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(FIRST_TO_END)
        if self._command.memory and hasattr(resource, "prlimit"):
            with suppress(ProcessLookupError):  # the process has ended; its exit status is the reason
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
        with suppress(ConnectionError):  # the process has ended; its exit status is the reason
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
                raise HsparseError("The job's process wrote a line of more than 1 MiB.") from error
            if not line:
                return
            self.progress.parse_line(line)
            heard()

    def _kill(self, process: Process) -> None:
        if process.returncode is None:
            process.kill()
            self.progress.failure = self.progress.failure or KILLED


def limit_memory(pid: int, most: int) -> None:
    """Limit the address space of a process to `most` bytes, or to its hard limit if that is lower."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


log = logging.getLogger(__name__)

RENEW_SECONDS = 2.0
WAITING_SECONDS = 10.0
"""The seconds between renewals of the record of a running job, and of a waiting job."""
DEFECT = Failure.of(HsparseError("Internal error; the server's log has the details."))
FORGOTTEN = frozenset({ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.CONFLICT})
"""Kinds of update errors that mean that the job was deleted."""


class JobRun:
    """A job and its process. `prepare` creates the process when the queue starts the job."""

    def __init__(
        self, job: Job, owners: Owners, clock: Clock, prepare: Callable[[], Awaitable[JobProcess]]
    ) -> None:
        self.job = job
        self.running = False
        self._owners = owners
        self._clock = clock
        self._prepare: Callable[[], Awaitable[JobProcess]] | None = prepare
        self._process: JobProcess | None = None
        self._turn = asyncio.Event()
        self._stopped_by: JobStatus | None = None

    def begin(self) -> None:
        """Start the job, which has waited until now."""
        self.running = True
        self._turn.set()

    def cancel(self) -> None:
        """Stop the job because its owner cancelled it."""
        self._stop(JobStatus.CANCELLED)

    def give_up(self) -> None:
        """Stop the job because the node stops."""
        self._stop(JobStatus.FAILED)

    async def run(self) -> JobStatus:
        """Wait for `begin`, run the job, and return its final status, which is also stored in its record."""
        renewing = asyncio.create_task(self._renew())
        status, failure = JobStatus.DONE, None
        try:
            await self._turn.wait()
            if self._stopped_by is None:
                await self._do()
        except HsparseError as error:
            status, failure = JobStatus.FAILED, Failure.of(error)
        except Exception:
            log.exception("the job %s failed", self.job.id)  # other jobs must continue
            status, failure = JobStatus.FAILED, DEFECT
        finally:
            self._prepare = None  # releases the credential
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
        if self._stopped_by is not None and not (status is JobStatus.DONE and self._process is not None):
            status, failure = self._stopped_by, self._why_stopped(failure)
        await self._end(status, failure)
        return status

    async def _do(self) -> None:
        assert self._prepare is not None
        process = await self._prepare()
        await self._update({"status": JobStatus.RUNNING.value, "begun": self._clock.now()})
        if self._stopped_by is None:
            self._process = process
            await process.run()

    def _stop(self, status: JobStatus) -> None:
        if self._stopped_by is not None:
            return
        self._stopped_by = status
        self._turn.set()
        if self._process is not None:
            self._process.stop()

    async def _renew(self) -> None:
        """Renew the record with the job's progress, so that the job is not lost; stop it if the record is deleted."""
        while True:
            if self._turn.is_set():
                # Renewals are periodic: there is no event to wait for.
                await asyncio.sleep(RENEW_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAITING_SECONDS):  # wait_for of 3.11 may lose a cancellation
                        await self._turn.wait()
            try:
                record = await self._update(self._progress())
            except HsparseError as error:
                if error.kind in FORGOTTEN:
                    self.cancel()
                    return
                log.warning("the record of the job %s was not renewed: %s", self.job.id, error.message)
                continue
            if record.get(CANCEL):
                self.cancel()

    async def _update(self, fields: Record) -> Record:
        outcome = await self._owners.apply(job_change(self.job.id, fields))
        return outcome.record or {}

    def _progress(self) -> Record:
        if self._process is None:
            return {}
        progress = self._process.progress
        return {"done": progress.done} | ({} if progress.total is None else {"total": progress.total})

    def _why_stopped(self, failure: Failure | None) -> Failure | None:
        """Return a stopped job's error: the failure that its process reported or, if the node stops, a `Busy` error."""
        reported = None if self._process is None else self._process.progress.failure
        if reported is not None or self._stopped_by is JobStatus.CANCELLED:
            return reported
        return Failure.of(Busy("The node that ran the job was stopped: POST it again."))

    async def _end(self, status: JobStatus, failure: Failure | None) -> None:
        fields = self._progress() | {"status": status.value, "ended": self._clock.now()}
        if self._process is not None and self._process.progress.messages:
            fields["messages"] = self._process.progress.messages
        if failure is not None:
            fields["error"] = {"kind": failure.kind, "message": failure.message}
        try:
            await self._update(fields)
        except HsparseError as error:
            if error.kind not in FORGOTTEN:
                log.error("the end of the job %s was not recorded: %s", self.job.id, error.message)
