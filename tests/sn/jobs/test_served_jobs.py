"""Jobs of a whole server: what they do, who may have them, what stops them and what is left then."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import Forbidden, Gone
from hsparse.model.acl import Principal
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from tests.cli.importer.domain_picture import domain_differences
from tests.cli.importer.mutated_file import Seed
from tests.cli.importer.test_command import write_large
from tests.support.file_upload import upload
from tests.support.rest_client import RestClient
from tests.support.s3_servers import make_bucket
from tests.support.server_process import ServerProcess, children_of, server_process
from tests.testing.manual_clock import ManualClock

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
        time.sleep(0.05)  # over HTTP nothing tells that a job has changed; asking without rest would slow it
        found = connection.json("GET", f"/jobs/{job['id']}")
    return found


def ended(connection: Connection, job: Job) -> Job:
    return until(connection, job, "done", "failed", "cancelled")


def write_small(path: Path) -> Path:
    """Write a file that is imported at once."""
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "small"
        file.create_dataset(
            "g/filtered", data=np.arange(600).reshape(20, 30), chunks=(5, 30), compression="gzip"
        )
        file["contiguous"] = np.arange(10.0)
        file["again"] = file["g"]
    return path


@pytest.fixture(params=["embedded", "two data nodes"])
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--dn", "2") if request.param == "two data nodes" else ()


def test_an_import_beyond_a_quota_fails_and_leaves_nothing(tmp_path: Path) -> None:
    with server(tmp_path, "--home-quota", "20KiB") as running, Connection(running.url) as connection:
        path, domain = write_small(tmp_path / "files" / "run.h5"), "/home/admin/run.h5"
        failed = ended(connection, post(connection, "import", domain, path, requests=2))
        assert (failed["status"], failed["error"]["kind"]) == ("failed", "over_quota"), failed
        assert "The quota of /home/admin is 20480 bytes" in failed["error"]["message"]
        with pytest.raises(Gone):
            connection.json("GET", "/", domain=domain)


def test_an_import_and_an_export(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with server(tmp_path, *flags) as running, Connection(running.url) as connection:
        path, domain = write_small(tmp_path / "files" / "run.h5"), "/home/admin/run.h5"
        first = post(connection, "import", domain, path, requests=2)
        assert first["status"] == "queued"
        done = ended(connection, first)
        assert done["status"] == "done", done
        assert done["done"] == done["total"] == path.stat().st_size
        assert done["messages"] == [f"Imported {path} into {domain}."]
        assert done["created"] <= done["begun"] <= done["ended"]
        with h5py.File(path) as file, Connection(running.url, domain) as imported:
            assert domain_differences(file, imported) == []
        target = tmp_path / "files" / "out.h5"
        done = ended(connection, post(connection, "export", domain, target, layout="stock"))
        assert done["status"] == "done", done
        assert done["done"] == done["total"] == target.stat().st_size
        with h5py.File(target) as file, Connection(running.url, domain) as exported:
            assert domain_differences(file, exported) == []
        listed = connection.json("GET", "/jobs")["jobs"]
        assert [job["kind"] for job in listed] == ["import", "export"]
        assert connection.json("DELETE", f"/jobs/{first['id']}") == {}
        with pytest.raises(Gone):
            connection.json("GET", f"/jobs/{first['id']}")
        with connection.response("GET", "/metrics") as answer:
            assert b'hsparse_jobs_total{kind="export",outcome="done"} 1.0' in answer.read()
        assert running.stop() == 0


def test_sources_are_read_below_the_places_only(tmp_path: Path) -> None:
    """Sources of virtual datasets and external data, also those that the file names by an absolute path."""
    files = tmp_path / "files"
    (files / "raw").mkdir(parents=True)
    for folder in (files / "raw", tmp_path):
        with h5py.File(folder / "s.h5", "w") as file:
            file["data"] = np.arange(6)
        (folder / "s.bin").write_bytes(np.arange(6).tobytes())
    with server(tmp_path) as running, Connection(running.url) as connection:
        for name, source, raw, outside in (
            ("inside", f"{files}/raw/s.h5", "raw/s.bin", ""),
            ("absolute", f"{tmp_path}/s.h5", "raw/s.bin", "s.h5"),
            ("relative", "../s.h5", "raw/s.bin", "s.h5"),
            ("external", "raw/s.h5", f"{tmp_path}/s.bin", "s.bin"),
            ("system", "raw/s.h5", "/etc/hostname", "hostname"),
        ):
            path, domain = files / f"{name}.h5", f"/home/admin/{name}.h5"
            with h5py.File(path, "w") as file:
                layout = h5py.VirtualLayout((6,), "<i8")
                layout[:] = h5py.VirtualSource(source, "data", (6,))
                file.create_virtual_dataset("v", layout)
                file.create_dataset("x", (6,), "<i8", external=[(raw, 0, 48)])
            done = ended(connection, post(connection, "import", domain, path))
            assert done["status"] == ("failed" if outside else "done"), done
            if outside:
                assert done["error"]["kind"] == "forbidden"
                assert f"{outside}' is outside of the places" in done["error"]["message"]
                continue
            with Connection(running.url, domain) as imported:
                for title in ("v", "x"):
                    id = imported.json("GET", "/datasets/", h5path=f"/{title}")["id"]
                    assert imported.json("GET", f"/datasets/{id}/value")["value"] == list(range(6))
        assert running.stop() == 0


async def test_an_import_from_s3(tmp_path: Path, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    make_bucket(moto_endpoint, "jobs")
    path, domain = write_small(tmp_path / "small.h5"), "/home/admin/small.h5"
    async with S3Store("jobs", endpoint=moto_endpoint, region="us-east-1") as store:
        for key in ("in/small.h5", "elsewhere/small.h5"):
            await store.put(key, path.read_bytes())
    service = ("--s3-endpoint", moto_endpoint, "--s3-region", "us-east-1", "--job-places", "s3://jobs/in/")
    with server(tmp_path, *service) as running, Connection(running.url) as connection:
        body = {"kind": "import", "domain": domain, "source": "s3://jobs/in/small.h5"}
        done = ended(connection, connection.json("POST", "/jobs", body))
        assert done["status"] == "done", done
        with h5py.File(path) as file, Connection(running.url, domain) as imported:
            assert domain_differences(file, imported) == []
        with pytest.raises(Forbidden, match="job_places"):
            connection.json("POST", "/jobs", body | {"source": "s3://jobs/elsewhere/small.h5"})
        assert running.stop() == 0


def begun_import(connection: Connection, tmp_path: Path) -> Job:
    """Post an import that takes a while, and wait until its domain is there."""
    path = tmp_path / "files" / "large.h5"
    write_large(path)
    job = post(connection, "import", "/home/ada/large.h5", path, requests=1)
    while "/home/ada/large.h5" not in domains(connection):
        continue
    return job


def domains(connection: Connection) -> list[str]:
    found = connection.json("GET", "/domains", domain="/home/ada/")["domains"]
    return [one["name"] for one in found]


@pytest.fixture
def sign_in(tmp_path: Path) -> tuple[str, ...]:
    """The flags of a server at which ada can sign in."""
    PasswordFile(tmp_path / "passwords").put(User("ada", PasswordHash().hash(SECRET), False, ()))
    return ("--password-file", str(tmp_path / "passwords"))


def ada(running: ServerProcess) -> Connection:
    return Connection(running.url, user="ada", password=SECRET)


def test_a_cancelled_import_leaves_no_domain(tmp_path: Path, sign_in: tuple[str, ...]) -> None:
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        job = begun_import(connection, tmp_path)
        connection.json("DELETE", f"/jobs/{job['id']}")
        assert ended(connection, job)["status"] == "cancelled"
        assert domains(connection) == []
        assert running.stop() == 0


def test_a_cancelled_copy_leaves_no_domain(tmp_path: Path, sign_in: tuple[str, ...]) -> None:
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        path, domain, copy = tmp_path / "files" / "large.h5", "/home/ada/large.h5", "/home/ada/copy.h5"
        write_large(path)
        assert ended(connection, post(connection, "import", domain, path))["status"] == "done"
        job = connection.json("POST", "/jobs", {"kind": "copy", "domain": copy, "source": domain})
        while copy not in domains(connection):
            continue
        connection.json("DELETE", f"/jobs/{job['id']}")
        assert ended(connection, job)["status"] == "cancelled"
        assert domains(connection) == [domain]
        assert running.stop() == 0


def test_ten_damaged_uploads(tmp_path: Path, sign_in: tuple[str, ...]) -> None:
    """Each is refused or imported, nothing else is left, and the server answers as before."""
    seed = Seed("small", write_small(tmp_path / "small.h5").read_bytes())
    with server(tmp_path, *sign_in, "--jobs-at-once", "2", "--jobs-of-user", "16") as running:
        with ada(running) as connection:
            jobs, left = {}, set()
            for number in range(10):
                domain = f"/home/ada/{number}.h5"
                _, data = seed.mutated(np.random.default_rng(number))
                body = {
                    "kind": "import",
                    "domain": domain,
                    "source": upload(connection, f"{domain}.upload", data),
                }
                jobs[domain] = connection.json("POST", "/jobs", body)
            statuses = set()
            for domain, job in jobs.items():
                done = ended(connection, job)
                statuses.add(done["status"])
                left.add(domain if done["status"] == "done" else f"{domain}.upload")
                assert done["status"] == "done" or done["error"]["kind"] in ("corrupt", "unsupported"), done
            assert statuses == {"done", "failed"}
            assert {*domains(connection)} == left
        assert running.stop() == 0


def test_a_server_that_stops_ends_its_jobs(tmp_path: Path, sign_in: tuple[str, ...]) -> None:
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        job = begun_import(connection, tmp_path)
        assert running.stop() == 0
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        found = connection.json("GET", f"/jobs/{job['id']}")
        assert (found["status"], found["error"]["kind"]) == ("failed", "busy")
        assert domains(connection) == []
        assert running.stop() == 0


def processes_of_jobs(running: ServerProcess) -> list[Path]:
    """Return the entries in /proc of the server's processes that do jobs."""
    entries = [Path(f"/proc/{pid}") for pid in children_of(running.pid)]
    return [entry for entry in entries if b"--piped" in (entry / "cmdline").read_bytes().split(b"\0")]


async def test_a_killed_server_loses_a_job_and_another_goes_on_with_it(
    tmp_path: Path, sign_in: tuple[str, ...]
) -> None:
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        job = begun_import(connection, tmp_path)
        (entry,) = processes_of_jobs(running)
        seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        end = os.pidfd_open(int(entry.name))
        running.kill()
        await until_readable(end)  # it ends when its server is gone
    log = (tmp_path / "log").read_bytes()
    records = b"".join(path.read_bytes() for path in (tmp_path / "root" / "db" / ".jobs").iterdir())
    assert b"large.h5" in records
    for secret in (SECRET.encode(), base64.b64encode(f"ada:{SECRET}".encode())):
        for text in (seen, log, records):
            assert secret not in text
    assert await status_later(tmp_path / "root", job) == "lost"
    with server(tmp_path, *sign_in) as running, ada(running) as connection:
        path, domain = tmp_path / "files" / "large.h5", "/home/ada/large.h5"
        again = ended(connection, post(connection, "import", domain, path, resume=True))
        assert again["status"] == "done", again
        with (
            h5py.File(path) as file,
            Connection(running.url, domain, user="ada", password=SECRET) as imported,
        ):
            assert domain_differences(file, imported) == []
        assert running.stop() == 0


async def until_readable(descriptor: int) -> None:
    """Wait until a descriptor can be read, and close it."""
    readable = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, readable.set)
    await readable.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


async def status_later(root: Path, job: Job) -> str:
    """Return how a job goes as a node sees it an hour from now."""
    clock = ManualClock(SystemClock().now() + 3600)
    async with RestClient(DataService(PosixStore(root), clock), clock, Principal("ada")) as rest:
        return str((await rest("GET", f"/jobs/{job['id']}"))["status"])
