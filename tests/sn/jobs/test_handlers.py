"""`/jobs`: who may have what done, what is told of it, and what ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hsparse.wire.record_message import ListKeys
from tests.sn.jobs.conftest import Open, import_body, until
from tests.support.rest_client import RestClient


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


@pytest.mark.parametrize(("name", "status"), [("fail", "failed"), ("crash", "failed"), ("endless", "failed")])
async def test_a_failure_is_told(rest: RestClient, places: Path, name: str, status: str) -> None:
    reply = await rest("POST", "/jobs", import_body(places, name))
    error = (await until(rest, reply["id"], status))["error"]
    kind, words = {
        "fail": ("conflict", "It is there."),
        "crash": ("internal", "status 3"),
        "endless": ("internal", "too long"),
    }[name]
    assert error["kind"] == kind
    assert words in error["message"]


async def test_other_lines_are_passed_over(rest: RestClient, places: Path) -> None:
    reply = await rest("POST", "/jobs", import_body(places, "babble"))
    assert (await until(rest, reply["id"], "done"))["done"] == 10


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
