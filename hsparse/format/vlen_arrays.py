"""Arrays of values whose elements have a variable length: offsets and a heap (`hsparse.model.vlen_array`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hsparse.format.buffer import Buffer
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections.selection import Selection
from hsparse.format.structured.vlen_region import decode_vlen_region, encode_vlen_region
from hsparse.format.value_arrays import array_shape, elements_from_json
from hsparse.model.element import Compound, Element
from hsparse.model.json_values import Values, to_json
from hsparse.model.length_prefixed import split_elements
from hsparse.model.vlen_array import VlenArray, join_elements, take_elements
from hsparse.model.vlen_fields import VlenFields

MIN_ESTIMATE = 16 * 1024
"""The least estimate of an answer of variable-length elements, in bytes."""


class VlenArrays:
    """`ValueArrays` of `VlenArray`s of `element`."""

    is_exact = False

    def __init__(
        self, element: Element, fill: VlenArray, guessed_size: int, *, is_picked: bool = False
    ) -> None:
        self._is_picked = is_picked
        self.element = element
        self.fill = fill
        self.guessed_size = guessed_size

    def of_fields(self, names: Sequence[str]) -> VlenArrays:
        if not names:
            return self
        fields = VlenFields.named(self.element, names)
        return VlenArrays(fields.element, fields.pick(self.fill), self.guessed_size, is_picked=True)

    def expected(self, count: int) -> int:
        return max(MIN_ESTIMATE, 4 * count * self.guessed_size)

    def least(self, count: int) -> int:
        return count * self.element.min_size

    def nbytes(self, values: Any) -> int:
        return len(values.heap)

    def work(self, count: int) -> int:
        return count

    def received(self, values: Any) -> VlenArray:
        found: VlenArray = values
        return found

    def stored(self, values: Any, shape: tuple[int, ...]) -> VlenArray:
        if isinstance(values, VlenArray):
            return values
        size = values.dtype.itemsize  # a field of fixed size of a compound of variable length
        data = values.tobytes()
        return VlenArray.of((data[at : at + size] for at in range(0, len(data), size)), values.shape)

    def join(self, arrays: Sequence[Any]) -> VlenArray:
        return join_elements(arrays) if arrays else VlenArray.of([])

    def assemble(
        self, selection: Selection, planned: Sequence[PlannedChunk], read: Sequence[Any]
    ) -> VlenArray:
        if len(planned) == 1 and read[0] is not None and read[0].size == selection.size:
            return self.received(read[0]).reshape(selection.shape)
        arrays: list[VlenArray] = [self.fill]
        index = np.zeros(array_shape(selection.shape), np.intp)
        first = 1
        for chunk, values in zip(planned, read, strict=True):
            if values is not None:
                arrays.append(values)
                numbers = np.arange(first, first + values.size).reshape(chunk.selection.shape)
                index[chunk.place] = numbers
                first += values.size
        return take_elements(arrays, index)

    def cut(self, selection: Selection, planned: Sequence[PlannedChunk], values: Any) -> list[Values]:
        if values.size == 1 and selection.size != 1:
            return [values.reshape((1,))] * len(planned)
        if len(planned) == 1 and planned[0].selection.shape == selection.shape and selection.is_all:
            return [values]
        index = np.arange(values.size).reshape(values.shape)
        return [take_elements([values], np.asarray(index[chunk.place])) for chunk in planned]

    def squeeze(self, values: Any) -> VlenArray:
        return self.received(values).reshape(tuple(dim for dim in values.shape if dim != 1))

    def to_json(self, values: Any) -> tuple[Any, bool]:
        return to_json(values, self.element), True

    def from_json(self, value: Any, shape: tuple[int, ...]) -> Values:
        forms = [self.element]
        if self._is_picked and isinstance(self.element, Compound) and len(self.element.parts) == 1:
            forms += self.element.parts
        return elements_from_json(self, value, shape, forms)

    def to_bytes(self, values: Any) -> memoryview:
        data: memoryview = values.heap.data
        return data

    def from_bytes(self, data: Buffer, count: int, shape: tuple[int, ...]) -> VlenArray:
        return split_elements(data, self.element, shape if count == prod(shape) else (1,))

    def to_region(self, selection: Selection, values: Any) -> bytes:
        return encode_vlen_region(selection, values, self.element)

    def from_region(self, data: Buffer) -> tuple[Selection, Values]:
        return decode_vlen_region(data, self.element)
