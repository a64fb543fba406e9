"""Values that are assigned or appended: sparse arrays are taken as elements, all other values as dense arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.indexing.key_axes import Columns
from hsparse.client.types.datatype import complex_fields

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix
    from sparse import SparseArray

Values: TypeAlias = "ArrayLike | sparray | spmatrix | SparseArray"
"""Values to assign or append: anything that numpy takes, or a sparse array of scipy or of the package sparse."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseValues:
    """A sparse array: `columns` has (n,) integers per dimension, `values` is (n,); other elements are `fill_value`."""

    shape: tuple[int, ...]
    columns: Columns
    values: NDArray[Any]
    fill_value: Any

    def broadcast_to(self, shape: Sequence[int]) -> SparseValues:
        """Return the elements broadcast to `shape` by numpy's rules; raise `InvalidValue` if the shapes do not fit."""
        own, columns = self.shape, list(self.columns)
        while len(own) > len(shape) and own[0] == 1:
            own, columns = own[1:], columns[1:]
        if len(own) > len(shape):
            raise self._does_not_fit(shape)
        missing = len(shape) - len(own)
        own = (1,) * missing + own
        columns = [np.zeros(len(self.values), np.int64)] * missing + columns
        values = self.values
        for dim, (have, want) in enumerate(zip(own, shape, strict=True)):
            if have == want:
                continue
            if have != 1:
                raise self._does_not_fit(shape)
            columns = [np.repeat(column, want) for column in columns]
            columns[dim] = np.tile(np.arange(want), len(values))
            values = np.repeat(values, want)
        return SparseValues(tuple(shape), columns, values, self.fill_value)

    def with_axis(self, dim: int) -> SparseValues:
        """Return the elements with an additional dimension `dim` of length 1."""
        columns = list(self.columns)
        columns.insert(dim, np.zeros(len(self.values), np.int64))
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return SparseValues(shape, tuple(columns), self.values, self.fill_value)

    def _does_not_fit(self, shape: Sequence[int]) -> InvalidValue:
        return InvalidValue(
            f"Values of shape {list(self.shape)} do not fit a selection of shape {list(shape)}."
        )


def sparse_values(values: Any) -> SparseValues | None:
    """Return the elements of a sparse array of scipy, in any format, or of the package sparse, else return None.

    Values that scipy stores for the same place are added, as scipy does.
    """
    packages = {one.__module__.partition(".")[0] for one in type(values).__mro__}
    if "sparse" in packages and hasattr(values, "fill_value"):
        found = values if hasattr(values, "coords") else values.asformat("coo")
        return SparseValues(found.shape, tuple(found.coords), found.data, found.fill_value)
    if "scipy" not in packages or not hasattr(values, "tocoo"):
        return None
    if values.format not in ("csr", "csc", "coo") or (values.format == "coo" and len(values.shape) == 2):
        values = values.tocsr()
    if not values.has_canonical_format:
        values = values.copy()
        values.sum_duplicates()
    found = values.tocoo(copy=False)
    return SparseValues(found.shape, tuple(found.coords), found.data, found.dtype.type(0))


def cast_values(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return dense values in the dataset's type; raise `WrongType` unless numpy can cast them by its rule "same_kind".

    A Python number has no type, so an integer may have any numeric type that it fits. Signed integers may become
    unsigned if all of them fit. Raise `InvalidValue` for a value that does not fit.
    """
    try:
        array = np.asarray(values)
        if array.dtype.names is not None:
            values = array = complex_fields(array)
    except ValueError as error:
        raise InvalidValue(
            "The values are lists of different lengths, which do not form an array."
        ) from error
    if not array.size:
        return np.asarray(values, dtype)
    may_fit = not hasattr(values, "dtype") and array.dtype.kind in "biu" and dtype.kind in "iuf"
    if array.dtype.kind == "i" and dtype.kind == "u" and not may_fit:
        least, most = int(array.min()), int(array.max())
        if least < 0 or most > np.iinfo(dtype).max:
            raise InvalidValue(f"The values, from {least} to {most}, do not fit a dataset of {dtype}.")
    elif dtype.kind not in "SV" and not may_fit and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise WrongType(
            f"Values of {array.dtype} do not fit a dataset of {dtype}: convert them with astype()."
        )
    try:
        return np.asarray(values, dtype)
    except (OverflowError, ValueError, TypeError) as error:
        raise InvalidValue(f"The values do not fit a dataset of {dtype}: {error}.") from error


def same_fill(one: Any, other: Any) -> bool:
    """Return whether two fill values are equal; NaN equals NaN."""
    return bool(np.array_equal(one, other)) or bool(one != one and other != other)
