"""An object of an S3 bucket made of parts: bytes that are sent, and ranges of objects that the service copies.

Amazon S3 API Reference: CreateMultipartUpload, UploadPart, UploadPartCopy, ListParts, CompleteMultipartUpload,
AbortMultipartUpload. Nobody sees anything of the object before it is complete.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hsparse.errors import HsparseError, Misconfigured, NotFound, StoreFailed, Unsupported
from hsparse.storage.object_store import Buffer
from hsparse.storage.s3.s3_store import S3Store

FILE_MARK = "hsparse-file"
"""The metadata that tells which file an object is."""
ABORTS = 5
"""How often an upload is aborted, of which parts are still arriving."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is there: its etag, and its size in bytes."""

    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class CopySource:
    """`size` bytes from `address` on of an object, while its etag is `etag`."""

    bucket: str
    key: str
    etag: str
    address: int
    size: int


class S3Upload:
    """The upload `id` of an object `key`. Parts have numbers from 1 on; sent again, one replaces the one before."""

    def __init__(self, store: S3Store, key: str, id: str) -> None:
        self._store = store
        self._key = key
        self.id = id
        self._about = {"Bucket": store.name, "Key": key, "UploadId": id}

    @classmethod
    async def begin(
        cls, store: S3Store, key: str, mark: str, media: str = "application/octet-stream"
    ) -> S3Upload:
        """Begin an upload, of an object of type `media` that will carry `mark`.

        One whose reply was lost is begun twice, and the first one left.
        """
        reply = await store.call(
            key,
            lambda client: client.create_multipart_upload(
                Bucket=store.name, Key=key, Metadata={FILE_MARK: mark}, ContentType=media
            ),
        )
        return cls(store, key, str(reply["UploadId"]))

    async def parts(self) -> dict[int, Part]:
        """Return the parts that are there, by their numbers; `NotFound` where the upload is no more."""
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
        """Send a part; `NotFound` where the upload is no more."""
        reply = await self._store.call(
            self._key,
            lambda client: client.upload_part(**self._about, PartNumber=number, Body=io.BytesIO(data)),
        )
        return Part(_bare(reply["ETag"]), len(data))

    async def copy(self, number: int, source: CopySource) -> Part:
        """Let the service copy a part, without a byte of it coming here.

        Raises the error of the service's answer: `PreconditionFailed` where the source is in another state, `NotFound`
        or `Misconfigured` where it does not know the source, or may not read it. The message has the service's code.
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
            raise type(error)(f"{what} ({code_of(error.__cause__)}).") from error
        etag = reply.get("CopyPartResult", {}).get("ETag")
        if not etag:
            raise StoreFailed(f"{what} (it says nothing of a copy).")
        return Part(_bare(etag), source.size)

    async def complete(self, parts: Mapping[int, Part], mark: str, *, replace: bool) -> str:
        """Make the object of all parts and return its etag.

        Unless it may `replace` one: `PreconditionFailed` where there is one, on services that look at the condition.
        Where the reply was lost, an object that carries `mark` is taken for the one that was made.
        """
        listed = [{"PartNumber": number, "ETag": f'"{parts[number].etag}"'} for number in sorted(parts)]
        condition = {} if replace else {"IfNoneMatch": "*"}

        async def send(client: Any) -> str:
            reply = await client.complete_multipart_upload(
                **self._about, **condition, MultipartUpload={"Parts": listed}
            )
            return _bare(reply["ETag"])

        async def settle(refusal: HsparseError, uncertain: bool) -> str:
            found = await find_marked(self._store, self._key)
            if found is None or found.mark != mark:
                raise refusal
            return found.etag

        return await self._store.call(self._key, send, settle)

    async def abort(self) -> None:
        """Give up the upload and all its parts; one that is no more is no error."""
        for _ in range(ABORTS):
            try:
                await self._store.call(self._key, lambda client: client.abort_multipart_upload(**self._about))
            except NotFound:
                return
            try:
                await self._page(0)  # a part that was under way may have arrived after all
            except (NotFound, Misconfigured, Unsupported):
                return  # there is none, or it is not told
        raise StoreFailed(
            f"The upload {self.id} of {self._key!r} to {self._store.name!r} could not be aborted: abort it there."
        )

    async def _page(self, marker: int) -> dict[str, Any]:
        request = self._about | ({"PartNumberMarker": marker} if marker else {})
        return await self._store.call(self._key, lambda client: client.list_parts(**request))


@dataclass(frozen=True, slots=True)
class MarkedObject:
    """An object that is there, and the mark it carries, if any."""

    etag: str
    size: int
    mark: str | None


async def find_marked(store: S3Store, key: str) -> MarkedObject | None:
    """Return what is known of an object without its bytes, None where there is none."""
    try:
        head = await store.call(key, lambda client: client.head_object(Bucket=store.name, Key=key))
    except NotFound:
        return None
    return MarkedObject(_bare(head["ETag"]), int(head["ContentLength"]), head["Metadata"].get(FILE_MARK))


def _bare(etag: object) -> str:
    return str(etag).strip('"')
