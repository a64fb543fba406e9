"""How a bucket is opened: the form of etags that its server compares."""

from __future__ import annotations

import pytest

from hsparse.cli.stores import probed_bucket
from hsparse.errors import Misconfigured, PreconditionFailed
from hsparse.storage.memory import MemoryStore
from hsparse.storage.object_store import Buffer


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
