"""A file in an S3 bucket, `s3://bucket/key`, read by ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from hsparse.cli.file_arguments import DEADLINE, S3Url
from hsparse.errors import Conflict, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.source import BlockCache, Source
from hsparse.storage.s3.s3_store import S3Store

Result = TypeVar("Result")


class S3Source(Source):
    """An object of a bucket. Small ranges that are close together are fetched by one request.

    Concurrent threads that need the same block wait for one request.
    """

    def __init__(self, url: str, *, deadline: float = DEADLINE, **options: Any) -> None:
        """Open the object, of an `S3Store` with these options; `NotFound` without one, and its errors."""
        self.name = url
        place = S3Url.parse(url)
        self._key = place.key
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="s3", daemon=True)
        self._thread.start()
        self._store = S3Store(place.bucket, deadline=deadline, **options)
        try:
            self._wait(self._store.open())
            found = self._wait(self._store.get_range(self._key, -1))
        except NotFound as error:
            self.close()
            raise NotFound(f"There is no object {url}.") from error
        except BaseException:
            self.close()
            raise
        self.size = found.size
        self._etag = self.fingerprint = found.etag
        self._blocks = BlockCache(self.size, lambda one: self._start(self._get(one)))

    def close(self) -> None:
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return self._blocks.read(wanted)

    async def _get(self, wanted: ByteRange) -> bytes:
        stored = await self._store.get_range(self._key, wanted.address, wanted.size)
        if stored.etag != self._etag:
            raise Conflict(f"{self.name} was changed while it was read: import it again.")
        return stored.data

    async def _end(self) -> None:
        """Cancel the requests that are under way."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.close()

    def _start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._start(work).result()
