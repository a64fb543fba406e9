"""Labels in keys: a text in an orthogonal key selects the index whose label is this text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.client.indexing.key_items import Key

Labels: TypeAlias = Callable[[int], NDArray[Any] | None]
"""A function that returns an array of the labels along an axis, or None if the axis has no labels."""
TWICE = -1


class AxisLabels:
    """The labels along the axes of a dataset; the first use of an axis builds a lookup table, which is not pickled.

    >>> cells["X"].labels(1), X.labels(1)
    (array(['CD3E', 'NKG7', 'MS4A1'], dtype=object), None)
    """

    def __init__(self, labels: Labels | None = None) -> None:
        self._labels = labels
        self._known: dict[int, tuple[NDArray[Any], dict[str, int]]] = {}

    def __reduce__(self) -> tuple[type[AxisLabels], tuple[Labels | None]]:
        return AxisLabels, (self._labels,)

    def __call__(self, axis: int) -> NDArray[Any] | None:
        """Return the labels along an axis, or None if the axis has no labels."""
        return None if self._labels is None else self._labels(axis)

    def resolve(self, key: Key, rank: int, lower: Sequence[int] = ()) -> Key:
        """Return an orthogonal key in which labels are replaced by indices; an unknown label raises `MissingKey`.

        The first label of an axis has the index in `lower`, or 0. A label that occurs twice raises `InvalidValue`.

        >>> cells["X"].labels.resolve((slice(2), ["NKG7", "CD3E"]), 2)
        (slice(None, 2, None), array([1, 0]))
        """
        items = key if isinstance(key, tuple) else (key,)
        if not any(map(_is_text, items)):
            return key
        found: list[Any] = []
        dim = 0
        for item in items:
            if isinstance(item, EllipsisType):
                dim += rank - len(items) + 1
                found.append(item)
                continue
            found.append(self._indices(item, dim) + (lower[dim] if lower else 0) if _is_text(item) else item)
            dim += 1
        return tuple(found)

    def _indices(self, item: Any, axis: int) -> Any:
        places = self._places(axis)
        if isinstance(item, str):
            return self._index(places, item, axis)
        names = np.asarray(item).reshape(-1).tolist()
        return np.array([self._index(places, name, axis) for name in names], np.int64)

    def _index(self, places: dict[str, int], label: str, axis: int) -> int:
        found = places.get(label)
        if found is None:
            raise MissingKey(f"Axis {axis} has no label {label!r}: give one of its labels, or an index.")
        if found == TWICE:
            raise InvalidValue(f"Axis {axis} has the label {label!r} more than once: give indices.")
        return found

    def _places(self, axis: int) -> dict[str, int]:
        """Return a dict that maps each label of an axis to its index, or to `TWICE` if the label is repeated."""
        labels = self(axis)
        if labels is None:
            raise MissingKey(f"Axis {axis} has no labels: give indices.")
        known = self._known.get(axis)
        if known is None or known[0] is not labels:
            places: dict[str, int] = {}
            for index, label in enumerate(labels.tolist()):
                places[label] = TWICE if label in places else index
            known = self._known[axis] = (labels, places)
        return known[1]


def _is_text(item: Any) -> bool:
    """Return whether an item of a key is a label (a text) or a list of labels."""
    if isinstance(item, str):
        return True
    if isinstance(item, np.ndarray):
        return item.dtype.kind in "UT" or (
            item.dtype.kind == "O" and bool(item.size) and isinstance(item.flat[0], str)
        )
    return isinstance(item, list) and bool(item) and all(isinstance(one, str) for one in item)
