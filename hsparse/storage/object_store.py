"""The protocol that every store implements, and the rules for keys and byte ranges that all stores share.

A store maps keys to bytes. Each state of an object has an etag, and conditional puts are part of the protocol.

A key is a non-empty `/`-separated path of printable characters with no empty, `.` or `..` component. The
rules are the same for every store, so that a domain can move between stores. An etag is an opaque, non-empty
string; two different states of one key never share an etag.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

from hsparse.errors import BadRequest, Corrupt, NotFound, StoreFailed, Unsupported
from hsparse.printable import is_printable

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stored:
    """An object, or a byte range of an object, as read from a store.

    `etag` is the object's etag when it was read. `size` is the size of the whole object in bytes, even if `data` is a
    range. A store that generates its objects may set `decoded`, the value that `data` decodes to.
    """

    data: bytes
    etag: str
    size: int
    decoded: Any = None

    def damaged(self, error: Corrupt) -> Corrupt:
        """Return the error to raise when decoding `data` failed with `error`; a subclass may return another error."""
        return error


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing: `size` in bytes, `modified` in seconds since the Unix epoch."""

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing in key order; `prefixes` are the common prefixes if the listing has a delimiter."""

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...] = ()


class ObjectStore(Protocol):
    """A flat, durable map from keys to bytes.

    Every method raises `StoreFailed` when the store cannot be reached or misbehaves, after the
    implementation's own retries. A put that returns is durable. If the reply of a put is lost, the
    implementation reads the object back, and then either returns the new etag or raises.
    """

    name: str
    """The bucket's name, as reported to clients."""

    async def get(self, key: str) -> Stored:
        """Read an object; raise `NotFound` if it does not exist."""
        ...

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        """Read `length` bytes from `start`; a negative `start` reads the last `-start` bytes.

        Raises `NotFound` when the object does not exist, `BadRequest` when `start` is beyond its end. Returns
        fewer bytes if the object ends before the range does.
        """
        ...

    async def put(self, key: str, data: Buffer) -> str:
        """Store an object, replacing any existing object of this key; return the new etag."""
        ...

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        """Store an object and return its etag; raise `PreconditionFailed` when the key exists."""
        ...

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        """Replace the object if its etag is `etag`, or raise `PreconditionFailed`; return the new etag."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; removing a missing object is not an error."""
        ...

    async def delete_if_match(self, key: str, etag: str) -> None:
        """Remove the object whose etag is `etag`; raise `PreconditionFailed` when it has another etag.

        `PreconditionFailed` means that this call has removed nothing. A missing object is not an error: if a reply was
        lost, this call may have removed it. Raises `OutcomeUnknown` when a reply was lost and an object with another
        etag exists.
        """
        ...

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Remove each object that still has its listed etag; all removals are durable on return.

        Returns one flag per entry: True if the object no longer exists, False if it has another etag. The order of the
        removals is unspecified: if the call fails or its process ends, any subset of the objects may have been removed.
        """
        ...

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        """List keys that begin with `prefix` and sort after `start_after`, page by page, in key order.

        With `delimiter`, keys that have a `/` after `prefix` are not listed themselves. As in S3, each distinct
        beginning of such keys, up to and including that `/`, is listed once as a common prefix.
        """
        ...

    async def presigned(self, key: str, seconds: int) -> str:
        """Return a presigned URL of the object, valid for `seconds`, without checking that the object exists.

        Raises `Unsupported` when the store has no URLs.
        """
        ...

    async def close(self) -> None:
        """Release the store's connections, files and threads; no method may be called afterwards."""
        ...


@runtime_checkable
class AnsweringStore(Protocol):
    """A store, provided by an extension, that also answers questions from the extension's code in service nodes."""

    async def answer(self, question: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to the named question as JSON; raise `Unsupported` for an unknown question."""
        ...


async def current_etag(store: ObjectStore, key: str) -> str | None:
    """Return the etag of a stored object, or None if the object does not exist."""
    try:
        return (await store.get_range(key, 0, 1)).etag
    except NotFound:
        return None
    except BadRequest:  # an empty object has no first byte
        return (await store.get(key)).etag


def no_urls(name: str) -> Unsupported:
    """Return the error that `presigned` raises in a store without URLs."""
    return Unsupported(
        f"The store {name!r} cannot sign URLs of objects, unlike S3; send the request without urls."
    )


class OutcomeUnknown(StoreFailed):
    """The reply to a change was lost, and the state of the object does not show whether the change was applied."""


PROBE_PREFIX = "db/.probe-"
"""Prefix of the keys on which a store's conditional requests are probed at start-up."""
MAX_KEY_BYTES = 1024
MAX_COMPONENT_BYTES = 255
RESERVED = (".tmp-", ".hsparse")
"""Prefixes of components that the posix store reserves for its own files."""


@lru_cache(maxsize=16384)
def check_key(key: str) -> str:
    """Return `key` if it is valid in every store; otherwise raise a `BadRequest` that names the broken rule.

    A key has at most 1024 bytes of UTF-8, all printable characters or spaces. Its `/`-separated components have 1 to
    255 bytes; none is `.` or `..`, and none begins with `.tmp-` or `.hsparse`.
    """
    if not is_printable(key):
        raise BadRequest(f"The key {key!r} has an unprintable character; use only printable characters.")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"The key {key[:64]!r}... is longer than {MAX_KEY_BYTES} bytes; use a shorter path.")
    for component in key.split("/"):
        if component in ("", ".", ".."):
            raise BadRequest(f"The key {key!r} has the invalid component {component!r}; use another name.")
        if component.startswith(RESERVED):
            raise BadRequest(f"The key {key!r} has a reserved component {component!r}; use another name.")
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            raise BadRequest(
                f"The key {key[:64]!r}... has a component longer than {MAX_COMPONENT_BYTES} bytes; "
                "use a shorter name."
            )
    return key


def is_key(key: str) -> bool:
    """Tell whether `check_key` accepts `key`; other programs may have left invalid names in a store."""
    try:
        check_key(key)
    except BadRequest:
        return False
    return True


def check_range(key: str, start: int, length: int | None) -> None:
    """Raise `BadRequest` for a range that HTTP cannot express (RFC 9110, 14.1.2).

    `length` must be at least 1. A range that starts at an offset from the object's end (negative `start`) must reach
    the end.
    """
    if length is None:
        return
    if length < 1:
        raise BadRequest(f"The range of {key!r} has length {length}; ask for at least one byte.")
    if start < 0 and length < -start:
        raise BadRequest(
            f"The range of {key!r} starts {-start} bytes before the end but has length {length}; "
            "read the whole suffix."
        )


def resolve_range(key: str, start: int, length: int | None, size: int) -> tuple[int, int]:
    """Return a pair: the first byte and the number of bytes of a range in an object of `size` bytes.

    Raises `BadRequest` when the range holds no byte of the object; S3 answers 416 to such a range.
    """
    check_range(key, start, length)
    first = max(size + start, 0) if start < 0 else start
    if first >= size:
        raise BadRequest(f"The range of {key!r} starts at byte {start}, but the object has {size} bytes.")
    return first, size - first if length is None else min(length, size - first)
