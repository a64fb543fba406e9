"""Ceph's S3 server: the conformance suite, and what it does otherwise than S3."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from botocore.exceptions import ClientError

from demo.__main__ import main as demo
from hsparse.cli.stores import probed_bucket
from hsparse.errors import Misconfigured, NotFound
from hsparse.hdf5.exporter.multipart_upload import S3Upload
from hsparse.storage.conditional_put import LookBeforeDelete
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.s3.s3_store import S3Store
from tests.support.radosgw import PROGRAMS, radosgw_server
from tests.testing.store_conformance import *  # noqa: F403
from tests.testing.store_conformance import PAGE_SIZE

pytestmark = [pytest.mark.radosgw, pytest.mark.needs(*PROGRAMS)]

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with radosgw_server(tmp_path_factory.mktemp("ceph")) as url:
        yield url


@pytest.fixture
async def bucket(endpoint: str) -> AsyncIterator[S3Store]:
    """A fresh empty bucket, as it is before it is probed."""
    name = f"bucket-{next(NUMBERS)}"
    async with S3Store(
        name, endpoint=endpoint, region="us-east-1", access_key="test", secret_key="test", page_size=PAGE_SIZE
    ) as store:
        await store._client.create_bucket(Bucket=name)
        yield store


RADOSGW_CANNOT = {"test_no_update_is_lost_to_a_delete": "radosgw 16 has no conditional delete"}


@pytest.fixture
async def store(request: pytest.FixtureRequest, bucket: S3Store) -> ObjectStore:
    """The bucket as a server uses it."""
    if (reason := RADOSGW_CANNOT.get(request.node.originalname)) is not None:
        pytest.xfail(reason)
    return await probed_bucket(bucket)


async def test_what_the_probe_finds(bucket: S3Store) -> None:
    """It compares `If-Match` with the bare etag, and ignores it on deletes."""
    assert isinstance(await probed_bucket(bucket), LookBeforeDelete)
    assert bucket.bare_etags
    etag = await bucket.put("a", b"data")
    await bucket.delete_if_match("a", etag[::-1])
    with pytest.raises(ClientError, match="NoSuchKey"):
        await bucket._client.get_object(Bucket=bucket.name, Key="a")


async def test_the_demo(bucket: S3Store, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("ACCESS_KEY_ID", "test"),
        ("SECRET_ACCESS_KEY", "test"),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    assert await asyncio.to_thread(demo, ["--bucket", bucket.name, "--s3-endpoint", endpoint]) == 0


async def test_four_rights_suffice(bucket: S3Store, endpoint: str) -> None:
    """Another user, whom the owner gives the rights that the documentation names, is served."""
    rights = {
        "arn:aws:s3:::" + bucket.name: ["s3:ListBucket"],
        f"arn:aws:s3:::{bucket.name}/*": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
    }
    about = {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/guest"]}}
    statements = [{**about, "Action": actions, "Resource": place} for place, actions in rights.items()]
    guest = S3Store(
        bucket.name, endpoint=endpoint, region="us-east-1", access_key="guest", secret_key="guest"
    )
    async with guest:
        with pytest.raises(Misconfigured, match="denies s3:GetObject"):
            await guest.get("a")
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        await bucket._client.put_bucket_policy(Bucket=bucket.name, Policy=policy)
        store = await probed_bucket(guest)
        with pytest.raises(NotFound):
            await store.get("a")
        etag = await store.put_if_absent("a", b"data")
        assert [entry.etag async for page in store.list("") for entry in page.entries] == [etag]
        await store.delete_if_match("a", etag)


async def test_multipart_uploads(bucket: S3Store) -> None:
    """The condition of the completion is not looked at."""
    await bucket.put("target", b"there")
    upload = await S3Upload.begin(bucket, "target", "mark")
    parts = {1: await upload.put(1, bytes(5 << 20)), 2: await upload.put(2, b"end")}
    await upload.complete(parts, "mark", replace=False)
    assert (await bucket.get("target")).data == bytes(5 << 20) + b"end"
