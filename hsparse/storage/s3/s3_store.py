"""A store in an S3 bucket, or in anything that speaks the S3 API with conditional puts.

A put whose reply is lost may have been applied, may still be under way, and may have been sent again by the
HTTP client or a load balancer without our knowing. So each conditional put carries a random mark of its own in
the object's metadata, and is sent again on the same condition. Either it succeeds, or it is refused because
the state has changed; then the mark tells whether the change was our own. The bytes would not tell: two nodes
that count the same event write the same ones. They are compared only when a reply was lost on a server that
drops metadata.

A conditional delete leaves no mark. It is sent again on the same condition; nothing left is its success, and another
state after a lost reply is an error of the store, as it is not known whether the delete came before that state.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

from botocore.exceptions import ClientError

from hsparse.errors import BadRequest, HsparseError, NotFound, StoreFailed
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
from hsparse.storage.s3.s3_client import S3Client

PUT_MARK = "hsparse-put"
"""The metadata that tells which conditional put an object is of."""
LARGEST_BODY = 1 << 20
"""Bytes that are sent in one piece; aiohttp warns of more."""


class S3Store(S3Client):
    """An `ObjectStore` in a bucket; constructed, opened and closed as an `S3Client`."""

    bare_etags = False
    """Whether `If-Match` has the etag without quotes, for servers that compare the header as it is (radosgw 16)."""

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
        # Some servers refuse a suffix longer than the object, which RFC 9110, 14.1.2 makes all of it.
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
            await self._run(key, lambda: self._client.delete_object(Bucket=self.name, Key=key))
        except NotFound:
            return  # AWS answers 204 for a missing object, others 404

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)

        async def send() -> None:
            await self._client.delete_object(Bucket=self.name, Key=key, IfMatch=self._condition(etag))

        async def settle(failed_condition: HsparseError, uncertain: bool) -> None:
            """Look what is there: nothing is a success, whoever removed it, and a reply that was lost hides that."""
            try:
                await self._client.head_object(Bucket=self.name, Key=key)
            except ClientError as error:
                if isinstance(self._verdict(error, key), NotFound):
                    return
                raise
            if uncertain:  # ours may have been applied, and an object created since
                raise OutcomeUnknown(
                    f"{key!r} has changed, and the reply to its deletion was lost: whether that was applied is not "
                    "known; read it again."
                )
            try:
                raise failed_condition
            finally:
                del failed_condition  # the error has this frame, and would have itself

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
        if self._requester_pays:  # the reader would have to send the header that is signed
            raise no_urls(self.name)
        about = {"Bucket": self.name, "Key": key}
        return await self._run(
            key, lambda: self._client.generate_presigned_url("get_object", Params=about, ExpiresIn=seconds)
        )

    def _condition(self, etag: str) -> str:
        """Return the value of `If-Match` (RFC 9110, 13.1.1)."""
        return etag if self.bare_etags else f'"{etag}"'

    # --- one request --------------------------------------------------------------------------------

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
            return Stored(data, _etag(reply), _whole_size(reply["ContentRange"], key))
        # A server may answer with the whole object.
        first, count = resolve_range(key, start, length, len(data))
        return Stored(data[first : first + count], _etag(reply), len(data))

    async def _list(self, prefix: str, request: dict[str, Any]) -> dict[str, Any]:
        return await self._run(prefix, lambda: self._client.list_objects_v2(**request))

    async def _put(self, key: str, data: Buffer, condition: dict[str, str]) -> str:
        check_key(key)
        content = bytes(data)
        mark = self._clock.token(16).hex()
        options = {**condition, "Metadata": {PUT_MARK: mark}} if condition else condition

        async def send() -> str:
            # A file is streamed, at the cost of a round trip (Expect: 100-continue).
            body = content if len(content) <= LARGEST_BODY else io.BytesIO(content)
            return _etag(await self._client.put_object(Bucket=self.name, Key=key, Body=body, **options))

        async def settle(failed_condition: HsparseError, uncertain: bool) -> str:
            try:
                head = await self._client.head_object(Bucket=self.name, Key=key)
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
                del failed_condition  # the error has this frame, and would have itself

        return await self._run(key, send, settle if condition else None)


async def _body(reply: dict[str, Any]) -> bytes:
    """Return the body of a reply, and take it out."""
    body = reply.pop("Body")
    try:
        async with body:
            data: bytes = await body.read()
        return data
    except Exception as error:  # noqa: BLE001 - raised again
        # The stream keeps its error, which would keep the stream by its frames.
        raise error.with_traceback(None) from None
    finally:
        del body


def _etag(reply: dict[str, Any]) -> str:
    return str(reply["ETag"]).strip('"')


def _whole_size(content_range: str, key: str) -> int:
    """Return the size of the object that `bytes 0-99/1234` is about (RFC 9110, 14.4)."""
    size = content_range.rpartition("/")[2]
    if not size.isdigit():
        raise StoreFailed(
            f"The answer to a range of {key!r} does not tell the object's size; check the endpoint."
        )
    return int(size)


def _page(reply: dict[str, Any], prefix: str, start_after: str) -> Page:
    """Return a page of a reply, without foreign keys, such as the folder markers of consoles.

    The prefix and the start are looked at again: not every server takes them to the letter.
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
