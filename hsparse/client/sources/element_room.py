"""Memory for the elements of a long answer: they are received where they stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.http.answers import receive
from hsparse.client.progress import Answer

if TYPE_CHECKING:
    from hsparse.format.arrow_stream import Column

MANY = 1 << 23
"""Bytes of the first batches, after which a further one is a sign that more will come."""


class ElementRoom:
    """The columns of an Arrow stream's batches, joined; a `ColumnRoom`.

    How many elements will come is not known. So the address space of as many as are allowed, `most_bytes` of them or
    `most` elements, is taken when many have come, and what is left of it is given back in the end. That takes no
    memory: the system gives it when it is written to. First arrays that are joined would take twice as much, which may
    be slower than all else: 2 ms a MB were measured on virtual machines that get their memory from the host.
    """

    def __init__(self, answer: Answer, most: int, most_bytes: int) -> None:
        self._answer = answer
        self._most = most
        self._most_bytes = most_bytes
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._arrays: dict[str, NDArray[Any]] | None = None
        self._capacity = 0
        self._filled = 0
        self._offered: dict[str, NDArray[Any]] = {}
        self.count = 0
        """How many elements have come."""

    def columns(self, length: int) -> Mapping[str, NDArray[Any]] | None:
        """See `ColumnRoom`."""
        if self._arrays is None and sum(_nbytes(part) for part in self._parts) >= MANY:
            self._reserve()
        start, stop = self._filled, self._filled + length
        # After a batch that has no room the others have none either: so they stay in order.
        if self._arrays is None or self._parts or stop > self._capacity:
            return None
        self._offered = {name: one[start:stop] for name, one in self._arrays.items()}
        return self._offered

    def receive(self, data: memoryview) -> None:
        """See `ColumnRoom`."""
        receive(self._answer, data)

    def add(self, length: int, columns: Mapping[str, Column]) -> None:
        """Take the columns of a batch, which may be those that `columns` returned for it."""
        values = values_of(columns)
        if self._offered and all(values.get(name) is one for name, one in self._offered.items()):
            self._filled += length
        else:
            self._parts.append(values)
        self._offered = {}
        self.count += length

    def result(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all batches, joined; nothing may be added any more."""
        parts = self._parts
        if self._arrays is not None:
            for array in self._arrays.values():
                # Views of it may be alive, but nobody looks at them any more.
                array.resize((self._filled, *array.shape[1:]), refcheck=False)
            parts = [self._arrays, *parts]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def _reserve(self) -> None:
        """Make room, and move what has come to its beginning; no room is made if the system refuses the space."""
        first = self._parts[0]
        each = sum(one[:1].nbytes for one in first.values())
        capacity = min(self._most, self._most_bytes // max(1, each))
        count = self.count
        if capacity < count:
            return
        try:
            arrays = {name: np.empty((capacity, *one.shape[1:]), one.dtype) for name, one in first.items()}
        except MemoryError:
            self._capacity = self._most_bytes = 0
            return
        for name, array in arrays.items():
            np.concatenate([part[name] for part in self._parts], out=array[:count])
        self._arrays, self._capacity, self._filled, self._parts = arrays, capacity, count, []


def values_of(columns: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
    """Return the values of a batch's columns that can be read."""
    return {name: column.values for name, column in columns.items() if column.values is not None}


def _nbytes(part: Mapping[str, NDArray[Any]]) -> int:
    return sum(one.nbytes for one in part.values())
