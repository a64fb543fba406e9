"""How large values are in JSON: their lists count too, of which a selection of no elements may have any number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from hsparse.model.element import ArrayOfVlen, Compound, Element, Fixed, VlenSequence

LIST_BYTES = 4
"""About the bytes of a list in JSON: its brackets, and a comma."""
LIST_MEMORY = 64
"""About the bytes of a list in memory."""


class JsonSize(NamedTuple):
    """How many lists JSON has and how many leaves, numbers and texts; without what is in sequences."""

    lists: int
    leaves: int

    @property
    def items(self) -> int:
        return self.lists + self.leaves


def json_size(shape: Sequence[int], element: Element) -> JsonSize:
    """Return the size of JSON of elements in this shape."""
    return _array(shape, _of_element(element))


def list_count(shape: Sequence[int]) -> int:
    """Return how many lists an array of this shape has in JSON: `[2, 3]` has three, `[2, 0]` too, `[]` none."""
    return sum(accumulate(shape[:-1], mul, initial=1)) if shape else 0


def _array(dims: Sequence[int], each: JsonSize) -> JsonSize:
    count = prod(dims)
    return JsonSize(list_count(dims) + count * each.lists, count * each.leaves)


def _of_element(element: Element) -> JsonSize:
    if isinstance(element, Fixed):
        return _of_type(element.dtype)
    if isinstance(element, ArrayOfVlen):
        return _array(element.dims, _of_element(element.base))
    if isinstance(element, Compound):
        return _record([_of_element(part) for part in element.parts])
    return JsonSize(1, 0) if isinstance(element, VlenSequence) else JsonSize(0, 1)


def _of_type(dtype: np.dtype[np.void]) -> JsonSize:
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        return _array(dims, _of_type(base))
    if dtype.names is not None:
        return _record([_of_type(dtype[name]) for name in dtype.names])
    return JsonSize(0, 1)


def _record(parts: Sequence[JsonSize]) -> JsonSize:
    return JsonSize(1 + sum(part.lists for part in parts), sum(part.leaves for part in parts))


def item_count(value: Any, most: int = 1 << 16) -> int:
    """Return how many items a JSON value has in all its lists and objects; beyond `most` any larger number."""
    count, waiting = 1, [value]
    while waiting and count <= most:
        part = waiting.pop()
        items = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        count += len(items)
        if count <= most:
            waiting.extend(item for item in items if isinstance(item, list | dict))
    return count
