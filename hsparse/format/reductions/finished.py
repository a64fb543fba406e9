"""The result of a reduction, of the partial results of all elements.

Groups of the positions along an axis: those that have the same label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.reductions.partials import LIMB, Partials, split_integers
from hsparse.format.reductions.reduction import NO_GROUP, OPERATIONS, Codes, Reduction

Array = NDArray[Any]


def needed_columns(operations: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of `Partials` that operations need."""
    return tuple(sorted({column for name in operations for column in OPERATIONS[name]}))


def add_missing(state: Partials, reduction: Reduction, fill: Array, codes: Codes | None) -> None:
    """Merge the elements that are not there yet, of all that were selected: each is `fill`, of rank 0."""
    missing = _sizes(reduction, codes) - state.count
    state.merge(filled(missing, reduction.numbers(fill), reduction.columns))


def finished(name: str, state: Partials, fill: Array, ddof: int) -> Array:
    """Return the result (k,) of an operation; extremes of no elements are `fill`, which has their type.

    `BadRequest` for a sum of integers that has more than 64 bits.
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
    raise Unsupported(f"The operation {name} has no result here.")


def filled(missing: NDArray[np.int64], fill: Array, columns: Sequence[str]) -> Partials:
    """Return the partial results of `missing: (k,)` elements of the fill value."""
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
    """Return sums as doubles or, of integers, as such of 64 bits; `BadRequest` if one has more."""
    if dtype.kind == "f":
        return state.sums()
    high, low = state.total
    least, most = (0, 1 << LIMB) if dtype.kind == "u" else (-(1 << (LIMB - 1)), 1 << (LIMB - 1))
    if len(high) and not (least <= int(high.min()) and int(high.max()) < most):
        raise BadRequest("A sum has more than 64 bits: ask for the mean and the count, or select less.")
    kind = np.uint64 if dtype.kind == "u" else np.int64
    return np.asarray((high.astype(kind) << kind(LIMB)) | low.astype(kind))


def _multiplied(count: NDArray[np.int64], fill: Array) -> Array:
    """Return so many times the fill value, as `total` has it; exact for integers."""
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
    """Return how many elements, defined or not, each place of the result has."""
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


MAX_GROUPS = 1 << 20


@dataclass(frozen=True, slots=True)
class LabelGroups:
    """The groups of the positions along an axis: `codes: (n,)` int32, -1 for none, and the label of each group.

    Labels are numbers, truth values or text, ascending; those of categories are in their order. All that makes groups
    raises `BadRequest` for labels of another type, and `TooLarge` for too many groups.
    """

    codes: Codes
    labels: list[Any]

    @classmethod
    def of_list(cls, labels: Sequence[Any]) -> LabelGroups:
        """Return the groups of labels in a list, all text or all integers; None is no label."""
        if not all(isinstance(label, str | int | None) for label in labels):
            raise BadRequest("Labels must be strings or integers, or null for none.")
        known = {label for label in labels if label is not None}
        if len({isinstance(label, str) for label in known}) > 1:
            raise BadRequest("Labels must all be strings, or all integers.")
        ordered = sorted(known)
        numbers = {label: number for number, label in enumerate(ordered)}
        codes = np.array([numbers.get(label, NO_GROUP) for label in labels], np.int32)
        return cls._checked(codes, ordered)

    @classmethod
    def of_numbers(cls, values: NDArray[Any]) -> LabelGroups:
        """Return the groups of numbers; NaN is no label."""
        labels, codes = np.unique(values, return_inverse=True, equal_nan=True)
        codes = codes.reshape(-1)
        if labels.dtype.kind == "f" and len(labels) and np.isnan(labels[-1]):
            labels = labels[:-1]
            codes[codes == len(labels)] = NO_GROUP
        return cls._checked(codes.astype(np.int32), labels.tolist())

    @classmethod
    def of_categories(cls, codes: Any, labels: Any, name: str) -> LabelGroups:
        """Return the groups of a categorical column, whose `codes`, those of `name`, are -1 for none."""
        if isinstance(codes, list) or codes.dtype.kind not in "iu":
            raise BadRequest(f"{name} has the codes of categories, which must be integers.")
        listed = labels if isinstance(labels, list) else labels.tolist()
        if len(codes) and int(codes.max()) >= len(listed):
            raise BadRequest(f"{name} has codes beyond the {len(listed)} categories.")
        return cls._checked(np.where(codes < 0, NO_GROUP, codes).astype(np.int32), listed)

    @classmethod
    def _checked(cls, codes: Codes, labels: list[Any]) -> LabelGroups:
        if len(labels) > MAX_GROUPS:
            raise TooLarge(f"The labels make {len(labels)} groups; there can be {MAX_GROUPS}.")
        return cls(codes, labels)


def check_labels(found: int, length: int) -> None:
    """Raise `BadRequest` unless there is one label for each index of an axis."""
    if found != length:
        raise BadRequest(f"There are {found} labels for an axis of {length}.")
