"""A service node whose jobs are processes of a command that does as the name of the job's domain says."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hsparse.dn.service import DataService
from hsparse.hdf5.jobs import job_run
from hsparse.hdf5.jobs import job_run as job_process
from hsparse.hdf5.jobs.job_queue import JobQueue
from hsparse.hdf5.jobs.job_run import JobCommand
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.acl import Principal
from tests.support.rest_client import Reply, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

USERS = (Principal("ada"), Principal("ben"), Principal("admin", admin=True))
COMMAND = """
import json, sys

def tell(**line):
    print(json.dumps(line), flush=True)

header = sys.stdin.readline().strip()
words = " ".join(sys.argv[1:])
domain = sys.argv[-1]
tell(done=1, total=10)
tell(message=f"{header}: {words}")
if "hold" in domain:
    sys.stdin.read()
    sys.exit(130)
if "stubborn" in domain:
    sys.stdin.read()
    sys.stdin = open("/dev/zero")
    sys.stdin.read()
if "fail" in domain:
    tell(error={"kind": "conflict", "message": "It is there."})
    sys.exit(2)
if "crash" in domain:
    sys.exit(3)
if "babble" in domain:
    print("no json")
    print("[1]")
    print(json.dumps({"done": "many"}))
if "greedy" in domain:
    import mmap
    sys.stderr = open("/dev/null", "w")
    mmap.mmap(-1, 1 << 32)  # address space alone
if "endless" in domain:
    print("x" * (1 << 21), flush=True)
    sys.stdin.read()
tell(done=10, total=10)
"""
Open = Callable[..., Any]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """The directory that jobs may use."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "run.h5").write_bytes(b"")
    return tmp_path / "files"


@pytest.fixture
def command(tmp_path: Path) -> JobCommand:
    path = tmp_path / "command.py"
    path.write_text(COMMAND)
    return JobCommand((sys.executable, "-IS", str(path)), {}, "http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are renewed often."""
    monkeypatch.setattr(job_run, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(job_run, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr(job_process, "UNDO_SECONDS", 60.0)


@pytest.fixture
async def open_node(clock: ManualClock, places: Path, command: JobCommand) -> AsyncIterator[Open]:
    """A function that opens a service node; all have one data node."""
    node = DataService(MemoryStore(clock=clock), clock)
    opened: list[RestClient] = []

    async def make(**settings: Any) -> RestClient:
        settings = {"job_places": (f"file://{places}", "s3://lab/{user}/")} | settings
        client = RestClient(node, clock, *USERS, added=(JobSettings(**settings),))
        opened.append(await client.open())
        client.service.component(JobQueue).start(command)
        return client

    yield make
    for client in opened:
        await client.service.component(JobQueue).close()
        await client.close()
    await node.close()


@pytest.fixture
async def rest(open_node: Open) -> RestClient:
    client: RestClient = await open_node()
    return client


def import_body(places: Path, name: str, **options: Any) -> dict[str, Any]:
    """Return what asks for an import into ada's home."""
    source = f"file://{places}/run.h5"
    return {"kind": "import", "domain": f"/home/ada/{name}", "source": source, "options": options}


async def until(rest: RestClient, id: str, *states: str) -> Reply:
    """Ask how a job goes until it goes so."""
    while True:
        reply = await rest("GET", f"/jobs/{id}", user="admin")
        if reply["status"] in states:
            return reply
        assert "ended" not in reply.body, reply.body
