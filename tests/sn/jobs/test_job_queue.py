"""Which jobs run, which wait, which are refused, and which are remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.dn.service import DataService
from hsparse.errors import StoreFailed
from hsparse.hdf5.jobs import job_queue
from hsparse.hdf5.jobs.job_queue import JobQueue
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.acl import Principal
from hsparse.wire.record_message import Outcome, RecordChange
from tests.sn.jobs.conftest import Open, import_body, until
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


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
    assert [(await rest("GET", f"/jobs/{id}"))["status"] for id in held[1:]] == [
        "running",
        "queued",
        "queued",
    ]


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
        while rest.service.component(JobQueue)._tasks:
            await rest("GET", "/about")
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

    async def failing(change: RecordChange) -> Outcome:
        raise StoreFailed("The store is away.")

    with monkeypatch.context() as patch:
        patch.setattr(rest.service.owners, "apply", failing)
        assert (await rest("POST", "/jobs", import_body(places, "a.h5"))).status == 500
    reply = await rest("POST", "/jobs", import_body(places, "a.h5"))
    await until(rest, reply["id"], "done")


async def test_a_node_that_was_given_no_command_runs_none(places: Path) -> None:
    clock = ManualClock()
    added = (JobSettings(job_places=(f"file://{places}",)),)
    node = DataService(MemoryStore(clock=clock), clock)
    rest = await RestClient(node, clock, Principal("ada"), added=added).open()
    reply = await rest("POST", "/jobs", import_body(places, "a.h5"))
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    await rest.close()
    await node.close()
