"""`/jobs`: options, records and processes; who may have what done, which jobs run and wait, and what ends them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.main import parse_arguments
from hsparse.errors import BadRequest, HsparseError, StoreFailed, TooLarge
from hsparse.hdf5.jobs import handlers, job_queue
from hsparse.hdf5.jobs.job import (
    CANCEL,
    LOST_SECONDS,
    OPTIONS,
    Job,
    JobKind,
    JobStatus,
    check_options,
    flags,
    job_json,
    job_status,
)
from hsparse.hdf5.jobs.job_queue import JobPlaces, JobQueue
from hsparse.hdf5.jobs.job_run import (
    LONGEST_MESSAGE,
    MAX_MESSAGES,
    JobCommand,
    JobProcess,
    Progress,
    limit_memory,
)
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.acl import Principal
from hsparse.wire.record_message import ListKeys, Outcome, RecordChange
from tests.sn.jobs.conftest import Open, import_body, until
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock

GIVEN: list[tuple[JobKind, dict[str, Any]]] = [
    (
        JobKind.IMPORT,
        {"events": True, "resume": True, "as_is": True, "path": "--force", "part": "1000", "requests": 3},
    ),
    (JobKind.EXPORT, {"layout": "structured", "revision": "rfc-2025-10", "force": True}),
    (JobKind.EXPORT, {"matrices": "anndata-csr", "filter": "shuffle+gzip=4", "virtual": "copied"}),
]


@pytest.mark.parametrize("kind", JobKind)
def test_all_options_are_given(kind: JobKind) -> None:
    assert {name for one, options in GIVEN if one is kind for name in options} == set(OPTIONS[kind])


def test_a_copy_is_of_one_path_to_another() -> None:
    job = Job("j-1", JobKind.COPY, "ada", "/home/ada/b*.h5", "/home/ada/a[1].h5", {})
    parsed = parse_arguments(job.arguments(job.place, "http://127.0.0.1:1", ["/x/"]))
    assert (parsed.sources, parsed.target, parsed.exact) == ([job.place], job.domain, True)
    assert (parsed.piped, parsed.progress, parsed.endpoint) == (True, "json", "http://127.0.0.1:1")


@pytest.mark.parametrize(("kind", "options"), GIVEN)
def test_the_command_takes_every_option(kind: JobKind, options: dict[str, Any]) -> None:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "file:///x/a.h5", check_options(kind, options))
    parsed = parse_arguments(job.arguments("/x/a.h5", "http://127.0.0.1:1"))
    # --filter may be repeated, the option has all of them
    found = {name: getattr(parsed, name) for name in options} | (
        {"filter": "+".join(parsed.filter)} if "filter" in options else {}
    )
    assert found == options
    assert (str(parsed.file), parsed.domain) == ("/x/a.h5", "/home/ada/a.h5")
    assert getattr(parsed, "sources", None) is None
    placed = parse_arguments(job.arguments("/x/a.h5", "http://127.0.0.1:1", ["/x/", "s3://lab/"]))
    assert getattr(placed, "sources", None) == (["/x/", "s3://lab/"] if kind is JobKind.IMPORT else None)
    assert (parsed.piped, parsed.progress, parsed.endpoint) == (True, "json", "http://127.0.0.1:1")


def test_what_is_not_wanted_is_no_flag() -> None:
    assert flags(JobKind.IMPORT, {"resume": False, "requests": 1}) == ["--requests=1"]
    assert check_options(JobKind.EXPORT, None) == {}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (JobKind.IMPORT, "resume"),
        (JobKind.IMPORT, {"piped": True}),
        (JobKind.IMPORT, {"endpoint": "http://x"}),
        (JobKind.IMPORT, {"requests": True}),
        (JobKind.IMPORT, {"requests": 65}),
        (JobKind.IMPORT, {"path": ""}),
        (JobKind.IMPORT, {"path": "x" * 2000}),
        (JobKind.IMPORT, {"path": "a/b"}),
        (JobKind.EXPORT, {"layout": "other"}),
        (JobKind.EXPORT, {"virtual": "mapped"}),
        (JobKind.EXPORT, {"layout": "structured", "matrices": "anndata-csr"}),
        (JobKind.EXPORT, {"layout": "stock", "revision": "rfc-2025-10"}),
        (JobKind.EXPORT, {"revision": "rfc-2025-10"}),
        (JobKind.EXPORT, {"layout": ["stock"]}),
        (JobKind.EXPORT, {"force": "yes"}),
    ],
)
def test_what_does_not_fit(kind: JobKind, options: Any) -> None:
    with pytest.raises(BadRequest):
        check_options(kind, options)


def record(kind: JobKind = JobKind.IMPORT, **fields: Any) -> dict[str, Any]:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "s3://lab/a.h5", {"path": "x"})
    return job.new_record(1000.0) | fields


def test_a_new_record_has_what_was_asked_for() -> None:
    assert record()["source"] == "s3://lab/a.h5"
    assert record(JobKind.EXPORT)["target"] == "s3://lab/a.h5"
    assert job_json(record(**{CANCEL: True}), 1000.0) == record()


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING])
def test_without_a_sign_of_life_it_is_lost(status: JobStatus) -> None:
    fields = {"status": status.value}
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS) is status
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS + 1) is JobStatus.LOST


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED])
def test_what_has_ended_is_never_lost(status: JobStatus) -> None:
    assert job_status(record(status=status.value, ended=1001.0), 1e10) is status


def test_what_to_do_about_a_lost_job() -> None:
    for kind, words in (
        (JobKind.IMPORT, "POST it again with the option resume."),
        (JobKind.EXPORT, "POST it again."),
    ):
        shown = job_json(record(kind), 1e10)
        assert (shown["status"], shown["error"]["kind"]) == ("lost", "busy")
        assert shown["error"]["message"].endswith(words)


def process(command: JobCommand, domain: str, header: str | None = "Bearer abc") -> JobProcess:
    return JobProcess(command, ("import", domain), header)


async def heard_once(made: JobProcess) -> asyncio.Task[None]:
    """Begin a process and wait until it has told something."""
    heard = asyncio.Event()
    task = asyncio.create_task(made.run(heard.set))
    await heard.wait()
    return task


def place_in_line(pid: int) -> int:
    """Return what Linux goes by when it must end a process for its memory; the largest is 1000."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_the_header_goes_through_the_pipe(command: JobCommand) -> None:
    made = process(command, "/a")
    await made.run()
    assert made.progress == Progress(10, 10, ["Bearer abc: import /a"])
    assert "abc" not in repr(made)
    assert "PATH" not in repr(replace(command, environment={"PATH": "/bin"}))
    nobody = process(command, "/a", None)
    await nobody.run()
    assert nobody.progress.messages == [": import /a"]


async def test_one_that_cannot_be_started_says_so(command: JobCommand) -> None:
    with pytest.raises(HsparseError, match="cannot be started"):
        await process(replace(command, prefix=("/no/such/program",)), "/a").run()


async def test_it_is_interrupted_by_the_end_of_its_input(command: JobCommand) -> None:
    made = process(command, "/hold")
    task = await heard_once(made)
    made.stop()
    made.stop()
    with pytest.raises(HsparseError, match="status 130"):
        await task
    made.stop()


async def test_one_that_is_stopped_before_it_runs_ends_at_once(command: JobCommand) -> None:
    made = process(command, "/hold")
    made.stop()
    with pytest.raises(HsparseError, match="status 130"):
        await made.run()


async def test_nothing_is_left_when_it_is_waited_for_no_longer(command: JobCommand) -> None:
    made = process(command, "/stubborn")
    task = await heard_once(made)
    running = made._process
    assert running is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(running.pid, 0)


def test_what_is_kept_of_what_it_tells_is_bounded() -> None:
    progress = Progress()
    for number in range(MAX_MESSAGES + 5):
        progress.parse_line(json.dumps({"message": f"{number}" * 10_000}).encode())
    assert len(progress.messages) == MAX_MESSAGES
    assert max(map(len, progress.messages)) == LONGEST_MESSAGE
    for line in (b"", b"x", b"[]", b"{}", b'{"done": 1.5, "total": 2}', b'{"error": "x"}', b"\xff"):
        progress.parse_line(line)
    assert (progress.done, progress.total, progress.failure) == (0, None, None)


async def test_one_that_takes_too_long_is_stopped(command: JobCommand) -> None:
    made = process(replace(command, seconds=0.01), "/hold")
    with pytest.raises(TooLarge, match="job_time"):
        await made.run()


@pytest.mark.parametrize(
    ("hard", "most", "limit"), [(2 << 30, 3 << 30, 2 << 30), (4 << 30, 3 << 30, 3 << 30)]
)
def test_a_limit_is_below_that_of_the_server(hard: int, most: int, limit: int) -> None:
    """As under `ulimit -v`: who is not root cannot raise it."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        resource.prlimit(child.pid, resource.RLIMIT_AS, (hard, hard))
        limit_memory(child.pid, most)
        assert resource.prlimit(child.pid, resource.RLIMIT_AS) == (limit, limit)


@pytest.mark.parametrize(
    ("machine", "most", "found"),
    [
        (64 << 30, 16 << 30, 16 << 30),
        (8 << 30, 16 << 30, 6 << 30),
        (1 << 30, 16 << 30, 2 << 30),
        (8 << 30, 0, 0),
    ],
)
def test_it_has_no_more_than_the_machine_can_spare(
    monkeypatch: pytest.MonkeyPatch, machine: int, most: int, found: int
) -> None:
    monkeypatch.setattr(handlers, "machine_memory", lambda: machine)
    assert handlers.address_space(most) == found


async def test_it_ends_before_the_server_where_all_memory_is_taken(command: JobCommand) -> None:
    made = process(command, "/hold")
    task = await heard_once(made)
    assert made._process is not None
    assert place_in_line(made._process.pid) == 1000
    made.stop()
    with pytest.raises(HsparseError):
        await task


async def test_one_that_takes_too_much_memory_fails(command: JobCommand) -> None:
    made = process(replace(command, memory=1 << 30), "/greedy")
    with pytest.raises(HsparseError, match="job_memory"):
        await made.run()
    await process(command, "/greedy").run()


async def running(rest: RestClient, places: Path, name: str = "hold") -> str:
    """Post a job that does not end by itself; return its id once it runs."""
    id = str((await rest("POST", "/jobs", import_body(places, name)))["id"])
    await until(rest, id, "running")
    return id


async def failing(change: RecordChange) -> Outcome:
    raise StoreFailed("The store is away.")


async def idle(rest: RestClient) -> None:
    """Wait until a service node does no job."""
    while rest.service.component(JobQueue)._tasks:
        await rest("GET", "/about")


async def test_a_job_from_its_beginning_to_its_end(rest: RestClient, places: Path) -> None:
    reply = await rest("POST", "/jobs", import_body(places, "a.h5", resume=True, path="-x"))
    assert reply.status == 202
    id = reply["id"]
    assert reply.headers["Location"] == f"/jobs/{id}"
    assert {key: reply[key] for key in ("kind", "owner", "domain", "status", "done")} == {
        "kind": "import",
        "owner": "ada",
        "domain": "/home/ada/a.h5",
        "status": "queued",
        "done": 0,
    }
    done = (await until(rest, id, "done")).body
    assert (done["done"], done["total"]) == (10, 10)
    words = "import --endpoint http://127.0.0.1:1 --piped --progress json"
    words += f" --sources={places}/ --sources=s3://lab/ada/ --resume --path=-x"
    assert done["messages"] == [f"ada: {words} {places}/run.h5 /home/ada/a.h5"]
    assert "error" not in done
    assert (await rest("DELETE", f"/jobs/{id}")).status == 200
    assert (await rest("GET", f"/jobs/{id}")).status == 410


async def test_an_export_reads_a_domain(rest: RestClient, places: Path) -> None:
    await rest("PUT", "/", {}, domain="/home/ada/a.h5")
    body = {"kind": "export", "domain": "/home/ada/a.h5", "target": f"file://{places}/new.h5"}
    reply = await rest("POST", "/jobs", body | {"options": {"layout": "structured"}})
    done = await until(rest, reply["id"], "done")
    assert done["messages"][0].endswith(f"--layout=structured /home/ada/a.h5 {places}/new.h5")
    filtered = {"target": "s3://lab/ada/new.h5", "options": {"filter": "gzip"}}
    assert (await rest("POST", "/jobs", body | filtered)).status == 400
    assert (await rest("POST", "/jobs", body, user="ben")).status == 403
    assert (await rest("POST", "/jobs", body | {"domain": "/home/ada"})).status == 400
    assert (await rest("POST", "/jobs", body | {"domain": "/home/ada/none.h5"})).status == 404


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("fail", "conflict", "It is there."),
        ("crash", "internal", "status 3"),
        ("endless", "internal", "more than 1 MiB"),
    ],
)
async def test_a_failure_is_told(rest: RestClient, places: Path, name: str, kind: str, words: str) -> None:
    reply = await rest("POST", "/jobs", import_body(places, name))
    error = (await until(rest, reply["id"], "failed"))["error"]
    assert (error["kind"], words in error["message"]) == (kind, True)


async def test_jobs_are_of_their_owners(rest: RestClient, places: Path) -> None:
    first = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    other = import_body(places, "b.h5") | {"domain": "/home/ben/b.h5"}
    second = (await rest("POST", "/jobs", other, user="ben"))["id"]
    for method in ("GET", "DELETE"):
        assert (await rest(method, f"/jobs/{first}", user="ben")).status == 404
        assert (await rest(method, f"/jobs/{first}", user=None)).status == 401
    assert (await rest("GET", "/jobs", user=None)).status == 401
    listed = {user: (await rest("GET", "/jobs", user=user))["jobs"] for user in ("ada", "ben", "admin")}
    assert {user: [job["id"] for job in jobs] for user, jobs in listed.items()} == {
        "ada": [first],
        "ben": [second],
        "admin": sorted([first, second]),
    }
    page = await rest("GET", "/jobs", user="admin", Limit=1)
    assert len(page["jobs"]) == 1
    rest_of_it = await rest("GET", "/jobs", user="admin", Marker=page["jobs"][0]["id"])
    assert [job["id"] for job in rest_of_it["jobs"]] == sorted([first, second])[1:]


async def test_who_may_not_create_is_refused(rest: RestClient, places: Path) -> None:
    await rest("PUT", "/", {}, domain="/home/ada/there.h5")
    for user, domain, status in (
        (None, "/home/ada/a.h5", 401),
        ("ben", "/home/ada/a.h5", 403),
        ("ada", "/a.h5", 403),
        ("ada", "/", 400),
        ("ada", "home", 400),
        ("ada", "/home/ada/none/a.h5", 404),
        ("ada", "/home/ada/there.h5/a.h5", 400),
        ("ada", "/home/ada/there.h5", 409),
    ):
        reply = await rest("POST", "/jobs", import_body(places, "a") | {"domain": domain}, user=user)
        assert reply.status == status, domain
    there = import_body(places, "there.h5", resume=True)
    assert (await rest("POST", "/jobs", there)).status == 202
    assert len((await rest("GET", "/jobs", user="admin"))["jobs"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"kind": None},
        {"kind": "copy"},
        {"kind": "export"},
        {"domain": 3},
        {"source": 3},
        {"source": None},
        {"target": "file:///x/y"},
        {"token": "secret"},
        {"options": []},
        {"options": {"layout": "stock"}},
        {"options": {"resume": 1}},
        {"options": {"requests": 0}},
        {"options": {"path": "a\0b"}},
    ],
    ids=str,
)
async def test_a_body_that_is_wrong(rest: RestClient, places: Path, change: dict[str, Any]) -> None:
    reply = await rest("POST", "/jobs", import_body(places, "a.h5") | change)
    assert reply.status == 400
    assert (await rest("GET", "/jobs"))["jobs"] == []


async def test_no_job_without_places(open_node: Open, places: Path) -> None:
    rest = await open_node(job_places=())
    reply = await rest("POST", "/jobs", import_body(places, "a.h5"))
    assert reply.status == 403
    assert "job_places" in reply["error"]["message"]


@pytest.mark.parametrize("id", ["x", "j-1", "..%2F..%2Fhome", "g-00000000-00000000-0000-000000-000000"])
async def test_what_is_no_job(rest: RestClient, id: str) -> None:
    for method in ("GET", "DELETE"):
        assert (await rest(method, f"/jobs/{id}")).status == 404
    assert (await rest("GET", "/jobs", Marker=id)).status == 404


async def test_a_running_job_is_cancelled(rest: RestClient, places: Path) -> None:
    id = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    running = await until(rest, id, "running")
    while "total" not in running.body:
        running = await rest("GET", f"/jobs/{id}")
    assert running["begun"]
    reply = await rest("DELETE", f"/jobs/{id}")
    assert (reply.status, reply["status"]) == (202, "running")
    assert "cancel" not in reply.body
    ended = await until(rest, id, "cancelled")
    assert "error" not in ended.body
    assert (await rest("DELETE", f"/jobs/{id}")).status == 200


async def test_folders_do_not_show_jobs(rest: RestClient, places: Path) -> None:
    id = (await rest("POST", "/jobs", import_body(places, "a.h5")))["id"]
    await until(rest, id, "done")
    assert [one["name"] for one in (await rest("GET", "/domains", user="admin"))["domains"]] == ["/home"]
    listing = await rest.service.owners.ask_any(ListKeys("db/.jobs/"))
    assert len(listing.keys) == 1
    assert (await rest("GET", f"/groups/{id}", domain="/home/ada")).status == 400


async def test_some_wait_and_more_are_refused(open_node: Open, places: Path) -> None:
    rest = await open_node(jobs_at_once=1, jobs_queued=2)
    ids = [(await rest("POST", "/jobs", import_body(places, f"hold-{n}")))["id"] for n in range(3)]
    refused = await rest("POST", "/jobs", import_body(places, "hold-3"))
    assert (refused.status, refused["error"]["kind"]) == (503, "busy")
    assert "Retry-After" in refused.headers
    await until(rest, ids[0], "running")
    assert [(await rest("GET", f"/jobs/{id}"))["status"] for id in ids[1:]] == ["queued", "queued"]
    await rest("DELETE", f"/jobs/{ids[1]}")
    assert "begun" not in (await until(rest, ids[1], "cancelled")).body
    await rest("DELETE", f"/jobs/{ids[0]}")
    await until(rest, ids[2], "running")


async def test_a_user_has_so_many_jobs_and_the_next_turn_is_anothers(open_node: Open, places: Path) -> None:
    rest = await open_node(jobs_at_once=1, jobs_queued=10, jobs_of_user=3)
    held = [(await rest("POST", "/jobs", import_body(places, f"hold-{n}")))["id"] for n in range(3)]
    refused = await rest("POST", "/jobs", import_body(places, "a"))
    assert (refused.status, refused["error"]["kind"]) == (429, "rate_limited")
    assert "jobs_of_user" in refused["error"]["message"]
    body = import_body(places, "hold") | {"domain": "/home/ben/hold"}
    other = await rest("POST", "/jobs", body, user="ben")
    assert other.status == 202
    await until(rest, held[0], "running")
    await rest("DELETE", f"/jobs/{held[0]}")
    await until(rest, held[0], "cancelled")
    await until(rest, held[1], "running")
    assert (await rest("POST", "/jobs", import_body(places, "b"))).status == 202


async def test_users_with_fewer_running_jobs_are_first(open_node: Open, places: Path) -> None:
    rest = await open_node(jobs_at_once=2, jobs_queued=10)
    held = [(await rest("POST", "/jobs", import_body(places, f"hold-{n}")))["id"] for n in range(4)]
    body = import_body(places, "hold") | {"domain": "/home/ben/hold"}
    other = (await rest("POST", "/jobs", body, user="ben"))["id"]
    for id in held[:2]:
        await until(rest, id, "running")
    await rest("DELETE", f"/jobs/{held[0]}")
    await until(rest, other, "running")
    statuses = [(await rest("GET", f"/jobs/{id}"))["status"] for id in held[1:]]
    assert statuses == ["running", "queued", "queued"]


async def test_a_node_that_stops_ends_its_jobs_and_takes_no_more(rest: RestClient, places: Path) -> None:
    ids = [(await rest("POST", "/jobs", import_body(places, f"hold-{n}")))["id"] for n in range(2)]
    await until(rest, ids[0], "running")
    await rest.service.component(JobQueue).close()
    for id in ids:
        reply = await rest("GET", f"/jobs/{id}")
        assert (reply["status"], reply["error"]["kind"]) == ("failed", "busy")
    assert (await rest("POST", "/jobs", import_body(places, "a.h5"))).status == 503


async def test_the_last_jobs_of_a_user_are_kept(
    rest: RestClient, places: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "MAX_JOBS_OF_USER", 3)
    ids = []
    for number in range(6):
        clock.time += 1
        ids.append((await rest("POST", "/jobs", import_body(places, f"a-{number}")))["id"])
        await until(rest, ids[-1], "done")
        await idle(rest)
    assert [job["id"] for job in (await rest("GET", "/jobs"))["jobs"]] == ids[-3:]


async def test_a_link_that_appears_while_a_job_waits_is_refused(rest: RestClient, places: Path) -> None:
    held = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    body = import_body(places, "a.h5") | {"source": f"file://{places}/later.h5"}
    id = (await rest("POST", "/jobs", body))["id"]
    (places / "later.h5").symlink_to(places.parent / "command.py")
    await rest("DELETE", f"/jobs/{held}")
    assert (await until(rest, id, "failed"))["error"]["kind"] == "forbidden"


async def test_a_record_that_cannot_be_made_takes_no_room(
    open_node: Open, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest: RestClient = await open_node(jobs_at_once=1, jobs_queued=0)

    with monkeypatch.context() as patch:
        patch.setattr(rest.service.owners, "apply", failing)
        assert (await rest("POST", "/jobs", import_body(places, "a.h5"))).status == 500
    reply = await rest("POST", "/jobs", import_body(places, "a.h5"))
    await until(rest, reply["id"], "done")


async def test_a_node_that_was_given_no_command_runs_none(places: Path) -> None:
    clock = ManualClock()
    added = (JobSettings(job_places=(f"file://{places}",)),)
    async with RestClient(MemoryNode(clock), clock, Principal("ada"), added=added) as rest:
        reply = await rest("POST", "/jobs", import_body(places, "a.h5"))
        assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")


async def test_a_job_that_was_forgotten_elsewhere_is_stopped(
    open_node: Open, places: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest: RestClient = await open_node()
    id = await running(rest, places)
    monkeypatch.setattr("hsparse.hdf5.jobs.job.LOST_SECONDS", -1.0)
    assert (await rest("DELETE", f"/jobs/{id}")).status == 200
    while rest.service.component(JobQueue)._runs:
        await rest("GET", "/about")
    assert (await rest("GET", f"/jobs/{id}")).status == 410


async def test_two_service_nodes_tell_the_same_and_either_cancels(open_node: Open, places: Path) -> None:
    one, other = await open_node(), await open_node()
    first = (await one("POST", "/jobs", import_body(places, "hold-1")))["id"]
    second = (await one("POST", "/jobs", import_body(places, "hold-2")))["id"]
    assert (await until(other, first, "running"))["owner"] == "ada"
    assert [job["id"] for job in (await other("GET", "/jobs"))["jobs"]] == [first, second]
    for id in (second, first):
        assert (await other("DELETE", f"/jobs/{id}")).status == 202
        await until(one, id, "cancelled")


async def test_a_job_that_is_not_renewed_is_lost_and_can_be_forgotten(
    open_node: Open, places: Path, clock: ManualClock
) -> None:
    rest: RestClient = await open_node()
    id = await running(rest, places)
    for task in rest.service.component(JobQueue)._tasks:
        task.cancel()  # as if the node had been killed
    await idle(rest)
    clock.time += LOST_SECONDS + 1
    lost = await until(rest, id, "lost")
    assert "POST it again with the option resume" in lost["error"]["message"]
    assert (await rest("DELETE", f"/jobs/{id}")).status == 200
    assert (await rest("GET", f"/jobs/{id}")).status == 410


async def test_a_process_that_does_not_stop_is_killed(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.jobs.job_run.UNDO_SECONDS", 0.01)
    id = await running(rest, places, "stubborn")
    await rest("DELETE", f"/jobs/{id}")
    ended = await until(rest, id, "cancelled")
    assert "was killed" in ended["error"]["message"]


async def test_a_store_that_is_away_for_a_while_ends_no_job(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # h5pyd's tools, in other tests, raise the root's
    id = await running(rest, places)
    owners = rest.service.owners
    away = asyncio.Event()

    async def failing(change: RecordChange) -> Outcome:
        away.set()
        raise StoreFailed("The store is away.")

    with monkeypatch.context() as patch:
        patch.setattr(owners, "apply", failing)
        await away.wait()
    await rest("DELETE", f"/jobs/{id}")
    await until(rest, id, "cancelled")
    assert "was not renewed: The store is away." in caplog.text


async def test_an_end_that_cannot_be_recorded_is_logged(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    id = await running(rest, places)

    monkeypatch.setattr(rest.service.owners, "apply", failing)
    await rest.service.component(JobQueue).close()
    assert f"the end of the job {id} was not recorded" in caplog.text


async def test_a_defect_ends_one_job_alone(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*args: object, **options: object) -> str:
        raise ZeroDivisionError

    body = import_body(places, "a.h5")
    held = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    id = (await rest("POST", "/jobs", body))["id"]
    with monkeypatch.context() as patch:
        patch.setattr(JobPlaces, "argument", defect)
        await rest("DELETE", f"/jobs/{held}")
        failed = await until(rest, id, "failed")
    assert failed["error"] == {
        "kind": "internal",
        "message": "Internal error; the server's log has the details.",
    }
    id = (await rest("POST", "/jobs", body))["id"]
    await until(rest, id, "done")
