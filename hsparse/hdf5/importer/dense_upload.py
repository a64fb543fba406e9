"""Upload the values of dense datasets, chunk by chunk of the server's grid.

A chunk is sent as its stored bytes if the server's chunks have the same dimensions and filters. Otherwise it is sent by
value. Each request writes whole chunks, so that a chunk that exists on the server is complete. A chunk that
needs several requests is written again when an import is resumed.

`ValueUpload` is the base class of all uploads of a dataset's values.

Tests: tests/cli/importer/test_defined_upload.py, tests/cli/importer/test_dense_upload.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from math import prod
from operator import add, sub
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import Conflict, TooLarge
from hsparse.format.chunk_spec import ChunkSpec, chunk_name, chunk_spec
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.points import Points
from hsparse.format.structured.container import Section
from hsparse.format.structured.region import encode_region, encode_vlen_region
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.importer.file_data import Dims, InputData
from hsparse.hdf5.importer.object_body import values_bytes
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.virtual_data import VirtualData
from hsparse.model.dataspace import dims_of, lower_of
from hsparse.model.element import element_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""The maximum number of bytes of values in a request; one larger element is sent in a request of its own."""
Data = TypeVar("Data")


class ValueUpload(Generic[Data]):
    """The base class of uploads of a dataset's values from `data`; `record` is the server's JSON of the dataset."""

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        path: str,
        record: dict[str, Any],
        data: Data,
        advance: Advance,
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._path = path
        self._record = record
        self._url = f"/datasets/{record['id']}"
        self._data = data
        self._advance = advance

    @property
    def _takes_chunks(self) -> bool:
        """Whether the dataset's first element is also the first element of a chunk on the server, as in a file."""
        return not any(map(int.__mod__, lower_of(self._record["shape"]), chunk_spec(self._record).dims))

    def _chunk_url(self, scaled: Dims) -> str:
        """Return the URL path of a chunk. `scaled` counts from the dataset's first chunk, the URL from index 0."""
        base = chunk_spec(self._record).base
        return f"{self._url}/chunks/{chunk_name([*map(add, scaled, base)] if base else scaled)}/value"

    def _put_chunk(self, scaled: Dims, data: bytes, sections: Sequence[Section]) -> None:
        """Send the stored bytes of a structured chunk to the server, which stores the bytes unchanged."""
        self._server.json(
            "PUT",
            self._chunk_url(scaled),
            data,
            places=SIGNED,
            section_size=",".join(str(one.size) for one in sections),
            section_unfiltered_size=",".join(str(one.unfiltered) for one in sections),
            filter_mask=",".join(str(one.mask) for one in sections),
        )

    def _put_elements(self, points: Points, values: Values) -> None:
        """Write elements of a sparse dataset; if they are too many for one request, send each half by itself."""
        count = points.size
        if not count:
            return
        try:
            if isinstance(values, VlenArray):
                body = encode_vlen_region(points, values, element_of(self._record["type"]))
            else:
                body = encode_region(points, values)
            if len(body) > MAX_REQUEST_BYTES and count > 1:
                raise TooLarge(f"{count} elements have {len(body)} bytes; the limit is {MAX_REQUEST_BYTES}.")
            self._server.json("PUT", f"{self._url}/value", body, sparse=1)
        except TooLarge:
            if count == 1:
                raise
            for half in (slice(0, count // 2), slice(count // 2, count)):
                self._put_elements(Points(points.extent, points.coordinates[half]), values[half])


def points_in_chunk(grid: Grid, scaled: Dims, offsets: NDArray[np.uint32]) -> Points:
    """Return the coordinates in the dataset of the elements that are at `offsets`, (n,) uint32, in a chunk."""
    return Points(grid.extent, unravel(offsets, grid.chunk) + np.array(grid.origin(scaled), np.uint64))


MAX_UNDIVIDED_BYTES = 1024 * 1024
"""A chunk of at most this many bytes is always written whole, because every server's `max_request_size` allows it."""
BAND_BYTES = 16 * 1024 * 1024
"""The bytes of values in a request for several chunks; a box that spans a whole dimension may be larger."""
MAX_GROUPED_CHUNK_BYTES = 256 * 1024
"""The maximum size in bytes of chunks that are sent several in one request."""
PAGE_CHUNKS = 10_000
SIGNED = "signed"
"""A value of the parameter `places`: chunk names count from index 0, even in a dataset with a lower bound."""


class DenseUpload(ValueUpload[InputData | VirtualData]):
    """Uploads the values of one dense dataset."""

    @cached_property
    def _spec(self) -> ChunkSpec:
        return chunk_spec(self._record)

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all values, except the values of chunks that are in `stored` and complete on the server."""
        data = self._data
        if not data.dims:
            self._uploads.submit(data.size, lambda: self._send((), ()))
            return
        grid = Grid(data.dims, self._spec.dims)
        nbytes = self._spec.datatype.guessed_size * prod(self._spec.dims)
        skipped = stored if self._is_undivided else ()
        if data.records is None or self._suits_bands(nbytes):
            for first, last in box_bands(grid.counts, nbytes):
                chunks = product(*map(range, first, last))
                bounds = grid.origin(first), tuple(map(min, grid.origin(last), data.dims))
                if all(scaled in skipped for scaled in chunks):
                    self._advance(*self._counted(*bounds), before=True)
                elif data.has_data(*bounds):
                    work = partial(self._send_band, grid.origin(first), grid.origin(last))
                    self._uploads.submit(2 * nbytes * prod(map(int.__sub__, last, first)), work)
            return
        takes_stored = self._accepts_stored()
        for scaled, rows in data.chunks_by_grid(self._spec.dims):
            is_direct = takes_stored and not grid.is_edge(scaled) and not int(data.records.mask[rows[0]])
            if scaled in (stored if is_direct else skipped):
                self._advance(data.stored_size(rows), before=True)
            else:
                self._uploads.submit(
                    3 * nbytes,
                    partial(self._send_rows, grid, scaled, rows, is_direct),
                )

    def _suits_bands(self, nbytes: int) -> bool:
        """Return whether one request sends several chunks: all chunks are small and stored, and none skips a filter."""
        records = self._data.records
        return (
            nbytes <= MAX_GROUPED_CHUNK_BYTES
            and self._data.is_whole
            and records is not None
            and not records.mask.any()
        )

    @property
    def _is_undivided(self) -> bool:
        """Whether the values of a whole chunk always fit into one request."""
        return (
            self._data.is_raw
            and self._spec.datatype.guessed_size * prod(self._spec.dims) <= MAX_UNDIVIDED_BYTES
        )

    def _accepts_stored(self) -> bool:
        """Return whether the server's chunks have the same dimensions and bytes as the file's chunks."""
        layout = self._data.dataset.layout
        same = isinstance(layout, ChunkedLayout) and layout.dims == self._spec.dims and self._data.is_raw
        return (
            same and self._takes_chunks and decode_alike(self._data.dataset.pipeline, self._spec.filters[0])
        )

    def _send_rows(self, grid: Grid, scaled: Dims, rows: NDArray[np.intp], is_direct: bool) -> None:
        assert isinstance(self._data, InputData)
        if is_direct:
            with path_in_errors(f"{self._path} (chunk {chunk_name(scaled)})"):
                content, _, _ = self._data.stored_chunk(int(rows[0]))
                self._server.json("PUT", self._chunk_url(scaled), content, places=SIGNED)
        else:
            self._send(*grid.bounds(scaled))
        self._advance(self._data.stored_size(rows), prod(grid.clipped(scaled)))

    def _send_band(self, start: Dims, stop: Dims) -> None:
        """Send the values of adjacent chunks; `stop` may be beyond the extent."""
        stop = tuple(map(min, stop, self._data.dims))
        self._send(start, stop)
        self._advance(*self._counted(start, stop))

    def _counted(self, start: Dims, stop: Dims) -> tuple[int, int]:
        """Return a pair: the approximate number of bytes that a box takes in the file, and its number of elements."""
        count, records = prod(map(int.__sub__, stop, start)), self._data.records
        whole = self._data.size * prod(self._data.dims)
        stored = whole if records is None else int(records.size.sum())
        return self._data.size * count * stored // whole, count

    def _send(self, start: Dims, stop: Dims) -> None:
        """Send the values of a box; if they are too many for one request, send two halves of the box."""
        size = self._data.size * prod(b - a for a, b in zip(start, stop, strict=True))
        if size > MAX_REQUEST_BYTES and self._halve(start, stop):
            return
        with path_in_errors(self._path):
            body = values_bytes(self._data.read(start, stop))
        try:
            if len(body) > MAX_REQUEST_BYTES and self._halve(start, stop):
                return
            select = f"[{','.join(f'{a}:{b}' for a, b in zip(start, stop, strict=True))}]" if start else None
            with path_in_errors(self._path):
                self._server.json("PUT", f"{self._url}/value", body, select=select)
        except TooLarge:
            if not self._halve(start, stop):
                raise

    def _halve(self, start: Dims, stop: Dims) -> bool:
        """Send a box as two halves and return True; return False if it is an element or chunk that cannot be split."""
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
    """Yield boxes of chunks that cover a grid; a box is (first, stop): scaled coordinates, `stop` is exclusive.

    `counts` has the number of chunks in each dimension; `nbytes` is the size of a chunk. A box spans the last
    dimensions and a range of one more dimension, about `BAND_BYTES` bytes: few contiguous runs of elements.
    """
    steps = [1] * len(counts)
    for dim in reversed(range(len(counts))):
        steps[dim] = (
            counts[dim] if nbytes * counts[dim] <= MAX_REQUEST_BYTES else max(1, BAND_BYTES // nbytes)
        )
        nbytes *= steps[dim]
        if steps[dim] < counts[dim]:
            break
    for first in product(*(range(0, count, step) for count, step in zip(counts, steps, strict=True))):
        yield first, tuple(map(min, counts, map(int.__add__, first, steps)))


def create_or_find(
    server: RetryingClient, collection: str, body: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Create an object with the id in `body`; return a pair: the object's JSON, and whether it existed before."""
    try:
        return server.json("POST", f"/{collection}", body), False
    except Conflict:
        return server.json("GET", f"/{collection}/{body['id']}"), True


def stored_chunks(server: RetryingClient, record: dict[str, Any]) -> dict[Dims, int]:
    """Return a dict that maps the scaled coordinates of each chunk on the server to its number of defined elements.

    The number is 0 for chunks that are not structured. Coordinates count from the dataset's first chunk.
    """
    found: dict[Dims, int] = {}
    if not dims_of(record["shape"]):
        return found
    marker, base = None, chunk_spec(record).base
    while True:
        page = server.json(
            "GET", f"/datasets/{record['id']}/chunks", limit=PAGE_CHUNKS, marker=marker, places=SIGNED
        )
        for row in page["chunks"]:
            scaled = map(sub, row["scaled"], base) if base else row["scaled"]
            found[tuple(scaled)] = row.get("defined", 0)
        marker = page.get("marker")
        if marker is None:
            return found
