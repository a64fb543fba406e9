"""Sums, means, extremes and counts over axes, block by block, of defined elements alone.

An element that is not defined has the fill value: each kind takes that into account at the end, by their number.

Tests: tests/client/test_sparse_arrays.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.indexing.key_axes import Columns
from hsparse.format.selections.extent import strides

ReductionKind: TypeAlias = Literal["sum", "mean", "min", "max", "count"]
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of an array of `shape` and `dtype` over `axes`: what is asked for, without any data."""

    kind: ReductionKind
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any

    @classmethod
    def of(
        cls,
        kind: ReductionKind,
        axis: int | Sequence[int] | None,
        shape: tuple[int, ...],
        dtype: Any,
        fill: Any,
    ) -> Reduction:
        """Return the reduction over an axis, several, or all (None); `InvalidValue` for an axis that there is not.

        `WrongType` for elements that are no numbers, unless they are counted.
        """
        rank = len(shape)
        given = (
            range(rank) if axis is None else (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
        )
        for one in given:
            if not -rank <= one < rank:
                raise InvalidValue(f"There is no axis {one}; the dataset has {rank} dimensions.")
        if kind != "count" and np.dtype(dtype).kind not in "biuf":
            raise WrongType(f"Values of {dtype} have no {kind}; take them by to_numpy().")
        return cls(kind, tuple(sorted({int(one) % rank for one in given})), shape, np.dtype(dtype), fill)

    @property
    def result_shape(self) -> tuple[int, ...]:
        return tuple(length for dim, length in enumerate(self.shape) if dim not in self.axes)

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The type of the result, numpy's: of a sum of integers 64 bits, of a mean of integers float64."""
        if self.kind == "count":
            return np.dtype(np.int64)
        if self.kind in ("min", "max"):
            return self.dtype.newbyteorder("=")
        if self.dtype.kind == "f":
            return self.dtype.newbyteorder("=")
        if self.kind == "mean":
            return np.dtype(np.float64)
        return np.dtype(np.uint64 if self.dtype.kind == "u" else np.int64)

    def start(self) -> ReductionState:
        """Return the state before any element."""
        size = prod(self.result_shape)
        wide = np.float64 if self.dtype.kind == "f" or self.kind == "mean" else self.result_dtype
        totals: Array = np.zeros(size, self.result_dtype if self.kind in ("min", "max") else wide)
        if self.kind in ("min", "max"):
            totals[:] = _first(self.kind, totals.dtype)
        return ReductionState(self, totals, np.zeros(size, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class ReductionState:
    """What elements have been reduced to so far: for each place of the result, row-major, the total and how many."""

    reduction: Reduction
    totals: Array
    counts: NDArray[np.int64]

    def add(self, columns: Columns, values: Array) -> None:
        """Add elements: (n,) coordinates for each dimension of the whole array, and values."""
        if not len(values):
            return
        places = self._places(columns, len(values))
        self.counts[:] += np.bincount(places, minlength=len(self.counts))
        if self.reduction.kind in ("sum", "mean"):
            if self.totals.dtype.kind == "f":
                self.totals[:] += np.bincount(places, values, minlength=len(self.totals))
            else:
                np.add.at(self.totals, places, values.astype(self.totals.dtype))
        elif self.reduction.kind != "count":
            ufunc = np.minimum if self.reduction.kind == "min" else np.maximum
            ufunc.at(self.totals, places, values.astype(self.totals.dtype))

    def result(self) -> Any:
        """Return the result: an array, or a number if all axes are reduced."""
        reduction, shape = self.reduction, self.reduction.result_shape
        each = prod(reduction.shape[axis] for axis in reduction.axes)
        missing = each - self.counts
        if reduction.kind == "count":
            found: Array = self.counts
        elif reduction.kind in ("min", "max"):
            if not each:
                raise InvalidValue(f"There is no {reduction.kind} of no elements.")
            ufunc = np.minimum if reduction.kind == "min" else np.maximum
            fill = np.asarray(reduction.fill_value).astype(self.totals.dtype)
            found = np.where(missing > 0, ufunc(self.totals, fill), self.totals)
        else:
            found = self.totals + self._fills(missing)
            if reduction.kind == "mean":
                with np.errstate(invalid="ignore", divide="ignore"):
                    found = found / each
        return found.astype(reduction.result_dtype, copy=False).reshape(shape)[()]

    def _fills(self, missing: NDArray[np.int64]) -> Array:
        """Return what the elements that are not defined add to each total."""
        fill = np.asarray(self.reduction.fill_value).astype(self.totals.dtype)
        if not fill:
            return np.zeros(1, self.totals.dtype)
        filled: Array = np.where(
            missing > 0, missing.astype(self.totals.dtype) * fill, self.totals.dtype.type(0)
        )
        return filled

    def _places(self, columns: Columns, count: int) -> NDArray[np.intp]:
        reduction = self.reduction
        kept = [dim for dim in range(len(reduction.shape)) if dim not in reduction.axes]
        places = np.zeros(count, np.intp)
        for dim, stride in zip(kept, strides(reduction.result_shape), strict=True):
            places += columns[dim].astype(np.intp) * stride
        return places


def _first(kind: ReductionKind, dtype: np.dtype[Any]) -> Any:
    """Return what any element replaces."""
    if dtype.kind == "b":
        return kind == "min"
    if dtype.kind == "f":
        return np.inf if kind == "min" else -np.inf
    return np.iinfo(dtype).max if kind == "min" else np.iinfo(dtype).min
