"""The protocol that every store implements, and the rules for keys and byte ranges that all stores share.

A store maps keys to bytes. Each state of an object has an etag, and conditional puts are part of the protocol.

A key is a non-empty `/`-separated path of printable characters with no empty, `.` or `..` component. The
rules are the same for every store, so that a domain can move between them. An etag is an opaque, non-empty
string; two different states of one key never share one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

from hsparse.errors import BadRequest, NotFound, StoreFailed, Unsupported

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stored:
    """An object (or a range of one) as read: its bytes, the etag of the state they belong to, and that state's size.

    `size` is that of the whole object, in bytes, also of a range. A store that makes an object of something else may
    have what its bytes decode to: `decoded`.
    """

    data: bytes
    etag: str
    size: int
    decoded: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as listed: `size` in bytes, `modified` in seconds since the Unix epoch."""

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing in key order; `prefixes` are the common prefixes when a delimiter was asked."""

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...] = ()


class ObjectStore(Protocol):
    """A flat, durable map from keys to bytes.

    Every method raises `StoreFailed` when the store cannot be reached or misbehaves, after the
    implementation's own retries. A put that returns is durable. A put whose reply was lost is settled
    by the implementation, by reading back: it either returns the new etag or raises.
    """

    name: str
    """The bucket's name, as reported to clients."""

    async def get(self, key: str) -> Stored:
        """Read an object; `NotFound` when there is none."""
        ...

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        """Read `length` bytes from `start`; a negative `start` reads the last `-start` bytes.

        `NotFound` when there is no object, `BadRequest` when `start` is beyond its end. Fewer bytes come
        back where the object ends first.
        """
        ...

    async def put(self, key: str, data: Buffer) -> str:
        """Store an object, whatever is there; return its etag."""
        ...

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        """Store an object only where there is none; `PreconditionFailed` when there is one."""
        ...

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        """Replace the object only while its etag is `etag`; `PreconditionFailed` when it is not, or is gone."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; removing one that is not there is no error."""
        ...

    async def delete_if_match(self, key: str, etag: str) -> None:
        """Remove the object only while its etag is `etag`; `PreconditionFailed` when it has another one.

        `PreconditionFailed` means that this call has removed nothing. An object that is gone is no error: who
        removed it cannot be told once a reply was lost, and nothing of that state is left. `OutcomeUnknown` when
        there is another one, and the reply was lost.
        """
        ...

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Remove each listed object only while its etag is the listed one; durable together on return.

        True for one of which nothing is left, whoever removed it, False for one that has another etag. In any
        order: when the call fails or its process ends, any of them may be removed.
        """
        ...

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        """List keys that begin with `prefix` and sort after `start_after`, page by page, in key order.

        With `delimiter`, keys that have a `/` after the prefix come back once, as the common prefix
        up to and including that `/`.
        """
        ...

    async def presigned(self, key: str, seconds: int) -> str:
        """Return a presigned URL of the object, valid for `seconds`; whether the object exists is not checked.

        `Unsupported` where a store has no URLs.
        """
        ...

    async def close(self) -> None:
        """Release what the store holds open; no method may be called afterwards."""
        ...


@runtime_checkable
class AnsweringStore(Protocol):
    """A store of an extension, which answers what the extension's service asks."""

    async def answer(self, question: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of the service; `Unsupported` for one that it does not know."""
        ...


async def current_etag(store: ObjectStore, key: str) -> str | None:
    """Return the etag of a stored object, None when there is none."""
    try:
        return (await store.get_range(key, 0, 1)).etag
    except NotFound:
        return None
    except BadRequest:  # an empty object has no first byte
        return (await store.get(key)).etag


def no_urls(name: str) -> Unsupported:
    """Return the error of `presigned` for a store that has no URLs."""
    return Unsupported(
        f"The store {name!r} has no URLs that objects can be read by, as S3 has; ask without urls."
    )


class OutcomeUnknown(StoreFailed):
    """The store answers, but the reply to a change was lost: whether that was applied cannot be told."""


PROBE_PREFIX = "db/.probe-"
"""What the keys begin with on which a store's conditions are tried."""
MAX_KEY_BYTES = 1024
MAX_COMPONENT_BYTES = 255
RESERVED = (".tmp-", ".hsparse")
"""Prefixes of components that the posix store reserves for its own files."""


@lru_cache(maxsize=16384)
def check_key(key: str) -> str:
    """Return `key` when it is valid in every store; `BadRequest` names the rule it breaks otherwise.

    A key is at most 1024 bytes of UTF-8, all printable: `/`-separated components of 1 to 255 bytes, none
    of them `.` or `..`, none beginning with `.tmp-` or `.hsparse`.
    """
    if not key.isprintable():
        raise BadRequest(f"The key {key!r} holds an unprintable character; use printable ones only.")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"The key {key[:64]!r}... is longer than {MAX_KEY_BYTES} bytes; use a shorter path.")
    for component in key.split("/"):
        if component in ("", ".", ".."):
            raise BadRequest(f"The key {key!r} has a component {component!r}; name every component.")
        if component.startswith(RESERVED):
            raise BadRequest(f"The key {key!r} has a reserved component {component!r}; use another name.")
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            raise BadRequest(
                f"The key {key[:64]!r}... has a component longer than {MAX_COMPONENT_BYTES} bytes; "
                "use a shorter name."
            )
    return key


def is_key(key: str) -> bool:
    """Tell whether `check_key` accepts `key`; names that another program left in a store may be invalid."""
    try:
        check_key(key)
    except BadRequest:
        return False
    return True


def check_range(key: str, start: int, length: int | None) -> None:
    """Raise `BadRequest` for a range no object can have: a length below 1, or one that cuts a suffix.

    HTTP (RFC 9110, 14.1.2) can express neither an empty range nor a range in the middle of an object counted
    from its end, so no store accepts them.
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
    """Return the first byte and the number of bytes of a range of an object of `size` bytes.

    `BadRequest` when the range holds no byte of the object, as an object store answers 416.
    """
    check_range(key, start, length)
    first = max(size + start, 0) if start < 0 else start
    if first >= size:
        raise BadRequest(f"The range of {key!r} starts at byte {start}, but the object has {size} bytes.")
    return first, size - first if length is None else min(length, size - first)
