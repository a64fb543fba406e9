"""`hsparse.scan`: a sparse dataset, a row for each defined element, or a data frame as a LazyFrame of polars.

Needs the extra `polars`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hsparse.client import opening
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.group import Group
from hsparse.client.integrations.polars.frame_scan import POLARS, allowed_places, plain_series
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from polars import LazyFrame

    from hsparse.client.integrations.polars.frame_scan import FrameScan

FRAME_SCAN = OptionalModule("hsparse.client.integrations.polars.frame_scan")
PLUGINS = OptionalModule("polars.io.plugins", "polars")
VALUE = "value"
GOAL = 1 << 20
"""Elements that a request is to return, if rows of chunks allow it."""
SCATTERED = 4
"""Rows are asked for as a list, not as a slice, if fewer than one in so many are wanted."""


def scan(source: str | Path | Group | SparseDataset, path: str | None = None, **options: Any) -> LazyFrame:
    """Return a `polars.LazyFrame` with the columns `dim_0`, ..., `value` of the sparse dataset at `path`.

    `source` is a dataset, a group, or what `hsparse.open` opens, with its `options`. Only what a query needs is read:
    no values if it does not ask for them, the rows and the range of columns in which its conditions on `dim_...` can
    hold, and no more after enough rows. Rows come in the order of the stored chunks.

    A data frame, as AnnData stores obs and var, or a dataset of compounds of one dimension has its own columns. The
    first is the index, `index` if it has no name. Of a frame only the columns that are needed are read. Categories
    that are text are an `Enum` if they have an order, else `Categorical`.

    >>> import polars as pl
    >>> hsparse.scan(f, "X").filter(pl.col("dim_0") > 1).collect().rows()
    [(2, 1, 3.0), (3, 0, 4.0)]
    >>> hsparse.scan(X).group_by("dim_1").agg(pl.col("value").sum()).sort("dim_1").collect().rows()
    [(0, 5.0), (1, 3.0), (2, 2.0)]
    >>> hsparse.scan(cells, "obs").filter(pl.col("cell_type") == "T").select("index", "n_genes").collect().rows()
    [('c0', 2), ('c3', 1)]
    """
    found = _find(source, path, options)
    reads: ElementScan | FrameScan = (
        ElementScan(found) if isinstance(found, SparseDataset) else FRAME_SCAN.load().FrameScan.of(found)
    )
    return PLUGINS.load().register_io_source(reads.read, schema=reads.empty().schema, validate_schema=True)


def _find(source: Any, path: str | None, options: dict[str, Any]) -> SparseDataset | DenseDataset | Group:
    if isinstance(source, str | Path):
        source = opening.open(source, **options)
    elif options:
        raise WrongType(f"{sorted(options)} are options of hsparse.open, for an address.")
    if isinstance(source, Group) and path is not None:
        source = source[path]
    if isinstance(source, SparseDataset) or is_frame(source):
        if not isinstance(source, Group):
            source.check_from_zero("a scan")
        return cast("SparseDataset | DenseDataset | Group", source)
    if isinstance(source, Group) and path is None:
        raise InvalidValue(f"Name a dataset or a data frame of {source.name}: hsparse.scan(source, 'X').")
    raise WrongType(f"{source!r} is neither a sparse dataset nor a data frame: only these are scanned.")


def is_frame(source: Any) -> bool:
    """Say whether an object is a data frame: a group as AnnData stores one, or compounds of one dimension."""
    if isinstance(source, Group):
        return bool(source.attrs.get("encoding-type") == "dataframe")
    return isinstance(source, DenseDataset) and source.ndim == 1 and source.dtype.names is not None


@dataclass(frozen=True, slots=True)
class ElementScan:
    """The elements of a dataset as frames."""

    dataset: SparseDataset

    @property
    def names(self) -> list[str]:
        return [f"dim_{dim}" for dim in range(self.dataset.ndim)]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The types of the coordinates' columns, those of the server's Arrow streams."""
        return [np.dtype("u4" if length <= 2**32 else "u8") for length in self.dataset.shape]

    def read(
        self, columns: list[str] | None, predicate: Any, limit: int | None, batch_rows: int | None
    ) -> Iterator[Any]:
        """Yield frames of the rows that the predicate holds for; it is for the first `limit` ones alone.

        `columns` are those to return, with the ones that the predicate needs; None for all.
        """
        masks: list[NDArray[np.bool_] | None] = [None] * self.dataset.ndim
        if predicate is not None and limit is None:
            masks = allowed_places(predicate, self.names, self.dataset.shape, self.dtypes)
        needs_values = columns is None or VALUE in columns
        is_empty = True
        for coords, values in self._blocks(masks, needs_values, limit):
            found = self.frame(coords, values)
            found = found if columns is None else found.select(columns)
            found = found if predicate is None else found.filter(predicate)
            is_empty = False
            yield found
        if is_empty:
            found = self.empty()
            yield found if columns is None else found.select(columns)

    def empty(self) -> Any:
        """Return a frame of no elements, which has the types of the columns."""
        return self.frame(np.empty((0, self.dataset.ndim), np.uint64), np.empty(0, self.dataset.dtype))

    def frame(self, coords: NDArray[np.uint64], values: NDArray[Any] | None) -> Any:
        """Return a frame of elements, without the column of values if there are none."""
        polars = POLARS.load()
        columns = {
            name: polars.Series(name, np.ascontiguousarray(coords[:, dim], dtype))
            for dim, (name, dtype) in enumerate(zip(self.names, self.dtypes, strict=True))
        }
        if values is not None:
            columns[VALUE] = plain_series(VALUE, values)
        return polars.DataFrame(columns)

    def _blocks(
        self, masks: list[NDArray[np.bool_] | None], needs_values: bool, limit: int | None
    ) -> Iterator[tuple[NDArray[np.uint64], NDArray[Any] | None]]:
        """Yield coordinates and values, the first `limit` ones if that is not None; the next are being read."""
        counts: list[int] = []

        def fetch(key: Any) -> tuple[NDArray[np.uint64], NDArray[Any] | None]:
            coords, values = self.dataset.read(key) if needs_values else (self.dataset.defined(key), None)
            left = None if limit is None else limit - sum(counts)
            counts.append(len(coords))
            return coords[:left], None if values is None else values[:left]

        yield from prefetched(fetch, self._keys(masks, counts, limit))

    def _keys(
        self, masks: list[NDArray[np.bool_] | None], counts: list[int], limit: int | None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield keys of rows of chunks, as many at a time as have about `GOAL` elements.

        `counts` are the elements of the keys before, when the next one is asked for.
        """
        shape, goal = self.dataset.shape, GOAL if limit is None else min(GOAL, limit)
        edges = [_edges(mask, length) for mask, length in zip(masks, shape, strict=True)]
        if any(low == high for low, high in edges):
            return
        chunk, mask = (self.dataset.chunks or shape)[0], masks[0]
        rest = tuple(slice(low, high) for low, high in edges[1:])
        (start, end), rows = edges[0], 1
        while start < end and (limit is None or sum(counts) < limit):
            stop = min(end, (start // chunk + rows) * chunk)
            yield (_rows(mask, start, stop), *rest)
            rows = max(1, min(2 * rows, rows * goal // max(1, counts[-1])))
            start = stop if mask is None or stop == end else stop + int(np.argmax(mask[stop:end]))


def _edges(mask: NDArray[np.bool_] | None, length: int) -> tuple[int, int]:
    """Return the first index of a dimension that is wanted, and the one behind the last."""
    if mask is None:
        return 0, length
    places = np.flatnonzero(mask)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _rows(mask: NDArray[np.bool_] | None, start: int, stop: int) -> slice | NDArray[np.intp]:
    if mask is None:
        return slice(start, stop)
    places = start + np.flatnonzero(mask[start:stop])
    low, high = int(places[0]), int(places[-1]) + 1
    return places if SCATTERED * len(places) < high - low else slice(low, high)
