"""The exceptions of the client: they derive from a class of `hsparse.errors`, and from a built-in exception of Python.

`except hsparse.NotFound` and `except KeyError` therefore both catch a missing object. Each error has a `kind` and, if
a server answered, a `request_id`, the id of the request in the server's log.
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
    """The object or domain was deleted; `except MissingKey` catches this error too."""

    kind = ErrorKind.GONE


class PermissionDenied(Forbidden, PermissionError):
    """The user has no right to do what the request asks for."""


class NotSignedIn(Unauthenticated, PermissionError):
    """The request has no credential although the server requires one, or the server rejects the credential."""


class AlreadyExists(Conflict, FileExistsError):
    """An object, a link or a domain with the name of the new one exists already."""


class InvalidValue(BadRequest, ValueError):
    """An argument or a request body is invalid."""


class WrongType(BadRequest, TypeError):
    """An argument has a type that is not accepted, or that cannot be converted."""


class OutOfRange(PlaceOutOfRange, IndexError):
    """An index is outside the extent, a mask has the wrong length, or a key has more indices than dimensions."""


class NoSuchAxis(InvalidValue, OutOfRange):
    """The dataset has no axis with this number or name."""

    kind = ErrorKind.BAD_REQUEST


class ResultTooLarge(TooLarge, MemoryError):
    """A result exceeds the memory limit of the client, or a request exceeds a limit of the server."""


class QuotaExceeded(OverQuota, OSError):
    """A folder has reached its quota in bytes: delete domains in the folder, or ask an admin for a larger quota."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.EDQUOT


class NoSpaceLeft(StoreFull, OSError):
    """The store or a disk of the server is full; the message says how to make space."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.ENOSPC


class NotImplementedHere(Unsupported, NotImplementedError):
    """The request is valid HDF5 that this version does not implement."""


class LeftOutKey(LeftOut, KeyError):
    """The server cannot serve an object of an HDF5 file; also a `KeyError`, as h5py raises for unreadable objects."""


class Unreachable(HsparseError, ConnectionError):
    """The server sent no answer or an incomplete answer; the message says if the request may have been carried out."""


class GatewayFailed(Unreachable):
    """A proxy answered with a 5xx status: the server did not answer the proxy, or the proxy itself failed."""


class OtherServer(HsparseError):
    """The answer comes from a program that is not an HDF REST server, such as a proxy."""


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
"""Maps each kind of error that a server may answer to the class that the client raises."""


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Convert errors of code that client and server share (`hsparse.format`) to the client's class of the same kind."""
    try:
        yield
    except HsparseError as error:
        own = BY_KIND[error.kind]
        if type(error) is not ERRORS[error.kind] or own is type(error):
            raise
        raise own(error.message) from error


@contextmanager
def in_own_words(id: str = "", name: str | None = None) -> Iterator[None]:
    """Reword errors of the server: replace the id of the object by its path, and "maxdims" by "maxshape"."""
    try:
        yield
    except HsparseError as error:
        text = error.message.replace("maxdims", "maxshape")
        reword(error, text.replace(id, name) if id and name else text)
        raise
