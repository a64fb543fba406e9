"""Handlers of `/jobs`: imports, exports and copies that the server runs with the user's rights."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import hdrs, web

from hsparse.clock import Clock
from hsparse.config import Settings, job_environment
from hsparse.errors import MISSING_KINDS, BadRequest, Conflict, NotFound, Unauthenticated, Unsupported
from hsparse.hdf5.importer.upload import UPLOAD, Upload, bytes_id, root_id, upload_path
from hsparse.hdf5.in_place.file_backed.chunk_locator import FileBackedData
from hsparse.hdf5.jobs.job import (
    CANCEL,
    PLACE,
    Job,
    JobKind,
    JobStatus,
    check_options,
    job_change,
    job_json,
    job_status,
)
from hsparse.hdf5.jobs.job_queue import S3, JobQueue
from hsparse.hdf5.jobs.job_run import JobCommand
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.hdf5.maps.map_handlers import get_dataset_map, get_map
from hsparse.hdf5.virtual_dataset.datasets import VirtualDatasets, VirtualExtents
from hsparse.hdf5.virtual_file.file_plans import FilePlans
from hsparse.hdf5.virtual_file.handlers import get_file, head_file
from hsparse.machine_memory import machine_memory
from hsparse.model.acl import Right
from hsparse.model.file_backed import FILE_BACKED
from hsparse.model.ids import JOB_FOLDER, check_job_id, job_id_of_key, job_key, job_key_prefix, new_job_id
from hsparse.model.layout import VIRTUAL
from hsparse.sn.app import Parts
from hsparse.sn.domains.domain_creation import require_creation
from hsparse.sn.http.request import read_json_object
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.request import Extents, Request, respond
from hsparse.sn.route import Route
from hsparse.sn.service import Service
from hsparse.sn.values.file_data import REGISTERED
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteObject, ListKeys

MAX_LISTED_JOBS = 1000
LEAST_MEMORY = 2 << 30
"""The minimum address space of a job in bytes, which a process with many threads needs from its start."""


async def post_job(request: Request) -> web.StreamResponse:
    """Accept a job. The user needs the right to read the domains that the job reads, and to create its new domain."""
    _require_user(request)
    if request.service.named_bucket is not None:
        raise Unsupported(
            "Jobs work only with domains of the server's first bucket: use hsparse import or hsparse export instead."
        )
    job = _parse(request, await read_json_object(request))
    jobs = request.service.component(JobQueue)
    await jobs.argument(job)
    if job.kind is JobKind.EXPORT:
        await _require_domain(request, job.domain, "exported")
    else:
        await _require_new(request, job)
    if job.kind is JobKind.COPY:
        await _require_domain(request, job.place, "copied")
    elif job.is_inside:
        await _require_upload(request, upload_path(job.place))
    record = await jobs.submit(job, request.http.headers.get(hdrs.AUTHORIZATION))
    response = respond(job_json(record, request.service.clock.now()), 202)
    response.headers[hdrs.LOCATION] = f"/jobs/{job.id}"
    return response


async def get_jobs(request: Request) -> web.StreamResponse:
    """List the user's jobs, oldest first. For an admin, list the jobs of all users, grouped by user."""
    _require_user(request)
    owners, principal = request.service.owners, request.principal
    marker = request.arg("Marker")
    listing = await owners.ask_any(
        ListKeys(
            JOB_FOLDER if principal.admin else job_key_prefix(principal.name),
            start_after=job_key(check_job_id(marker)) if marker else "",
            limit=min(request.number("Limit") or MAX_LISTED_JOBS, MAX_LISTED_JOBS),
        )
    )
    outcomes = await owners.read(*map(job_id_of_key, listing.keys))
    records = [
        outcome.unwrap()
        for outcome in outcomes
        if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS  # deleted after the listing
    ]
    now = request.service.clock.now()
    return respond({"jobs": [job_json(record, now) for record in records if _sees(request, record)]})


async def get_job(request: Request) -> web.StreamResponse:
    """Respond with a job's record."""
    return respond(job_json(await _record(request), request.service.clock.now()))


async def delete_job(request: Request) -> web.StreamResponse:
    """Cancel a job that has not ended; its process undoes its changes. Delete the record of a job that has ended."""
    record = await _record(request)
    id, service = record["id"], request.service
    if job_status(record, service.clock.now()) not in (JobStatus.QUEUED, JobStatus.RUNNING):
        await service.owners.apply(DeleteObject(id))
        return respond({})
    try:
        outcome = await service.owners.apply(job_change(id, {CANCEL: True}))
    except Conflict as error:
        raise Conflict(f"The job {id} has ended already.") from error
    service.component(JobQueue).cancel(id)
    return respond(job_json(outcome.record or record, service.clock.now()), 202)


def _require_user(request: Request) -> None:
    if request.principal.anonymous:
        raise Unauthenticated("Jobs belong to users: sign in by a name and password, an API key or a token.")


def _sees(request: Request, record: Record) -> bool:
    return request.principal.admin or record.get("owner") == request.principal.name


async def _record(request: Request) -> Record:
    """Return the record of the job in the path; raises `NotFound` for a job of another user."""
    _require_user(request)
    id = check_job_id(request.params["job"])
    record = await request.service.owners.record(id)
    if not _sees(request, record):
        raise NotFound(f"{id} does not exist.")
    return record


def _parse(request: Request, body: Record) -> Job:
    try:
        kind = JobKind(str(body.get("kind")))
    except ValueError:
        raise BadRequest(f"kind must be one of {', '.join(JobKind)}.") from None
    known = ("kind", "domain", PLACE[kind], "options")
    for key in body:
        if key not in known:
            raise BadRequest(f"A job of kind {kind} has no {key[:80]!r}; it has {', '.join(known)}.")
    domain, place = body.get("domain"), body.get(PLACE[kind])
    if not isinstance(domain, str) or not isinstance(place, str):
        raise BadRequest(f"domain and {PLACE[kind]} must be strings.")
    if kind is JobKind.COPY:
        place = normal_path(request.service, place)
    elif kind is JobKind.IMPORT and place.startswith(UPLOAD):
        place = UPLOAD + normal_path(request.service, upload_path(place))
    path = normal_path(request.service, domain)
    if path == "/":
        raise BadRequest("domain must be the path of a domain, such as /home/user/file.h5, not of a folder.")
    options = check_options(kind, body.get("options"))
    if "filter" in options and place.startswith(S3):
        raise BadRequest("The option filter needs a file as the target: leave it out, or export to file:///.")
    owner = request.principal.name
    return Job(new_job_id(owner, request.service.clock), kind, owner, path, place, options)


async def _require_new(request: Request, job: Job) -> None:
    await require_creation(request, job.domain)
    if not job.options.get("resume") and (await request.service.owners.read(job.domain))[0].failure is None:
        remedy = "use the option resume to continue an interrupted import"
        if job.kind is JobKind.COPY:
            remedy = "choose another name"
        raise Conflict(f"{job.domain} exists already; {remedy}.")


async def _require_domain(request: Request, path: str, done: str) -> None:
    domain = await request.find(path, Right.READ)
    if domain.root is None:
        raise BadRequest(f"{path} is a folder: only domains are {done}.")


async def _require_upload(request: Request, path: str) -> None:
    owners = request.service.owners
    root = await owners.record(root_id(path, (await request.find(path, Right.READ)).record))
    Upload.parse(path, root, await owners.record(bytes_id(path, root)))


ROUTES = (
    Route("GET", "/datasets/{id}/map", get_dataset_map, Right.READ),
    Route("GET", "/map", get_map, Right.READ),
    Route("GET", "/files/{path:.+}", get_file, None),
    Route("HEAD", "/files/{path:.+}", head_file, None),
    Route("POST", "/jobs", post_job, None),
    Route("GET", "/jobs", get_jobs, None),
    Route("GET", "/jobs/{job}", get_job, None),
    Route("DELETE", "/jobs/{job}", delete_job, None),
)


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the routes, components and background work for HDF5 files that this extension adds to a service node."""
    REGISTERED.update(dict.fromkeys(FILE_BACKED, FileBackedData()) | {VIRTUAL: VirtualDatasets()})
    return Parts(
        ROUTES,
        components=(FilePlans, JobQueue),
        provides={Extents: VirtualExtents},
        running=partial(_running_jobs, settings),
    )


@asynccontextmanager
async def _running_jobs(settings: Settings, service: Service, url: str) -> AsyncIterator[None]:
    """Run jobs while the context is open. Jobs send their requests to this node, which listens on `url`."""
    prefix = (sys.executable, "-m", "hsparse.cli.main")
    chosen = settings.section(JobSettings)
    # Jobs do not use BLAS, but each of its threads would take address space.
    environment = job_environment(settings) | {"OPENBLAS_NUM_THREADS": "1"}
    memory = address_space(chosen.job_memory)
    command = JobCommand(prefix, environment, loopback(url), memory, chosen.job_time)
    service.component(JobQueue).start(command)
    try:
        yield
    finally:
        await service.component(JobQueue).close()


def address_space(most: int) -> int:
    """Return the limit of a job's address space in bytes, or 0 if `most` is 0 (no limit).

    The limit is `most`, but at most three quarters of the machine's memory, or `LEAST_MEMORY` if that is more.
    """
    return min(most, max(LEAST_MEMORY, machine_memory() // 4 * 3))


def loopback(url: str) -> str:
    """Return the URL by which a node that listens on `url` reaches itself: loopback instead of "all addresses"."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
