"""hsload --link and h5pyd 1.0.0 against real servers: what is read is what h5py reads in the file."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import h5pyd
import numpy as np
import pytest

from hsparse.storage.s3.s3_store import S3Store
from tests.clients.h5pyd_tool import Ended, run_tool
from tests.clients.linked_file import dataset_names, make_file, random_selection
from tests.support.s3_servers import make_bucket
from tests.support.server_process import server_process

DOMAIN = "/home/admin/linked.h5"
KEY = "data/deep/all.h5"
LINKED = ("H5D_CONTIGUOUS_REF", "H5D_CHUNKED_REF", "H5D_CHUNKED_REF_INDIRECT")
COPIED = {"copied"}


@dataclass(frozen=True, slots=True)
class Site:
    """A server, its store's directory or bucket, and a copy of the file in the store to compare with."""

    url: str
    root: Path
    bucket: str
    file: Path

    def open(self, domain: str = DOMAIN) -> Any:
        return h5pyd.File(domain, "r", endpoint=self.url, username="admin", password="any", retries=1)

    def load(self, *arguments: str, lifted: bool = True) -> Ended:
        """Run hsload, in the store's root as its help says."""
        tool = "tests.clients.hsload_link" if lifted else "hsload"
        return run_tool(self.url, tool, *arguments, cwd=self.root)


@pytest.fixture(scope="module", params=["directory", "two data nodes", "bucket"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, moto_endpoint: str
) -> Iterator[Site]:
    """A server with the file in its store and loaded by --link."""
    root: Path = tmp_path_factory.mktemp("root")
    make_file(root / KEY)
    flags, variables = ["--root", str(root), "--no-fsync"], {}
    if request.param == "two data nodes":
        flags += ["--dn", "2"]
    bucket = root.name
    if request.param == "bucket":
        bucket = "linked-files"
        make_bucket(moto_endpoint, bucket)
        asyncio.run(put_object(moto_endpoint, bucket, KEY, (root / KEY).read_bytes()))
        flags = ["--bucket", bucket, "--s3-endpoint", moto_endpoint, "--s3-region", "us-east-1"]
        variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with server_process(*flags, **variables) as server:
        site = Site(server.url, root, bucket, root / KEY)
        way = ["--linkpath", f"s3://{bucket}/{KEY}"] if request.param == "bucket" else []
        loaded = site.load("--link", *way, KEY, DOMAIN)
        assert loaded.returncode == 0, loaded.stderr
        yield site
        assert server.stop() == 0


async def put_object(endpoint: str, bucket: str, key: str, data: bytes) -> None:
    store = S3Store(bucket, endpoint=endpoint, region="us-east-1", access_key="test", secret_key="test")
    await (await store.open()).put(key, data)
    await store.close()


def test_everything_is_linked_and_equal(site: Site) -> None:
    rng = np.random.default_rng(2)
    names = dataset_names(site.file)
    assert len(names) > 15
    with h5py.File(site.file) as file, site.open() as domain:
        assert domain.attrs["title"] == file.attrs["title"]
        for name in names:
            original, linked = file[name], domain[name]
            assert (linked.id.layout["class"] in LINKED) == (name not in COPIED), name
            assert linked.dtype == original.dtype, name
            np.testing.assert_array_equal(linked[...], original[...], err_msg=name)
            for _ in range(12):
                index = random_selection(rng, original.shape)
                np.testing.assert_array_equal(linked[index], original[index], err_msg=f"{name} {index}")


def test_fastlink_lets_the_server_find_the_chunks(site: Site) -> None:
    where = f"s3://{site.bucket}/{KEY}"
    for name, way in ("fast", ["--linkpath", where]), ("faster", []):
        if not way and site.bucket == "linked-files":
            continue  # a path of this machine is none of the bucket
        path = f"/home/admin/{name}.h5"
        loaded = site.load("--fastlink", *way, KEY, path)
        assert loaded.returncode == 0, loaded.stderr
        indirect = 0
        with h5py.File(site.file) as file, site.open(path) as domain:
            for dataset in set(dataset_names(site.file)) - COPIED:  # which hsload 1.0.0 then does not copy
                np.testing.assert_array_equal(domain[dataset][...], file[dataset][...], err_msg=dataset)
                indirect += domain[dataset].id.layout["class"] == LINKED[2]
        assert indirect > 5


def test_masks_and_points(site: Site) -> None:
    with h5py.File(site.file) as file, site.open() as domain:
        values = file["chunked/holes"][...]
        mask = values > 50
        np.testing.assert_array_equal(
            np.sort(domain["chunked/holes"][mask]), np.sort(file["chunked/holes"][...][mask])
        )


def test_nothing_is_written_into_the_file(site: Site) -> None:
    before = site.file.read_bytes()

    def write() -> None:
        with h5pyd.File(
            DOMAIN, "r+", endpoint=site.url, username="admin", password="any", retries=1
        ) as domain:
            domain["contiguous/f8"][0, 0] = 1.0

    with pytest.raises(OSError, match="400"):
        write()
    assert site.file.read_bytes() == before


def test_h5pyd_links_by_a_layout_given_as_chunks(site: Site) -> None:
    data = site.file.read_bytes()
    image = {
        "class": "H5D_CONTIGUOUS_REF",
        "file_uri": f"s3://{site.bucket}/{KEY}",
        "offset": 0,
        "size": len(data),
    }
    options = {"endpoint": site.url, "username": "admin", "password": "any", "retries": 1}
    with h5pyd.File("/home/admin/image.h5", "w", **options) as domain:
        domain.create_dataset("h5image", (len(data),), dtype="u1", chunks=image)
    with site.open("/home/admin/image.h5") as domain:
        assert domain["h5image"].chunks is None
        assert domain["h5image"][...].tobytes() == data
        assert domain["h5image"][1000:2000:3].tobytes() == data[1000:2000:3]


def test_hsload_1_0_0_ends_before_its_first_linked_dataset(site: Site) -> None:
    """When this fails, h5pyd has been mended: `hsload_link` and what docs/clients.md says of it can go."""
    ended = site.load("--link", KEY, "/home/admin/unlifted.h5", lifted=False)
    assert ended.returncode != 0
    assert "can be resizable" in ended.stderr


def test_a_file_that_is_not_in_the_store_is_named_by_a_read(site: Site, tmp_path: Path) -> None:
    other = shutil.copy(site.file, tmp_path / "other.h5")
    ended = site.load("--link", "--linkpath", "data/none.h5", str(other), "/home/admin/other.h5")
    assert ended.returncode == 0, ended.stderr
    with site.open("/home/admin/other.h5") as domain:
        np.testing.assert_array_equal(domain["copied"][...], np.arange(10))
        with pytest.raises(OSError, match="404"):
            domain["contiguous/f8"][...]
