"""Multipart uploads to an S3 bucket. Parts are sent, or the service copies them from ranges of other objects.

Amazon S3 API Reference: CreateMultipartUpload, UploadPart, UploadPartCopy, ListParts, CompleteMultipartUpload,
AbortMultipartUpload. The object is invisible until the upload is complete.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hsparse.errors import HsparseError, Misconfigured, NotFound, StoreFailed, Unsupported
from hsparse.storage.object_store import Buffer
from hsparse.storage.s3.s3_client import S3Client, error_code

FILE_MARK = "hsparse-file"
"""The metadata name of the mark that identifies the exported file."""
ABORTS = 5
"""The maximum number of attempts to abort an upload whose parts are still arriving."""


@dataclass(frozen=True, slots=True)
class Part:
    """An uploaded part: its etag, and its size in bytes."""

    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class CopySource:
    """A range of an object to copy: `size` bytes from byte `address`, if the object's etag is `etag`."""

    bucket: str
    key: str
    etag: str
    address: int
    size: int


class S3Upload:
    """The upload `id` of the object `key`. Parts are numbered from 1; a part sent again replaces the earlier one."""

    def __init__(self, store: S3Client, key: str, id: str) -> None:
        self._store = store
        self._key = key
        self.id = id
        self._about = {"Bucket": store.name, "Key": key, "UploadId": id}

    @classmethod
    async def begin(
        cls, store: S3Client, key: str, mark: str, media: str = "application/octet-stream"
    ) -> S3Upload:
        """Begin an upload of an object of media type `media`, whose metadata will have `mark`.

        If the reply is lost, a second upload is begun, and the first one is never completed.
        """
        reply = await store.call(
            key,
            lambda client: client.create_multipart_upload(
                Bucket=store.name, Key=key, Metadata={FILE_MARK: mark}, ContentType=media
            ),
        )
        return cls(store, key, str(reply["UploadId"]))

    async def parts(self) -> dict[int, Part]:
        """Return the uploaded parts by number; raises `NotFound` if the upload no longer exists."""
        found: dict[int, Part] = {}
        marker = 0
        while True:
            reply = await self._page(marker)
            for one in reply.get("Parts", ()):
                found[one["PartNumber"]] = Part(_bare(one["ETag"]), one["Size"])
            if not reply.get("IsTruncated"):
                return found
            marker = int(reply["NextPartNumberMarker"])

    async def put(self, number: int, data: Buffer) -> Part:
        """Send a part; raises `NotFound` if the upload no longer exists."""
        reply = await self._store.call(
            self._key,
            lambda client: client.upload_part(**self._about, PartNumber=number, Body=io.BytesIO(data)),
        )
        return Part(_bare(reply["ETag"]), len(data))

    async def copy(self, number: int, source: CopySource) -> Part:
        """Have the service copy a part, without sending its bytes through this process.

        Raises `PreconditionFailed` if the source has changed, `NotFound` or `Misconfigured` if the service does not
        know the source or must not read it. The message has the service's error code.
        """
        request = self._about | {
            "PartNumber": number,
            "CopySource": {"Bucket": source.bucket, "Key": source.key},
            "CopySourceIfMatch": f'"{source.etag}"',
            "CopySourceRange": f"bytes={source.address}-{source.address + source.size - 1}",
        }
        what = f"{source.key!r} of the bucket {source.bucket!r} cannot be copied to {self._store.name!r}"
        try:
            reply = await self._store.call(self._key, lambda client: client.upload_part_copy(**request))
        except HsparseError as error:
            raise type(error)(f"{what} ({error_code(error.__cause__)}).") from error
        etag = reply.get("CopyPartResult", {}).get("ETag")
        if not etag:
            raise StoreFailed(f"{what} (the service did not confirm the copy).")
        return Part(_bare(etag), source.size)

    async def complete(self, parts: Mapping[int, Part], mark: str, *, replace: bool) -> str:
        """Complete the upload: create the object from all parts and return its etag.

        Without `replace`, raises `PreconditionFailed` if the object exists, with services that check this condition.
        If the reply is lost, an object with `mark` in its metadata is taken for the result of this call.
        """
        listed = [{"PartNumber": number, "ETag": f'"{parts[number].etag}"'} for number in sorted(parts)]
        condition = {} if replace else {"IfNoneMatch": "*"}

        async def send(client: Any) -> str:
            reply = await client.complete_multipart_upload(
                **self._about, **condition, MultipartUpload={"Parts": listed}
            )
            return _bare(reply["ETag"])

        async def settle(failed_condition: HsparseError, uncertain: bool) -> str:
            found = await find_marked(self._store, self._key)
            try:
                if found is None or found.mark != mark:
                    raise failed_condition
                return found.etag
            finally:
                del failed_condition  # avoids a reference cycle of the error and this frame

        return await self._store.call(self._key, send, settle)

    async def abort(self) -> None:
        """Abort the upload and delete its parts; do nothing if the upload no longer exists."""
        for _ in range(ABORTS):
            try:
                await self._store.call(self._key, lambda client: client.abort_multipart_upload(**self._about))
            except NotFound:
                return
            try:
                await self._page(0)  # a pending part may have arrived after the abort
            except (NotFound, Misconfigured, Unsupported):
                return  # the upload is gone, or the service cannot list parts
        raise StoreFailed(
            f"The upload {self.id} of {self._key!r} to {self._store.name!r} could not be aborted: abort it there."
        )

    async def _page(self, marker: int) -> dict[str, Any]:
        request = self._about | ({"PartNumberMarker": marker} if marker else {})
        return await self._store.call(self._key, lambda client: client.list_parts(**request))


@dataclass(frozen=True, slots=True)
class MarkedObject:
    """The metadata of an object, with its mark if it has one."""

    etag: str
    size: int
    mark: str | None


async def find_marked(store: S3Client, key: str) -> MarkedObject | None:
    """Return the metadata of an object, None if it does not exist."""
    try:
        head = await store.head(key)
    except NotFound:
        return None
    return MarkedObject(_bare(head["ETag"]), int(head["ContentLength"]), head["Metadata"].get(FILE_MARK))


def _bare(etag: object) -> str:
    return str(etag).strip('"')
