"""Handler of `/datasets/{id}/density`: counts of defined elements in the bins of a box, and reduced values of each bin.

A picture of a sparse dataset needs one number for each pixel, however large the dataset is. Exact counts are made by
reading the defined elements. Approximate counts use only each stored chunk's number of defined elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import hdrs, web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.orthogonal import Orthogonal, as_span
from hsparse.format.selections.select_syntax import parse_axes
from hsparse.model.ids import map_key
from hsparse.model.json_values import Values
from hsparse.sn.http.request import BINARY_TYPE, named_types
from hsparse.sn.http.response import encode_nulls, encode_pieces, items_of, respond_computed
from hsparse.sn.records.dataset import StoredDataset, until_current
from hsparse.sn.records.stored_chunks import parse_chunk_name, stored_name
from hsparse.sn.request import JSON_HEADERS, Request
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.wire.chunk_info_message import ListChunks

Floats = NDArray[np.float64]
MAX_BINS = 1 << 20
MAX_SPREAD = 1 << 22
"""The maximum number of items of the arrays that spread the elements of chunks evenly over bins, see `spread_size`.

If more items would be needed, all elements of a chunk count in the bin of the chunk's middle.
"""
SPREAD_BYTES = 48
"""Bytes of memory for each item of the arrays that spread elements over bins."""
REDUCTIONS = ("mean", "min", "max", "sum")


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal bins, `width` indices wide, of the box from `start` to `stop` (exclusive); the last bin may be narrower."""

    start: tuple[int, ...]
    stop: tuple[int, ...]
    width: tuple[int, ...]

    @classmethod
    def parse(cls, select: str | None, bin: str | None, extent: Sequence[int]) -> Bins:
        """Return the bins of the box `select` (default: the extent) of the widths `bin` (default: 1 in each dimension).

        Raises `BadRequest` if the selection is no box or `bin` is malformed, `TooLarge` for more than `MAX_BINS` bins.
        """
        spans = [as_span(axis) for axis in parse_axes(select, extent)]
        boxes = [span for span in spans if span is not None and span.contiguous]
        if len(boxes) < len(spans):
            raise BadRequest("The density needs a box: select slices without steps, such as [0:100,5].")
        start = tuple(span.start for span in boxes)
        stop = tuple(span.stop for span in boxes)
        width = _widths(bin, len(start))
        bins = cls(start, stop, width)
        if math.prod(max(1, length) for length in bins.shape) > MAX_BINS:
            raise TooLarge(
                f"The density has {' x '.join(map(str, bins.shape))} bins; the limit is {MAX_BINS}: make them wider "
                "by bin."
            )
        return bins

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of bins in each dimension."""
        box = zip(self.start, self.stop, self.width, strict=True)
        return tuple(-((start - stop) // width) for start, stop, width in box)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def selection(self, extent: Sequence[int]) -> Orthogonal:
        """Return the box as a selection in an extent."""
        return Orthogonal.box(tuple(extent), self.start, self.stop)

    def edges(self, dim: int) -> NDArray[np.int64]:
        """Return the edges of the bins along `dim`: their first indices and the end of the last, (bins + 1,) int64."""
        first = np.arange(self.start[dim], self.stop[dim], self.width[dim], dtype=np.int64)
        return np.append(first, self.stop[dim])

    def numbers(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the row-major number of each element's bin, (n,); `columns` has (n,) coordinates per dimension."""
        result = np.zeros(len(columns[0]) if columns else 0, np.int64)
        for column, start, width, count in zip(columns, self.start, self.width, self.shape, strict=True):
            result *= count
            result += (column.astype(np.int64) - start) // width
        return result


@dataclass(slots=True)
class Density:
    """Counts of defined elements in each bin and, with `reduce`, the values of each bin reduced to one number."""

    bins: Bins
    reduce: str | None = None
    counts: Floats = field(init=False)
    _values: Floats = field(init=False)

    def __post_init__(self) -> None:
        size = self.bins.size
        self.counts = np.zeros(size)
        empty = {"min": math.inf, "max": -math.inf}.get(self.reduce or "", 0.0)
        self._values = np.full(size if self.reduce else 0, empty)

    def add(self, columns: Sequence[NDArray[Any]], values: Values | None) -> None:
        """Add elements at coordinates in the box; their `values`, (n,) numbers, are used only for a reduction."""
        numbers = self.bins.numbers(columns)
        size = self.bins.size
        self.counts += np.bincount(numbers, minlength=size)
        if self.reduce is None or not isinstance(values, np.ndarray):
            return
        weights = values.astype(np.float64)
        if self.reduce == "min":
            np.minimum.at(self._values, numbers, weights)
        elif self.reduce == "max":
            np.maximum.at(self._values, numbers, weights)
        else:
            self._values += np.bincount(numbers, weights, size)

    def values(self) -> Floats:
        """Return the reduced values, (bins,), with NaN in empty bins, or an empty array if there is no reduction."""
        if self.reduce is None:
            return self._values
        divisor = np.maximum(self.counts, 1.0) if self.reduce == "mean" else 1.0
        return np.where(self.counts > 0, self._values / divisor, np.nan)


class ChunkCounts:
    """Estimates of the number of elements in each bin, which assume that a chunk's elements are spread evenly.

    The chunks, of dimensions `chunk` in the `extent`, can be added in any number of pages; memory use is constant.
    """

    def __init__(self, bins: Bins, chunk: Sequence[int], extent: Sequence[int]) -> None:
        self._bins = bins
        self._chunk = chunk
        self._extent = extent
        self._first, counts = _chunk_grid(bins, chunk)
        self._is_spread = spread_size(bins, chunk) > 0
        self._grid = np.zeros(counts if self._is_spread else bins.size)

    def add(self, scaled: NDArray[np.uint64], defined: NDArray[Any]) -> None:
        """Add chunks by scaled coordinates, (n, rank), and numbers of elements, (n,). Each chunk must be added once."""
        places = scaled.astype(np.int64)
        if self._is_spread:
            self._grid[tuple((places - np.array(self._first, np.int64)).T)] = defined
            return
        middles = places * np.array(self._chunk) + np.array(self._chunk) // 2
        inside = np.clip(middles, self._bins.start, np.array(self._bins.stop) - 1)
        self._grid += np.bincount(self._bins.numbers(list(inside.T)), defined, self._bins.size)

    def counts(self) -> Floats:
        """Return the estimated number of elements in each bin, (bins,)."""
        grid = self._grid
        if self._is_spread:
            for dim, length in enumerate(self._chunk):
                grid = _spread(grid, dim, self._bins.edges(dim), length, self._extent[dim], self._first[dim])
        return grid.ravel()


def spread_size(bins: Bins, chunk: Sequence[int]) -> int:
    """Return the size of the largest array that spreads chunks over bins, or 0 if it exceeds `MAX_SPREAD`."""
    size = math.prod(map(max, _chunk_grid(bins, chunk)[1], bins.shape))
    return size if size <= MAX_SPREAD else 0


def _chunk_grid(bins: Bins, chunk: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return a pair: the scaled coordinates of a box's first chunk, and its number of chunks in each dimension."""
    first = [start // length for start, length in zip(bins.start, chunk, strict=True)]
    counts = [-(-stop // length) - low for stop, length, low in zip(bins.stop, chunk, first, strict=True)]
    return first, counts


def _spread(grid: Floats, dim: int, edges: NDArray[np.int64], chunk: int, length: int, first: int) -> Floats:
    """Convert `dim` from chunks to bins: interpolate the running sum of counts at the `edges` and take differences."""
    rows = np.moveaxis(grid, dim, 0)
    sums = np.zeros((len(rows) + 1, *rows.shape[1:]))
    np.cumsum(rows, axis=0, out=sums[1:])
    at = np.minimum(edges // chunk - first, len(rows) - 1)
    origin = (at + first) * chunk
    parts = (edges - origin) / (np.minimum(origin + chunk, length) - origin)
    shape = (-1,) + (1,) * (rows.ndim - 1)
    running = sums[at] + rows[at] * parts.reshape(shape)
    return np.moveaxis(np.diff(running, axis=0), 0, dim)


def parse_reduction(name: str | None, dataset: StoredDataset) -> str | None:
    """Return the reduction `name`, or None if it is missing; raise `BadRequest` if it is unknown or needs numbers."""
    if name is None or name == "":
        return None
    if name not in REDUCTIONS:
        raise BadRequest(f"reduce must be one of {', '.join(REDUCTIONS)}, not {name[:40]!r}.")
    if dataset.dtype.kind not in "biuf":
        raise BadRequest(f"The values of {dataset.id} are no numbers: leave out reduce.")
    return name


def _widths(text: str | None, rank: int) -> tuple[int, ...]:
    if text is None:
        return (1,) * rank
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    if len(parts) != rank or not all(
        part.isascii() and part.isdigit() and len(part) <= 18 and int(part) for part in parts
    ):
        raise BadRequest(
            f"bin must have {rank} positive numbers, such as [{','.join(['4'] * rank)}]: the widths of a bin."
        )
    return tuple(map(int, parts))


CHUNKS_AT_ONCE = 10_000
"""The maximum number of chunks of one request to a data node."""
MARKER = "X-Hdf-marker"
"""The header of a binary answer with the `Marker` of the next page: the name of the last chunk of this page."""
BIN_BYTES = 32
"""Bytes of memory for each bin while elements are counted."""


async def get_density(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/density`: the number of defined elements in each bin of a box, and their reduced value."""

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        dataset.require_sparse()
        bins = Bins.parse(request.arg("select"), request.arg("bin"), dataset.extent)
        reduction = parse_reduction(request.arg("reduce"), dataset)
        if not request.flag("approximate") and (request.arg("Limit") or request.arg("Marker")):
            raise BadRequest("Limit and Marker are for the pages of an approximate density: leave them out.")
        if request.flag("approximate") and reduction:
            raise BadRequest("An approximate density has no values: leave out reduce or approximate.")
        # Data outside of chunk objects has no chunk statistics: answer with the exact density.
        approximate = request.flag("approximate") and not dataset.elsewhere
        spread = spread_size(bins, dataset.grid.chunk) if approximate and bins.size else 0
        async with request.service.answers.hold(BIN_BYTES * bins.size + SPREAD_BYTES * spread):
            if approximate:
                counts, marker = await _approximate(request, dataset, bins)
                return await _answer(request, bins, counts, None, bins.size + spread, marker)
            density = await _exact(request, dataset, bins, reduction)
            values = density.values if reduction else None
            return await _answer(request, bins, lambda: density.counts, values, bins.size)

    return await until_current(request, read)


async def _exact(request: Request, dataset: StoredDataset, bins: Bins, reduction: str | None) -> Density:
    density = Density(bins, reduction)
    if not bins.size:
        return density
    elements = DefinedRead(
        ChunkFanout(request.service.owners, dataset),
        request.service.settings.page_size,
        places_only=reduction is None,
        form=density.add,
    )
    async for _ in elements.pieces(bins.selection(dataset.extent)):
        pass
    return density


async def _approximate(
    request: Request, dataset: StoredDataset, bins: Bins
) -> tuple[Callable[[], Floats], str]:
    """Return a pair: a function that computes the counts of a page of `Limit` chunks, and the next page's marker."""
    limit, after = request.number("Limit") or None, request.arg("Marker")
    dataset.require_places()
    marker = parse_chunk_name(after, dataset) if after else ()
    if not bins.size:
        return lambda: np.zeros(0), ""
    counts = ChunkCounts(bins, dataset.grid.chunk, dataset.extent)
    box, asked = bins.selection(dataset.extent), 0
    while True:
        most = CHUNKS_AT_ONCE if limit is None else min(CHUNKS_AT_ONCE, limit - asked)
        message = ListChunks(dataset.spec, dataset.extent, box, False, marker, 0, most)
        page = await request.service.owners.ask_owner(map_key(dataset.id), message)
        asked, marker = asked + most, page.marker
        is_last = not marker or (limit is not None and asked >= limit)
        counts.add(page.rows.scaled, page.rows.defined)
        if is_last:
            return counts.counts, stored_name(marker, dataset) if marker else ""


async def _answer(
    request: Request,
    bins: Bins,
    count: Callable[[], Floats],
    value: Callable[[], Floats] | None,
    work: int,
    marker: str = "",
) -> web.StreamResponse:
    """Answer in JSON or in binary: 32-bit floats, counts before values. `work` is passed to `respond_computed`."""
    made = {"count": count} if value is None else {"count": count, "value": value}
    if BINARY_TYPE in named_types(request.http.headers.get(hdrs.ACCEPT, "")):

        def packed() -> web.Response:
            with np.errstate(over="ignore"):
                body = np.concatenate([make() for make in made.values()]).astype("<f4").tobytes()
            headers = {MARKER: marker} if marker else None
            return web.Response(body=body, content_type=BINARY_TYPE, headers=headers)

        return await respond_computed(work, packed)

    def listed() -> web.Response:
        answer: dict[str, Any] = {"shape": list(bins.shape), "bin": list(bins.width)}
        answer |= {name: make().reshape(bins.shape) for name, make in made.items()}
        answer |= {"marker": marker} if marker else {}
        return web.Response(body=b"".join(encode_pieces(answer, encode_nulls)), headers=JSON_HEADERS)

    return await respond_computed(work + 2 * items_of(bins.shape), listed)
