"""Error kinds, by what the caller must do about them.

`ErrorKind` is append-only: its values travel between nodes and appear in logs and answers. HTTP
statuses are in `hsparse.wire.remote_node`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ErrorKind(StrEnum):
    """What went wrong, as a stable name."""

    BAD_REQUEST = "bad_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    GONE = "gone"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    BUSY = "busy"
    MOVED = "moved"
    PRECONDITION_FAILED = "precondition_failed"
    CORRUPT = "corrupt"
    STORE_FAILED = "store_failed"
    MISCONFIGURED = "misconfigured"
    INTERNAL = "internal"
    UNSUPPORTED = "unsupported"
    RATE_LIMITED = "rate_limited"
    MISDIRECTED = "misdirected"
    UNANSWERED = "unanswered"
    OUTDATED = "outdated"
    OVER_QUOTA = "over_quota"
    OUT_OF_RANGE = "out_of_range"


MISSING_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE)
"""The kinds of a missing object: it was never created, or was deleted."""
UNREADABLE_KINDS = (ErrorKind.CORRUPT, ErrorKind.UNSUPPORTED)
"""The kinds of a record that is there and cannot be read: it is damaged, or a newer hsparse wrote it."""


class HsparseError(Exception):
    """Base of every error hsparse raises on purpose; `message` is one sentence for a person.

    >>> try:
    ...     f["Y"]
    ... except hsparse.HsparseError as error:
    ...     print(error.kind, "-", error)
    not_found - There is no object /Y in /home/admin/run.h5.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.request_id: str | None = None
        """The id of the request that a server answered with this error."""
        self.status: int | None = None
        """The HTTP status of that answer."""

    def __str__(self) -> str:
        return self.message  # KeyError, which some errors of the client also are, would quote it


class BadRequest(HsparseError):
    """The request is wrong as sent; sending it again changes nothing."""

    kind = ErrorKind.BAD_REQUEST


class OutOfRange(BadRequest):
    """A place is outside the bounds of a dataset; the message names both."""

    kind = ErrorKind.OUT_OF_RANGE


class Unauthenticated(HsparseError):
    """No credential, or one that does not verify."""

    kind = ErrorKind.UNAUTHENTICATED


class Forbidden(HsparseError):
    """The principal has no right to do this."""

    kind = ErrorKind.FORBIDDEN


class NotFound(HsparseError):
    """The named object was never created."""

    kind = ErrorKind.NOT_FOUND


class Gone(HsparseError):
    """The named object was deleted."""

    kind = ErrorKind.GONE


class Conflict(HsparseError):
    """The request contradicts the current state of the named object."""

    kind = ErrorKind.CONFLICT


class TooLarge(HsparseError):
    """A limit on size was exceeded; the message names the limit."""

    kind = ErrorKind.TOO_LARGE


class Busy(HsparseError):
    """There is no room for it, or no time before its deadline; it may succeed after `retry_after` seconds."""

    kind = ErrorKind.BUSY

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Moved(HsparseError):
    """The request was planned for an extent that is no longer current."""

    kind = ErrorKind.MOVED


class PreconditionFailed(HsparseError):
    """A conditional put found another state than it expected."""

    kind = ErrorKind.PRECONDITION_FAILED


class Corrupt(HsparseError):
    """Stored bytes do not decode; the message names the object and the section."""

    kind = ErrorKind.CORRUPT


class StoreFailed(HsparseError):
    """The object store failed, or could not be reached."""

    kind = ErrorKind.STORE_FAILED


class Misconfigured(HsparseError):
    """The installation cannot work as configured; the message says what to change."""

    kind = ErrorKind.MISCONFIGURED


class Unsupported(HsparseError):
    """The request is valid HDF5 that this version does not do."""

    kind = ErrorKind.UNSUPPORTED


class RateLimited(HsparseError):
    """The caller sent too many requests; the same one may succeed after `retry_after` seconds."""

    kind = ErrorKind.RATE_LIMITED

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Misdirected(HsparseError):
    """The message was planned for a membership that is no longer current; nothing of it was carried out."""

    kind = ErrorKind.MISDIRECTED


class Unanswered(HsparseError):
    """No data node has confirmed the operation: it may have been carried out, or not."""

    kind = ErrorKind.UNANSWERED


class Outdated(HsparseError):
    """A node speaks another version of the messages; the sentence names both. It carried out nothing."""

    kind = ErrorKind.OUTDATED


class OverQuota(HsparseError):
    """A folder takes as many bytes as its quota allows; the message names the folder, what is used and the quota."""

    kind = ErrorKind.OVER_QUOTA


ERRORS: dict[ErrorKind, type[HsparseError]] = {
    error.kind: error
    for error in (
        HsparseError,
        BadRequest,
        Unauthenticated,
        Forbidden,
        NotFound,
        Gone,
        Conflict,
        TooLarge,
        Busy,
        Moved,
        PreconditionFailed,
        Corrupt,
        StoreFailed,
        Misconfigured,
        Unsupported,
        RateLimited,
        Misdirected,
        Unanswered,
        Outdated,
        OverQuota,
        OutOfRange,
    )
}
