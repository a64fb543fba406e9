"""A job's record from its turn to its end, whoever else changes it and whatever the store does."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from hsparse.errors import StoreFailed
from hsparse.hdf5.jobs.job import LOST_SECONDS
from hsparse.hdf5.jobs.job_queue import JobPlaces, JobQueue
from hsparse.wire.record_message import Outcome, RecordChange
from tests.sn.jobs.conftest import Open, import_body, until
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock


async def test_a_job_that_was_forgotten_elsewhere_is_stopped(
    open_node: Open, places: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest: RestClient = await open_node()
    id = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    await until(rest, id, "running")
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
    id = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    await until(rest, id, "running")
    for task in rest.service.component(JobQueue)._tasks:
        task.cancel()  # as if the node had been killed
    while rest.service.component(JobQueue)._tasks:
        await rest("GET", "/about")
    clock.time += LOST_SECONDS + 1
    lost = await until(rest, id, "lost")
    assert "POST it again with the option resume" in lost["error"]["message"]
    assert (await rest("DELETE", f"/jobs/{id}")).status == 200
    assert (await rest("GET", f"/jobs/{id}")).status == 410


async def test_a_process_that_does_not_stop_is_killed(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.jobs.job_run.UNDO_SECONDS", 0.01)
    id = (await rest("POST", "/jobs", import_body(places, "stubborn")))["id"]
    await until(rest, id, "running")
    await rest("DELETE", f"/jobs/{id}")
    ended = await until(rest, id, "cancelled")
    assert "was killed" in ended["error"]["message"]


async def test_a_store_that_is_away_for_a_while_ends_no_job(
    rest: RestClient, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # h5pyd's tools, in other tests, raise the root's
    id = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    await until(rest, id, "running")
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
    id = (await rest("POST", "/jobs", import_body(places, "hold")))["id"]
    await until(rest, id, "running")

    async def failing(change: RecordChange) -> Outcome:
        raise StoreFailed("The store is away.")

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
