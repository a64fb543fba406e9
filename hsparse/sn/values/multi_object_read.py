"""Multi-object reads: the values of many datasets in one answer, for files that have many small datasets.

The answer has a part for each dataset, in the order of the request. A part is a sequence of blocks, ended by a block of
length 0. A block is its length in bytes as a little-endian u64, followed by the bytes. The joined bytes of a dense part
are the selected values in C order; the joined bytes of a sparse part are an Arrow stream of the defined elements.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.concurrency.gathering import gather_each
from hsparse.errors import BadRequest, Moved, TooLarge
from hsparse.format.selections.points import Selection
from hsparse.format.selections.signed_extent import corner_of, first_of
from hsparse.sn.records.dataset import StoredDataset, load_datasets
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.media.arrow import defined_batches
from hsparse.sn.values.media.medium import ValueRead
from hsparse.sn.values.request_selection import select_selection
from hsparse.sn.values.url_selection import resolved

MAX_DATASETS = 10_000
AT_ONCE = 32
"""The number of concurrent reads of small datasets."""
STREAM_PAGES = 4
"""The number of pages in memory: one is sent while the next is read, and vlen text may be twice as long as expected."""
SLACK_BYTES = 1 << 20
"""Bytes that vlen elements may take in addition to `STREAM_PAGES`."""
LENGTH = Struct("<Q")
END = LENGTH.pack(0)
"""The block that ends a part."""


@dataclass(frozen=True, slots=True)
class NamedRead:
    """A read of the dataset `id`, with `select` and `orthogonal` as in a body; `sparse` reads only defined elements."""

    id: str
    select: Any
    orthogonal: Any
    sparse: bool


@dataclass(frozen=True, slots=True)
class _PlannedRead:
    """A read with its dataset and its selection, resolved in the dataset's extent."""

    named: NamedRead
    dataset: StoredDataset
    selection: Selection


_Place: TypeAlias = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""The key of a selection that several reads share: the `id()` of `select` and `orthogonal`, the bounds, the extent."""


def parse_reads(body: dict[str, Any]) -> list[NamedRead]:
    """Parse a body `{"reads": [{"ids": [...], "select": ..., "sparse": ...}]}`; raise `BadRequest` if it is invalid."""
    groups = body.get("reads")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise BadRequest(
            'The body must have reads, a list of objects like {"ids": [...], "select": "[0:10]"}.'
        )
    found: list[NamedRead] = []
    for group in groups:
        ids, sparse = group.get("ids"), group.get("sparse", False)
        if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
            raise BadRequest("ids in each item of reads must be a list of strings.")
        if not isinstance(sparse, bool):
            raise BadRequest("sparse must be true or false.")
        select, orthogonal = group.get("select"), group.get("orthogonal", False)
        found += [NamedRead(id, select, orthogonal, sparse) for id in ids]
    if len(found) > MAX_DATASETS:
        raise TooLarge(f"The request names {len(found)} datasets; the limit is {MAX_DATASETS}: name fewer.")
    return found


class MultiObjectRead:
    """Reads the datasets that a request names: small datasets concurrently, large datasets page by page."""

    def __init__(self, request: Request, planned: Sequence[_PlannedRead]) -> None:
        self._request = request
        self._planned = planned
        self._page_size = request.service.settings.page_size

    @classmethod
    @asynccontextmanager
    async def planned(cls, request: Request, reads: Sequence[NamedRead]) -> AsyncIterator[MultiObjectRead]:
        """Yield the `MultiObjectRead` of `reads`, checked; memory for their selections is held until the end."""
        async with _planned(request, reads) as planned:
            yield cls(request, planned)

    @property
    def memory(self) -> int:
        """The approximate maximum of the answer's bytes in memory at a time, without the selections."""
        total = sum(_expected(read) for read in self._planned)
        return min(STREAM_PAGES * self._page_size, total) + SLACK_BYTES

    async def parts(self) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the bytes of the answer, in pieces of about one page or less."""
        for run in self._runs(self._planned):
            wholes = await gather_each(self._small, run, AT_ONCE) if len(run) > 1 else [None]
            piece = bytearray()
            for read, whole in zip(run, wholes, strict=True):
                if whole is not None:
                    piece += whole
                    continue
                if piece:
                    yield bytes(piece)
                    piece.clear()
                async with aclosing(self._large(read)) as large:
                    async for block in large:
                        yield block
            if piece:
                yield bytes(piece)

    def _runs(self, planned: Sequence[_PlannedRead]) -> Iterator[list[_PlannedRead]]:
        """Group consecutive reads into runs with about a page of values; a sparse or large read is a run by itself."""
        run: list[_PlannedRead] = []
        room = self._page_size
        for read in planned:
            size = self._page_size if read.named.sparse else _expected(read)
            if run and size > room:
                yield run
                run, room = [], self._page_size
            run.append(read)
            room -= size
        if run:
            yield run

    async def _small(self, read: _PlannedRead) -> bytes | None:
        """Return a dense read's part of the answer, or None if it is unexpectedly large or the dataset was shrunk."""
        arrays = read.dataset.arrays
        chunks = ChunkFanout(self._request.service.owners, read.dataset)
        await asyncio.sleep(0)  # let other requests run: a read of cached chunks never suspends
        try:
            values = await chunks.read_within(
                read.selection, (), 2 * _expected(read) + SLACK_BYTES // AT_ONCE
            )
        except Moved:
            return None
        return None if isinstance(values, int) else b"".join(_blocks(arrays.to_bytes(values))) + END

    async def _large(self, read: _PlannedRead) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the blocks of a read. After a shrink, reload and retry, or raise `Moved` if a block was yielded."""
        async with AsyncExitStack() as again:
            for attempt in range(1, MAX_READ_ATTEMPTS + 1):
                started = False
                try:
                    async for data in self._pages(read):
                        for block in _blocks(data):
                            started = True
                            yield block
                    yield END
                    return
                except Moved:
                    if started or attempt == MAX_READ_ATTEMPTS:
                        raise
                await again.aclose()  # the memory of the last plan, if there was one
                (read,) = await again.enter_async_context(_planned(self._request, [read.named]))

    async def _pages(self, read: _PlannedRead) -> AsyncIterator[bytes | memoryview]:
        if read.named.sparse:
            wanted = ValueRead(self._request, read.dataset, read.selection)
            async for batch in defined_batches(wanted, self._page_size):
                yield batch
            return
        chunks = ChunkFanout(self._request.service.owners, read.dataset)
        async for values in chunks.pages(read.selection, (), self._page_size):
            yield read.dataset.arrays.to_bytes(values)


@asynccontextmanager
async def _planned(request: Request, reads: Sequence[NamedRead]) -> AsyncIterator[list[_PlannedRead]]:
    """Yield the reads with their datasets and selections; memory for points of paired lists is held until the end."""
    datasets = await load_datasets(request, list({read.id: None for read in reads}))
    named: dict[_Place, Mapping[str, Any]] = {}
    for read in reads:
        if read.sparse:
            datasets[read.id].require_sparse()
        named[_place(read, datasets)] = {"select": read.select, "orthogonal": read.orthogonal}
    given = [(body, place[-1]) for place, body in named.items()]

    def resolve() -> list[Selection]:
        return [select_selection(body["select"], extent, body["orthogonal"]) for body, extent in given]

    async with resolved(request, given, resolve) as found:
        known = dict(zip(named, found, strict=True))
        yield [_PlannedRead(read, datasets[read.id], known[_place(read, datasets)]) for read in reads]


def _place(read: NamedRead, datasets: Mapping[str, StoredDataset]) -> _Place:
    extent = datasets[read.id].extent
    return id(read.select), id(read.orthogonal), corner_of(extent) + first_of(extent), extent


def _expected(read: _PlannedRead) -> int:
    return read.dataset.arrays.expected(read.selection.size)


def _blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield the length of `data`, then `data`; yield nothing if `data` is empty, because an empty block ends a part."""
    if len(data):
        yield LENGTH.pack(len(data))
        yield data
