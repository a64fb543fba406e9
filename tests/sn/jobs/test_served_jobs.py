"""Jobs of a whole server: what they do, who may have them, what stops them and what is left then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.clock import ManualClock, SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import Forbidden, Gone, HsparseError, NotFound, Unauthenticated
from hsparse.model.principal import Principal
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.storage.posix import PosixStore
from hsparse.testing.rest_client import RestClient
from hsparse.testing.server_process import ServerProcess, children_of, server_process
from tests.cli.importer.domain_content import domain_differences
from tests.cli.importer.test_command import write_file, write_large

SECRET = "correct horse battery"
Job = dict[str, Any]


@contextmanager
def server(tmp_path: Path, *flags: str) -> Iterator[ServerProcess]:
    """Run a server whose jobs have the folder `files`, and log into the file `log`."""
    (tmp_path / "files").mkdir(exist_ok=True)
    own = ("--root", str(tmp_path / "root"), "--no-fsync", "--job-places", f"file://{tmp_path}/files/")
    with server_process(*own, *flags, log=tmp_path / "log") as running:
        yield running


def post(connection: Connection, kind: str, domain: str, path: Path, **options: Any) -> Job:
    place = {"import": "source", "export": "target"}[kind]
    body = {"kind": kind, "domain": domain, place: f"file://{path}", "options": options}
    return connection.json("POST", "/jobs", body)


def until(connection: Connection, job: Job, *states: str) -> Job:
    """Ask how a job goes until it goes so."""
    found = job
    while found["status"] not in states:
        assert "ended" not in found, found
        found = connection.json("GET", f"/jobs/{job['id']}")
    return found


def ended(connection: Connection, job: Job) -> Job:
    return until(connection, job, "done", "failed", "cancelled")


@pytest.fixture(params=["embedded", "two data nodes"])
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--dn", "2") if request.param == "two data nodes" else ()


def test_an_import_and_an_export(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with server(tmp_path, *flags) as running, Connection(running.url) as connection:
        path, domain = write_file(tmp_path / "files" / "run.h5"), "/home/admin/run.h5"
        first = post(connection, "import", domain, path, requests=2)
        assert first["status"] == "queued"
        second = post(connection, "import", "/home/admin/other.h5", path)
        done = ended(connection, first)
        assert done["status"] == "done", done
        assert done["done"] == done["total"] == path.stat().st_size
        assert done["messages"] == [f"Imported {path} into {domain}."]
        assert done["created"] <= done["begun"] <= done["ended"]
        with h5py.File(path) as file, Connection(running.url, domain) as imported:
            assert domain_differences(file, imported) == []
        assert ended(connection, second)["status"] == "done"
        target = tmp_path / "files" / "out.h5"
        done = ended(connection, post(connection, "export", domain, target, layout="stock"))
        assert done["status"] == "done", done
        assert done["done"] == done["total"] == target.stat().st_size
        with h5py.File(target) as file, Connection(running.url, domain) as exported:
            assert domain_differences(file, exported) == []
        again = ended(connection, post(connection, "export", domain, target))
        assert again["error"]["message"].startswith(f"{target} exists")
        assert ended(connection, post(connection, "export", domain, target, force=True))["status"] == "done"
        listed = connection.json("GET", "/jobs")["jobs"]
        assert [job["id"] for job in listed[:2]] == [first["id"], second["id"]]
        assert len(listed) == 5
        assert connection.json("DELETE", f"/jobs/{first['id']}") == {}
        with pytest.raises(Gone):
            connection.json("GET", f"/jobs/{first['id']}")
        text = connection.response("GET", "/metrics")
        with text as answer:
            assert b'hsparse_jobs_total{kind="export",outcome="failed"} 1.0' in answer.read()
        assert running.stop() == 0


def domains(connection: Connection) -> list[str]:
    found = connection.json("GET", "/domains", domain="/home/admin/")["domains"]
    return [one["name"] for one in found]


def held_import(connection: Connection, tmp_path: Path) -> tuple[Job, Path]:
    """Post an import that does not come to its end by itself: of a file that is a pipe."""
    path = tmp_path / "files" / "held.h5"
    write_large(path)
    return post(connection, "import", "/home/admin/held.h5", path, requests=1), path


def test_a_cancelled_import_leaves_no_domain(tmp_path: Path) -> None:
    with server(tmp_path) as running, Connection(running.url) as connection:
        job, path = held_import(connection, tmp_path)
        waits = post(connection, "import", "/home/admin/waits.h5", path)
        assert connection.json("DELETE", f"/jobs/{waits['id']}")["status"] in ("queued", "running")
        assert ended(connection, waits)["status"] in ("cancelled", "running")
        while "/home/admin/held.h5" not in domains(connection):
            continue
        connection.json("DELETE", f"/jobs/{job['id']}")
        assert ended(connection, job)["status"] == "cancelled"
        assert domains(connection) == []
        assert running.stop() == 0
