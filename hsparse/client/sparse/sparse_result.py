"""Convert defined elements to arrays of scipy, sparse (`sparse.COO`) and numpy, or to a table of Arrow.

Numbers are in the machine's byte order, because scipy and numba accept no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import WrongType
from hsparse.client.indexing.key_axes import Columns
from hsparse.client.sparse.banded_csr import SCIPY, to_banded_csr, to_sorted_csr
from hsparse.client.sparse.coo_serialization import serialize_whole
from hsparse.optional_module import OptionalModule

COO = OptionalModule("sparse", "scipy")
ARROW = OptionalModule("pyarrow", "arrow")


def fills_with_zero(dtype: np.dtype[Any], fill_value: Any) -> bool:
    """Return whether scipy has sparse arrays of this dtype (bool, or a number except float16) and fill value (0)."""
    return dtype.kind in "biufc" and dtype != np.float16 and bool(fill_value == 0)


@dataclass(frozen=True, slots=True, eq=False)
class SparseResult:
    """The defined elements of an array of the shape `shape`; other elements are `fill_value`.

    `columns` has (n,) coordinates for each dimension, `values` is (n,). Places are in any order, without repeats.
    `bands` is the result of `row_bands`, or empty.
    """

    shape: tuple[int, ...]
    columns: Columns
    values: NDArray[Any]
    fill_value: Any
    bands: Sequence[int] = ()

    @classmethod
    def of_arrays(
        cls, shape: tuple[int, ...], columns: Columns, values: NDArray[Any], fill_value: NDArray[Any]
    ) -> SparseResult:
        """Return a result for elements that are arrays, values (n, ...); the shape ends with the arrays' dimensions."""
        inner = values.shape[1:]
        within = np.unravel_index(np.arange(prod(inner)), inner)
        places = [
            *(np.repeat(column, prod(inner)) for column in columns),
            *(np.tile(column, len(values)) for column in within),
        ]
        is_one = bool(np.all(fill_value == fill_value.flat[0]))
        fill = fill_value.flat[0] if is_one else fill_value
        return cls((*shape, *inner), tuple(places), values.reshape(-1), fill)

    def to_numpy(self) -> NDArray[Any]:
        """Return all values as a dense array."""
        array = np.full(self.shape, self.fill_value, self.values.dtype)
        if not self.shape:
            return self.values.reshape(()).copy() if len(self.values) else array
        array[tuple(self.columns)] = self.values
        return array

    def to_csr(self) -> Any:
        """Return a `csr_array` with sorted indices, or for rank 1 a `coo_array`. Defined zeros are stored."""
        values, columns = in_native_order(self.values), self._index_columns()
        if len(self.shape) == 2:
            pair = columns[0], columns[1]
            found = to_sorted_csr(*pair, values, self.shape)
            if found is None:
                found = to_banded_csr(*pair, values, self.shape, self.bands)
            if found is not None:
                return found
        coo = SCIPY.load().coo_array((values, columns), shape=self.shape)
        return coo.tocsr() if len(self.shape) == 2 else coo

    def to_coo(self) -> Any:
        """Return a `sparse.COO` with the fill value; raise `WrongType` for a type that it does not support."""
        module = COO.load()
        serialize_whole()
        coords = np.array([column.astype(np.int64) for column in self.columns], np.int64)
        try:
            return module.COO(
                coords.reshape(len(self.shape), len(self.values)),
                in_native_order(self.values),
                shape=self.shape,
                has_duplicates=False,
                fill_value=in_native_order(np.asarray(self.fill_value))[()],
            )
        except (TypeError, ValueError) as error:
            raise WrongType(
                f"sparse.COO cannot hold values of {self.values.dtype} ({error}): use to_numpy() or defined()."
            ) from error

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table` with columns `dim_0`, ..., `value`; raise `WrongType` for a type Arrow lacks."""
        module = ARROW.load()
        columns = {f"dim_{dim}": module.array(column) for dim, column in enumerate(self.columns)}
        try:
            return module.table(columns | {"value": module.array(in_native_order(self.values))})
        except module.ArrowException as error:
            raise WrongType(
                f"Arrow cannot hold values of {self.values.dtype} ({error}): use to_numpy() or defined()."
            ) from error

    def _index_columns(self) -> tuple[NDArray[Any], ...]:
        """Return the columns in the index type that scipy uses for this array: int32 if it fits, else int64."""
        most = max(len(self.values), *self.shape)
        index = np.int32 if most <= np.iinfo(np.int32).max else np.int64
        return tuple(column.astype(index, copy=False) for column in self.columns)


def bytes_of_result(shape: tuple[int, ...], count: int, itemsize: int) -> int:
    """Return the approximate bytes of a sparse array of `count` elements: values, coordinates and row pointers."""
    if len(shape) == 2:
        index = 4 if max(count, *shape) < 2**31 else 8
        return count * (itemsize + index) + shape[0] * index
    return count * (itemsize + 8 * len(shape))


def bytes_of_dense(shape: tuple[int, ...], itemsize: int) -> int:
    """Return the number of bytes of a dense array."""
    return prod(shape) * itemsize


def in_native_order(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the machine's byte order, without a copy if they have it already."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)
