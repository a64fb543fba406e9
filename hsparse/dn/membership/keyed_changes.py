"""The changes that a data node has applied, by idempotency key, with their replies.

A sender that gets no answer sends a change again. The node then returns the earlier reply, because applying a change
twice, or late, would undo the changes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from hsparse.bounded_cache import ENTRY_BYTES, BoundedCache
from hsparse.errors import Misdirected
from hsparse.wire.codec import decode_frame, encode_frame

R = TypeVar("R")

Key: TypeAlias = tuple[int, str]
"""An idempotency key: the epoch of the membership in which a change was sent, and a name chosen by the sender."""
MAX_KEYS = 100_000
"""The most keys that are remembered; the oldest are forgotten."""
REPLY_BYTES = 32 * 1024 * 1024
"""The most bytes of remembered replies that have content; a message is sent again within seconds.

Replies without content, as to writes, are limited only by `MAX_KEYS`.
"""


class KeyedChanges:
    """The changes that a node has applied, by idempotency keys; see `Routed`."""

    def __init__(self, limit: int = MAX_KEYS, reply_bytes: int | None = None) -> None:
        most = REPLY_BYTES if reply_bytes is None else reply_bytes
        self._attempts: BoundedCache[Key, int] = BoundedCache.of_entries(limit)
        """The number of the last attempt at each change that was sent again."""
        self._done: BoundedCache[Key, None] = BoundedCache.of_entries(limit)
        """The keys of the changes whose reply was None."""
        self._replies: BoundedCache[Key, bytes] = BoundedCache(most, most - ENTRY_BYTES)
        """Other replies, encoded as frames: a decoded reply may be a view that keeps a larger buffer in memory."""
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def once(self, key: Key, attempt: int, work: Callable[[], Awaitable[R]]) -> R:
        """Return the reply of `work`, or the cached reply for `key`; raise `Misdirected` if a later attempt arrived."""
        if attempt > self._attempts.get(key, 0):
            self._attempts.keep(key, attempt)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if attempt < self._attempts.get(key, 0):
                raise Misdirected("This change was sent again later, and only the last attempt counts.")
            if key in self._done:
                return cast(R, None)
            if (frame := self._replies.use(key)) is not None:
                return cast(R, decode_frame(frame))
            reply = await work()
            if reply is None:
                self._done.keep(key, None)
            else:
                frame = b"".join(encode_frame(reply))
                self._replies.keep(key, frame, len(frame))
            return reply
