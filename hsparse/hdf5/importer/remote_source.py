"""Read byte ranges of a remote file; one request fetches small ranges that are close together.

Requests are coroutines on an event loop in a separate thread; any number of threads may wait for results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer.block_cache import BlockCache, Blocks
from hsparse.hdf5.importer.opening_reads import Begin, OpeningReads
from hsparse.hdf5.importer.source import InputFile

Result = TypeVar("Result")
Get = Callable[[ByteRange], Coroutine[Any, Any, bytes]]
"""Returns the bytes of a range of a file; raises `Conflict` if the file has changed."""


class LoopThread:
    """A thread that runs an event loop, for coroutines whose results other threads wait for."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine; return a future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine; wait for its result and return it."""
        return self.start(work).result()

    def close(self, last: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Cancel all running coroutines, run `last`, and end the thread."""
        self.wait(self._end(last))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, last: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await last()


class RemoteSource(InputFile):
    """A remote file in one state; `get` fetches ranges of the file on the event loop of `thread`.

    Concurrent threads that need the same block share one request. Several files may share a cache of `blocks`.
    """

    is_far = True

    def __init__(
        self, name: str, size: int, etag: str, thread: LoopThread, get: Get, blocks: Blocks | None = None
    ) -> None:
        self.name, self.size, self.fingerprint = name, size, etag
        self._begin: Begin = lambda one: thread.start(get(one))
        self._cache = BlockCache(size, self._begin, blocks)
        self._opening: OpeningReads | None = None

    def close(self) -> None:
        """Do nothing: the connections belong to the object that opened the file."""

    @contextmanager
    def opening(self) -> Iterator[None]:
        self._opening = OpeningReads(self.size, self._begin)
        try:
            yield
            for start, data in self._opening.fetched():
                self._cache.add(start, data)
        finally:
            self._opening = None

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return (self._opening or self._cache).read(wanted)
