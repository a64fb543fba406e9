"""`hsparse.aio.open`: domains for programs of asyncio.

These are the objects of `hsparse.open`, whose requests are sent by a pool of threads: there is one implementation, and
the event loop is never blocked. At most `requests` calls are under way at a time, others wait in the order they came.
Each has an HTTP connection for itself, so a task that is cancelled disturbs no other one: a call that still waits is
not sent, one that was sent ends in its thread, and **a change that was sent is made**.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client import file
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.file import Folder, Mode
from hsparse.client.group import Group, Member, NamedType
from hsparse.client.indexing.key_items import Key
from hsparse.client.indexing.select import Select
from hsparse.client.reductions import Axis, Operation, ReducedDataset
from hsparse.client.sparse_dataset import SparseDataset

T = TypeVar("T")
Wrapped = TypeVar("Wrapped")
AnyDataset = TypeVar("AnyDataset", SparseDataset, DenseDataset)
REQUESTS = 8


AsyncMember: TypeAlias = "AsyncGroup | AsyncSparse | AsyncDense | AsyncObject[NamedType]"


class AsyncObject(Generic[Wrapped]):
    """An object of `hsparse.open`, `sync`, and the threads that call it.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         return file.sync.filename
    >>> asyncio.run(main())
    '/home/admin/run.h5'
    """

    def __init__(self, sync: Wrapped, pool: ThreadPoolExecutor) -> None:
        self.sync = sync
        self._pool = pool

    def __repr__(self) -> str:
        return f"<async {self.sync!r}>"

    async def run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Return `call(*args, **options)`, which a thread of the pool does: for methods that have no name here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(copy_context().run, call, *args, **options))


class AsyncGroup(AsyncObject[Group]):
    """A group.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         await file.create_group("runs")
    ...         return await file.keys()
    >>> asyncio.run(main())
    ['X', 'runs']
    """

    @property
    def name(self) -> str:
        return self.sync.name

    async def getitem(self, path: str) -> AsyncMember:
        """Return the object at a path, see `Group`."""
        return _member(await self.run(self.sync.__getitem__, path), self._pool)

    async def keys(self) -> list[str]:
        """Return the names in the group."""
        return await self.run(list, self.sync)

    async def attrs(self) -> dict[str, Any]:
        """Return the attributes."""
        return await self.run(dict, self.sync.attrs)

    async def create_group(self, path: str) -> AsyncGroup:
        """See `Group.create_group`."""
        return AsyncGroup(await self.run(self.sync.create_group, path), self._pool)

    async def create_dataset(self, path: str, *args: Any, **options: Any) -> AsyncDense:
        """See `Group.create_dataset`."""
        return AsyncDense(await self.run(self.sync.create_dataset, path, *args, **options), self._pool)

    async def create_sparse(self, path: str, *args: Any, **options: Any) -> AsyncSparse:
        """See `Group.create_sparse`."""
        return AsyncSparse(await self.run(self.sync.create_sparse, path, *args, **options), self._pool)


class AsyncDataset(AsyncObject[AnyDataset]):
    """What dense and sparse datasets have in common; `shape` is the last known extent.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         return x.dtype, await asyncio.gather(x.sum(axis=0), x.max())
    >>> asyncio.run(main())
    (dtype('float32'), [array([5., 3., 2.], dtype=float32), np.float32(4.0)])
    """

    @property
    def _dataset(self) -> ReducedDataset:
        return self.sync

    @property
    def shape(self) -> tuple[int, ...]:
        return self._dataset.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dataset.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self._dataset.chunks

    async def attrs(self) -> dict[str, Any]:
        """Return the attributes."""
        return await self.run(dict, self._dataset.attrs)

    async def refresh(self) -> tuple[int, ...]:
        """Ask for the extent and return it."""
        return await self.run(self._dataset.refresh)

    async def resize(self, shape: Sequence[int], *, erase: bool = False) -> None:
        """See `Dataset.resize`."""
        await self.run(self._dataset.resize, shape, erase=erase)

    async def extend(self, count: int, axis: int = 0) -> slice:
        """See `Dataset.extend`."""
        return await self.run(self._dataset.extend, count, axis)

    async def sum(self, axis: Axis = None) -> Any:
        """See `ReducedDataset.sum`."""
        return await self.run(self._dataset.sum, axis)

    async def mean(self, axis: Axis = None) -> Any:
        """See `ReducedDataset.mean`."""
        return await self.run(self._dataset.mean, axis)

    async def var(self, axis: Axis = None, *, ddof: int = 0) -> Any:
        """See `ReducedDataset.var`."""
        return await self.run(self._dataset.var, axis, ddof=ddof)

    async def min(self, axis: Axis = None) -> Any:
        """See `ReducedDataset.min`."""
        return await self.run(self._dataset.min, axis)

    async def max(self, axis: Axis = None) -> Any:
        """See `ReducedDataset.max`."""
        return await self.run(self._dataset.max, axis)

    async def reduce(self, *operations: Operation, **options: Any) -> dict[str, NDArray[Any]]:
        """See `ReducedDataset.reduce`."""
        return await self.run(self._dataset.reduce, *operations, **options)


class AsyncDense(AsyncDataset[DenseDataset]):
    """A dense dataset.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         d = await file.create_dataset("d", data=[1, 2, 3])
    ...         await d.setitem(0, 7)
    ...         return await d.getitem(slice(2))
    >>> asyncio.run(main())
    array([7, 2])
    """

    async def getitem(self, key: Key) -> Any:
        """Return the values that a key of numpy selects."""
        return await self.run(self.sync.__getitem__, key)

    async def setitem(self, key: Key, values: ArrayLike) -> None:
        """Set the values that a key of numpy selects."""
        await self.run(self.sync.__setitem__, key, values)


class AsyncSparse(AsyncDataset[SparseDataset]):
    """A sparse dataset; its methods are those of `SparseDataset`.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         await x.write([[1, 1]], [5])
    ...         return await x.count(), await x.to_numpy(1)
    >>> asyncio.run(main())
    (5, array([0., 5., 0.], dtype=float32))
    """

    async def getitem(self, key: Key) -> Any:
        """Return `x[key]`: an array of scipy or `sparse`."""
        return await self.run(self.sync.__getitem__, key)

    async def setitem(self, key: Key, values: Any) -> None:
        """Assign to `x[key]`."""
        await self.run(self.sync.__setitem__, key, values)

    async def to_scipy(self, format: str = "csr", key: Select = ...) -> Any:
        """See `SparseDataset.to_scipy`."""
        return await self.run(self.sync.to_scipy, format, key)

    async def to_coo(self, key: Select = ...) -> Any:
        """See `SparseDataset.to_coo`."""
        return await self.run(self.sync.to_coo, key)

    async def to_numpy(self, key: Select = ...) -> NDArray[Any]:
        """See `SparseDataset.to_numpy`."""
        return await self.run(self.sync.to_numpy, key)

    async def read(self, select: Select = None) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Return the defined elements of the selection: coordinates (n, rank) and values (n,)."""
        return await self.run(self.sync.read, select)

    async def read_dense(self, select: Select = None) -> NDArray[Any]:
        """Return every selected value, the fill value where undefined."""
        return await self.run(self.sync.read_dense, select)

    async def read_points(self, coords: ArrayLike) -> NDArray[Any]:
        """Return the values at `coords`."""
        return await self.run(self.sync.read_points, coords)

    async def defined(self, select: Select = None) -> NDArray[np.uint64]:
        """Return the coordinates of the defined elements of the selection."""
        return await self.run(self.sync.defined, select)

    async def count(self, select: Select = None) -> int:
        """Return how many of the selected elements are defined."""
        return await self.run(self.sync.count, select)

    async def write(self, coords: ArrayLike, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define the elements at `coords`."""
        await self.run(self.sync.write, coords, values, drop_fill=drop_fill)

    async def write_region(self, select: Select, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define every selected element."""
        await self.run(self.sync.write_region, select, values, drop_fill=drop_fill)

    async def append(
        self,
        block: Any,
        values: ArrayLike | None = None,
        *,
        count: int | None = None,
        axis: int = 0,
        drop_fill: bool = False,
    ) -> slice:
        """Grow a dimension and define elements there, as one change."""
        return await self.run(self.sync.append, block, values, count=count, axis=axis, drop_fill=drop_fill)

    async def erase(self, select: Select = None) -> None:
        """Make the selected elements undefined."""
        await self.run(self.sync.erase, select)


class AsyncFolder(AsyncObject[Folder]):
    """A folder of domains.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin") as folder:
    ...         return "run.h5" in await folder.keys()
    >>> asyncio.run(main())
    True
    """

    async def getitem(self, name: str) -> AsyncFolder | AsyncGroup:
        """Return a domain or folder in it."""
        found = await self.run(self.sync.__getitem__, name)
        return AsyncFolder(found, self._pool) if isinstance(found, Folder) else AsyncGroup(found, self._pool)

    async def keys(self) -> list[str]:
        """Return the names of the domains and folders in it."""
        return await self.run(list, self.sync)


@asynccontextmanager
async def open(
    address: str | Path, mode: Mode = "r+", *, requests: int = REQUESTS, **options: Any
) -> AsyncIterator[AsyncGroup | AsyncFolder]:
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
            opened.callback(found.close)
            yield AsyncFolder(found, pool) if isinstance(found, Folder) else AsyncGroup(found, pool)
        finally:
            await loop.run_in_executor(None, partial(pool.shutdown, cancel_futures=True))


def _member(found: Member, pool: ThreadPoolExecutor) -> AsyncMember:
    if isinstance(found, Group):
        return AsyncGroup(found, pool)
    if isinstance(found, SparseDataset):
        return AsyncSparse(found, pool)
    return AsyncDense(found, pool) if isinstance(found, DenseDataset) else AsyncObject(found, pool)
