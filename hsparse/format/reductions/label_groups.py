"""Groups of the positions along an axis: positions with the same label form a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.reductions.reduction import NO_GROUP, Codes

MAX_GROUPS = 1 << 20


@dataclass(frozen=True, slots=True)
class LabelGroups:
    """Groups of positions along an axis: `codes: (n,) int32` (-1: in no group), and the label of each group.

    Labels are ascending numbers, booleans or text, or categories in their given order. All constructors raise
    `BadRequest` for labels of other types, and `TooLarge` for more than `MAX_GROUPS` groups.
    """

    codes: Codes
    labels: list[Any]

    @classmethod
    def of_list(cls, labels: Sequence[Any]) -> LabelGroups:
        """Return the groups of a list of labels, all strings or all integers; the label None means no group."""
        if not all(isinstance(label, str | int | None) for label in labels):
            raise BadRequest("Labels must be strings or integers, or null for no group.")
        known = {label for label in labels if label is not None}
        if len({isinstance(label, str) for label in known}) > 1:
            raise BadRequest("Labels must all be strings, or all integers.")
        ordered = sorted(known)
        numbers = {label: number for number, label in enumerate(ordered)}
        codes = np.array([numbers.get(label, NO_GROUP) for label in labels], np.int32)
        return cls._checked(codes, ordered)

    @classmethod
    def of_numbers(cls, values: NDArray[Any]) -> LabelGroups:
        """Return the groups of equal numbers; NaN puts a position in no group."""
        labels, codes = np.unique(values, return_inverse=True, equal_nan=True)
        codes = codes.reshape(-1)
        if labels.dtype.kind == "f" and len(labels) and np.isnan(labels[-1]):
            labels = labels[:-1]
            codes[codes == len(labels)] = NO_GROUP
        return cls._checked(codes.astype(np.int32), labels.tolist())

    @classmethod
    def of_categories(cls, codes: Any, labels: Any, name: str) -> LabelGroups:
        """Return the groups of the categorical column `name`; a negative code puts a position in no group."""
        if isinstance(codes, list) or codes.dtype.kind not in "iu":
            raise BadRequest(f"The column {name} has codes of categories; codes must be integers.")
        listed = labels if isinstance(labels, list) else labels.tolist()
        if len(codes) and int(codes.max()) >= len(listed):
            raise BadRequest(f"The codes of {name} must be below {len(listed)}, its number of categories.")
        return cls._checked(np.where(codes < 0, NO_GROUP, codes).astype(np.int32), listed)

    @classmethod
    def _checked(cls, codes: Codes, labels: list[Any]) -> LabelGroups:
        if len(labels) > MAX_GROUPS:
            raise TooLarge(f"The labels make {len(labels)} groups; the limit is {MAX_GROUPS}.")
        return cls(codes, labels)


def check_labels(found: int, length: int) -> None:
    """Raise `BadRequest` unless there is one label for each index of an axis."""
    if found != length:
        raise BadRequest(f"There must be one label per index of the axis: {length}, not {found}.")
