"""The job queue of a node, limited in running and waiting jobs. The records of each user's last jobs are kept."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from hsparse.clock import Clock
from hsparse.errors import Busy, HsparseError, RateLimited, Unsupported
from hsparse.model.ids import job_id_of_key, job_key_prefix
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.jobs.job import Job, JobKind, JobStatus, job_status
from hsparse.sn.jobs.job_places import JobPlaces
from hsparse.sn.jobs.job_process import JobCommand, JobProcess
from hsparse.sn.jobs.job_run import JobRun
from hsparse.sn.metrics import Metrics
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject, DeleteObject, ListKeys

log = logging.getLogger(__name__)

KEPT = 100
"""The most records of a user; the oldest ones of jobs that have ended are deleted."""
RETRY_SECONDS = 30.0
UNENDED = (JobStatus.QUEUED, JobStatus.RUNNING)


class JobQueue:
    """Jobs, first in, first out, those of users with fewer running ones first.

    Call `start` before `submit`, and `close` before the node stops.
    """

    def __init__(self, owners: Owners, clock: Clock, settings: ServiceSettings, metrics: Metrics) -> None:
        served = () if settings.directory else (settings.bucket, *settings.other_buckets)
        self.places = JobPlaces(settings.job_places, served, settings.directory)
        self._owners = owners
        self._clock = clock
        self._at_once = settings.jobs_at_once
        self._room = settings.jobs_at_once + settings.jobs_queued
        self._each = settings.jobs_of_user
        self._metrics = metrics
        self._command: JobCommand | None = None
        self._closing = False
        self._runs: dict[str, JobRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, service: Service) -> JobQueue:
        """Make the queue of a service node."""
        return cls(service.owners, service.clock, service.settings, service.metrics)

    def start(self, command: JobCommand) -> None:
        """Accept jobs from now on, and run them by `command`."""
        self._command = command

    async def submit(self, job: Job, authorization: str | None) -> Record:
        """Accept a job with the rights of an `Authorization` header; return its record.

        `Busy` if too many jobs wait, `RateLimited` if too many of its user do. The header is kept in memory until the
        job begins, and nowhere else.
        """
        command = self._command
        if command is None:
            raise Unsupported("This server runs no jobs; use the commands hsparse import and hsparse export.")
        if self._closing or len(self._runs) >= self._room:
            raise Busy(
                "Too many jobs wait for their turn (jobs_queued), or the server is stopping; POST it later."
            )

        if sum(run.job.owner == job.owner for run in self._runs.values()) >= self._each:
            raise RateLimited(
                f"{self._each} of your jobs wait or run, the limit (jobs_of_user); POST it when one has ended.",
                RETRY_SECONDS,
            )

        async def prepare() -> JobProcess:
            # Checked again: symbolic links may have changed while the job waited.
            file = await self.argument(job)
            sources = self.places.folders(job.owner)
            return JobProcess(command, job.arguments(file, command.endpoint, sources), authorization)

        run = self._runs[job.id] = JobRun(job, self._owners, self._clock, prepare)
        try:
            record = job.new_record(self._clock.now())
            await self._owners.apply(CreateObject(job.id, record))
        except BaseException:
            self._runs.pop(job.id)
            self._advance()
            raise
        task = asyncio.create_task(self._follow(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._advance()
        return record

    async def argument(self, job: Job) -> str:
        """Return the argument of the command for the job's file; raise as `JobPlaces.argument`."""
        writes = job.kind is JobKind.EXPORT
        return await asyncio.to_thread(self.places.argument, job.place, job.owner, writes=writes)

    def cancel(self, id: str) -> None:
        """Cancel a job, if it is this node's."""
        run = self._runs.get(id)
        if run is not None:
            run.cancel()

    async def close(self) -> None:
        """Accept no more jobs, end all, and wait for them: they may need this node to undo their changes."""
        self._closing = True
        for run in self._runs.values():
            run.give_up()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _advance(self) -> None:
        """Start as many jobs as the limit allows, of the users with the fewest running ones."""
        running = Counter(run.job.owner for run in self._runs.values() if run.running)
        waiting = [run for run in self._runs.values() if not run.running]
        while waiting and running.total() < self._at_once:
            run = min(waiting, key=lambda run: running[run.job.owner])  # of several, the first that came
            waiting.remove(run)
            running[run.job.owner] += 1
            run.begin()

    async def _follow(self, run: JobRun) -> None:
        try:
            status = await run.run()
        finally:
            self._runs.pop(run.job.id)
            self._advance()
        self._metrics.count_job(run.job.kind, status)
        try:
            await self._forget_old(run.job.owner)
        except HsparseError as error:
            log.warning("old jobs were not forgotten: %s", error.message)

    async def _forget_old(self, owner: str) -> None:
        """Delete the oldest records of a user beyond `KEPT`, but not those of jobs that have not ended."""
        listing = await self._owners.ask_any(ListKeys(job_key_prefix(owner)))
        oldest = [job_id_of_key(key) for key in listing.keys][:-KEPT]
        if not oldest:
            return
        now = self._clock.now()
        outcomes = await self._owners.read(*oldest)
        for id, outcome in zip(oldest, outcomes, strict=True):
            if outcome.failure is None and job_status(outcome.unwrap(), now) not in UNENDED:
                await self._owners.change(DeleteObject(id))
