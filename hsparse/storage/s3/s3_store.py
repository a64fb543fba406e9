"""A store in an S3 bucket, or in any service that speaks the S3 API with conditional puts.

A put whose reply is lost may have been applied, may still be under way, and may have been resent by the HTTP client
or a load balancer. Each conditional put therefore carries a random mark in the object's metadata, and is sent again
on the same condition. If it is then refused because the state has changed, the mark tells whether this put made the
change. The bytes do not tell this: two nodes that count the same event write the same bytes. The bytes are compared
only when a reply was lost on a server that drops metadata.

A conditional delete leaves no mark. After a lost reply it is sent again on the same condition. If no object is left,
the delete has succeeded. If another state exists, the store raises `OutcomeUnknown`, as the delete may or may not have
been applied before that state was put.
"""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from botocore.exceptions import ClientError

from hsparse.errors import BadRequest, HsparseError, NotFound
from hsparse.storage.delegating_store import delete_each
from hsparse.storage.object_store import (
    Buffer,
    Entry,
    OutcomeUnknown,
    Page,
    Stored,
    check_key,
    check_range,
    is_key,
    no_urls,
    resolve_range,
)
from hsparse.storage.s3.own_reply import ForeignReply, has_request_id
from hsparse.storage.s3.s3_client import S3Client

PUT_MARK = "hsparse-put"
"""Metadata name of the random mark that tells which conditional put wrote an object."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
LARGEST_BODY = 1 << 20
"""Largest body in bytes that is sent as one `bytes` object; aiohttp warns of larger objects."""


class S3Store(S3Client):
    """An `ObjectStore` in a bucket; constructed, opened and closed like an `S3Client`."""

    bare_etags = False
    """Whether `If-Match` is sent without quotes, for servers that compare the header literally (radosgw 16)."""

    async def get(self, key: str) -> Stored:
        check_key(key)
        return await self._run(key, lambda: self._get(key))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        check_key(key)
        check_range(key, start, length)
        try:
            return await self._run(key, lambda: self._get_range(key, start, length))
        except BadRequest:
            if start >= 0:
                raise
        # Some servers refuse a suffix longer than the object, which selects the whole object (RFC 9110, 14.1.2).
        whole = await self.get(key)
        first, count = resolve_range(key, start, length, len(whole.data))
        return Stored(whole.data[first : first + count], whole.etag, whole.size)

    async def put(self, key: str, data: Buffer) -> str:
        return await self._put(key, data, {})

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._put(key, data, {"IfNoneMatch": "*"})

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._put(key, data, {"IfMatch": self._condition(etag)})

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._run(key, lambda: self._delete(key, {}))
        except NotFound:
            return  # AWS answers 204 for a missing object, others 404

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)

        async def send() -> None:
            await self._delete(key, {"IfMatch": self._condition(etag)})

        async def settle(failed_condition: HsparseError, uncertain: bool) -> None:
            """Return if the object is gone, even if another client removed it; otherwise raise an error."""
            try:
                await self._head(key)
            except ClientError as error:
                if isinstance(self._verdict(error, key), NotFound):
                    return
                raise
            if uncertain:  # this delete may have been applied, and an object created since
                raise OutcomeUnknown(
                    f"{key!r} has changed, and the reply to its deletion was lost: it is not known whether the "
                    "deletion was applied; read the object again."
                )
            try:
                raise failed_condition
            finally:
                del failed_condition  # breaks the cycle from the error to this frame and back

        await self._run(key, send, settle)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        request = {"Bucket": self.name, "Prefix": prefix, "MaxKeys": self._page_size}
        if delimiter:
            request["Delimiter"] = "/"
        if start_after:
            request["StartAfter"] = start_after
        more = True
        while more:
            reply = await self._list(prefix, request)
            page = _page(reply, prefix, start_after)
            if page.entries or page.prefixes:
                yield page
            more = reply.get("IsTruncated", False)
            if more:
                request["ContinuationToken"] = reply["NextContinuationToken"]

    async def presigned(self, key: str, seconds: int) -> str:
        check_key(key)
        if self._requester_pays:  # a reader of the URL would have to send the signed header
            raise no_urls(self.name)
        about = {"Bucket": self.name, "Key": key}
        return await self._run(
            key, lambda: self._client.generate_presigned_url("get_object", Params=about, ExpiresIn=seconds)
        )

    def _condition(self, etag: str) -> str:
        """Return the value of `If-Match` (RFC 9110, 13.1.1)."""
        return etag if self.bare_etags else f'"{etag}"'

    # --- one request --------------------------------------------------------------------------------

    async def _delete(self, key: str, condition: dict[str, str]) -> None:
        """Delete an object; if the reply has no request id of the store, check that the object is gone."""
        reply = await self._client.delete_object(Bucket=self.name, Key=key, **condition)
        if has_request_id(reply["ResponseMetadata"]["HTTPHeaders"]):
            return
        try:
            await self._head(key)
        except ClientError as error:
            if isinstance(self._verdict(error, key), NotFound):
                return
            raise
        raise ForeignReply(reply["ResponseMetadata"]["HTTPStatusCode"])

    async def _get(self, key: str) -> Stored:
        reply = await self._client.get_object(Bucket=self.name, Key=key)
        data = await _body(reply)
        return Stored(data, _etag(reply), len(data))

    async def _get_range(self, key: str, start: int, length: int | None) -> Stored:
        end = "" if length is None else start + length - 1
        span = f"bytes={start}" if start < 0 else f"bytes={start}-{end}"
        reply = await self._client.get_object(Bucket=self.name, Key=key, Range=span)
        data = await _body(reply)
        if "ContentRange" in reply:
            return Stored(data, _etag(reply), _whole_size(reply["ContentRange"], start, length, len(data)))
        # A server may answer with the whole object.
        first, count = resolve_range(key, start, length, len(data))
        return Stored(data[first : first + count], _etag(reply), len(data))

    async def _list(self, prefix: str, request: dict[str, Any]) -> dict[str, Any]:
        async def send() -> dict[str, Any]:
            reply: dict[str, Any] = await self._client.list_objects_v2(**request)
            goes_on = not reply.get("IsTruncated") or "NextContinuationToken" in reply
            if reply.get("Prefix", prefix) != prefix or not goes_on:
                raise ForeignReply(200)
            return reply

        return await self._run(prefix, send)

    async def _put(self, key: str, data: Buffer, condition: dict[str, str]) -> str:
        check_key(key)
        content = bytes(data)
        mark = self._clock.token(16).hex()
        options = {**condition, "Metadata": {PUT_MARK: mark}} if condition else condition

        async def send() -> str:
            body = content if len(content) <= LARGEST_BODY else io.BytesIO(content)
            return _etag(await self._client.put_object(Bucket=self.name, Key=key, Body=body, **options))

        async def settle(failed_condition: HsparseError, uncertain: bool) -> str:
            try:
                head = await self._head(key)
                found = head["Metadata"].get(PUT_MARK)
                if found == mark:
                    return _etag(head)
                if found is None and uncertain and (stored := await self._get(key)).data == content:
                    return stored.etag
            except ClientError as error:
                if not isinstance(self._verdict(error, key), NotFound):
                    raise
            try:
                raise failed_condition
            finally:
                del failed_condition  # breaks the cycle from the error to this frame and back

        return await self._run(key, send, settle if condition else None)


async def _body(reply: dict[str, Any]) -> bytes:
    """Read the body of a reply, and remove it from the reply."""
    body = reply.pop("Body")
    try:
        async with body:
            data: bytes = await body.read()
        return data
    except Exception as error:  # noqa: BLE001 - raised again
        # The stream keeps its error, and the frames in the error's traceback would keep the stream.
        raise error.with_traceback(None) from None
    finally:
        del body


def _etag(reply: dict[str, Any]) -> str:
    return str(reply["ETag"]).strip('"')


def _whole_size(content_range: str, start: int, length: int | None, got: int) -> int:
    """Return the size of the whole object from a Content-Range such as `bytes 0-99/1234` (RFC 9110, 14.4).

    Raises `ForeignReply` if the header or the `got` bytes received do not match the requested `start` and `length`.
    """
    found = _CONTENT_RANGE.fullmatch(content_range.strip())
    if found is not None:
        first, last, size = map(int, found.groups())
        begin = start if start >= 0 else max(size + start, 0)
        end = size if length is None else min(begin + length, size)
        if first == begin and last == end - 1 and got == end - begin:
            return size
    raise ForeignReply(206)


def _page(reply: dict[str, Any], prefix: str, start_after: str) -> Page:
    """Return the page of a listing's reply, without invalid keys such as the folder markers of consoles.

    Prefix and start are checked again, because some servers do not apply them exactly.
    """
    return Page(
        tuple(
            Entry(item["Key"], item["Size"], _etag(item), item["LastModified"].timestamp())
            for item in reply.get("Contents", ())
            if item["Key"].startswith(prefix) and item["Key"] > start_after and is_key(item["Key"])
        ),
        tuple(
            name
            for name in (item["Prefix"] for item in reply.get("CommonPrefixes", ()))
            if name.startswith(prefix) and name > start_after and is_key(name[:-1])
        ),
    )
