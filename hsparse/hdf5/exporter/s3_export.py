"""`hsparse export DOMAIN s3://bucket/key`: upload a domain's HDF5 file to a bucket.

Each part of the multipart upload is a byte range of the file that the server generates. The object appears when the
upload is complete; an export that fails or is interrupted deletes its parts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hsparse.cli.file_arguments import S3Url, s3_options
from hsparse.cli.progress import print_message, show_progress
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest, HsparseError, PreconditionFailed, TooLarge
from hsparse.hdf5.domain_file import DomainFile, ReportProgress
from hsparse.hdf5.exporter.multipart_upload import S3Upload, find_marked
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.storage.bucket_client import START_SECONDS
from hsparse.storage.s3.s3_store import S3Store

SENT_AT_ONCE = 8
"""The number of parts that are fetched and sent concurrently."""
MAX_BYTES_IN_FLIGHT = 128 * 1024 * 1024
"""The maximum number of bytes of all parts in flight; one part may be larger. Joining a part takes memory twice."""
MIN_PART_BYTES = 16 * 1024 * 1024
MAX_PART_BYTES = 5 * 1024**3
MAX_PARTS = 10_000
"""The maximum number of parts of an S3 multipart upload (Amazon S3 User Guide). S3 accepts parts from 5 MiB on."""
MEDIA = "application/x-hdf5"

Result = TypeVar("Result")


def part_bounds(size: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each part of a file of `size` bytes; raises `TooLarge` if S3 cannot store the file."""
    part = max(MIN_PART_BYTES, -(-size // MAX_PARTS))
    if part > MAX_PART_BYTES:
        raise TooLarge(
            f"The file has {size} bytes, too many for {MAX_PARTS} parts, the limit of an upload: divide the domain."
        )
    return [(start, min(size, start + part)) for start in range(0, size, part)]


class S3Export:
    """Uploads a domain's file to the object `key`; `progress` is called with the bytes sent and the total bytes."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        domain: str,
        form: FileForm,
        store: S3Store,
        key: str,
        *,
        replace: bool,
        progress: ReportProgress,
    ) -> None:
        self._domain = domain
        self._form = form
        self._store = store
        self._key = key
        self._replace = replace
        self._progress = progress
        self._server = RetryingClient(connect)
        self._threads = ThreadPoolExecutor(SENT_AT_ONCE, thread_name_prefix="file")

    def close(self) -> None:
        """Wait for the pending requests to the server, and close the connection."""
        self._server.stop()
        self._threads.shutdown(cancel_futures=True)
        self._server.close()

    async def run(self) -> int:
        """Write the object; return its size in bytes.

        Raises `BadRequest` if the object exists and must not be replaced, `PreconditionFailed` if the domain changes
        during the export, and the errors of the server and the store.
        """
        if not self._replace:
            with self._store.within(START_SECONDS):
                found = await find_marked(self._store, self._key)
            if found is not None:
                raise self._exists()
        size, etag = await self._ask(DomainFile.state)
        bounds = part_bounds(size)
        upload = await S3Upload.begin(self._store, self._key, etag, MEDIA)
        try:
            await self._complete(upload, await self._send(upload, bounds, etag), etag)
        except BaseException as error:
            await self._abort(upload, error)
            raise
        return size

    async def _send(self, upload: S3Upload, bounds: list[tuple[int, int]], etag: str) -> dict[int, str]:
        """Send all parts; return a dict that maps each part's number to its etag."""
        size = bounds[-1][1]
        largest = bounds[0][1]
        etags: dict[int, str] = {}
        sent = 0
        missing = iter(enumerate(bounds, 1))
        self._progress(sent, size)

        async def work() -> None:
            nonlocal sent
            for number, (start, stop) in missing:
                data = await self._ask(lambda file: file.read(start, stop, etag))  # noqa: B023 - awaited at once
                etags[number] = await upload.put(number, data)
                del data
                sent += stop - start
                self._progress(sent, size)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, min(SENT_AT_ONCE, MAX_BYTES_IN_FLIGHT // largest))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return etags

    async def _ask(self, read: Callable[[DomainFile], Result]) -> Result:
        """Call `read` with the domain's file in a thread; repeat it while the server is busy or unreachable."""

        def send(connection: Connection) -> Result:
            return read(DomainFile(connection, self._domain, self._form))

        return await asyncio.get_running_loop().run_in_executor(self._threads, self._server.ask, send)

    async def _complete(self, upload: S3Upload, etags: dict[int, str], etag: str) -> None:
        try:
            await upload.complete(etags, etag, replace=self._replace)
        except PreconditionFailed as error:
            if self._replace:
                raise
            raise self._exists() from error

    async def _abort(self, upload: S3Upload, error: BaseException) -> None:
        """Abort the upload after `error`; raises an error with both messages if aborting fails."""
        try:
            await upload.abort()
        except HsparseError as left:
            raise HsparseError(f"{error} The upload's parts could not be deleted: {left.message}") from error

    def _exists(self) -> BadRequest:
        return BadRequest(f"{S3Url(self._store.name, self._key)} exists: add --force to replace it.")


def run(args: argparse.Namespace, form: FileForm, connect: Callable[[], Connection]) -> int:
    """Export the domain `args.domain` to S3 as a file of this form; return the exit status."""
    url = S3Url.parse(args.file)

    async def export(update: ReportProgress) -> int:
        async with S3Store(url.bucket, **s3_options(args)) as store:
            one = S3Export(connect, args.domain, form, store, url.key, replace=args.force, progress=update)
            try:
                return await one.run()
            finally:
                one.close()

    try:
        with show_progress(args.progress, args.domain) as shown:
            size = asyncio.run(export(shown.update))
    except KeyboardInterrupt:
        print("Stopped: nothing was left.", file=sys.stderr)
        return 130
    print_message(args.progress, f"{url}: {size} bytes")
    return 0
