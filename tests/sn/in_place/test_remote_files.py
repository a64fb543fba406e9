"""Files of a bucket are domains: what is listed and read, how many requests that takes, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.config import load_settings
from hsparse.hdf5.in_place import looked_names
from hsparse.hdf5.in_place.places import MAX_SINGLE_HEADS, named_folders
from hsparse.storage.s3.s3_store import S3Store
from tests.sn.in_place.conftest import DATA, ask, listed
from tests.support.s3_servers import Answer, Application, make_bucket, moto_server

BUCKET = "served"
READ = ["s3:GetObject", "s3:HeadObject"]
"""The right to read; moto asks for another one, which S3 does not know, for a HEAD."""
PUBLIC = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": READ, "Resource": "arn:aws:s3:::*"}],
}
FILES = 100
OBJECTS = 200
NAMELESS = 20


@dataclass
class Server:
    """An S3 server, the requests that it was asked, and the URL of the hsparse server that has its files."""

    endpoint: str = ""
    url: str = ""
    asked: list[str] = field(default_factory=list)
    denied: str = ""
    """What is in the requests that are denied."""
    signed: int = 0

    def around(self, application: Application) -> Application:
        def answer(environ: dict[str, Any]) -> Answer:
            query = environ.get("QUERY_STRING", "")
            self.signed += "HTTP_AUTHORIZATION" in environ
            if self.denied and self.denied in query:
                body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
                return "403 Forbidden", [("Content-Type", "application/xml")], body
            self.asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' * bool(query)}{query}")
            return application(environ)

        return answer

    def put(self, files: dict[str, Path]) -> None:
        async def send() -> None:
            async with S3Store(BUCKET, endpoint=self.endpoint, region="us-east-1") as store:
                await store._client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(PUBLIC))
                for key, path in files.items():
                    await store.put(key, path.read_bytes())

        asyncio.run(send())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place, server = tmp_path_factory.mktemp("files"), Server()
    with pytest.MonkeyPatch.context() as patch, moto_server(around=server.around) as server.endpoint:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        make_bucket(server.endpoint, BUCKET)
        server.put(_made(place))
        files = (f"runs=s3://{BUCKET}/data/", f"s3://{BUCKET}")
        settings = _settings(server, tmp_path_factory.mktemp("root"), *files)
        with embedded_server(settings) as server.url:
            yield server


def _settings(server: Server, root: Path, *files: str, **more: Any) -> Any:
    service = {"s3_endpoint": server.endpoint, "s3_region": "us-east-1"}
    return load_settings(root=root, port=0, fsync=False, files=files, **service, **more)


def write_objects(path: Path, count: int, chunk: int) -> None:
    """Write `OBJECTS` objects, half of them datasets of `count` elements."""
    with h5py.File(path, "w") as file:
        for number in range(OBJECTS // 2):
            group = file.create_group(f"g{number}")
            group.attrs["number"] = number
            group.create_dataset("x", data=np.arange(number, number + count), chunks=(chunk,))


def _made(place: Path) -> dict[str, Path]:
    """Return files by the keys that they are to have."""
    run, objects = place / "run.h5", place / "objects.h5"
    with h5py.File(run, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(64, 32), compression="gzip")
        file.attrs["n"] = 3
    write_objects(objects, 1000, 100)
    layout = h5py.VirtualLayout((600, 100), "<i4")
    layout[...] = h5py.VirtualSource("run.h5", "x", (600, 100))
    with h5py.File(place / "virtual.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    layout[...] = h5py.VirtualSource("../../above.h5", "x", (600, 100))
    with h5py.File(place / "up.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    (place / "notes").write_text("no HDF5 file")
    (place / "empty").touch()
    found = {f"plain/{name}": place / name for name in ("notes", "empty")}
    found |= {f"plain/{number}": run for number in range(NAMELESS)}
    found |= {f"data/many/{number:03}.h5": run for number in range(FILES)}
    return found | {
        "above.h5": run,
        "data/sub/run.h5": run,
        "data/sub/virtual.h5": place / "virtual.h5",
        "data/sub/up.h5": place / "up.h5",
        "data/sub/.hidden.h5": run,
        "data/.hidden/run.h5": run,
        "data/notes.txt": run,
        "data/objects.h5": objects,
    }


def test_prefixes_list_what_is_served(server: Server) -> None:
    assert {"runs", BUCKET} <= set(listed(server.url, "/"))
    assert {"many", "objects.h5", "sub"} <= set(listed(server.url, "/runs/"))
    assert listed(server.url, "/runs/sub/") == ["run.h5", "up.h5", "virtual.h5"]
    assert listed(server.url, f"/{BUCKET}/") == ["above.h5", "data", "plain"]


def test_names_without_a_suffix_are_looked_at_once(server: Server) -> None:
    files = sorted(map(str, range(NAMELESS)))
    server.asked.clear()
    assert listed(server.url, f"/{BUCKET}/plain/") == files
    assert len([one for one in server.asked if one.startswith(f"GET /{BUCKET}/plain/")]) == NAMELESS + 1
    server.asked.clear()
    assert listed(server.url, f"/{BUCKET}/plain/") == files
    assert not any(one.startswith(f"GET /{BUCKET}/plain/") for one in server.asked), "etags tell their states"
    with hsparse.open(f"{server.url}/{BUCKET}/plain/7") as file:
        assert np.array_equal(file["x"][3], DATA[3])
    status, answer = ask(server.url, f"/?domain=/{BUCKET}/plain/notes")
    assert (status, "not an HDF5 file" in str(answer)) == (400, True)
    assert ask(server.url, f"/?domain=/{BUCKET}/plain/none")[0] == 404


def test_few_names_are_looked_at_for_a_listing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put({f"few/{number}": next(Path(__file__).parent.glob("*.py")) for number in range(10)})
    monkeypatch.setattr(looked_names, "MOST_LOOKED", 4)
    for left in (4, 4, 2, 0):
        server.asked.clear()
        assert listed(server.url, f"/{BUCKET}/few/") == []
        assert len([one for one in server.asked if one.startswith(f"GET /{BUCKET}/few/")]) == left


def test_a_listing_is_one_request(server: Server) -> None:
    server.asked.clear()
    assert len(listed(server.url, "/runs/many/")) == FILES
    listings = [one for one in server.asked if "list-type" in one]
    assert len(server.asked) == len(listings) <= 2, "one says that the folder is there"


def test_files_that_are_asked_for_together_are_one_listing(server: Server, tmp_path: Path) -> None:
    """A data node in a process of its own gets them by a message of its own."""
    store = _settings(server, tmp_path).store
    folder = named_folders([f"runs=s3://{BUCKET}/data"], store)["runs"]
    trace = begin_trace(RequestTrace("x"))
    try:
        server.asked.clear()
        found = [folder.state(f"many/{number:03}.h5") for number in range(FILES)]
        assert len(server.asked) == MAX_SINGLE_HEADS + 1, server.asked
        assert folder.state("many") is None
    finally:
        end_trace(trace)
        folder.close()
    assert len({one.etag for one in found if one}) == 1
    assert None not in found


@pytest.mark.parametrize("name", ["objects.h5", "spread.h5"])
def test_objects_are_read_by_few_requests(server: Server, tmp_path: Path, name: str) -> None:
    """They are so where the headers are between 52 MB of values, too."""
    if name == "spread.h5":
        write_objects(tmp_path / name, 64 * 1024, 16 * 1024)
        server.put({f"data/{name}": tmp_path / name})
    server.asked.clear()
    with hsparse.open(f"{server.url}/runs/{name}") as file:
        found = []
        file.visititems(lambda name, one: found.append((name, dict(one.attrs))))
    assert len(found) == OBJECTS
    assert dict(found)["g7"] == {"number": 7}
    assert len(server.asked) <= 6, server.asked


def test_values_are_those_of_the_file(server: Server) -> None:
    with hsparse.open(f"{server.url}/runs/sub/run.h5") as file:
        assert np.array_equal(file["x"][5:300, ::7], DATA[5:300, ::7])
        assert dict(file.attrs) == {"n": 3}
    with hsparse.open(f"{server.url}/runs/sub/virtual.h5") as file:
        assert np.array_equal(file["v"][...], DATA)


def test_a_source_above_the_prefix_is_refused(server: Server) -> None:
    with (
        hsparse.open(f"{server.url}/runs/sub/up.h5") as file,
        pytest.raises(hsparse.HsparseError, match=r"above\.h5' is outside of the places"),
    ):
        file["v"][0]
    with hsparse.open(f"{server.url}/{BUCKET}/data/sub/up.h5") as file:
        assert np.array_equal(file["v"][0], DATA[0]), "the place is the whole bucket"


@pytest.mark.parametrize("name", ["none.h5", "none/run.h5", ".hidden/run.h5", "sub/.hidden.h5", "many/none"])
def test_what_is_not_there(server: Server, name: str) -> None:
    found, message = ask(server.url, f"/groups?domain=/runs/{name}")
    assert (found, f"/runs/{name}" in message) == (404, True), message


def test_an_object_that_is_changed_is_another_domain(server: Server, tmp_path: Path) -> None:
    def put(value: int) -> None:
        with h5py.File(tmp_path / "run.h5", "w") as file:
            file["x"] = np.full(100_000, value)
        server.put({"data/live/run.h5": tmp_path / "run.h5"})

    put(1)
    with hsparse.open(f"{server.url}/runs/live/run.h5") as file:
        old = file["x"]
        put(2)
        with pytest.raises(hsparse.HsparseError, match="is not in the domain"):
            old[0]
    with hsparse.open(f"{server.url}/runs/live/run.h5") as file:
        assert file["x"][0] == 2


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://none/data", "There is no bucket 'none'"),
        (f"s3://{BUCKET}/none", "no keys have this prefix"),
        ("s3://", "must have the form s3://bucket/prefix"),
        (f"s3://{BUCKET}/../up", "must have the form s3://bucket/prefix"),
    ],
)
def test_places_that_cannot_be_served(
    server: Server, tmp_path: Path, place: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_command(server, tmp_path, f"runs={place}")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"--files {place}" in lines[0]
    assert said in lines[0]


def test_keys_that_may_not_list(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "denied", "list-type")
    assert main(_command(server, tmp_path, f"s3://{BUCKET}")) == 2
    assert f"--files s3://{BUCKET}: The bucket '{BUCKET}' denies s3:ListBucket" in capsys.readouterr().err


def _command(server: Server, root: Path, files: str) -> list[str]:
    flags = ["--root", str(root), "--port", "0", "--s3-endpoint", server.endpoint]
    return ["serve", *flags, "--s3-region", "us-east-1", "--files", files]


@pytest.fixture
def no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_keys")
def test_without_keys(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_command(server, tmp_path, f"s3://{BUCKET}")) == 2
    assert f"There are no usable credentials for the bucket '{BUCKET}'" in capsys.readouterr().err


@pytest.mark.usefixtures("no_keys")
def test_a_public_bucket_is_read_unsigned(server: Server, tmp_path: Path) -> None:
    signed = server.signed
    settings = _settings(server, tmp_path, f"runs=s3://{BUCKET}/data", unsigned=True)
    with embedded_server(settings) as url, hsparse.open(f"{url}/runs/sub/run.h5") as file:
        assert np.array_equal(file["x"][...], DATA)
    assert server.signed == signed
