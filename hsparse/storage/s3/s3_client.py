"""What an S3 error reply means: an error for the caller, or a reason to send the request again.

The codes are those of the Amazon S3 API Reference, "Error responses"; other servers answer with the HTTP
status alone, so that is looked at last.
"""

from __future__ import annotations

from enum import Enum, auto

from hsparse.errors import (
    BadRequest,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    Unsupported,
)


class Retry(Enum):
    """Why a request is sent again."""

    REFUSED = auto()
    """The server says it did nothing."""
    UNCERTAIN = auto()
    """The request may have been applied: its reply is lost, or says nothing about it."""


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
_CREDENTIALS = {
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


def translate_error_reply(code: str, status: int, key: str, bucket: str) -> HsparseError | Retry:
    """Return what an error reply with `code` and HTTP `status` means for a request on `key`."""
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
    return _by_status(code, status, key, bucket)


def _by_status(code: str, status: int, key: str, bucket: str) -> HsparseError | Retry:
    if status in _UNCERTAIN_STATUSES:
        return Retry.UNCERTAIN
    if status == 404:
        return NotFound(f"There is no object {key!r} in {bucket!r}.")
    if status == 412:
        return PreconditionFailed(f"{key!r} is no longer in the state it was read in; read it again.")
    if status == 416:
        return BadRequest(f"The range of {key!r} starts beyond the object's end.")
    if status in (401, 403):
        return Misconfigured(
            f"The bucket {bucket!r} denies access to {key!r} ({code}); grant s3:GetObject, s3:PutObject, "
            "s3:DeleteObject and s3:ListBucket."
        )
    if status in (405, 501):
        return Unsupported(f"The bucket {bucket!r} does not do what {key!r} needs ({code}).")
    return StoreFailed(f"The bucket {bucket!r} failed on {key!r} ({status} {code}); see the store's log.")
