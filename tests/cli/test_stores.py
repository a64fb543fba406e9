"""How buckets are named and opened, and the form of etags that a server compares."""

from __future__ import annotations

import pytest

from hsparse.cli import stores
from hsparse.cli.stores import probed_bucket
from hsparse.errors import HsparseError, Misconfigured, PreconditionFailed, StoreFailed
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import Buffer
from hsparse.storage.s3.s3_store import S3Store
from hsparse.storage.store_settings import StoreSettings
from tests.testing.memory_store import MemoryStore


class ComparesHeader(MemoryStore):
    """Refuses etags in quotes, as an `S3Store` sends them at first."""

    bare_etags = False

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        if not self.bare_etags:
            raise PreconditionFailed("a quote is no part of an etag")
        return await super().put_if_match(key, data, etag)


class IgnoresBareEtags(ComparesHeader):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        if self.bare_etags:
            return await self.put(key, data)
        return await super().put_if_match(key, data, etag)


class ComparesEtag(ComparesHeader):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await MemoryStore.put_if_match(self, key, data, etag)


@pytest.mark.parametrize(("kind", "bare"), [(ComparesHeader, True), (ComparesEtag, False)])
async def test_quotes_are_left_out_only_where_they_are_refused(
    kind: type[ComparesHeader], bare: bool
) -> None:
    bucket = kind()
    await probed_bucket(bucket)
    assert bucket.bare_etags == bare


async def test_a_server_that_ignores_bare_etags_is_refused() -> None:
    with pytest.raises(Misconfigured, match="ignores If-Match"):
        await probed_bucket(IgnoresBareEtags())


async def test_a_wrong_endpoint_is_told_soon_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "START_SECONDS", 0.2)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    settings = StoreSettings(bucket=("data",), s3_endpoint="http://127.0.0.1:1", s3_region="us-east-1")
    with pytest.raises(StoreFailed, match=r"'data' gave no answer .* in 0.2 s .*check the endpoint"):
        await stores.open_stores(settings)


@pytest.mark.parametrize(
    ("buckets", "complaint"),
    [
        (("az://data/prefix",), "'data/prefix' is not a bucket's name"),
        (("gs://",), "'' is not a bucket's name"),
        (("az://data", "gs://data"), "name each bucket once"),
        (("data", "s3://data/"), "name each bucket once"),
        (
            ("data--use1-az4--x-s3",),
            r"'data--use1-az4--x-s3' is a directory bucket \(S3 Express\).* out of order",
        ),
    ],
)
async def test_buckets_that_are_refused_unasked(buckets: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(HsparseError, match=complaint):
        await stores.open_stores(StoreSettings(bucket=buckets))


async def test_a_cloud_bills_no_reader() -> None:
    with pytest.raises(Misconfigured, match="leave it out for 'gs://data'"):
        await stores.open_stores(StoreSettings(bucket=("gs://data",), requester_pays=True))


async def test_a_cloud_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "CLOUD_STORE", OptionalModule("obstore_is_missing", "clouds"))
    with pytest.raises(Misconfigured, match=r'pip install "hsparse\[clouds\]"'):
        await stores.open_stores(StoreSettings(bucket=("az://data",)))


def test_later_requests_have_their_own_deadline() -> None:
    store = S3Store("data", region="us-east-1", access_key="a", secret_key="b", deadline=30)
    with store.within(5), store.within(60):
        assert store._deadline == 5
    assert store._deadline == 30
