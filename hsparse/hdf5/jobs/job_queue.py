"""The job queue of a node. It limits running and waiting jobs, and deletes a user's oldest job records.

`JobPlaces` checks that jobs read and write files only in the places that the setting `job_places` lists.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hsparse.clock import Clock
from hsparse.errors import BadRequest, Busy, Forbidden, HsparseError, Misconfigured, RateLimited, Unsupported
from hsparse.hdf5.jobs.job import Job, JobKind, JobStatus, job_status
from hsparse.hdf5.jobs.job_run import JobCommand, JobProcess, JobRun
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.file_backed import OBJECTS_FOLDER
from hsparse.model.ids import job_id_of_key, job_key_prefix
from hsparse.sn.auth.roles import is_user_name
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.metrics import Metrics
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject, DeleteObject, ListKeys

S3 = "s3://"
FILE = "file://"
USER = "{user}"
"""The placeholder in a place for the name of the job's user."""
MAX_LINE_BYTES = 2048


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Places of the form `s3://bucket/prefix/` or `file:///directory/`; without places, jobs may not access files.

    A place must not contain the server's own objects, which are in the `served` S3 buckets or in the `root` directory.
    """

    entries: tuple[str, ...]
    served: tuple[str, ...] = ()
    root: str = ""

    def __post_init__(self) -> None:
        """Normalize the entries; raises `Misconfigured` for an invalid entry, or one with the server's objects."""
        object.__setattr__(self, "entries", tuple(map(_checked_entry, self.entries)))
        for entry in self.entries:
            if self._has_objects(entry):
                raise Misconfigured(
                    f"job_places: {entry} contains the server's own objects: name another place."
                )

    def argument(self, url: str, user: str, *, writes: bool) -> str:
        """Return the command's argument for the file at `url`: the URL, or the path with symbolic links resolved.

        Raises `BadRequest` if `url` is not a file URL, and `Forbidden` if the file is outside of the places of `user`
        or a symbolic link leads outside.
        """
        check_file_url(url)
        if not self.entries:
            raise Forbidden(
                "Jobs of this server can read uploads only, because its setting job_places lists no place for files."
            )
        for place in self._of(user):
            if url.startswith(place):
                self._check_own(url)
                return url if place.startswith(S3) else _inside(url, place, writes=writes)
        raise Forbidden(
            f"{url} is outside of the places for jobs' files: choose a place that the setting job_places lists."
        )

    def folders(self, user: str) -> tuple[str, ...]:
        """Return the places of `user` as arguments of a command: directories and S3 prefixes."""
        return tuple(place.removeprefix(FILE) for place in self._of(user))

    def _of(self, user: str) -> Iterator[str]:
        for entry in self.entries:
            place = entry.replace(USER, user)
            if (USER not in entry or is_user_name(user)) and not self._has_objects(place):
                yield place

    def _has_objects(self, place: str) -> bool:
        """Return whether a place overlaps the root directory, or is a served bucket or the objects' folder in it."""
        if place.startswith(FILE):
            both = Path(os.path.realpath(place.removeprefix(FILE))), Path(os.path.realpath(self.root))
            return bool(self.root) and (both[0].is_relative_to(both[1]) or both[1].is_relative_to(both[0]))
        bucket, _, prefix = place.removeprefix(S3).partition("/")
        first = prefix.partition("/")[0]
        return bucket in self.served and first.casefold() in ("", OBJECTS_FOLDER)

    def _check_own(self, url: str) -> None:
        """Raise `Forbidden` for a key of the server's records in a served bucket."""
        bucket, *components = url.removeprefix(S3).split("/")
        if url.startswith(S3) and bucket in self.served and any(one.startswith(".") for one in components):
            raise Forbidden(f"{url} cannot be a job's file: the server keeps its own objects there.")


def check_file_url(url: str) -> None:
    """Raise `BadRequest` unless a URL is `s3://bucket/key` or `file:///directory/file`, without `.` and `..`."""
    if len(url) > MAX_LINE_BYTES:
        raise BadRequest(f"A URL of a file can have at most {MAX_LINE_BYTES} characters, not {len(url)}.")
    scheme = next((scheme for scheme in (S3, FILE) if url.startswith(scheme)), None)
    parts = url.removeprefix(scheme or "").split("/")
    if scheme is None or len(parts) < 2 or (scheme == FILE) != (parts[0] == ""):
        raise BadRequest(f"{url!r} must be like s3://bucket/path/file.h5 or file:///directory/file.h5.")
    if any(part in ("", ".", "..") for part in parts[1:]):
        raise BadRequest(f"{url!r} must not have empty components, '.' or '..'.")
    if any(ord(c) < 32 or ord(c) == 127 for c in url):
        raise BadRequest(f"{url!r} must not have control characters.")


def _checked_entry(entry: str) -> str:
    """Return an entry with one trailing slash; raises `Misconfigured` if it is not a place."""
    entry = entry.rstrip("/") + "/"
    try:
        check_file_url(entry + "file")
    except BadRequest as error:
        raise Misconfigured(
            f"job_places: {entry} must be like s3://bucket/prefix/ or file:///directory/."
        ) from error
    return entry


def _inside(url: str, place: str, *, writes: bool) -> str:
    """Return the path of a file with symbolic links resolved; raises `Forbidden` if it is outside of the place."""
    path = Path(url.removeprefix(FILE))
    if writes and path.is_symlink():
        raise Forbidden(f"{url} is a symbolic link, to which jobs do not write; name a regular file.")
    # A file that will be written need not exist, but its directory must.
    real = Path(os.path.realpath(path.parent)) / path.name if writes else Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(place.removeprefix(FILE))):
        raise Forbidden(f"{url} leads out of the place {place} through a symbolic link.")
    if real.exists() and not real.is_file():  # opening a pipe would block until its other end is opened
        raise BadRequest(f"{url} is not a regular file: name a regular file.")
    return str(real)


log = logging.getLogger(__name__)

MAX_JOBS_OF_USER = 100
"""The maximum number of job records of a user. Beyond it, the oldest records of jobs that have ended are deleted."""
RETRY_SECONDS = 30.0
UNENDED = (JobStatus.QUEUED, JobStatus.RUNNING)


class JobQueue:
    """A queue of jobs. The next job is of the user with the fewest running jobs; of equal users, the earliest job.

    Call `start` before `submit`, and `close` before the node stops.
    """

    def __init__(
        self, owners: Owners, clock: Clock, node: ServiceSettings, settings: JobSettings, metrics: Metrics
    ) -> None:
        served = () if node.directory else (node.bucket, *node.other_buckets)
        self.places = JobPlaces(settings.job_places, served, node.directory)
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
        """Create the queue of a service node."""
        jobs = service.section(JobSettings)
        return cls(service.owners, service.clock, service.settings, jobs, service.metrics)

    def start(self, command: JobCommand) -> None:
        """Begin to accept jobs, and run them with `command`."""
        self._command = command

    async def submit(self, job: Job, authorization: str | None) -> Record:
        """Accept a job that will run with the rights of an `Authorization` header; return its record.

        Raises `Busy` if too many jobs wait or run, and `RateLimited` if too many jobs of one user wait or run. The
        header is held only in memory, until the job begins.
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
            # Check the place again: symbolic links may have changed while the job waited.
            file = await self.argument(job)
            sources = () if job.is_inside else self.places.folders(job.owner)
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
        """Return the command's argument for the job's file or source. Raises the errors of `JobPlaces.argument`."""
        if job.is_inside:
            return job.place
        writes = job.kind is JobKind.EXPORT
        # Use a thread, because the file system may be slow.
        return await asyncio.to_thread(self.places.argument, job.place, job.owner, writes=writes)

    def cancel(self, id: str) -> None:
        """Cancel a job if it is a job of this node."""
        run = self._runs.get(id)
        if run is not None:
            run.cancel()

    async def close(self) -> None:
        """Accept no more jobs, stop all jobs, and wait for their end: they may undo changes through this node."""
        self._closing = True
        for run in self._runs.values():
            run.give_up()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _advance(self) -> None:
        """Start as many jobs as the limit allows, of the users with the fewest running jobs first."""
        running = Counter(run.job.owner for run in self._runs.values() if run.running)
        waiting = [run for run in self._runs.values() if not run.running]
        while waiting and running.total() < self._at_once:
            run = min(waiting, key=lambda run: running[run.job.owner])  # the earliest job, if users are equal
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
            log.warning("records of old jobs were not deleted: %s", error.message)

    async def _forget_old(self, owner: str) -> None:
        """Delete the oldest job records of a user beyond `MAX_JOBS_OF_USER`; skip jobs that run or wait."""
        listing = await self._owners.ask_any(ListKeys(job_key_prefix(owner)))
        oldest = [job_id_of_key(key) for key in listing.keys][:-MAX_JOBS_OF_USER]
        if not oldest:
            return
        now = self._clock.now()
        outcomes = await self._owners.read(*oldest)
        for id, outcome in zip(oldest, outcomes, strict=True):
            if outcome.failure is None and job_status(outcome.unwrap(), now) not in UNENDED:
                await self._owners.change(DeleteObject(id))
