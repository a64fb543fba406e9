"""Partial results of a reduction: reductions of some of the elements, for each place (position) in the result.

Partial results of disjoint elements can be merged into the partial result of all these elements.

- Sums of integers are exact, with 96 bits: `total[0] * 2**32 + total[1]`.
- Sums of floats are in double precision, compensated (Neumaier, 1974) between blocks of at most 2^20 elements:
  `total[0] + total[1]`. With u = 2^-53 and n elements in a place the error is at most
  min(n, 2^20) u times the sum of their absolute values; usually it is the error of the last rounding.
- Sums of squared deviations from the mean are computed in two passes over a block, and merged as by Chan, Golub and
  LeVeque (1979).

The functions at the end reduce the elements of a box, a block of positions of a selection. The places that
they return are places of the box's own result, not of the selection's result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.reductions.reduction import Codes, Places, Reduction

Column = NDArray[Any]
LIMB = 32
LOW = (1 << LIMB) - 1
"""The mask of the low part of an integer; the high and the low parts are summed separately."""
ELEMENTS_AT_ONCE = 1 << 17
MAX_BLOCK = 1 << 20
"""The most elements of a block: the sum of as many 32-bit numbers is below 2^53, so that doubles add them exactly."""
SPARSITY_RATIO = 4
"""If there are fewer elements than 1/FEW of the places, only places with elements get partial results."""


@dataclass(slots=True, eq=False)
class Partials:
    """The partial results at `places: (k,)`, unique row-major indices in the result (None: all places).

    The columns are `count: (k,) int64`, `nonzero: (k,) int64`, `total: (2, k)` (float64 for floats, otherwise int64),
    `squares: (k,) float64`, and `least` and `greatest: (k,)` of the elements' dtype. Except `count`, columns that the
    reduction does not need are empty.
    """

    places: Places | None
    count: Column
    nonzero: Column
    total: Column
    squares: Column
    least: Column
    greatest: Column

    @classmethod
    def empty(cls, size: int, dtype: np.dtype[Any], columns: Sequence[str]) -> Partials:
        """Return the partial results of no elements of `dtype` at `size` places, with `columns` besides `count`."""
        native = dtype.newbyteorder("=")
        least, greatest = extremes(native) if dtype.kind in "biuf" else (0, 0)
        return cls(
            None,
            np.zeros(size, np.int64),
            np.zeros(size if "nonzero" in columns else 0, np.int64),
            np.zeros((2, size if "total" in columns else 0), np.float64 if dtype.kind == "f" else np.int64),
            np.zeros(size if "squares" in columns else 0),
            np.full(size if "least" in columns else 0, greatest, native if dtype.kind in "biuf" else "u1"),
            np.full(size if "greatest" in columns else 0, least, native if dtype.kind in "biuf" else "u1"),
        )

    @classmethod
    def of(cls, places: Places, values: Column, size: int, columns: Sequence[str]) -> Partials:
        """Return the partial results of `values: (n,)` at `places: (n,)` below `size`, without elements at -1."""
        if len(places) and places.min() < 0:
            inside = places >= 0
            places, values = places[inside], values[inside]
        if size == 1:
            return cls.of_rows(values.reshape(1, -1), columns)
        index = None
        if SPARSITY_RATIO * len(places) < size:
            index, places = np.unique(places, return_inverse=True)
            size = len(index)
        block = min(max(ELEMENTS_AT_ONCE, 2 * size), MAX_BLOCK)
        found = _of_block(places[:block], values[:block], size, columns)
        for first in range(block, len(places), block):
            some = slice(first, first + block)
            found.merge(_of_block(places[some], values[some], size, columns))
        found.places = index
        return found

    @classmethod
    def of_rows(cls, rows: Column, columns: Sequence[str]) -> Partials:
        """Return the partial results at k places of `rows: (k, n)`; each row has the elements of one place."""
        size, length = rows.shape
        found = cls.empty(size, rows.dtype, columns)
        if not rows.size:
            return found
        found.count[:] = length
        if len(found.nonzero):
            found.nonzero[:] = np.count_nonzero(rows, axis=1)
        if found.total.size:
            found.total[:] = _row_totals(rows)
        if len(found.squares):
            with np.errstate(invalid="ignore", over="ignore"):
                deviations = rows.astype(np.float64) - found.means()[:, None]
                np.square(deviations, out=deviations)
                found.squares[:] = deviations.sum(axis=1)
        if len(found.least):
            found.least[:] = rows.min(axis=1)
        if len(found.greatest):
            found.greatest[:] = rows.max(axis=1)
        return found

    @property
    def size(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take."""
        columns = (self.count, self.nonzero, self.total, self.squares, self.least, self.greatest)
        return sum(column.nbytes for column in columns)

    def merge_all(self, others: Iterable[Partials]) -> None:
        """Merge all `others` in order, see `merge`."""
        for other in others:
            self.merge(other)

    def merge(self, other: Partials) -> None:
        """Merge the partial results `other` into this object, which must have all places (`places` is None)."""
        at: Any = slice(None) if other.places is None else other.places
        with np.errstate(invalid="ignore", over="ignore"):
            if len(self.squares):
                self._merge_squares(other, at)
            self.count[at] += other.count
            if len(self.nonzero):
                self.nonzero[at] += other.nonzero
            if self.total.size:
                add = _add_floats if self.total.dtype.kind == "f" else _add_integers
                self.total[:, at] = add(self.total[:, at], other.total)
            if len(self.least):
                self.least[at] = np.minimum(self.least[at], other.least)
            if len(self.greatest):
                self.greatest[at] = np.maximum(self.greatest[at], other.greatest)

    def sums(self) -> NDArray[np.float64]:
        """Return the sums as doubles."""
        if self.total.dtype.kind != "f":
            return np.asarray(self.total[0] * 2.0**LIMB + self.total[1], np.float64)
        # The compensation of a sum that is not finite has no meaning.
        with np.errstate(invalid="ignore"):
            whole = self.total[0] + self.total[1]
            return np.asarray(np.where(np.isfinite(self.total[0]), whole, self.total[0]), np.float64)

    def means(self) -> NDArray[np.float64]:
        """Return the means as doubles; the mean of a place without elements is NaN."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.sums() / self.count, np.float64)

    def placed(self, reduction: Reduction, shape: Sequence[int], origin: Sequence[int]) -> Partials:
        """Return a box's results at places of the whole result; the box has `shape`, at `origin` in the selection."""
        if reduction.box_shape(shape) == reduction.result_shape:
            return self
        places = np.arange(self.size) if self.places is None else self.places
        moved = copy(self)
        moved.places = reduction.result_places(places, shape, origin)
        return moved

    def folded(self) -> Partials:
        """Return the partial results of all places merged into one place, without `squares`."""
        found = Partials.empty(1, self.least.dtype, ())
        found.count[0] = self.count.sum()
        found.nonzero = self.nonzero.sum(keepdims=True)
        found.total = self.total[:, :1].copy()
        if self.total.size:
            found.total[:, 0] = _folded_total(self.total)
        with np.errstate(invalid="ignore"):
            found.least = self.least.min(keepdims=True) if len(self.least) else self.least
            found.greatest = self.greatest.max(keepdims=True) if len(self.greatest) else self.greatest
        return found

    def compact(self) -> Partials:
        """Return only the places with elements if at most half of all places have any, for smaller messages."""
        there = np.flatnonzero(self.count)
        if self.places is not None or 2 * len(there) > self.size:
            return self
        some = [
            column[..., there] if column.size else column
            for column in (self.count, self.nonzero, self.total, self.squares, self.least, self.greatest)
        ]
        return Partials(there, *some)

    def _merge_squares(self, other: Partials, at: Any) -> None:
        ours, theirs = self.count[at], other.count
        distance = other.means() - self._means_at(at)
        with np.errstate(invalid="ignore", divide="ignore"):
            between = distance * distance * (ours * (theirs / (ours + theirs)))
        self.squares[at] += other.squares + np.where((ours > 0) & (theirs > 0), between, 0.0)

    def _means_at(self, at: Any) -> NDArray[np.float64]:
        none = np.zeros(0, np.int64)
        return Partials(None, self.count[at], none, self.total[:, at], none, none, none).means()


def extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return a pair: the smallest and the largest number of a dtype, which are the infinities for floats."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def split_integers(values: Column) -> NDArray[np.int64]:
    """Return the high parts and the low 32 bits, (2, n) int64, of integers, (n,) of any dtype."""
    if values.dtype.itemsize < 8:
        values = values.astype(np.int64)
    high = (values >> LIMB).astype(np.int64)
    return np.stack((high, (values & values.dtype.type(LOW)).astype(np.int64)))


def _of_block(places: Places, values: Column, size: int, columns: Sequence[str]) -> Partials:
    """Return the partial results of at most `MAX_BLOCK` elements."""
    found = Partials.empty(size, values.dtype, columns)
    found.count[:] = np.bincount(places, minlength=size)
    if len(found.nonzero):
        found.nonzero[:] = np.bincount(places[values != 0], minlength=size)
    if values.dtype.kind not in "biuf":
        return found
    doubles = values.astype(np.float64) if found.total.size else values
    if found.total.size:
        found.total[:] = _totals(places, values, doubles, size)
    if len(found.squares):
        with np.errstate(invalid="ignore", over="ignore"):
            # The places were checked by `bincount`; checking them again would take half of the time of this line.
            deviations = np.take(found.means(), places, mode="clip")
            np.subtract(doubles, deviations, out=deviations)
            np.square(deviations, out=deviations)
            found.squares[:] = np.bincount(places, deviations, size)
    if len(found.least) or len(found.greatest):
        _set_extremes(found, places, values)
    return found


def _set_extremes(found: Partials, places: Places, values: Column) -> None:
    """Set `least` and `greatest` by `reduceat` over elements sorted by place, several times as fast as `ufunc.at`."""
    if len(places) and not bool((places[1:] >= places[:-1]).all()):
        # numpy sorts 16-bit integers by radix, several times faster than wider ones
        order = np.argsort(places.astype(np.uint16) if found.size <= 1 << 16 else places, kind="stable")
        places, values = places[order], values[order]
    if not len(places):
        return
    firsts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    with np.errstate(invalid="ignore"):
        if len(found.least):
            found.least[places[firsts]] = np.minimum.reduceat(values, firsts)
        if len(found.greatest):
            found.greatest[places[firsts]] = np.maximum.reduceat(values, firsts)


def _totals(places: Places, values: Column, doubles: Column, size: int) -> Column:
    if values.dtype.kind == "f":
        return np.stack((np.bincount(places, doubles, size), np.zeros(size)))
    if values.dtype.itemsize < 8:
        return split_integers(np.bincount(places, doubles, size).astype(np.int64))
    parts = split_integers(values)
    return _carry(np.stack([np.bincount(places, part, size).astype(np.int64) for part in parts]))


def _row_totals(rows: Column) -> Column:
    """Return the sum of each row in the form of `total`; numpy sums floats along the last axis pairwise."""
    if rows.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            sums = rows.sum(axis=1, dtype=np.float64)
        return np.stack((sums, np.zeros(len(sums))))
    if rows.dtype.itemsize < 8:
        return split_integers(rows.sum(axis=1, dtype=np.int64))
    low = (rows & rows.dtype.type(LOW)).sum(axis=1, dtype=np.int64)
    return _carry(np.stack(((rows >> LIMB).sum(axis=1, dtype=np.int64), low)))


def _folded_total(total: Column) -> Column:
    """Return the sum over all places, (2,), which is exact for integers and rounded once for finite floats."""
    if total.dtype.kind == "f":
        if np.isfinite(total).all():
            return np.array([math.fsum(total.reshape(-1).tolist()), 0.0])
        with np.errstate(invalid="ignore"):
            return np.array([total[0].sum(), 0.0])
    whole = sum((high << LIMB) + low for high, low in total.T.tolist())
    return np.array([whole >> LIMB, whole & LOW], np.int64)


def _add_integers(one: Column, other: Column) -> Column:
    return _carry(one + other)


def _carry(total: Column) -> Column:
    """Carry the bits above 32 of the low parts of `total` into the high parts, in place, and return `total`."""
    total[0] += total[1] >> LIMB
    total[1] &= LOW
    return total


def _add_floats(one: Column, other: Column) -> Column:
    """Add compensated sums, and add the rounding error of the addition to the compensation."""
    total = one[0] + other[0]
    larger = np.abs(one[0]) >= np.abs(other[0])
    rounded = np.where(larger, (one[0] - total) + other[0], (other[0] - total) + one[0])
    return np.stack((total, one[1] + other[1] + rounded))


REDUCTION_BYTES = 48
"""Measured maximum of bytes per element during a reduction: its place, its value as a double, its deviation."""
REDUCED_AT_ONCE = 1 << 20
"""The most elements that are reduced at a time; more elements are reduced in parts, which are merged."""


def reduction_bytes(count: int) -> int:
    """Return the estimated bytes of memory to reduce `count` elements, besides the elements and the result."""
    return REDUCTION_BYTES * min(count, REDUCED_AT_ONCE)


def reduce_array(values: NDArray[Any], reduction: Reduction, codes: Codes | None) -> Partials:
    """Return the partial results of all elements of a box, given their `values` in the box's shape."""
    if values.size > REDUCED_AT_ONCE:
        return _reduce_slabs(values, reduction, codes)
    if reduction.grouped >= 0:
        positions = np.arange(values.size, dtype=np.uint64)
        return reduce_positions(positions, values.reshape(-1), values.shape, reduction, codes)
    numbers = reduction.numbers(values)
    kept = reduction.kept
    rows = numbers.transpose(*kept, *reduction.axes)
    places = prod(values.shape[dim] for dim in kept)
    return Partials.of_rows(rows.reshape(places, values.size // max(places, 1)), reduction.columns)


def _reduce_slabs(values: NDArray[Any], reduction: Reduction, codes: Codes | None) -> Partials:
    """Return the partial results of a large box, cut along its longest dimension until parts are small."""
    inner, shape = replace(reduction, shape=values.shape), values.shape
    size, dtype = prod(inner.result_shape), reduction.numbers(values[:0]).dtype
    found = Partials.empty(size, dtype, reduction.columns)
    dim = int(np.argmax(shape))
    length = max(1, shape[dim] * REDUCED_AT_ONCE // values.size)
    for first in range(0, shape[dim], length):
        slab = values[(slice(None),) * dim + (slice(first, first + length),)]
        own = codes[first : first + length] if codes is not None and dim == reduction.grouped else codes
        origin = [first if one == dim else 0 for one in range(len(shape))]
        found.merge(reduce_array(slab, reduction, own).placed(inner, slab.shape, origin))
    return found


def reduce_positions(
    positions: NDArray[Any],
    values: NDArray[Any],
    shape: tuple[int, ...],
    reduction: Reduction,
    codes: Codes | None,
) -> Partials:
    """Return the partial results of elements at `positions: (n,)`, unsigned row-major offsets in a box of `shape`."""
    numbers, size = reduction.numbers(values), prod(reduction.box_shape(shape))
    if len(positions) <= REDUCED_AT_ONCE or SPARSITY_RATIO * len(positions) < size:
        places = reduction.box_places(positions, shape, codes)
        return Partials.of(places, numbers, size, reduction.columns)
    found = Partials.empty(size, numbers.dtype, reduction.columns)
    for first in range(0, len(positions), REDUCED_AT_ONCE):
        some = slice(first, first + REDUCED_AT_ONCE)
        places = reduction.box_places(positions[some], shape, codes)
        found.merge(Partials.of(places, numbers[some], size, reduction.columns))
    return found


def count_positions(
    positions: NDArray[Any], shape: tuple[int, ...], reduction: Reduction, codes: Codes | None
) -> Partials:
    """Return the counts of variable-length elements at each place; raise `Unsupported` for any other operation."""
    if reduction.columns or reduction.field:
        raise Unsupported("Elements of variable length can only be counted.")
    return reduce_positions(positions, np.zeros(len(positions), np.uint8), shape, reduction, codes)
