"""Error classes and their kinds. Errors have different kinds if the caller must react differently.

`ErrorKind` is append-only, because its values are sent between nodes and appear in logs and responses. HTTP
statuses are in `hsparse.wire.remote_node`.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import ClassVar


class ErrorKind(StrEnum):
    """Stable names of the kinds of errors."""

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
    DAMAGED_FILE = "damaged_file"
    LEFT_OUT = "left_out"
    STORE_FULL = "store_full"


MISSING_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE)
"""Error kinds for an object that was never created or that has been deleted."""
UNREADABLE_KINDS = (ErrorKind.CORRUPT, ErrorKind.DAMAGED_FILE, ErrorKind.UNSUPPORTED)
"""Error kinds for a record that cannot be read because the record is damaged or was written by a newer hsparse."""


class HsparseError(Exception):
    """Base of every error that hsparse raises on purpose; `message` explains the error to the user.

    >>> try:
    ...     f["Y"]
    ... except hsparse.HsparseError as error:
    ...     print(error.kind, "-", error)
    not_found - There is no object /Y in /home/admin/run.h5.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    is_of_proxy = False
    """Whether the error was answered by a proxy or another program that is not a server of the REST API."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.request_id: str | None = None
        """The id of the request that a server answered with this error, or None if the server sent no id."""
        self.status: int | None = None
        """The HTTP status of the server's answer, or None if no server answered."""

    def __str__(self) -> str:
        return self.message  # KeyError, also a base of some errors of the client, would quote it


def reword(error: HsparseError, message: str) -> None:
    """Replace the message of an error."""
    error.message, error.args = message, (message,)


class BadRequest(HsparseError):
    """The request is invalid; sending it again gives the same error."""

    kind = ErrorKind.BAD_REQUEST


class OutOfRange(BadRequest):
    """A coordinate or selection is outside the bounds of a dataset; the message names the coordinate and the bounds."""

    kind = ErrorKind.OUT_OF_RANGE


class Unauthenticated(HsparseError):
    """The request has no credential, or its credential is not valid."""

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
    """The server has no capacity, or too little time before the request's deadline; retry in `retry_after` seconds."""

    kind = ErrorKind.BUSY

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Moved(HsparseError):
    """The request was planned for an extent (a shape of the dataset) that is no longer current."""

    kind = ErrorKind.MOVED


class PreconditionFailed(HsparseError):
    """The object of a conditional put or delete is not in the expected state."""

    kind = ErrorKind.PRECONDITION_FAILED


class Corrupt(HsparseError):
    """Stored bytes cannot be decoded; the message names the object and the section with these bytes."""

    kind = ErrorKind.CORRUPT


class DamagedFile(Corrupt):
    """An HDF5 file that is served in place is damaged; the message names the file, the dataset and the chunk."""

    kind = ErrorKind.DAMAGED_FILE


class StoreFailed(HsparseError):
    """The object store failed, or could not be reached."""

    kind = ErrorKind.STORE_FAILED


class StoreFull(StoreFailed):
    """The object store or a file system is full; the message names the store or the file, and the remedy."""

    kind = ErrorKind.STORE_FULL


FULL = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota of its file system",
}
"""Maps each error number of a full file system to the remedy."""


def unwritten(error: OSError, name: object) -> StoreFailed:
    """Return the error that says that the file `name` cannot be written because of `error` of its file system."""
    code = error.errno or 0
    if code in FULL:
        return StoreFull(f"{name} cannot be written ({error.strerror}); {FULL[code]}.")
    return StoreFailed(f"{name} cannot be written: {error.strerror}.")


class Misconfigured(HsparseError):
    """The installation cannot work as configured; the message names the change that is needed."""

    kind = ErrorKind.MISCONFIGURED


class Unsupported(HsparseError):
    """The request is valid HDF5, but this version does not support it."""

    kind = ErrorKind.UNSUPPORTED


class LeftOut(Unsupported):
    """An object of an HDF5 file cannot be served, so it is omitted; the message names it, the reason and the remedy."""

    kind = ErrorKind.LEFT_OUT


class RateLimited(HsparseError):
    """The caller sent too many requests; the request may succeed after `retry_after` seconds."""

    kind = ErrorKind.RATE_LIMITED

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Misdirected(HsparseError):
    """The message between nodes was planned for a membership that is no longer current; the node changed nothing."""

    kind = ErrorKind.MISDIRECTED


class Unanswered(HsparseError):
    """No data node has confirmed the operation; it may or may not have been carried out."""

    kind = ErrorKind.UNANSWERED


class Outdated(HsparseError):
    """A node uses another message version and carried out nothing; the error message names the two versions."""

    kind = ErrorKind.OUTDATED


class OverQuota(HsparseError):
    """A folder has reached its quota; the message names the folder, the bytes used and the quota."""

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
        StoreFull,
        Misconfigured,
        Unsupported,
        RateLimited,
        Misdirected,
        Unanswered,
        Outdated,
        OverQuota,
        OutOfRange,
        DamagedFile,
        LeftOut,
    )
}
