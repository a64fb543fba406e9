"""Domains and folders to await, and how they are opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from hsparse.aio.async_group import AsyncGroup
from hsparse.aio.async_mapping import AsyncMapping
from hsparse.aio.async_object import Awaited, Iterated
from hsparse.aio.async_query import AsyncQuery
from hsparse.client import file
from hsparse.client.file import File, Folder, Mode

REQUESTS = 8
AsyncOpened: TypeAlias = "AsyncFile | AsyncFolder"


class AsyncFile(AsyncGroup):
    """A domain: its root group.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         return file.filename, file.owner, await file.keys()
    >>> asyncio.run(main())
    ('/home/admin/run.h5', 'admin', ['X'])
    """

    sync: File

    @property
    def filename(self) -> str:
        return self.sync.filename

    @property
    def owner(self) -> str:
        return self.sync.owner

    def refresh(self) -> None:
        """Forget what `query` and labels keep, see `File.refresh`."""
        self.sync.refresh()

    to_anndata = Awaited(File.to_anndata)
    write_anndata = Awaited(File.write_anndata)
    query = Awaited(File.query, AsyncQuery)


class AsyncFolder(AsyncMapping[Folder, AsyncOpened]):
    """A folder of domains and folders.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin") as folder:
    ...         return await folder.contains("run.h5")
    >>> asyncio.run(main())
    True
    """

    @property
    def name(self) -> str:
        return self.sync.name

    create_folder = Awaited(Folder.create_folder, lambda found, pool: AsyncFolder(found, pool))
    records = Iterated(Folder.records)

    def _value(self, found: File | Folder) -> AsyncOpened:
        return _opened(found, self.pool)


@asynccontextmanager
async def open(
    address: str | Path, mode: Mode = "r+", *, requests: int = REQUESTS, **options: Any
) -> AsyncIterator[AsyncOpened]:
    """Open a domain or a folder with the options of `hsparse.open`, until the context ends.

    The end waits for calls that are under way; those that have not begun are cancelled.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         return await asyncio.gather(*(x.count(slice(row, row + 2)) for row in (0, 2)))
    >>> asyncio.run(main())
    [2, 2]
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        pool = ThreadPoolExecutor(requests, "hsparse-aio")
        try:
            found = await loop.run_in_executor(
                pool, partial(copy_context().run, file.open, address, mode, **options)
            )
            opened.push(found)
            yield _opened(found, pool)
        finally:
            await loop.run_in_executor(None, partial(pool.shutdown, cancel_futures=True))


def _opened(found: File | Folder, pool: ThreadPoolExecutor) -> AsyncOpened:
    return AsyncFolder(found, pool) if isinstance(found, Folder) else AsyncFile(found, pool)
