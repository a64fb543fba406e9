"""Scan a data frame of a domain for polars: read the columns that a query needs, in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import WrongType
from hsparse.client.group import Group
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import ElementReader, FrameColumn
from hsparse.client.sparse.prefetch import prefetched
from hsparse.optional_module import OptionalModule

POLARS = OptionalModule("polars", "polars")


def plain_series(name: str, values: NDArray[Any]) -> Any:
    """Return an array as a polars Series; compounds become structs."""
    polars = POLARS.load()
    if values.dtype.names is not None:
        fields = [plain_series(field, values[field]) for field in values.dtype.names]
        return polars.DataFrame(fields).to_struct(name)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return polars.Series(name, np.ascontiguousarray(native))


BLOCK_VALUES = 1 << 22
"""The number of values in a block of rows."""
UNNAMED, INDEX = "_index", "index"
"""The stored name of an index without a name, and its column's name unless another column has that name."""


@dataclass(frozen=True, slots=True)
class FrameScan:
    """Reads the rows of the data frame at a path of a tree as polars frames."""

    tree: DomainTree
    path: str
    index: str
    """The name of the index's column."""
    columns: tuple[str, ...]

    @classmethod
    def of(cls, frame: Group | DenseDataset) -> Self:
        """Make a scan of a data frame: a group of columns, or a compound dataset, whose first field is the index."""
        root = frame.connection.json("GET", "/")["root"]
        tree = DomainTree(frame.connection, Group(frame.connection, {"id": root}, "/").records())
        path = (frame.name or "").strip("/")
        reader = ElementReader(tree)
        columns, index = tuple(reader.columns(path)), reader.index_name(path)
        if index == UNNAMED and INDEX not in columns:
            index = INDEX
        return cls(tree, path, index, columns)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys((self.index, *self.columns)))

    def read(
        self, columns: list[str] | None, predicate: Any, limit: int | None, batch_rows: int | None
    ) -> Iterator[Any]:
        """Yield frames of the rows that match the predicate, among the first `limit` rows (None: all rows)."""
        names = self.names if columns is None else columns
        length = self.tree.frame_length(self.path)
        end = length if limit is None else min(limit, length)
        step = max(1, BLOCK_VALUES // max(1, len(names)))
        starts = range(0, max(1, end), step)
        for found in prefetched(lambda start: self.frame(names, start, min(end, start + step)), starts):
            yield found if predicate is None else found.filter(predicate)

    def empty(self) -> Any:
        """Return a frame without rows, with the types of the columns."""
        return self.frame(self.names, 0, 0)

    def frame(self, names: Sequence[str], start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop` of some columns."""
        reader = ElementReader(self.tree)
        columns = [name for name in names if name in self.columns]
        with_index = self.index in names and self.index not in self.columns
        reader.want_frame(
            self.path, columns or list(self.columns[:1]), np.arange(start, stop), index=with_index
        )
        reader.fetch()
        polars = POLARS.load()
        found = {name: _series(name, reader.column(self.path, name)) for name in columns}
        if with_index:
            found[self.index] = _series(self.index, FrameColumn(reader.index(self.path)))
        if not names:
            return polars.DataFrame(height=stop - start)
        return polars.DataFrame([found[name] for name in names])


def _series(name: str, column: FrameColumn) -> Any:
    """Return a column as a polars Series; missing values, also of text, are null."""
    polars = POLARS.load()
    if column.categories is None:
        found = _values(name, column.values)
        return found if column.mask is None else found.zip_with(~polars.Series(column.mask), _nulls(found))
    categories = _values(name, np.asarray(column.categories))
    if categories.dtype == polars.String:
        kind = polars.Enum(categories) if column.is_ordered else polars.Categorical
        categories = categories.cast(kind)
    codes = polars.Series(column.values.astype(np.int64))
    return categories.gather(codes.zip_with(codes >= 0, _nulls(codes)))


def _values(name: str, values: NDArray[Any]) -> Any:
    if not values.dtype.hasobject:
        return plain_series(name, values)
    polars = POLARS.load()
    texts = [
        None if value != value else value for value in values.tolist()
    ]  # pandas writes a missing text as NaN
    if not all(isinstance(text, str | None) for text in texts):
        raise WrongType(f"The column {name!r} has values of variable length that are not text: leave it out.")
    return polars.Series(name, texts, dtype=polars.String)


def _nulls(like: Any) -> Any:
    return POLARS.load().Series([None], dtype=like.dtype)
