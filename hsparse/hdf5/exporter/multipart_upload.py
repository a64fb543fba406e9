"""Multipart uploads to an S3 bucket.

Amazon S3 API Reference: CreateMultipartUpload, UploadPart, ListParts, CompleteMultipartUpload, AbortMultipartUpload.
The object is invisible until the upload is complete.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import HsparseError, Misconfigured, NotFound, StoreFailed, Unsupported
from hsparse.storage.object_store import Buffer
from hsparse.storage.s3.s3_client import S3Client

FILE_MARK = "hsparse-file"
"""The name of the object metadata whose value, the mark, is the etag of the exported file."""


class S3Upload:
    """The multipart upload `id` of the object `key`. Parts are numbered from 1; sending a number again replaces it."""

    def __init__(self, store: S3Client, key: str, id: str) -> None:
        self._store = store
        self._key = key
        self.id = id
        self._about = {"Bucket": store.name, "Key": key, "UploadId": id}

    @classmethod
    async def begin(
        cls, store: S3Client, key: str, mark: str, media: str = "application/octet-stream"
    ) -> S3Upload:
        """Begin an upload of an object of media type `media` with `mark` in its metadata.

        If the reply is lost, a second upload is begun, and the first upload is never completed.
        """
        reply = await store.call(
            key,
            lambda client: client.create_multipart_upload(
                Bucket=store.name, Key=key, Metadata={FILE_MARK: mark}, ContentType=media
            ),
        )
        return cls(store, key, str(reply["UploadId"]))

    async def put(self, number: int, data: Buffer) -> str:
        """Send a part and return its etag; raises `NotFound` if the upload no longer exists."""
        reply = await self._store.call(
            self._key,
            lambda client: client.upload_part(**self._about, PartNumber=number, Body=io.BytesIO(data)),
        )
        return _bare(reply["ETag"])

    async def complete(self, parts: Mapping[int, str], mark: str, *, replace: bool) -> str:
        """Create the object from all parts and return its etag. `parts` maps each part's number to its etag.

        Without `replace`, raises `PreconditionFailed` if the object exists and the service checks this condition.
        If the reply is lost, an existing object with `mark` in its metadata counts as the result of this call.
        """
        listed = [{"PartNumber": number, "ETag": f'"{parts[number]}"'} for number in sorted(parts)]
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
        for _ in range(MAX_READ_ATTEMPTS):
            try:
                await self._store.call(self._key, lambda client: client.abort_multipart_upload(**self._about))
            except NotFound:
                return
            try:
                # A pending part may have arrived after the abort.
                await self._store.call(self._key, lambda client: client.list_parts(**self._about))
            except (NotFound, Misconfigured, Unsupported):
                return  # the upload is gone, or the service cannot list parts
        raise StoreFailed(
            f"The upload {self.id} of {self._key!r} to {self._store.name!r} could not be aborted: abort it."
        )


@dataclass(frozen=True, slots=True)
class MarkedObject:
    """The etag, size in bytes and mark of an object; `mark` is None if the object's metadata has no mark."""

    etag: str
    size: int
    mark: str | None


async def find_marked(store: S3Client, key: str) -> MarkedObject | None:
    """Return the etag, size and mark of an object, or None if the object does not exist."""
    try:
        head = await store.head(key)
    except NotFound:
        return None
    return MarkedObject(_bare(head["ETag"]), int(head["ContentLength"]), head["Metadata"].get(FILE_MARK))


def _bare(etag: object) -> str:
    return str(etag).strip('"')
