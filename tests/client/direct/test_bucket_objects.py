"""Objects of a bucket by obstore, and directories, against the store that wrote them."""

from __future__ import annotations

import pickle

import pytest

from hsparse.client.integrations.direct import bucket_objects
from hsparse.client.integrations.direct.bucket_objects import Bucket, BucketObjects
from hsparse.client.integrations.direct.object_reader import ObjectChanged, ObjectPlace, ObjectUnavailable
from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule
from hsparse.storage.s3.s3_store import S3Store
from tests.support.s3_servers import make_bucket

KEY = "db/a/d/b/0_0"


async def test_an_object_in_the_state_of_the_etag(moto_endpoint: str) -> None:
    make_bucket(moto_endpoint, "bucket-objects")
    bucket = Bucket("bucket-objects", moto_endpoint, "us-east-1", "test", "very-secret")
    store = await S3Store(
        bucket.name, endpoint=moto_endpoint, region="us-east-1", access_key="test", secret_key="very-secret"
    ).open()
    reader = BucketObjects(bucket)
    first = await store.put(KEY, b"first")
    assert reader.read(ObjectPlace(KEY, first)) == b"first"
    assert pickle.loads(pickle.dumps(reader)).read(ObjectPlace(KEY, first)) == b"first"
    second = await store.put(KEY, b"second")
    with pytest.raises(ObjectChanged):
        reader.read(ObjectPlace(KEY, first))
    assert reader.read(ObjectPlace(KEY, second)) == b"second"
    await store.delete(KEY)
    with pytest.raises(ObjectChanged):
        reader.read(ObjectPlace(KEY, second))
    await store.close()
    assert "secret" not in repr(bucket).replace("secret_key", "")
    reader.close()


def test_a_service_that_is_not_there() -> None:
    reader = BucketObjects(Bucket("b", "http://127.0.0.1:1", "us-east-1", "test", "test"))
    with pytest.raises(ObjectUnavailable, match="db/a/d/b/0_0"):
        reader.read(ObjectPlace(KEY, "abc"))


def test_an_endpoint_that_is_no_url() -> None:
    with pytest.raises(ValueError, match="is not the URL of an S3 service"):
        Bucket("b", "file:///nowhere")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_objects, "OBSTORE", OptionalModule("obstore_is_missing", "direct"))
    with pytest.raises(Misconfigured, match=r'pip install "hsparse\[direct\]"'):
        BucketObjects(Bucket("b"))


async def test_credentials_and_endpoint_of_the_environment(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bucket(moto_endpoint, "environment")
    store = await S3Store(
        "environment", endpoint=moto_endpoint, region="us-east-1", access_key="test", secret_key="test"
    ).open()
    etag = await store.put(KEY, b"data")
    await store.close()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": moto_endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    assert BucketObjects(Bucket("environment")).read(ObjectPlace(KEY, etag)) == b"data"
