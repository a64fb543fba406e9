"""Requests on an S3 bucket, sent again until they are answered, and the meaning of error replies.

A request is sent again, with exponential backoff and jitter, until it is answered or the operation's
deadline has passed. The error codes are those of the Amazon S3 API Reference, "Error responses"; other
servers answer with the HTTP status alone, so the status is looked at last.
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
)
from botocore.exceptions import ConnectionError as ConnectFailed
from botocore.utils import parse_timestamp

from hsparse.clock import Clock
from hsparse.errors import (
    BadRequest,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    Unsupported,
)
from hsparse.storage.bucket_client import CONNECTIONS, DEADLINE, PAGE_SIZE, BucketClient, Retry
from hsparse.storage.object_store import check_key

CONNECT_TIMEOUT = 5.0

R = TypeVar("R")

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_LOST = (HTTPClientError, ConnectFailed, IncompleteReadError, FlexibleChecksumError, TransportError, OSError)


class S3Client(BucketClient):
    """A pooled client of one bucket; `open` it first, or use it as a context.

    `endpoint` is the URL of an S3-compatible server, addressed by path; None is AWS. Credentials come
    from botocore's own chain (environment, files, instance role) unless given; `unsigned`, none are looked for.
    `requester_pays` agrees that the account of the credentials is billed. `deadline` in seconds is
    for one operation with all its retries, from when one of the `connections` is free; a connection
    silent for a third of it counts as lost. Listings have `page_size` keys a page.
    """

    _failures = (BotoCoreError, ClientError, TransportError, OSError)

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
        deadline: float = DEADLINE,
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
        # Many servers other than AWS refuse the checksum trailers that botocore adds on its own account.
        checksums = "when_required" if endpoint else "when_supported"
        self._options: dict[str, Any] = {
            "endpoint_url": endpoint,
            "region_name": region,
            "aws_access_key_id": access_key,
            "aws_secret_access_key": secret_key,
            "aws_session_token": session_token,
            "config": AioConfig(
                # "s3v4" for presigned URLs too, which botocore else signs as it did in 2006.
                signature_version=UNSIGNED if unsigned else "s3v4",
                connect_timeout=min(CONNECT_TIMEOUT, deadline / 3),
                read_timeout=deadline / 3,
                max_pool_connections=connections,
                retries={"total_max_attempts": 1, "mode": "standard"},
                s3={"addressing_style": "path"} if endpoint else None,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
                # botocore's own tells of the platform too, and is put together anew for each request: a tenth of it.
                user_agent="hsparse",
            ),
        }
        self._context: Any = None

    async def open(self) -> Self:
        """Create the pooled client; nothing is sent yet."""
        try:
            session = get_session()
            session.register_component("data_loader", _loader())
            session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
            self._context = session.create_client("s3", **self._options)
            self._client = await self._context.__aenter__()
            if self._requester_pays:
                self._client.meta.events.register("provide-client-params.s3", _with_payer)
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
        """Send a request on `key` that is no part of `ObjectStore`; `send` is given botocore's client.

        It is sent again like any other, so it must be idempotent. `settle` is called as in `_run`.
        """
        check_key(key)
        return await self._run(key, lambda: send(self._client), settle)

    def _verdict(self, error: Exception, key: str) -> HsparseError | Retry:
        """Return the error for an exception of the client, without its text, which may hold secrets."""
        if isinstance(error, ClientError):
            code = error_code(error)
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return translate_error_reply(
                code, status, key, self.name, error.operation_name, unsigned=self._unsigned
            )
        if isinstance(error, _NO_CREDENTIALS):
            return Misconfigured(
                f"There are no usable credentials for the bucket {self.name!r}; configure an access key and "
                "its secret, or an instance role. A public bucket is read with --read-only --unsigned."
            )
        if isinstance(error, _LOST):
            return Retry.UNCERTAIN
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
_UNCERTAIN_STATUSES = {408, 429, 500, 502, 503, 504}
_READ, _LIST = "s3:GetObject", "s3:ListBucket"
_RIGHTS = {
    "List": _LIST,
    "Delete": "s3:DeleteObject",
    "Abort": "s3:AbortMultipartUpload",
    **dict.fromkeys(("Put", "Create", "Upload", "Complete"), "s3:PutObject"),
}
"""The right that an operation needs, by how its name begins; others read objects."""
_CREDENTIALS = {
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


def translate_error_reply(
    code: str, status: int, key: str, bucket: str, operation: str = "GetObject", *, unsigned: bool = False
) -> HsparseError | Retry:
    """Return the error for a reply with `code` and HTTP `status` to a request on `key`; `operation` is the API's."""
    if code in _REFUSED:
        return Retry.REFUSED
    if code == "NoSuchBucket":
        return Misconfigured(f"There is no bucket {bucket!r}; create it, or name another one.")
    if code in _CREDENTIALS:
        return Misconfigured(f"The bucket {bucket!r} refuses the credentials ({code}); configure valid ones.")
    if code == "RequestTimeTooSkewed":
        return Misconfigured(f"The bucket {bucket!r} refuses this machine's time; set its clock.")
    if code in ("PermanentRedirect", "IllegalLocationConstraintException") or status == 301:
        return Misconfigured(f"The bucket {bucket!r} is in another region; configure its region.")
    if status in (401, 403):
        return _denied(code, key, bucket, operation, unsigned)
    return _by_status(code, status, key, bucket)


def _denied(code: str, key: str, bucket: str, operation: str, unsigned: bool) -> Misconfigured:
    """Return the error of a request that the bucket does not allow; it names the right that is missing."""
    right = next((right for verb, right in _RIGHTS.items() if operation.startswith(verb)), _READ)
    if unsigned:
        remedy = "it is not public: leave out --unsigned, and configure keys that have it"
    elif right in (_READ, _LIST):
        remedy = (
            "grant it, or use --unsigned if the bucket is public, --requester-pays if its readers are billed"
        )
    else:
        remedy = "grant it, or use --read-only to serve what is there"
    if right == _READ:
        right += " (or s3:ListBucket, without which S3 does not tell that there is no such object)"
    return Misconfigured(f"The bucket {bucket!r} denies {right} on {key!r} ({code}); {remedy}.")


def _by_status(code: str, status: int, key: str, bucket: str) -> HsparseError | Retry:
    if status in _UNCERTAIN_STATUSES:
        return Retry.UNCERTAIN
    if status == 404:
        return NotFound(f"There is no object {key!r} in {bucket!r}.")
    if status == 412:
        return PreconditionFailed(f"{key!r} is no longer in the state it was read in; read it again.")
    if status == 416:
        return BadRequest(f"The range of {key!r} starts beyond the object's end.")
    if status in (405, 501):
        return Unsupported(f"The bucket {bucket!r} does not do what {key!r} needs ({code}).")
    return StoreFailed(f"The bucket {bucket!r} failed on {key!r} ({status} {code}); see the store's log.")


def _with_payer(params: dict[str, Any], model: Any, **_: Any) -> None:
    """Agree to pay in each request that has a field for it; botocore calls this before it sends one."""
    if "RequestPayer" in model.input_shape.members:
        params["RequestPayer"] = "requester"


def error_code(error: BaseException | None) -> str:
    """Return the server's code of a client error, or the name of another error's type."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def parse_time(value: Any) -> datetime:
    """Return a time of a reply, as botocore's own parser does, which takes ten times as long: a tenth of a request."""
    if isinstance(value, str) and value[3:4] == ",":  # RFC 9110, 5.6.7: in headers
        return parsedate_to_datetime(value)
    if isinstance(value, str) and value[10:11] == "T":  # ISO 8601: in listings, for each key
        return datetime.fromisoformat(value)
    parsed: datetime = parse_timestamp(value)
    return parsed


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return botocore's reader of its API descriptions, which takes 50 ms to parse them once."""
    return get_session().get_component("data_loader")
