"""The client's exceptions: classes of `hsparse.errors` that also derive from Python's built-in ones where these fit.

Both `except hsparse.NotFound` and `except KeyError` catch a missing object. Each error has `kind`, and, if a server
answered, `request_id`, the id of the request in the server's log.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from hsparse.errors import (
    ERRORS,
    BadRequest,
    Conflict,
    ErrorKind,
    Forbidden,
    Gone,
    HsparseError,
    LeftOut,
    NotFound,
    OverQuota,
    StoreFull,
    TooLarge,
    Unauthenticated,
    Unsupported,
    reword,
)
from hsparse.errors import OutOfRange as PlaceOutOfRange


class MissingKey(NotFound, KeyError):
    """The object, link, attribute or label does not exist."""


class MissingFile(MissingKey, FileNotFoundError):
    """The domain does not exist."""


class DeletedKey(MissingKey, Gone):
    """The object or domain was deleted; `except` catches it like one that never existed."""

    kind = ErrorKind.GONE


class PermissionDenied(Forbidden, PermissionError):
    """The user lacks the right for the request."""


class NotSignedIn(Unauthenticated, PermissionError):
    """The server requires a credential, or does not accept the one given."""


class AlreadyExists(Conflict, FileExistsError):
    """An object, a link or a domain of that name exists already."""


class InvalidValue(BadRequest, ValueError):
    """An argument or a request body is invalid."""


class WrongType(BadRequest, TypeError):
    """An argument has an unsuitable type."""


class OutOfRange(PlaceOutOfRange, IndexError):
    """An index is beyond the extent, a mask has another length, or a key has more indices than dimensions."""


class NoSuchAxis(InvalidValue, OutOfRange):
    """The dataset does not have the named axis."""

    kind = ErrorKind.BAD_REQUEST


class ResultTooLarge(TooLarge, MemoryError):
    """A result exceeds the client's memory limit, or a request exceeds the server's limits."""


class QuotaExceeded(OverQuota, OSError):
    """A folder has reached its quota in bytes: delete something below it, or ask an admin for more."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.EDQUOT


class NoSpaceLeft(StoreFull, OSError):
    """The server's store, or a disk that it needs, is full; the message says how to make room."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.ENOSPC


class NotImplementedHere(Unsupported, NotImplementedError):
    """The request is valid HDF5 that this version does not implement."""


class LeftOutKey(LeftOut, KeyError):
    """An object of an HDF5 file is left out of its domain; h5py also raises `KeyError` if it cannot open one."""


class Unreachable(HsparseError, ConnectionError):
    """The server does not answer, or broke off its answer; the message says whether the request may have been done."""


class GatewayFailed(Unreachable):
    """A proxy answered with a 5xx status, because the server did not answer the proxy, or the proxy itself failed."""


class OtherServer(HsparseError):
    """The answer comes from something that is not an HDF REST server, such as a proxy."""


BY_KIND: dict[ErrorKind, type[HsparseError]] = ERRORS | {
    one.kind: one
    for one in (
        MissingKey,
        DeletedKey,
        PermissionDenied,
        NotSignedIn,
        InvalidValue,
        OutOfRange,
        ResultTooLarge,
        QuotaExceeded,
        NoSpaceLeft,
        NotImplementedHere,
        LeftOutKey,
    )
}
"""The client's class for each error kind that a server names."""


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Convert errors of `hsparse.format`, code that the server shares, to the client's classes of the same kinds."""
    try:
        yield
    except HsparseError as error:
        own = BY_KIND[error.kind]
        if type(error) is not ERRORS[error.kind] or own is type(error):
            raise
        raise own(error.message) from error


@contextmanager
def in_own_words(id: str = "", name: str | None = None) -> Iterator[None]:
    """Reword server errors: give the object's path in place of its id, and "maxshape" in place of "maxdims"."""
    try:
        yield
    except HsparseError as error:
        text = error.message.replace("maxdims", "maxshape")
        reword(error, text.replace(id, name) if id and name else text)
        raise
