"""`hsparse export DOMAIN s3://bucket/key`: export a domain as an HDF5 file in a bucket.

The store copies large chunks; this process sends the rest. The object appears when it is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

from hsparse.cli.file_arguments import S3Url, s3_options
from hsparse.cli.progress import print_message, show_progress
from hsparse.client.connection import Connection
from hsparse.errors import BadRequest, HsparseError, NotFound, PreconditionFailed
from hsparse.hdf5.domain_file import ReportProgress
from hsparse.hdf5.exporter.file_reads import FileReads
from hsparse.hdf5.exporter.multipart_upload import CopySource, Part, S3Upload, find_marked
from hsparse.hdf5.exporter.part_plan import LIMITS, FileChunk, FilePart, plan_parts
from hsparse.hdf5.exporter.pending_export import PendingExport, forget, plan_digest
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.storage.bucket_client import START_SECONDS
from hsparse.storage.s3.s3_store import S3Store

AT_ONCE = 16
"""The number of parts that are processed concurrently."""
SENT_AT_ONCE = 8
MEMORY = 128 * 1024 * 1024
"""The maximum size in bytes of the parts in memory, doubled while they are joined. One part may be larger."""
MEDIA = "application/x-hdf5"
NO_ETAG = "0123456789abcdef0123456789abcdef"
"""An etag that no object has."""


class _NotCopied(Exception):
    """Raised if the store does not copy chunks; the text is the reason."""


class S3Export:
    """The export of one file to the object `key`. It reports uploaded bytes to `progress`, and messages to `say`.

    With `resume`, a pending upload of the same state is continued, and kept if interrupted again; else it is aborted.
    """

    def __init__(
        self,
        reads: FileReads,
        store: S3Store,
        key: str,
        *,
        replace: bool,
        resume: bool,
        progress: ReportProgress,
        say: Callable[[str], None],
    ) -> None:
        self._reads = reads
        self._store = store
        self._key = key
        self._replace = replace
        self._resume = resume
        self._progress = progress
        self._say = say

    async def run(self) -> int:
        """Write the object; return its size in bytes.

        Raises `BadRequest` if the object exists and must not be replaced, `PreconditionFailed` if the domain is changed
        meanwhile, and the errors of the server and the store.
        """
        if not self._replace:
            with self._store.within(START_SECONDS):
                found = await find_marked(self._store, self._key)
            if found is not None:
                raise self._exists()
        size, etag = await self._reads.state()
        known = await PendingExport.load(self._store, self._key, etag) if self._resume else None
        chunks: list[FileChunk] = []
        if known is None or known.copied:
            chunks = await self._reads.chunks(etag, LIMITS.least)
        try:
            await self._make(etag, plan_parts(size, chunks), known, copied=bool(chunks))
        except _NotCopied as refusal:
            self._say(f"{refusal} This command sends the chunks instead.")
            await self._make(etag, plan_parts(size, []), None, copied=False)
        return size

    async def _make(
        self, etag: str, parts: tuple[FilePart, ...], known: PendingExport | None, *, copied: bool
    ) -> None:
        upload, have = await self._begin(etag, parts, known, copied=copied)
        try:
            await self._first_copy(upload, parts, have, etag)
            await self._all(upload, parts, have, etag)
            await self._complete(upload, have, etag)
        except BaseException as error:
            is_over = isinstance(error, _NotCopied | PreconditionFailed)  # it could not be resumed
            if not self._resume or is_over:
                await self._abort(upload, error)
            if self._resume and is_over:
                await forget(self._store, self._key, etag)
            raise
        if self._resume:
            await forget(self._store, self._key, etag)

    async def _begin(
        self, etag: str, parts: tuple[FilePart, ...], known: PendingExport | None, *, copied: bool
    ) -> tuple[S3Upload, dict[int, Part]]:
        """Return a resumed or new upload, and its completed parts by number."""
        digest = plan_digest(parts)
        if known is not None:
            upload = S3Upload(self._store, self._key, known.id)
            try:
                there = await upload.parts()
            except NotFound:
                there = None
            if there is not None and known.digest == digest:
                sizes = {number: part.size for number, part in enumerate(parts, 1)}
                return upload, {number: one for number, one in there.items() if one.size == sizes.get(number)}
            await upload.abort()
        upload = await S3Upload.begin(self._store, self._key, etag, MEDIA)
        if self._resume:
            try:
                await PendingExport(upload.id, digest, copied).save(self._store, self._key, etag)
            except BaseException as error:
                await self._abort(upload, error)
                raise
        return upload, {}

    async def _first_copy(
        self, upload: S3Upload, parts: tuple[FilePart, ...], have: dict[int, Part], etag: str
    ) -> None:
        """Copy one part first. If the store refuses, raise `_NotCopied`, so that parts are planned without copies."""
        for number, part in enumerate(parts, 1):
            if part.source is not None:
                try:
                    if number not in have:
                        await self._check_condition(upload, number, part.source)
                        have[number] = await upload.copy(number, part.source)
                except HsparseError as error:
                    await self._check_unchanged(etag)
                    raise _NotCopied(error.message) from error
                return

    async def _check_condition(self, upload: S3Upload, number: int, source: CopySource) -> None:
        """Raise `_NotCopied` if the store ignores the etag condition of a copy."""
        try:
            await upload.copy(number, replace(source, etag=NO_ETAG))
        except PreconditionFailed:
            return
        raise _NotCopied(f"The bucket {self._store.name!r} ignores the etag condition of a copy.")

    async def _all(
        self, upload: S3Upload, parts: tuple[FilePart, ...], have: dict[int, Part], etag: str
    ) -> None:
        size = parts[-1].stop if parts else 0
        done = sum(one.size for one in have.values())
        self._progress(done, size)
        missing = iter([number for number in range(1, len(parts) + 1) if number not in have])
        largest = max((part.size for part in parts if part.source is None), default=1)
        room = asyncio.Semaphore(max(1, min(SENT_AT_ONCE, MEMORY // largest)))

        async def work() -> None:
            nonlocal done
            for number in missing:
                part = parts[number - 1]
                if part.source is not None:
                    have[number] = await self._copy(upload, number, part, etag)
                else:
                    async with room:
                        data = await self._reads.read(part.start, part.stop, etag)
                        have[number] = await upload.put(number, data)
                        del data
                done += part.size
                self._progress(done, size)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _copy(self, upload: S3Upload, number: int, part: FilePart, etag: str) -> Part:
        assert part.source is not None
        try:
            return await upload.copy(number, part.source)
        except HsparseError:
            await self._check_unchanged(etag)
            raise

    async def _check_unchanged(self, etag: str) -> None:
        """Raise `PreconditionFailed` if the domain's file has changed."""
        if (await self._reads.state())[1] != etag:
            raise PreconditionFailed("The domain was changed while it was copied: begin again.")

    async def _complete(self, upload: S3Upload, have: dict[int, Part], etag: str) -> None:
        try:
            await upload.complete(have, etag, replace=self._replace)
        except PreconditionFailed as error:
            if self._replace:
                raise
            raise self._exists() from error

    async def _abort(self, upload: S3Upload, error: BaseException) -> None:
        """Abort the upload after `error`; raises an error with both messages if aborting fails."""
        try:
            await upload.abort()
        except HsparseError as left:
            raise HsparseError(f"{error} Its parts could not be deleted: {left.message}") from error

    def _exists(self) -> BadRequest:
        return BadRequest(f"{S3Url(self._store.name, self._key)} exists; add --force to replace it.")


def run(args: argparse.Namespace, form: FileForm, connect: Callable[[], Connection]) -> int:
    """Run `hsparse export` to S3, with a file of this form; raises the error that stops it."""
    url = S3Url.parse(args.file)

    async def export(update: ReportProgress) -> int:
        store = S3Store(url.bucket, **s3_options(args))
        async with store:
            reads = FileReads(connect, args.domain, form, SENT_AT_ONCE)
            try:
                return await S3Export(
                    reads,
                    store,
                    url.key,
                    replace=args.force,
                    resume=args.resume,
                    progress=update,
                    say=lambda text: print_message(args.progress, text, sys.stderr),
                ).run()
            finally:
                reads.close()

    try:
        with show_progress(args.progress, args.domain) as shown:
            size = asyncio.run(export(shown.update))
    except KeyboardInterrupt:
        left = "--resume continues it" if args.resume else "nothing was left"
        print(f"Stopped: {left}.", file=sys.stderr)
        return 130
    print_message(args.progress, f"{url}: {size} bytes")
    return 0
