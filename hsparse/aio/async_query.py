"""A query of an AnnData to await.

Tests: tests/aio/test_async_file.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.aio.async_object import AsyncObject, Awaited, Iterated
from hsparse.client.anndata.query import Query


class AsyncQuery(AsyncObject[Query]):
    """Rows and columns of an AnnData, see `File.query`; nothing is read before it is needed.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/cells.h5ad") as file:
    ...         found = await file.query("cell_type == 'T'", ["CD3E"])
    ...         return await found.rows(), (await found.to_scipy()).toarray()
    >>> asyncio.run(main())
    (array([0, 3]), array([[1.],
           [4.]], dtype=float32))
    """

    async def n_obs(self) -> int:
        return await self.run(lambda: self.sync.n_obs)

    async def n_vars(self) -> int:
        return await self.run(lambda: self.sync.n_vars)

    async def cuts_columns(self) -> bool:
        return await self.run(lambda: self.sync.cuts_columns)

    async def rows(self) -> NDArray[np.intp]:
        """Return the indices of the rows, (n_obs,)."""
        return await self.run(lambda: self.sync.rows)

    async def variables(self) -> NDArray[np.intp]:
        """Return the indices of the columns, (n_vars,)."""
        return await self.run(lambda: self.sync.variables)

    async def obs(self) -> Any:
        """Return the data frame of the rows."""
        return await self.run(lambda: self.sync.obs)

    async def var(self) -> Any:
        """Return the data frame of the columns."""
        return await self.run(lambda: self.sync.var)

    to_anndata = Awaited(Query.to_anndata)
    to_scipy = Awaited(Query.to_scipy)
    reduce = Awaited(Query.reduce)
    iter = Iterated(Query.iter)
