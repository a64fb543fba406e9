"""`hsparse.aio.open`: domains for programs of asyncio.

    async with hsparse.aio.open("http://localhost:5101/home/ann/cells.h5") as file:
        x = await file.getitem("X")
        parts = await asyncio.gather(*(x.read(slice(row, row + 100)) for row in range(0, 1000, 100)))
        async for block in x.iter_rows(10_000):
            ...

These are the objects of `hsparse.open`, with their methods, whose requests are sent by a pool of threads: there is one
implementation, and the event loop is never blocked. What may send a request is awaited, properties among them
(`await x.nnz()`), and what yields is an async iterator; `x[key]` is `await x.getitem(key)`. What is known here stays an
attribute (`x.shape`).

At most `requests` calls are under way at a time, others wait in the order they came. Each has an HTTP connection for
itself, so a task that is cancelled disturbs no other one: a call that still waits is not sent, one that was sent ends
in its thread, and **a change that was sent is made**.
"""

from hsparse.aio.async_dataset import AsyncDense, AsyncSparse
from hsparse.aio.async_file import AsyncFile, AsyncFolder, open
from hsparse.aio.async_group import AsyncGroup
from hsparse.aio.async_object import AsyncObject
from hsparse.aio.async_query import AsyncQuery

__all__ = [
    "AsyncDense",
    "AsyncFile",
    "AsyncFolder",
    "AsyncGroup",
    "AsyncObject",
    "AsyncQuery",
    "AsyncSparse",
    "open",
]
