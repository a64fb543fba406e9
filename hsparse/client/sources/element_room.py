"""Memory for the elements of a long answer, which are received directly into their final arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.http.answers import receive
from hsparse.client.progress import Answer

if TYPE_CHECKING:
    from hsparse.format.arrow_stream import Column

FIRST_BATCHES_BYTES = 1 << 23
"""Once the received batches have this many bytes, the arrays for all elements are allocated."""


class ElementRoom:
    """The joined columns of an Arrow stream's batches; implements `ColumnRoom`.

    The number of elements is unknown in advance. After many elements, arrays for the maximum, `most` elements or
    `most_bytes`, are allocated, and truncated at the end. Until pages are written, they take only address space.
    Joining separate arrays would take twice the memory, which can be the slowest part: 2 ms per MB were measured on
    virtual machines that get their memory from the host.
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
        """The number of elements received."""

    def columns(self, length: int) -> Mapping[str, NDArray[Any]] | None:
        """See `ColumnRoom`."""
        if self._arrays is None and sum(_nbytes(part) for part in self._parts) >= FIRST_BATCHES_BYTES:
            self._reserve()
        start, stop = self._filled, self._filled + length
        # After one batch without room all later ones are stored apart, so that batches stay in order.
        if self._arrays is None or self._parts or stop > self._capacity:
            return None
        self._offered = {name: one[start:stop] for name, one in self._arrays.items()}
        return self._offered

    def receive(self, data: memoryview) -> None:
        """See `ColumnRoom`."""
        receive(self._answer, data)

    def add(self, length: int, columns: Mapping[str, Column]) -> None:
        """Add a batch of `length` elements; its arrays may be those that `self.columns` returned for it."""
        values = values_of(columns)
        if self._offered and all(values.get(name) is one for name, one in self._offered.items()):
            self._filled += length
        else:
            self._parts.append(values)
        self._offered = {}
        self.count += length

    def result(self) -> dict[str, NDArray[Any]]:
        """Return the joined columns of all batches; no batch may be added afterwards."""
        parts = self._parts
        if self._arrays is not None:
            for array in self._arrays.values():
                # Views of the array may exist, but nobody uses them any more.
                array.resize((self._filled, *array.shape[1:]), refcheck=False)
            parts = [self._arrays, *parts]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def _reserve(self) -> None:
        """Allocate the arrays and move the received batches to their start, unless there is not enough memory."""
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
    """Return the values of a batch's columns, without columns whose type cannot be read."""
    return {name: column.values for name, column in columns.items() if column.values is not None}


def _nbytes(part: Mapping[str, NDArray[Any]]) -> int:
    return sum(one.nbytes for one in part.values())
