"""Datasets with chunks in several buckets, or directories, of a whole server."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.storage.s3.s3_store import S3Store
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import plain_settings
from tests.docs_pages import blocks
from tests.support.s3_servers import make_bucket

NUMBERS = itertools.count()
MATRIX = scipy.sparse.random_array((60, 40), density=0.2, rng=np.random.default_rng(5), format="csr")


NOTED = "db/.stripe-places/"
"""Notes of places that were ever used, which stay."""
Names = tuple[str, str, str]


@dataclass
class Place:
    """Three buckets `names`, the first of which is served by default: `keys` returns what one has but its schema."""

    names: Names
    settings: StoreSettings
    keys: Callable[[str], set[str]]

    @property
    def stripes(self) -> list[str]:
        first, second, third = self.names
        return [second, f"{third}/deep/prefix", first]


def in_directories(tmp_path: Path, names: Names = ("data", "second", "third")) -> Place:
    for name in names:
        (tmp_path / name).mkdir()

    def keys(name: str) -> set[str]:
        found = (one for one in (tmp_path / name).rglob("*") if one.is_file())
        keys = (str(one.relative_to(tmp_path / name)) for one in found)
        return {key for key in keys if not key.startswith((".hsparse", NOTED))}

    return Place(names, StoreSettings(root=tmp_path / "data", bucket=names[1:], fsync=False), keys)


def in_buckets(endpoint: str) -> Place:
    number = next(NUMBERS)
    first, second, third = (f"stripes-{number}-{name}" for name in ("data", "second", "third"))
    for name in (first, second, third):
        make_bucket(endpoint, name)

    async def listed(name: str) -> set[str]:
        options = {"access_key": "test", "secret_key": "test"}
        async with S3Store(name, endpoint=endpoint, region="us-east-1", **options) as store:
            keys = {entry.key async for page in store.list("") for entry in page.entries}
            return {key for key in keys if not key.startswith(NOTED)}

    settings = StoreSettings(bucket=(first, second, third), s3_endpoint=endpoint, s3_region="us-east-1")
    return Place((first, second, third), settings, lambda name: asyncio.run(listed(name)))


@pytest.fixture(params=["directories", "buckets"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    if request.param == "directories":
        return in_directories(tmp_path)
    return in_buckets(request.getfixturevalue("moto_endpoint"))


EXTENT = (60, 40)


def create(connection: Connection, stripes: Any, path: str = "/x") -> hsparse.SparseDataset:
    x = hsparse.SparseDataset.create(
        connection, path, EXTENT, "f8", (14, 18), maxshape=(None, 40), stripes=stripes
    )
    x[:] = MATRIX
    return x


def domain(url: str, path: str) -> Connection:
    connection = Connection(url, path)
    connection.json("PUT", "/", {})
    return connection


def chunks_in(place: Place) -> list[set[str]]:
    """Return the keys of the chunks that datasets have in each bucket by name."""
    return [{key for key in place.keys(name) if "db/.stripes/" in key} for name in place.names]


def test_it_works_as_one_and_nothing_is_left(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with embedded_server(plain_settings(place.settings)) as url:
        empty = [place.keys(name) for name in place.names]
        with domain(url, "/run.h5") as connection:
            x = create(connection, place.stripes)
            found = chunks_in(place)
            assert all(found)
            assert all(key.startswith("deep/prefix/db/.stripes/") for key in found[2])
            answer = connection.json("GET", f"/datasets/{x.id}/chunks", urls=None)
            keys = {(row["bucket"], row["key"]) for row in answer["chunks"]}
            assert keys == {
                (name, key) for name, some in zip(place.names, found, strict=True) for key in some
            }
            x.append(MATRIX[:13])
            expected = scipy.sparse.vstack([MATRIX, MATRIX[:13]]).toarray()
            np.testing.assert_array_equal(x[:].toarray(), expected)
            assert main(["info", "/run.h5/x", "--endpoint", url]) == 0
            assert f"3 stripes in {', '.join(place.stripes)}" in capsys.readouterr().out
            assert main(["cp", "/run.h5", "/copy.h5", "--endpoint", url]) == 0
            with Connection(url, "/copy.h5") as copy:
                np.testing.assert_array_equal(hsparse.SparseDataset.open(copy, "/x")[:].toarray(), expected)
            connection.json("DELETE", f"/datasets/{x.id}")
            assert chunks_in(place) == [set(), set(), set()]
            create(connection, place.stripes, "/y")
            assert all(chunks_in(place))
            connection.json("DELETE", "/")
        with Connection(url, "/copy.h5") as copy:
            copy.json("DELETE", "/")
    assert [place.keys(name) - was for name, was in zip(place.names, empty, strict=True)] == [set()] * 3


def test_maps_and_urls_lead_to_each_bucket(place: Place) -> None:
    with embedded_server(plain_settings(place.settings)) as url, domain(url, "/run.h5") as connection:
        x = create(connection, place.stripes)
        layout = {"class": "H5D_CHUNKED", "dims": [4, 4], "enlarge": False, "stripes": place.stripes}
        body = {"type": "H5T_STD_I32LE", "shape": [8, 8], "creationProperties": {"layout": layout}}
        more = {"value": np.arange(64).reshape(8, 8).tolist(), "h5path": "/dense"}
        dense = connection.json("POST", "/datasets", body=body | more)
        refs = connection.json("GET", "/map", format="kerchunk")["refs"]
        found = {ref[0] for name, ref in refs.items() if name.startswith("dense/") and isinstance(ref, list)}
        assert {one.split("/")[2] for one in found} == set(place.names)
        assert all(one.split("/", 3)[3] in place.keys(one.split("/")[2]) for one in found)
        with pytest.raises(hsparse.Unsupported, match="leave base out"):
            connection.json("GET", f"/datasets/{dense['id']}/map", format="kerchunk", base="/data/")
        if place.settings.root is not None:
            return
        rows = connection.json("GET", f"/datasets/{x.id}/chunks", urls=60)["chunks"]
        assert {row["bucket"] for row in rows} == set(place.names)
        for row in rows:
            with urllib.request.urlopen(row["url"]) as reply:
                assert reply.headers["ETag"].strip('"') == row["etag"]
        direct = hsparse.open(f"{url}/run.h5", direct=True)["x"]
        np.testing.assert_array_equal(direct[:].toarray(), MATRIX.toarray())


def sweep_of(tmp_path: Path) -> list[str]:
    """Return the command that sweeps the directories at once."""
    flags = ["--root", str(tmp_path / "data"), "--bucket", "second", "--bucket", "third", "--no-fsync"]
    return ["sweep", *flags, "--min-age", "0"]


def test_a_sweep_finds_what_is_left_in_every_directory(tmp_path: Path) -> None:
    place = in_directories(tmp_path)
    with embedded_server(plain_settings(place.settings)) as url:
        empty = [place.keys(name) for name in place.names]
        for path in ("/lost.h5", "/kept.h5"):
            with domain(url, path) as connection:
                x = create(connection, place.stripes)
    (tmp_path / "data/lost.h5/.domain.json").unlink()
    before = chunks_in(place)
    assert all(before)
    assert main(sweep_of(tmp_path)) == 0
    after = chunks_in(place)
    assert [len(keys) * 2 for keys in after] == [len(keys) for keys in before]
    with embedded_server(plain_settings(place.settings)) as url, Connection(url, "/kept.h5") as connection:
        x = hsparse.SparseDataset.open(connection, "/x")
        np.testing.assert_array_equal(x[:].toarray(), MATRIX.toarray())
        connection.json("DELETE", "/")
    assert [place.keys(name) - was for name, was in zip(place.names, empty, strict=True)] == [set()] * 3


async def remove_bucket(endpoint: str, name: str) -> None:
    async with S3Store(name, endpoint=endpoint, region="us-east-1", access_key="a", secret_key="b") as store:
        async for page in store.list(""):
            await store.delete_all(page.entries)
        await store._client.delete_bucket(Bucket=name)


def test_a_bucket_that_fails_fails_alone_and_is_named(place: Place) -> None:
    second, settings = place.names[1], plain_settings(place.settings)
    with embedded_server(settings) as url, domain(url, "/run.h5") as connection:
        create(connection, place.stripes)
        create(connection, place.stripes[1:], "/others")
    with embedded_server(settings) as url, Connection(url, "/run.h5") as connection:
        if place.settings.root is None:
            asyncio.run(remove_bucket(str(place.settings.s3_endpoint), second))
        else:
            root = place.settings.root.parent / second
            root.rename(root.with_name("away"))
            root.mkdir()  # as where nothing is mounted
        x, others = (hsparse.SparseDataset.open(connection, path) for path in ("/x", "/others"))
        calls: list[Callable[[], Any]] = [
            lambda: x[:],
            lambda: x[0:7, 0:9],
            lambda: x.__setitem__((slice(0, 14), slice(0, 18)), MATRIX[:14, :18]),
            lambda: x.append(MATRIX),
            lambda: connection.json("GET", f"/datasets/{x.id}/chunks"),
            lambda: connection.json("GET", f"/datasets/{x.id}/map"),
            lambda: create(connection, [second], "/z"),
        ]
        for call in calls:
            with pytest.raises(hsparse.HsparseError, match=second):
                call()
        np.testing.assert_array_equal(others[:].toarray(), MATRIX.toarray())
        others[:] = 2 * MATRIX
        np.testing.assert_array_equal(others[:].toarray(), 2 * MATRIX.toarray())
        np.testing.assert_array_equal(x[0:14, 18:36].toarray(), MATRIX[0:14, 18:36].toarray())
        if place.settings.root is not None:
            shutil.rmtree(root)
            root.with_name("away").rename(root)
            np.testing.assert_array_equal(x[:].toarray(), MATRIX.toarray())


def test_a_server_without_the_bucket_refuses_the_dataset_and_not_the_domain(tmp_path: Path) -> None:
    place = in_directories(tmp_path)
    with embedded_server(plain_settings(place.settings)) as url, domain(url, "/run.h5") as connection:
        create(connection, place.stripes)
        create(connection, 1, "/plain")
    alone = StoreSettings(root=tmp_path / "data", fsync=False)
    (tmp_path / "data").rename(tmp_path / "renamed")
    renamed = StoreSettings(root=tmp_path / "renamed", bucket=place.names[1:], fsync=False)
    for settings, reason in ((alone, "'second', which is not served"), (renamed, "in the bucket 'data'")):
        assert settings.root is not None
        if not settings.root.exists():
            (tmp_path / "renamed").rename(settings.root)
        with embedded_server(plain_settings(settings)) as url, Connection(url, "/run.h5") as connection:
            with pytest.raises(hsparse.Unsupported, match=reason):
                hsparse.SparseDataset.open(connection, "/x")
            plain = hsparse.SparseDataset.open(connection, "/plain")
            np.testing.assert_array_equal(plain[:].toarray(), MATRIX.toarray())
        settings.root.rename(tmp_path / "renamed")
    (tmp_path / "renamed").rename(tmp_path / "data")
    with embedded_server(plain_settings(alone)) as url, Connection(url, "/run.h5") as connection:
        connection.json("DELETE", "/")
    assert any(chunks_in(place)), "who does not have a bucket leaves what is there to a sweep"
    assert (main(sweep_of(tmp_path)), chunks_in(place)) == (0, [set()] * 3)


def test_the_example_of_the_page(tmp_path: Path) -> None:
    place = in_directories(tmp_path, ("experiment", "archive", "scratch"))
    (example,) = blocks("docs/deploy.md", "python")
    with embedded_server(plain_settings(place.settings)) as url, hsparse.open(f"{url}/run.h5", "w") as f:
        exec(example, {"f": f})
        f["frames"].append(np.ones((3, 4096, 4096), "u2"))
    assert [bool(keys) for keys in chunks_in(place)] == [False, True, True]


def test_a_snapshot_shows_chunks_as_they_were(tmp_path: Path) -> None:
    place = in_directories(tmp_path)
    settings = plain_settings(place.settings)
    with embedded_server(settings) as url, domain(url, "/run.h5") as connection:
        empty = [len(keys) for keys in chunks_in(place)]
        x = create(connection, place.stripes)
        gone = create(connection, place.stripes, "/gone")
        assert connection.json("POST", "/snapshots", {"message": "before"})["snapshot"] == 1
        x[0:30] = 2 * MATRIX[0:30]
        x.append(MATRIX)
        connection.json("DELETE", f"/datasets/{gone.id}")
        with Connection(url, "/run.h5@1") as then:
            for path in ("/x", "/gone"):
                old = hsparse.SparseDataset.open(then, path)
                np.testing.assert_array_equal(old[:].toarray(), MATRIX.toarray())
                assert len(then.json("GET", f"/datasets/{old.id}/chunks")["chunks"]) == 15
        np.testing.assert_array_equal(x[0:30].toarray(), 2 * MATRIX[0:30].toarray())
        connection.json("DELETE", "/snapshots/1")
        connection.json("DELETE", f"/datasets/{x.id}")
        assert [len(keys) for keys in chunks_in(place)] == empty
