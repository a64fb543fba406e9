"""Read byte ranges of a file in an S3 bucket, `s3://bucket/key`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hsparse.cli.file_arguments import REQUEST_SECONDS, S3Url
from hsparse.errors import BadRequest, Conflict, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.remote_source import Get, LoopThread, RemoteSource
from hsparse.storage.bucket_client import START_SECONDS
from hsparse.storage.object_store import Page
from hsparse.storage.s3.s3_store import S3Store

Result = TypeVar("Result")


class BucketReader:
    """Blocking access to a bucket, for any number of threads, with one client."""

    def __init__(self, bucket: str, **options: Any) -> None:
        """Open the bucket with the options of `S3Store`; no request is sent yet."""
        self.bucket = bucket
        self.store = S3Store(bucket, **options)
        self.thread = LoopThread("s3")
        try:
            self.wait(self.store.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.thread.close(self.store.close)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of the store; wait for its result and return it."""
        return self.thread.wait(work)

    async def head(self, key: str) -> dict[str, Any]:
        """Return S3's answer to HeadObject for a key; raises `NotFound` if the bucket has no such object."""
        return await self.store.head(key)

    async def pages(self, prefix: str, most: int | None = None) -> list[Page]:
        """Return all pages, or the first `most` pages, that list objects and prefixes directly below `prefix`."""
        found: list[Page] = []
        async for page in self.store.list(prefix, delimiter=True):
            found.append(page)
            if most is not None and len(found) >= most:
                break
        return found

    def get(self, key: str, etag: str, name: str, remedy: str) -> Get:
        """Return a function that reads ranges of an object, and raises `Conflict` if the object has changed."""

        async def get(wanted: ByteRange) -> bytes:
            changed = Conflict(f"{name} was changed while it was read: {remedy}.")
            try:
                stored = await self.store.get_range(key, wanted.address, wanted.size)
            except (NotFound, BadRequest) as error:  # the object was deleted, or has become shorter
                raise changed from error
            if stored.etag != etag:
                raise changed
            return stored.data

        return get


class S3Source(RemoteSource):
    """An object of a bucket, which is read with an S3 client of its own."""

    def __init__(self, url: str, *, deadline: float = REQUEST_SECONDS, **options: Any) -> None:
        """Open the object with the options of `S3Store`; raises `NotFound` if it is missing, and `S3Store`'s errors."""
        place = S3Url.parse(url)
        self._reader = BucketReader(place.bucket, deadline=deadline, **options)
        try:
            with self._reader.store.within(START_SECONDS):
                found = self._reader.wait(self._reader.store.get_range(place.key, -1))
        except NotFound as error:
            self.close()
            raise NotFound(f"There is no object {url}: check the bucket and key.") from error
        except BaseException:
            self.close()
            raise
        get = self._reader.get(place.key, found.etag, url, "import it again")
        super().__init__(url, found.size, found.etag, self._reader.thread, get)

    def close(self) -> None:
        self._reader.close()
