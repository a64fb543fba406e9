"""The values of dense datasets, sent chunk by chunk of the server's grid.

A chunk goes as its stored bytes where the server stores such chunks, through the same filters, and by value
otherwise. A request writes whole chunks and every element once, so that a chunk that is there is complete; one that
may have been written by several requests is written again when an import is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.importer.file_data import Dims, FileData
from hsparse.cli.importer.object_body import values_bytes
from hsparse.cli.importer.source import path_in_errors
from hsparse.client.retrying_client import RetryingClient
from hsparse.errors import TooLarge
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.hdf5.messages.layout_message import ChunkedLayout
from hsparse.format.plan.grid import Grid
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import chunk_name

LARGEST = 64 * 1024 * 1024
"""Bytes of values that one request has, unless an element has more."""
UNDIVIDED = 1024 * 1024
"""Bytes of a chunk that is never written by parts: no server's `max_request_size` is less."""
BAND = 16 * 1024 * 1024
"""Bytes of values that a request has where chunks are smaller; a band of all chunks side by side may have `LARGEST`."""
PAGE = 10_000
Advance = Callable[[int], None]
"""Is told of bytes of the file that are done."""


class DenseUpload:
    """The values of one dataset; `record` is what the server answered when it was created, or has of it."""

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        path: str,
        record: dict[str, Any],
        data: FileData,
        advance: Advance,
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._path = path
        self._url = f"/datasets/{record['id']}"
        self._data = data
        self._advance = advance
        self._spec: ChunkSpec = chunk_spec(record)

    def submit(self, stored: set[Dims]) -> None:
        """Submit all that is to be sent, but for chunks that are `stored` completely."""
        data = self._data
        if not data.dims:
            self._uploads.submit(data.size, lambda: self._send((), ()))
            return
        grid = Grid(data.dims, self._spec.dims)
        nbytes = self._spec.datatype.guessed_size * prod(self._spec.dims)
        skipped = stored if self._is_undivided else set()
        if data.records is None:
            for first, last in box_bands(grid.counts, nbytes):
                chunks = product(*map(range, first, last))
                if any(scaled not in skipped for scaled in chunks):
                    work = partial(self._send_band, grid.origin(first), grid.origin(last))
                    self._uploads.submit(2 * nbytes * prod(map(int.__sub__, last, first)), work)
            return
        takes_stored = self._takes_stored()
        for scaled, rows in data.chunks_by_grid(self._spec.dims):
            is_direct = takes_stored and not grid.is_edge(scaled) and not int(data.records.mask[rows[0]])
            if scaled not in (stored if is_direct else skipped):
                self._uploads.submit(
                    3 * nbytes,
                    partial(self._send_rows, grid, scaled, rows, is_direct),
                )

    @property
    def _is_undivided(self) -> bool:
        """Whether a chunk that is sent by value is always whole in a request."""
        return self._data.is_raw and self._spec.datatype.guessed_size * prod(self._spec.dims) <= UNDIVIDED

    def _takes_stored(self) -> bool:
        """Say whether the server's chunks have the bytes that the file's have."""
        layout = self._data.dataset.layout
        same = isinstance(layout, ChunkedLayout) and layout.dims == self._spec.dims and self._data.is_raw
        return same and decode_alike(self._data.dataset.pipeline, self._spec.filters[0])

    def _send_rows(self, grid: Grid, scaled: Dims, rows: NDArray[np.intp], is_direct: bool) -> None:
        if is_direct:
            with path_in_errors(f"{self._path} (chunk {chunk_name(scaled)})"):
                content, _, _ = self._data.stored_chunk(int(rows[0]))
                self._server.json("PUT", f"{self._url}/chunks/{chunk_name(scaled)}/value", content)
            self._advance(len(content))
            return
        self._send(*grid.bounds(scaled))
        self._advance(self._data.stored_size(rows))

    def _send_band(self, start: Dims, stop: Dims) -> None:
        """Send the values of chunks that lie side by side; `stop` may be beyond the extent."""
        stop = tuple(map(min, stop, self._data.dims))
        self._send(start, stop)
        self._advance(self._data.size * prod(map(int.__sub__, stop, start)))

    def _send(self, start: Dims, stop: Dims) -> None:
        """Send the values of a box, in parts where they are too many for a request."""
        size = self._data.size * prod(b - a for a, b in zip(start, stop, strict=True))
        if size > LARGEST and self._halve(start, stop):
            return
        with path_in_errors(self._path):
            body = values_bytes(self._data.read(start, stop))
        try:
            if len(body) > LARGEST and self._halve(start, stop):
                return
            select = f"[{','.join(f'{a}:{b}' for a, b in zip(start, stop, strict=True))}]" if start else None
            with path_in_errors(self._path):
                self._server.json("PUT", f"{self._url}/value", body, select=select)
        except TooLarge:
            if not self._halve(start, stop):
                raise

    def _halve(self, start: Dims, stop: Dims) -> bool:
        """Send a box as two, False where it has a single element, or chunk that is not divided."""
        units = (self._spec.dims,) if self._is_undivided else (self._spec.dims, (1,) * len(start))
        for unit in units:
            for dim, (a, b) in enumerate(zip(start, stop, strict=True)):
                first, last = a // unit[dim], -(-b // unit[dim])
                if last - first > 1:
                    middle = (first + last) // 2 * unit[dim]
                    self._send(start, (*stop[:dim], middle, *stop[dim + 1 :]))
                    self._send((*start[:dim], middle, *start[dim + 1 :]), stop)
                    return True
        return False


def box_bands(counts: Dims, nbytes: int) -> Iterator[tuple[Dims, Dims]]:
    """Yield boxes of chunks, each by its first chunk's scaled coordinates and those past its last, which cover a grid.

    Chunks have `nbytes`; `counts` says how many there are in each dimension. A box has all of the last dimensions and
    some of one, about `BAND` bytes, so that what it has lies in one piece, or few, in the order of rows.
    """
    steps = [1] * len(counts)
    for dim in reversed(range(len(counts))):
        steps[dim] = counts[dim] if nbytes * counts[dim] <= LARGEST else max(1, BAND // nbytes)
        nbytes *= steps[dim]
        if steps[dim] < counts[dim]:
            break
    for first in product(*(range(0, count, step) for count, step in zip(counts, steps, strict=True))):
        yield first, tuple(map(min, counts, map(int.__add__, first, steps)))


def stored_chunks(server: RetryingClient, record: dict[str, Any]) -> set[Dims]:
    """Return the scaled coordinates of the chunks that a dataset has on the server."""
    found: set[Dims] = set()
    if not dims_of(record["shape"]):
        return found
    marker = None
    while True:
        page = server.json("GET", f"/datasets/{record['id']}/chunks", limit=PAGE, marker=marker)
        found |= {tuple(row["scaled"]) for row in page["chunks"]}
        marker = page.get("marker")
        if marker is None:
            return found
