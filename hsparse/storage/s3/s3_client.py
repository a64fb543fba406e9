"""Client of an S3 bucket: retried requests, and the translation of error replies.

A request is sent again, with exponential backoff and jitter, until it is answered or the operation's
deadline has passed. Only a reply of the store itself is an answer (`hsparse.storage.s3.own_reply`); its error codes
are those of the Amazon S3 API Reference, "Error responses". Only such a code proves absence or a failed condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Self, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from aiohttp import ClientError as TransportError
from botocore import UNSIGNED
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as ConnectFailed
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError
from botocore.utils import parse_timestamp

from hsparse.clock import Clock
from hsparse.errors import (
    BadRequest,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    StoreFull,
    Unsupported,
)
from hsparse.storage.bucket_client import (
    CONNECTIONS,
    PAGE_SIZE,
    REQUEST_SECONDS,
    AccessRefused,
    BucketClient,
    RetryReason,
)
from hsparse.storage.object_store import check_key
from hsparse.storage.s3.own_reply import ForeignReply, check_reply, is_own_code
from hsparse.storage.s3.rotating_credentials import RotatingCredentials

CONNECT_TIMEOUT = 5.0

R = TypeVar("R")

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_LOST = (
    HTTPClientError,
    ConnectFailed,
    IncompleteReadError,
    FlexibleChecksumError,
    ForeignReply,
    ResponseParserError,
    TransportError,
    OSError,
)


class S3Client(BucketClient):
    """A pooled client of one bucket; `open` it first, or use it as a context.

    `endpoint` is the URL of an S3-compatible server, addressed by path; None is AWS. Credentials come from botocore's
    chain (environment, files, instance role) unless given. With `unsigned`, requests are sent without credentials.
    `requester_pays` agrees that the account of the credentials is billed. `deadline` is the time in seconds for one
    operation with all its retries, counted from when one of the `connections` is free; a connection that is silent for
    a third of the deadline counts as lost. Listings have `page_size` keys a page.
    """

    _failures = (BotoCoreError, ClientError, ForeignReply, TransportError, OSError)

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        unsigned: bool = False,
        requester_pays: bool = False,
        deadline: float = REQUEST_SECONDS,
        connections: int = CONNECTIONS,
        page_size: int = PAGE_SIZE,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if unsigned and requester_pays:
            raise Misconfigured(
                f"The bucket {bucket!r} can bill nobody for requests without keys: leave out --unsigned or "
                "--requester-pays."
            )
        super().__init__(
            bucket, deadline=deadline, connections=connections, page_size=page_size, clock=clock, sleep=sleep
        )
        self._unsigned = unsigned
        self._requester_pays = requester_pays
        # Many servers other than AWS refuse the checksum trailers that botocore adds by default.
        checksums = "when_required" if endpoint else "when_supported"
        self._options: dict[str, Any] = {
            "endpoint_url": endpoint,
            "region_name": region,
            "aws_access_key_id": access_key,
            "aws_secret_access_key": secret_key,
            "aws_session_token": session_token,
            "config": AioConfig(
                # Without "s3v4", botocore signs presigned URLs by signature version 2.
                signature_version=UNSIGNED if unsigned else "s3v4",
                connect_timeout=min(CONNECT_TIMEOUT, deadline / 3),
                read_timeout=deadline / 3,
                max_pool_connections=connections,
                retries={"total_max_attempts": 1, "mode": "standard"},
                s3={"addressing_style": "path"} if endpoint else None,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
                # botocore's default describes the platform and is rebuilt for each request, a tenth of its time.
                user_agent="hsparse",
            ),
        }
        self._context: Any = None
        self._credentials = None if unsigned or access_key or secret_key else RotatingCredentials()

    async def open(self) -> Self:
        """Create the pooled client without sending anything."""
        try:
            session = get_session()
            session.register_component("data_loader", _loader())
            if self._credentials is not None:
                session.register_component("credential_provider", self._credentials)
            session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
            self._context = session.create_client("s3", **self._options)
            self._client = await self._context.__aenter__()
            events = self._client.meta.events
            events.register("before-parse.s3", check_reply)
            # Waiting for "100 Continue" costs a round trip, and never ends behind a proxy that does not send it.
            events.unregister("before-call.s3", add_expect_header)
            events.register_last("before-parameter-build.s3", _not_redirected)
            if self._requester_pays:
                events.register("provide-client-params.s3", _with_payer)
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(f"The bucket {self.name!r} cannot be used: {error}") from error
        return self

    async def close(self) -> None:
        if self._client is not None:
            await self._context.__aexit__(None, None, None)
            self._client = None

    async def call(
        self,
        key: str,
        send: Callable[[Any], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None = None,
    ) -> R:
        """Run a request on `key` outside the `ObjectStore` protocol; `send` is called with botocore's client.

        The request may be sent several times, so it must be idempotent. `settle` is called as in `_run`.
        """
        check_key(key)
        return await self._run(key, lambda: send(self._client), settle)

    async def _read_credentials(self) -> bool:
        try:
            return self._credentials is not None and await self._credentials.renew()
        except BotoCoreError:
            return False  # the service's refusal, which caused this reading, is the better error

    async def head(self, key: str) -> dict[str, Any]:
        """Return the store's HEAD reply about an object; raise `NotFound` if the object does not exist."""
        return await self.call(key, lambda _: self._head(key))

    async def _head(self, key: str) -> dict[str, Any]:
        """Send a HEAD and return the reply. A failed HEAD has no body that proves its origin, so a GET follows."""
        try:
            found: dict[str, Any] = await self._client.head_object(Bucket=self.name, Key=key)
        except ClientError as error:
            if is_own_code(error_code(error)):
                raise
        else:
            return found
        reply: dict[str, Any] = await self._client.get_object(Bucket=self.name, Key=key)
        reply.pop("Body").close()
        return reply

    def _told(self, cause: Exception) -> str:
        if isinstance(cause, ClientError):
            status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error_code(cause)
            return f"{status} {code}" if is_own_code(code) else str(ForeignReply(status))
        if isinstance(cause, SSLError):
            return "TLS fails; an endpoint without TLS begins with http://, and AWS_CA_BUNDLE names a private authority"
        return str(cause) if isinstance(cause, ForeignReply) else super()._told(cause)

    def _verdict(self, error: Exception, key: str) -> HsparseError | RetryReason:
        """Return the error to raise or the reason to retry; omit the exception's text, which may hold secrets."""
        if isinstance(error, ClientError):
            code = error_code(error)
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return translate_error_reply(
                code, status, key, self.name, error.operation_name, unsigned=self._unsigned
            )
        if isinstance(error, _NO_CREDENTIALS):
            return AccessRefused(
                f"There are no usable credentials for the bucket {self.name!r}; configure an access key and "
                "its secret, or an instance role. A public bucket is read with --read-only --unsigned."
            )
        if isinstance(error, _LOST):
            return RetryReason.UNCERTAIN
        return StoreFailed(
            f"The request on {key!r} could not be sent to the bucket {self.name!r} ({type(error).__name__}); "
            "check the bucket's name and endpoint."
        )


_REFUSED = {
    "ConditionalRequestConflict",
    "OperationAborted",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_ABSENT = {"NoSuchKey", "NoSuchUpload", "NoSuchVersion"}
_UNCERTAIN_STATUSES = {408, 429, 500, 502, 503, 504}
_OTHER_REGION = {"PermanentRedirect", "IllegalLocationConstraintException"}
_READ, _LIST = "s3:GetObject", "s3:ListBucket"
_RIGHTS = {
    "List": _LIST,
    "Delete": "s3:DeleteObject",
    "Abort": "s3:AbortMultipartUpload",
    **dict.fromkeys(("Put", "Create", "Upload", "Complete"), "s3:PutObject"),
}
"""The right that an operation needs, by the prefix of its name; other operations need s3:GetObject."""
_CREDENTIALS = {
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


_FULL = {
    "XMinioStorageFull": "free space on its disks",
    "XMinioAdminBucketQuotaExceeded": "raise the quota of the bucket",
    "QuotaExceeded": "raise the quota of the bucket, or of its owner",
}
"""Maps error codes of MinIO (two) and Ceph (one) for a full bucket to their remedies."""


def translate_error_reply(
    code: str, status: int, key: str, bucket: str, operation: str = "GetObject", *, unsigned: bool = False
) -> HsparseError | RetryReason:
    """Return the error to raise, or the reason to retry, for the error reply `code` to the API's `operation` on `key`.

    A reply without one of S3's codes does not come from the store, so the request is retried.
    """
    if not is_own_code(code):
        return RetryReason.UNCERTAIN
    if code in _REFUSED:
        return RetryReason.REFUSED
    if code in _FULL or status == 507:
        remedy = _FULL.get(code, "free space there")
        return StoreFull(f"The bucket {bucket!r} has no room for {key!r} ({code}); {remedy}.")
    if code == "NoSuchBucket":
        return Misconfigured(f"There is no bucket {bucket!r}; create it, or name another one.")
    if code in _CREDENTIALS:
        return AccessRefused(f"The bucket {bucket!r} refuses the credentials ({code}); configure valid ones.")
    if code == "RequestTimeTooSkewed":
        return Misconfigured(f"The bucket {bucket!r} refuses this machine's time; set its clock.")
    if code in _OTHER_REGION:
        return Misconfigured(f"The bucket {bucket!r} is in another region; configure its region.")
    if status in (401, 403):
        return _denied(code, key, bucket, operation, unsigned)
    return _by_status(code, status, key, bucket)


def _denied(code: str, key: str, bucket: str, operation: str, unsigned: bool) -> AccessRefused:
    """Return the error of a request that the bucket denies; the message names the missing right."""
    right = next((right for verb, right in _RIGHTS.items() if operation.startswith(verb)), _READ)
    if unsigned:
        remedy = "the bucket is not public: leave out --unsigned, and configure keys with this right"
    elif right in (_READ, _LIST):
        remedy = "grant this right, or use --unsigned for a public bucket, --requester-pays if its readers are billed"
    else:
        remedy = "grant this right, or use --read-only to serve the existing objects"
    if right == _READ:
        right += " (or s3:ListBucket, without which S3 does not tell that there is no such object)"
    return AccessRefused(f"The bucket {bucket!r} denies {right} on {key!r} ({code}); {remedy}.")


def _by_status(code: str, status: int, key: str, bucket: str) -> HsparseError | RetryReason:
    if status in _UNCERTAIN_STATUSES:
        return RetryReason.UNCERTAIN
    if code in _ABSENT:
        return NotFound(f"There is no object {key!r} in {bucket!r}.")
    if code == "PreconditionFailed":
        return PreconditionFailed(f"{key!r} is no longer in the state it was read in; read it again.")
    if status == 416:
        return BadRequest(f"The range of {key!r} starts beyond the object's end.")
    if status in (405, 501):
        return Unsupported(f"The bucket {bucket!r} does not support a request that {key!r} needs ({code}).")
    return StoreFailed(f"The bucket {bucket!r} failed on {key!r} ({status} {code}); see the store's log.")


def _not_redirected(model: Any, context: dict[str, Any], **_: Any) -> None:
    """Stop botocore from following redirects of HeadBucket, which never ends behind a proxy that always redirects."""
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


def _with_payer(params: dict[str, Any], model: Any, **_: Any) -> None:
    """Set `RequestPayer` in each request that supports it; botocore calls this before sending."""
    if "RequestPayer" in model.input_shape.members:
        params["RequestPayer"] = "requester"


def error_code(error: BaseException | None) -> str:
    """Return the server's code in a `ClientError`, or the type name of any other error."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def parse_time(value: Any) -> datetime:
    """Parse a time in a reply. botocore's parser is ten times slower, and takes a tenth of a request's time."""
    if isinstance(value, str) and value[3:4] == ",":  # in headers (RFC 9110, 5.6.7)
        return parsedate_to_datetime(value)
    if isinstance(value, str) and value[10:11] == "T":  # in listings, for each key (ISO 8601)
        return datetime.fromisoformat(value)
    parsed: datetime = parse_timestamp(value)
    return parsed


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return botocore's loader of API descriptions, which is shared because parsing the descriptions takes 50 ms."""
    return get_session().get_component("data_loader")
