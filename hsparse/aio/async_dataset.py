"""Datasets to await: the methods are those of the client's datasets, which document them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from hsparse.aio.async_mapping import AsyncAttributes
from hsparse.aio.async_object import AsyncObject, Awaited, Iterated
from hsparse.client.dataset import Dataset
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.reductions import ReducedDataset
from hsparse.client.sparse_dataset import OrthogonalIndex, SparseDataset

AnyDataset = TypeVar("AnyDataset", bound=ReducedDataset)


class AsyncDataset(AsyncObject[AnyDataset]):
    """What dense and sparse datasets have in common; `shape` is the last known extent.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         await x.extend(2)
    ...         return x.name, x.shape, await x.max(axis=0)
    >>> asyncio.run(main())
    ('/X', (6, 3), array([4., 3., 2.], dtype=float32))
    """

    @property
    def name(self) -> str | None:
        return self.sync.name

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sync.shape

    @property
    def is_null(self) -> bool:
        return self.sync.is_null

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sync.dtype

    @property
    def ndim(self) -> int:
        return self.sync.ndim

    @property
    def size(self) -> int:
        return self.sync.size

    @property
    def maxshape(self) -> tuple[int | None, ...]:
        return self.sync.maxshape

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.sync.chunks

    @property
    def fillvalue(self) -> Any:
        return self.sync.fillvalue

    @property
    def max_bytes(self) -> int:
        return self.sync.max_bytes

    @max_bytes.setter
    def max_bytes(self, limit: int) -> None:
        self.sync.max_bytes = limit

    @property
    def has_undefined(self) -> bool:
        return self.sync.has_undefined

    @property
    def attrs(self) -> AsyncAttributes:
        return AsyncAttributes(self.sync.attrs, self.pool)

    def __len__(self) -> int:
        return len(self.sync)

    def __bool__(self) -> bool:
        return True

    refresh = Awaited(Dataset.refresh)
    resize = Awaited(Dataset.resize)
    extend = Awaited(Dataset.extend)
    storage = Awaited(Dataset.storage)
    sum = Awaited(ReducedDataset.sum)
    mean = Awaited(ReducedDataset.mean)
    var = Awaited(ReducedDataset.var)
    min = Awaited(ReducedDataset.min)
    max = Awaited(ReducedDataset.max)
    reduce = Awaited(ReducedDataset.reduce)
    product = Awaited(ReducedDataset.product)


class AsyncDense(AsyncDataset[DenseDataset]):
    """A dense dataset.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         d = await file.create_dataset("d", data=[1, 2, 3])
    ...         await d.setitem(0, 7)
    ...         print(await asyncio.gather(d.getitem(slice(2)), d.sum()))
    ...         return [block.tolist() async for block in d.iter_rows(2)]
    >>> asyncio.run(main())
    [array([7, 2]), np.int64(12)]
    [[7, 2], [3]]
    """

    getitem = Awaited(DenseDataset.__getitem__)
    setitem = Awaited(DenseDataset.__setitem__)
    take = Awaited(DenseDataset.take)
    iter_rows = Iterated(DenseDataset.iter_rows)
    to_numpy = Awaited(DenseDataset.to_numpy)
    to_dask = Awaited(DenseDataset.to_dask)


class AsyncSparse(AsyncDataset[SparseDataset]):
    """A sparse dataset.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         await x.write([[1, 1]], [5])
    ...         return await x.nnz(), [block.nnz async for block in x.iter_rows(2)]
    >>> asyncio.run(main())
    (5, [3, 2])
    """

    @property
    def oindex(self) -> AsyncIndex:
        """`await x.oindex.getitem(key)`, whose lists and masks are each for its own dimension."""
        return AsyncIndex(self.sync.oindex, self.pool)

    async def nnz(self) -> int:
        """Return the number of defined elements, zeros among them; one request."""
        return await self.run(lambda: self.sync.nnz)

    async def density(self) -> float:
        """Return the part of the elements that is defined, 0 to 1; one request."""
        return await self.run(lambda: self.sync.density)

    getitem = Awaited(SparseDataset.__getitem__)
    setitem = Awaited(SparseDataset.__setitem__)
    take = Awaited(SparseDataset.take)
    assign = Awaited(SparseDataset.assign)
    iter_rows = Iterated(SparseDataset.iter_rows)
    count = Awaited(SparseDataset.count)
    read = Awaited(SparseDataset.read)
    read_dense = Awaited(SparseDataset.read_dense)
    read_points = Awaited(SparseDataset.read_points)
    defined = Awaited(SparseDataset.defined)
    to_scipy = Awaited(SparseDataset.to_scipy)
    to_coo = Awaited(SparseDataset.to_coo)
    to_arrow = Awaited(SparseDataset.to_arrow)
    to_numpy = Awaited(SparseDataset.to_numpy)
    to_dask = Awaited(SparseDataset.to_dask)
    write = Awaited(SparseDataset.write)
    write_region = Awaited(SparseDataset.write_region)
    append = Awaited(SparseDataset.append)
    append_region = Awaited(SparseDataset.append_region)
    erase = Awaited(SparseDataset.erase)
    erase_points = Awaited(SparseDataset.erase_points)


class AsyncIndex(AsyncObject[OrthogonalIndex]):
    """`x.oindex` of a sparse dataset; `key` asks for labels, if the key has text.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         x = await file.getitem("X")
    ...         return (await x.oindex.getitem(([0, 3], [0, 2]))).toarray()
    >>> asyncio.run(main())
    array([[1., 2.],
           [4., 0.]], dtype=float32)
    """

    getitem = Awaited(OrthogonalIndex.__getitem__)
    setitem = Awaited(OrthogonalIndex.__setitem__)
    key = Awaited(OrthogonalIndex.key)
