"""`hsparse.scan`: a data frame, or a sparse dataset with a row per defined element, as a LazyFrame of polars.

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
from hsparse.client.indexing.places import lower_bounds, places_along
from hsparse.client.integrations.polars.frame_scan import POLARS, plain_series
from hsparse.client.integrations.polars.row_filter import allowed_places
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from polars import LazyFrame

    from hsparse.client.integrations.polars.frame_scan import FrameScan

FRAME_SCAN = OptionalModule("hsparse.client.integrations.polars.frame_scan")
PLUGINS = OptionalModule("polars.io.plugins", "polars")
VALUE = "value"
REQUEST_ELEMENTS = 1 << 20
"""The number of elements that a request should return; requests consist of whole rows of chunks."""
SCATTERED_RATIO = 4
"""Rows are requested as a list, not as a slice, if fewer than one in this many rows is needed."""


def scan(source: str | Path | Group | SparseDataset, path: str | None = None, **options: Any) -> LazyFrame:
    """Return a `polars.LazyFrame` with the columns `dim_0`, ..., `value` of the sparse dataset at `path`.

    `source` is a dataset, a group, or an address for `hsparse.open`, with its `options`. A query reads only what it
    needs: values only if it uses them, only the rows and the range of columns in which its conditions on `dim_...` can
    hold, and nothing more after enough rows. Rows come in the order of the stored chunks. If the dataset has lower
    bounds, `dim_...` are int64 and begin at the bound.

    A data frame, as AnnData stores obs and var, or a compound dataset of rank 1 is scanned with its own columns. The
    first column is the index, called `index` if it has no name. Only the needed columns of a frame are read. Text
    categories become an `Enum` if they are ordered, else `Categorical`.

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
        raise WrongType(f"{sorted(options)} are options of hsparse.open: give them with an address only.")
    if isinstance(source, Group) and path is not None:
        source = source[path]
    if isinstance(source, SparseDataset) or is_frame(source):
        return cast("SparseDataset | DenseDataset | Group", source)
    if isinstance(source, Group) and path is None:
        raise InvalidValue(f"Name a dataset or a data frame of {source.name}: hsparse.scan(source, 'X').")
    raise WrongType(f"{source!r} is neither a sparse dataset nor a data frame: only these are scanned.")


def is_frame(source: Any) -> bool:
    """Return whether an object is a data frame: a group in AnnData's encoding, or a compound dataset of rank 1."""
    if isinstance(source, Group):
        return bool(source.attrs.get("encoding-type") == "dataframe")
    return isinstance(source, DenseDataset) and source.ndim == 1 and source.dtype.names is not None


@dataclass(frozen=True, slots=True)
class ElementScan:
    """Reads the defined elements of a sparse dataset as polars frames."""

    dataset: SparseDataset

    @property
    def names(self) -> list[str]:
        return [f"dim_{dim}" for dim in range(self.dataset.ndim)]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The types of the coordinate columns, which are the same as in the server's Arrow streams."""
        if isinstance(self.dataset.shape, SignedExtent):
            return [np.dtype("i8")] * self.dataset.ndim
        return [np.dtype("u4" if length <= 2**32 else "u8") for length in self.dataset.shape]

    def read(
        self, columns: list[str] | None, predicate: Any, limit: int | None, batch_rows: int | None
    ) -> Iterator[Any]:
        """Yield frames of the rows that match the predicate, among the first `limit` rows (None: all rows).

        `columns` names the columns to return, including the predicate's columns, or is None for all.
        """
        masks: list[NDArray[np.bool_] | None] = [None] * self.dataset.ndim
        extent = self.dataset.shape
        if predicate is not None and limit is None:
            masks = allowed_places(predicate, self.names, extent, self.dtypes)
        needs_values = columns is None or VALUE in columns
        is_empty = True
        for coords, values in self._blocks(extent, masks, needs_values, limit):
            found = self.frame(coords, values)
            found = found if columns is None else found.select(columns)
            found = found if predicate is None else found.filter(predicate)
            is_empty = False
            yield found
        if is_empty:
            found = self.empty()
            yield found if columns is None else found.select(columns)

    def empty(self) -> Any:
        """Return a frame without elements, with the types of the columns."""
        return self.frame(np.empty((0, self.dataset.ndim), np.uint64), np.empty(0, self.dataset.dtype))

    def frame(self, coords: NDArray[Any], values: NDArray[Any] | None) -> Any:
        """Return a frame of elements; it has no column `value` if `values` is None."""
        polars = POLARS.load()
        columns = {
            name: polars.Series(name, np.ascontiguousarray(coords[:, dim], dtype))
            for dim, (name, dtype) in enumerate(zip(self.names, self.dtypes, strict=True))
        }
        if values is not None:
            columns[VALUE] = plain_series(VALUE, values)
        return polars.DataFrame(columns)

    def _blocks(
        self,
        extent: tuple[int, ...],
        masks: list[NDArray[np.bool_] | None],
        needs_values: bool,
        limit: int | None,
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Yield pairs (coordinates, values) for the first `limit` elements (None: all); prefetch the next pair."""
        counts: list[int] = []

        def fetch(key: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
            coords, values = self.dataset.read(key) if needs_values else (self.dataset.defined(key), None)
            left = None if limit is None else limit - sum(counts)
            counts.append(len(coords))
            return coords[:left], None if values is None else values[:left]

        yield from prefetched(fetch, self._keys(extent, masks, counts, limit))

    def _keys(
        self,
        extent: tuple[int, ...],
        masks: list[NDArray[np.bool_] | None],
        counts: list[int],
        limit: int | None,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield keys of whole rows of chunks; each key selects rows with about `REQUEST_ELEMENTS` elements.

        The caller appends the number of elements of each key to `counts` before it requests the next key.
        """
        goal = REQUEST_ELEMENTS if limit is None else min(REQUEST_ELEMENTS, limit)
        edges = [_edges(mask, places_along(extent, dim)) for dim, mask in enumerate(masks)]
        if any(low == high for low, high in edges):
            return
        chunk, mask, first = (self.dataset.chunks or extent)[0], masks[0], lower_bounds(extent)[0]
        rest = tuple(slice(low, high) for low, high in edges[1:])
        (start, end), rows = edges[0], 1
        while start < end and (limit is None or sum(counts) < limit):
            stop = min(end, (start // chunk + rows) * chunk)
            yield (_rows(mask, first, start, stop), *rest)
            rows = max(1, min(2 * rows, rows * goal // max(1, counts[-1])))
            start = (
                stop
                if mask is None or stop == end
                else stop + int(np.argmax(mask[stop - first : end - first]))
            )


def _edges(mask: NDArray[np.bool_] | None, own: range) -> tuple[int, int]:
    """Return the first place that a mask selects in a dimension, and the place after the last; (0, 0) if none."""
    if mask is None:
        return own.start, own.stop
    places = own.start + np.flatnonzero(mask)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _rows(mask: NDArray[np.bool_] | None, first: int, start: int, stop: int) -> slice | NDArray[np.intp]:
    if mask is None:
        return slice(start, stop)
    places = start + np.flatnonzero(mask[start - first : stop - first])
    low, high = int(places[0]), int(places[-1]) + 1
    return places if SCATTERED_RATIO * len(places) < high - low else slice(low, high)
