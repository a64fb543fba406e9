"""One job of this node: it waits and runs, and renews its record until it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from hsparse.clock import Clock
from hsparse.errors import Busy, ErrorKind, HsparseError
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.jobs.job import CANCEL, Job, JobStatus
from hsparse.sn.jobs.job_process import JobProcess
from hsparse.wire.message import Failure, Record
from hsparse.wire.record_message import UpdateJob

log = logging.getLogger(__name__)

RENEW_SECONDS = 2.0
WAITING_SECONDS = 10.0
"""Seconds between renewals of the record of a running job, and of a waiting one."""
DEFECT = Failure.of(HsparseError("Internal error; the server's log has the details."))
FORGOTTEN = frozenset({ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.CONFLICT})
"""Errors of an update that mean that the job was deleted."""


class JobRun:
    """A job and its process, which `prepare` makes when the queue starts the job."""

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
        """Start the job."""
        self.running = True
        self._turn.set()

    def cancel(self) -> None:
        """Cancel the job for its owner."""
        self._stop(JobStatus.CANCELLED)

    def give_up(self) -> None:
        """End the job because the node stops."""
        self._stop(JobStatus.FAILED)

    async def run(self) -> JobStatus:
        """Wait, run, and return the final status, which is in the record too."""
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
            self._prepare = None  # it has the credential
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
        """Renew the record with the job's progress, so that it is not lost; stop the job if its record was deleted."""
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
        outcome = await self._owners.apply(UpdateJob(self.job.id, fields))
        return outcome.record or {}

    def _progress(self) -> Record:
        if self._process is None:
            return {}
        progress = self._process.progress
        return {"done": progress.done} | ({} if progress.total is None else {"total": progress.total})

    def _why_stopped(self, failure: Failure | None) -> Failure | None:
        """Return the error of a stopped job: the failure that its process reported, if any."""
        reported = None if self._process is None else self._process.progress.failure
        if reported is not None or self._stopped_by is JobStatus.CANCELLED:
            return reported
        return Failure.of(Busy("The node that had the job was stopped: POST it again."))

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
