"""The errors of the client: those of `hsparse.errors`, by what a server named, which are also Python's own.

`except hsparse.NotFound` and `except KeyError` both catch a missing object. Each has `kind`, and `request_id` if a
server answered: the id that the server's log has for the request.
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
    NotFound,
    OverQuota,
    TooLarge,
    Unauthenticated,
    Unsupported,
)
from hsparse.errors import OutOfRange as PlaceOutOfRange


class MissingKey(NotFound, KeyError):
    """There is no such object, link, attribute or label."""


class MissingFile(MissingKey, FileNotFoundError):
    """There is no such domain."""


class DeletedKey(MissingKey, Gone):
    """The object or domain was deleted: it is missing, as one that was never there."""

    kind = ErrorKind.GONE


class PermissionDenied(Forbidden, PermissionError):
    """The user has no right to do this."""


class NotSignedIn(Unauthenticated, PermissionError):
    """The server needs a credential, or does not know this one."""


class AlreadyExists(Conflict, FileExistsError):
    """There is an object, a link or a domain of that name."""


class InvalidValue(BadRequest, ValueError):
    """An argument, or what was sent, is wrong."""


class WrongType(BadRequest, TypeError):
    """An argument has a type that does not fit."""


class OutOfRange(PlaceOutOfRange, IndexError):
    """An index beyond the extent, a mask of another length, or more indices than there are dimensions."""


class NoSuchAxis(InvalidValue, OutOfRange):
    """An axis that the dataset does not have."""

    kind = ErrorKind.BAD_REQUEST


class ResultTooLarge(TooLarge, MemoryError):
    """A result that the client's limit on memory does not allow, or a request beyond the server's limits."""


class QuotaExceeded(OverQuota, OSError):
    """A folder takes as many bytes as its quota allows: delete something below it, or ask an admin for more."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.EDQUOT


class NotImplementedHere(Unsupported, NotImplementedError):
    """It is valid HDF5 that this version does not do."""


class Unreachable(HsparseError, ConnectionError):
    """The server does not answer, or stopped in the middle; the message says what may have been done."""


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
        NotImplementedHere,
    )
}
"""The class of each kind that a server names."""


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Raise the plain errors of `hsparse.format`, which servers use too, as the client's of their kinds."""
    try:
        yield
    except HsparseError as error:
        own = BY_KIND[error.kind]
        if type(error) is not ERRORS[error.kind] or own is type(error):
            raise
        raise own(error.message) from error


@contextmanager
def in_own_words(id: str = "", name: str | None = None) -> Iterator[None]:
    """Have errors of the server name the object of an id by its path, and an extent's limits as h5py does."""
    try:
        yield
    except HsparseError as error:
        text = error.message.replace("maxdims", "maxshape")
        error.message = text.replace(id, name) if id and name else text
        error.args = (error.message,)
        raise
