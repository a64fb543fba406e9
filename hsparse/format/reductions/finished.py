"""The final result of a reduction, computed from the partial results."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.reductions.partials import LIMB, Partials, split_integers
from hsparse.format.reductions.reduction import OPERATIONS, Codes, Reduction

Array = NDArray[Any]


def needed_columns(operations: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of `Partials` that the operations need, besides `count`."""
    return tuple(sorted({column for name in operations for column in OPERATIONS[name]}))


def add_missing(state: Partials, reduction: Reduction, fill: Array, codes: Codes | None) -> None:
    """Merge the selected elements that `state` does not count yet into `state`, each with the value `fill: ()`."""
    missing = _sizes(reduction, codes) - state.count
    state.merge(filled(missing, reduction.numbers(fill), reduction.columns))


def finished(name: str, state: Partials, fill: Array, ddof: int) -> Array:
    """Return the result (k,) of the operation `name`; the `min` and `max` of no elements is `fill`.

    `ddof` is as in `numpy.var`. Raises `BadRequest` if a sum of integers does not fit 64 bits.
    """
    match name:
        case "count":
            return state.count
        case "nnz":
            return state.nonzero
        case "sum":
            return whole_sums(state, fill.dtype)
        case "mean":
            return state.means()
        case "var":
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(state.count > ddof, state.squares / (state.count - ddof), np.nan)
        case "min" | "max":
            found = state.least if name == "min" else state.greatest
            return np.where(state.count > 0, found, fill.astype(found.dtype))
    raise Unsupported(f"The operation {name} is not supported.")


def filled(missing: NDArray[np.int64], fill: Array, columns: Sequence[str]) -> Partials:
    """Return the partial results of `missing: (k,)` elements at each place, which all have the fill value."""
    places = np.flatnonzero(missing)
    count = missing[places]
    found = Partials.empty(len(places), fill.dtype, columns)
    found.places = places
    found.count[:] = count
    if len(found.nonzero) and fill != 0:
        found.nonzero[:] = count
    if found.total.size and fill != 0:
        found.total[:] = _multiplied(count, fill)
    if len(found.least):
        found.least[:] = fill
    if len(found.greatest):
        found.greatest[:] = fill
    return found


def whole_sums(state: Partials, dtype: np.dtype[Any]) -> Array:
    """Return sums of floats as doubles and of integers as 64-bit integers; raise `BadRequest` if a sum is larger."""
    if dtype.kind == "f":
        return state.sums()
    high, low = state.total
    least, most = (0, 1 << LIMB) if dtype.kind == "u" else (-(1 << (LIMB - 1)), 1 << (LIMB - 1))
    if len(high) and not (least <= int(high.min()) and int(high.max()) < most):
        raise BadRequest("A sum has more than 64 bits: ask for the mean and the count, or select less.")
    kind = np.uint64 if dtype.kind == "u" else np.int64
    return np.asarray((high.astype(kind) << kind(LIMB)) | low.astype(kind))


def _multiplied(count: NDArray[np.int64], fill: Array) -> Array:
    """Return `count` times the fill value in the form of `Partials.total`; exact for integers."""
    if fill.dtype.kind == "f":
        return np.stack((count * np.float64(fill), np.zeros(len(count))))
    high, low = split_integers(fill.reshape(1))[:, 0].tolist()
    if int(count.max(initial=0)) < 1 << (LIMB - 1):
        upper, lower = count * high, count * low
        return np.stack((upper + (lower >> LIMB), lower & ((1 << LIMB) - 1)))
    products = [number * int(fill) for number in count.tolist()]
    if any(not -(1 << 94) < product < 1 << 94 for product in products):
        raise BadRequest("A sum has more than 64 bits: ask for undefined=skip, or select less.")
    return np.array(
        [[one >> LIMB for one in products], [one & ((1 << LIMB) - 1) for one in products]], np.int64
    )


def _sizes(reduction: Reduction, codes: Codes | None) -> NDArray[np.int64]:
    """Return for each place of the result the number of selected elements, whether defined or not."""
    each = prod(reduction.shape[dim] for dim in reduction.axes if dim != reduction.grouped)
    if each >= 1 << 63:
        raise TooLarge("The selection has more elements than 63 bits can count; select less.")
    if codes is None:
        return np.full(reduction.places, each, np.int64)
    sizes = np.bincount(codes[codes >= 0], minlength=reduction.groups).astype(np.int64) * each
    place = reduction.kept.index(reduction.grouped)
    after = prod(reduction.result_shape[place + 1 :])
    before = prod(reduction.result_shape[:place])
    return np.tile(np.repeat(sizes, after), before)
