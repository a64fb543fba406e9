"""A file in an S3 bucket, `s3://bucket/key`, read by ranges."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from threading import Lock, Thread
from typing import Any, TypeVar

from hsparse.cli.importer.source import SCHEME, Source
from hsparse.errors import BadRequest, Conflict, NotFound
from hsparse.format.hdf5.reads import ByteRange
from hsparse.storage.object_store import Stored
from hsparse.storage.s3 import S3Store

BLOCK = 1024 * 1024
BLOCKS = 64
"""Blocks of so many bytes, and how many of them, that small ranges are taken from."""
SMALL = 64 * 1024
Result = TypeVar("Result")


class S3Source(Source):
    """An object of a bucket. What is small and close together, as all but the data is, comes in one request."""

    def __init__(self, url: str, endpoint: str | None, region: str | None) -> None:
        """Look at the object; `NotFound` where there is none, else what `S3Store` raises."""
        self.name = url
        bucket, _, self._key = url.removeprefix(SCHEME).partition("/")
        if not bucket or not self._key:
            raise BadRequest(f"{url} names no object; it should be like s3://bucket/path/file.h5.")
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="s3", daemon=True)
        self._thread.start()
        self._lock = Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._store = S3Store(bucket, endpoint=endpoint, region=region)
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

    def close(self) -> None:
        self._wait(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        large = [one for one in wanted if one.size > SMALL]
        found = dict(zip(large, self._wait(self._get(large)), strict=True))
        return [found[one] if one in found else self._small(one) for one in wanted]

    def _small(self, wanted: ByteRange) -> bytes:
        if not wanted.size:
            return b""
        first = wanted.address // BLOCK
        last = (wanted.address + wanted.size - 1) // BLOCK
        data = b"".join(map(self._block, range(first, last + 1)))
        start = wanted.address - first * BLOCK
        return data[start : start + wanted.size]

    def _block(self, number: int) -> bytes:
        with self._lock:
            found = self._blocks.get(number)
            if found is None:
                start = number * BLOCK
                wanted = ByteRange(start, min(BLOCK, self.size - start))
                (found,) = self._wait(self._get([wanted]))
                self._blocks[number] = found
                if len(self._blocks) > BLOCKS:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
            return found

    async def _get(self, wanted: list[ByteRange]) -> list[bytes]:
        reads = (self._store.get_range(self._key, one.address, one.size) for one in wanted)
        return [self._checked(stored) for stored in await asyncio.gather(*reads)]

    def _checked(self, stored: Stored) -> bytes:
        if stored.etag != self._etag:
            raise Conflict(f"{self.name} was changed while it was read: import it again.")
        return stored.data

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
