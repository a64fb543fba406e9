"""A file in an S3 bucket, `s3://bucket/key`, read by ranges."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hsparse.cli.file_arguments import DEADLINE, S3Url
from hsparse.errors import BadRequest, Conflict, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.remote_source import Get, LoopThread, RemoteSource
from hsparse.storage.object_store import Page
from hsparse.storage.s3.s3_store import S3Store

Result = TypeVar("Result")


class BucketReader:
    """A bucket that threads read: one client for all of them."""

    def __init__(self, bucket: str, **options: Any) -> None:
        """Open the bucket with the options of `S3Store`; nothing is sent yet."""
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
        """Return the result of a coroutine of the store."""
        return self.thread.wait(work)

    async def head(self, key: str) -> dict[str, Any]:
        """Return what S3 answers about an object; `NotFound` without one."""
        return await self.store.call(key, lambda client: client.head_object(Bucket=self.bucket, Key=key))

    async def pages(self, prefix: str, most: int | None = None) -> list[Page]:
        """Return what is directly below a prefix, as objects and prefixes; with `most`, not all pages after those."""
        found: list[Page] = []
        async for page in self.store.list(prefix, delimiter=True):
            found.append(page)
            if most is not None and len(found) >= most:
                break
        return found

    def get(self, key: str, etag: str, name: str, remedy: str) -> Get:
        """Return what gets ranges of an object in a state; errors call it `name`, and end with `remedy`."""

        async def get(wanted: ByteRange) -> bytes:
            changed = Conflict(f"{name} was changed while it was read: {remedy}.")
            try:
                stored = await self.store.get_range(key, wanted.address, wanted.size)
            except (NotFound, BadRequest) as error:  # it is gone, or too short
                raise changed from error
            if stored.etag != etag:
                raise changed
            return stored.data

        return get


class S3Source(RemoteSource):
    """An object of a bucket, with a client of its own."""

    def __init__(self, url: str, *, deadline: float = DEADLINE, **options: Any) -> None:
        """Open the object, of an `S3Store` with these options; `NotFound` without one, and its errors."""
        place = S3Url.parse(url)
        self._reader = BucketReader(place.bucket, deadline=deadline, **options)
        try:
            found = self._reader.wait(self._reader.store.get_range(place.key, -1))
        except NotFound as error:
            self.close()
            raise NotFound(f"There is no object {url}.") from error
        except BaseException:
            self.close()
            raise
        get = self._reader.get(place.key, found.etag, url, "import it again")
        super().__init__(url, found.size, found.etag, self._reader.thread, get)

    def close(self) -> None:
        self._reader.close()
