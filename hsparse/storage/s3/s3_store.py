"""A store in an S3 bucket, or in anything that speaks the S3 API with conditional puts.

A request is sent again, with exponential backoff and jitter, until it is answered or the operation's
deadline has passed. A put that was answered by nothing may have been applied, may still be under way, and
may have been sent again by the HTTP client or a load balancer without our knowing. So a conditional put
carries a random mark of its own in the object's metadata, and is sent again on the same condition: it
succeeds, or is refused because the state has changed, and then the mark tells whether the change was our
own. The bytes would not: two nodes that count the same event write the same ones. They are looked at only
when a reply was lost on a server that drops metadata.
"""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from aiohttp import ClientError as TransportError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as ConnectFailed

from hsparse.clock import Clock, SystemClock
from hsparse.errors import BadRequest, HsparseError, Misconfigured, NotFound, PreconditionFailed, StoreFailed
from hsparse.storage.object_store import (
    Buffer,
    Entry,
    Page,
    Stored,
    check_key,
    check_range,
    is_key,
    resolve_range,
)
from hsparse.storage.s3.s3_client import Retry, translate_error_reply

PAGE_SIZE = 1000
PUT_MARK = "hsparse-put"
"""The metadata that tells which conditional put an object is of."""
CONNECT_TIMEOUT = 5.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
LARGEST_BODY = 1 << 20
"""Bytes that are sent in one piece; aiohttp warns of more."""

R = TypeVar("R")

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_LOST = (HTTPClientError, ConnectFailed, IncompleteReadError, FlexibleChecksumError, TransportError, OSError)


class S3Store:
    """An `ObjectStore` in `bucket`; `open` it first, or use it as a context.

    `endpoint` is the URL of an S3-compatible server, addressed by path; None is AWS. Credentials come
    from botocore's own chain (environment, files, instance role) unless given. `deadline` in seconds is
    for one operation with all its retries, from when one of the `connections` is free; a connection
    silent for a third of it counts as lost.
    """

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        deadline: float = 30.0,
        connections: int = 64,
        page_size: int = PAGE_SIZE,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = bucket
        self._deadline = deadline
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._sleep = sleep
        # Many servers other than AWS refuse the checksum trailers that botocore adds on its own account.
        checksums = "when_required" if endpoint else "when_supported"
        self._options: dict[str, Any] = {
            "endpoint_url": endpoint,
            "region_name": region,
            "aws_access_key_id": access_key,
            "aws_secret_access_key": secret_key,
            "aws_session_token": session_token,
            "config": AioConfig(
                signature_version="s3v4",  # presigned URLs too, which botocore else signs as it did in 2006
                connect_timeout=min(CONNECT_TIMEOUT, deadline / 3),
                read_timeout=deadline / 3,
                max_pool_connections=connections,
                retries={"total_max_attempts": 1, "mode": "standard"},
                s3={"addressing_style": "path"} if endpoint else None,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
            ),
        }
        self._slots = asyncio.Semaphore(connections)
        self._context: Any = None
        self._client: Any = None

    async def open(self) -> S3Store:
        """Make the pooled client; nothing is sent yet."""
        try:
            session = get_session()
            session.register_component("data_loader", _loader())
            self._context = session.create_client("s3", **self._options)
            self._client = await self._context.__aenter__()
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(f"The bucket {self.name!r} cannot be used: {error}") from error
        return self

    async def close(self) -> None:
        if self._client is not None:
            await self._context.__aexit__(None, None, None)
            self._client = None

    async def __aenter__(self) -> S3Store:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        return await self._put(key, data, {"IfMatch": f'"{etag}"'})

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._run(key, lambda: self._client.delete_object(Bucket=self.name, Key=key))
        except NotFound:
            return  # AWS answers 204 for a missing object, others 404

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
        about = {"Bucket": self.name, "Key": key}
        return await self._run(
            key, lambda: self._client.generate_presigned_url("get_object", Params=about, ExpiresIn=seconds)
        )

    async def call(
        self,
        key: str,
        send: Callable[[Any], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None = None,
    ) -> R:
        """Send a request on `key` that is no part of `ObjectStore`: `send` is given botocore's client.

        It is sent again as any other is, so twice must be as good as once. `settle` is given a condition that failed,
        or a `NotFound`, as in `_run`.
        """
        check_key(key)
        return await self._run(key, lambda: send(self._client), settle)

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

        async def settle(refusal: HsparseError, uncertain: bool) -> str:
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
            raise refusal

        return await self._run(key, send, settle if condition else None)

    # --- retries ------------------------------------------------------------------------------------

    async def _run(
        self,
        key: str,
        send: Callable[[], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None = None,
    ) -> R:
        """Send until there is an answer, from when a connection is free.

        A condition that failed is for `settle`: given the refusal, and whether a reply was lost before
        it, it either returns what `send` would have or raises the refusal.
        """
        assert self._client is not None, "open the store before its first use, and do not use it when closed"
        async with self._slots:
            return await self._retry(key, send, settle)

    async def _retry(
        self,
        key: str,
        send: Callable[[], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None,
    ) -> R:
        started = self._clock.monotonic()
        uncertain = False
        refusal: HsparseError | None = None
        for attempt in itertools.count():
            left = self._deadline - (self._clock.monotonic() - started)
            try:
                async with asyncio.timeout(left):
                    if refusal is not None and settle is not None:
                        return await settle(refusal, uncertain)
                    return await send()
            except (BotoCoreError, ClientError, TransportError, OSError) as error:
                verdict = self._verdict(error, key)
                cause = error
            if isinstance(verdict, NotFound) and settle is not None:  # the answer to If-Match on nothing
                verdict = PreconditionFailed(f"{key!r} is gone; create it anew.")
            if isinstance(verdict, PreconditionFailed) and settle is not None:
                refusal = verdict
                continue
            if isinstance(verdict, HsparseError):
                raise verdict from cause
            uncertain = uncertain or (refusal is None and verdict is Retry.UNCERTAIN)
            pause = self._pause(attempt)
            if self._clock.monotonic() - started + pause >= self._deadline:
                break
            await self._sleep(pause)
        raise StoreFailed(
            f"The bucket {self.name!r} gave no answer on {key!r} in {self._deadline:g} s "
            f"({type(cause).__name__}); check the endpoint and the network, then try again."
        ) from cause

    def _pause(self, attempt: int) -> float:
        """Return seconds between half of this attempt's backoff and all of it."""
        longest = min(FIRST_PAUSE * 2.0 ** min(attempt, 10), LONGEST_PAUSE)
        jitter = int.from_bytes(self._clock.token(4), "big") / 2**32
        return longest * (1 + jitter) / 2

    def _verdict(self, error: Exception, key: str) -> HsparseError | Retry:
        """Return what an exception of the client means; its text may hold secrets, so none is passed on."""
        if isinstance(error, ClientError):
            code = error_code(error)
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return translate_error_reply(code, status, key, self.name)
        if isinstance(error, _NO_CREDENTIALS):
            return Misconfigured(
                f"There are no usable credentials for the bucket {self.name!r}; configure an access key and "
                "its secret, or an instance role."
            )
        if isinstance(error, _LOST):
            return Retry.UNCERTAIN
        return StoreFailed(
            f"The request on {key!r} could not be sent to the bucket {self.name!r} ({type(error).__name__}); "
            "check the bucket's name and endpoint."
        )


def error_code(error: BaseException | None) -> str:
    """Return the code that a server gave for an error of its client, else the error's own name."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return botocore's reader of its API descriptions, which takes 50 ms to parse them once."""
    return get_session().get_component("data_loader")


async def _body(reply: dict[str, Any]) -> bytes:
    async with reply["Body"] as body:
        data: bytes = await body.read()
    return data


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
    """Return a page of a reply, without what is no key of ours (such as consoles' folder markers).

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
