"""A data frame of a domain as polars scans it: the columns that a query needs, in blocks of rows.

Which coordinates a predicate of polars can hold for, found out without reading its form.

Polars promises nothing about how it writes an expression down, so nothing is parsed: a predicate is taken apart where
`(a & b).meta.eq(predicate)`, and a part that needs one coordinate alone is evaluated by polars at every value that this
coordinate can have: whether it holds depends on the row alone, else polars keeps it to itself. What is not understood
restricts nothing: the predicate is applied to what is read in any case.
"""

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
LONGEST = 1 << 26
"""The longest dimension whose values are tried."""
PIECE = 1 << 20
"""Values that are tried at a time."""


def allowed_places(
    predicate: Any, names: Sequence[str], extent: Sequence[int], dtypes: Sequence[np.dtype[Any]]
) -> list[NDArray[np.bool_] | None]:
    """Return for each dimension the indices that the predicate can hold for, as a mask; None for all.

    `names` are the columns of the dimensions, `dtypes` their types.
    """
    masks: list[NDArray[np.bool_] | None] = [None] * len(extent)
    for part in _conjunction(predicate):
        roots = set(part.meta.root_names())
        if len(roots) != 1 or not roots <= set(names):
            continue
        dim = names.index(roots.pop())
        mask = _tried(part, names[dim], extent[dim], dtypes[dim])
        if mask is not None:
            known = masks[dim]
            masks[dim] = mask if known is None else known & mask
    return masks


def _conjunction(predicate: Any) -> Iterator[Any]:
    """Yield expressions that all have to hold where the predicate does."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and any((a & b).meta.eq(predicate) for a, b in (parts, parts[::-1])):
        for part in parts:
            yield from _conjunction(part)
    else:
        yield predicate


def _tried(part: Any, name: str, length: int, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Return where an expression of one column holds, of 0 to `length` - 1; None if it cannot be told."""
    if length > LONGEST:
        return None
    polars = POLARS.load()
    mask = np.zeros(length, np.bool_)
    for start in range(0, length, PIECE):
        places = np.arange(start, min(start + PIECE, length), dtype=dtype)
        try:
            found = polars.DataFrame({name: places}).select(part).to_series()
        except polars.exceptions.PolarsError:  # raised again where the predicate is applied to what is read
            return None
        if found.dtype != polars.Boolean or len(found) != len(places):
            return None
        mask[start : start + len(places)] = found.fill_null(False).to_numpy()
    return mask


def plain_series(name: str, values: NDArray[Any]) -> Any:
    """Return a column of polars; compounds are structs."""
    polars = POLARS.load()
    if values.dtype.names is not None:
        fields = [plain_series(field, values[field]) for field in values.dtype.names]
        return polars.DataFrame(fields).to_struct(name)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return polars.Series(name, np.ascontiguousarray(native))


GOAL = 1 << 22
"""Values that a block has."""
UNNAMED, INDEX = "_index", "index"
"""What the index is stored as where it has no name, and its column then, unless another has that name."""


@dataclass(frozen=True, slots=True)
class FrameScan:
    """The rows of the data frame at a path of a tree as frames of polars."""

    tree: DomainTree
    path: str
    index: str
    """The column of the index."""
    columns: tuple[str, ...]

    @classmethod
    def of(cls, frame: Group | DenseDataset) -> Self:
        """Take a data frame: a group of columns, or a dataset of compounds, whose first field is the index."""
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
        """Yield frames of the rows that the predicate holds for; it is for the first `limit` ones alone."""
        names = self.names if columns is None else columns
        length = self.tree.frame_length(self.path)
        end = length if limit is None else min(limit, length)
        step = max(1, GOAL // max(1, len(names)))
        starts = range(0, max(1, end), step)
        for found in prefetched(lambda start: self.frame(names, start, min(end, start + step)), starts):
            yield found if predicate is None else found.filter(predicate)

    def empty(self) -> Any:
        """Return a frame of no rows, which has the types of the columns."""
        return self.frame(self.names, 0, 0)

    def frame(self, names: Sequence[str], start: int, stop: int) -> Any:
        """Return some rows of some columns."""
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
    """Return a column of polars; null where a value is missing, also in text."""
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
    ]  # NaN is what pandas has for none
    if not all(isinstance(text, str | None) for text in texts):
        raise WrongType(f"The column {name!r} has values of variable length that are no text: leave it out.")
    return polars.Series(name, texts, dtype=polars.String)


def _nulls(like: Any) -> Any:
    return POLARS.load().Series([None], dtype=like.dtype)
