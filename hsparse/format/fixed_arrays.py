"""Arrays of values whose elements have a fixed size: numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.buffer import Buffer
from hsparse.format.fields import as_type, packed_type, pick_fields
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections.selection import Selection
from hsparse.format.structured.region import decode_region, encode_region
from hsparse.format.value_arrays import array_shape, elements_from_json
from hsparse.model.element import Element, Fixed
from hsparse.model.json_values import Values
from hsparse.model.number_json import is_finite, number_json, numbers_from_json


class FixedArrays:
    """`ValueArrays` of numpy arrays of `dtype`, the stored type; `element` describes them."""

    is_exact = True

    def __init__(
        self, dtype: np.dtype[Any], fill: NDArray[Any], element: Element, *, is_picked: bool = False
    ) -> None:
        self.dtype = dtype
        self.fill = fill
        self.guessed_size = dtype.itemsize
        self.element = element
        self._is_picked = is_picked

    def of_fields(self, names: Sequence[str]) -> FixedArrays:
        if not names:
            return self
        dtype = packed_type(self.dtype, names)
        return FixedArrays(dtype, pick_fields(self.fill, names), Fixed(dtype), is_picked=True)

    def expected(self, count: int) -> int:
        return count * self.dtype.itemsize

    def least(self, count: int) -> int:
        return count * self.dtype.itemsize

    def nbytes(self, values: Any) -> int:
        return int(values.nbytes)

    def work(self, count: int) -> int:
        return 0

    def received(self, values: Any) -> NDArray[Any]:
        return as_type(values, self.dtype)

    def stored(self, values: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ndarray(shape, self.dtype, np.ascontiguousarray(values))

    def join(self, arrays: Sequence[Any]) -> NDArray[Any]:
        if len(arrays) == 1:
            return self.received(arrays[0]).reshape(-1)
        result = np.empty(sum(values.size for values in arrays), self.dtype)
        first = 0
        for values in arrays:
            result[first : first + values.size] = self.received(values).reshape(-1)
            first += values.size
        return result

    def assemble(
        self, selection: Selection, planned: Sequence[PlannedChunk], read: Sequence[Any]
    ) -> NDArray[Any]:
        if len(planned) == 1 and read[0] is not None and read[0].size == selection.size:
            return self.received(read[0]).reshape(selection.shape)
        result = np.empty(array_shape(selection.shape), self.dtype)
        if sum(chunk.selection.size for chunk in planned) < selection.size:
            result[...] = self.fill
        for chunk, values in zip(planned, read, strict=True):
            result[chunk.place] = self.fill if values is None else self.received(values)
        return result

    def cut(self, selection: Selection, planned: Sequence[PlannedChunk], values: Any) -> list[Values]:
        if values.size == 1 and selection.size != 1:
            return [values.reshape(1)] * len(planned)
        return [values[(*chunk.place, ...)] for chunk in planned]

    def squeeze(self, values: Any) -> NDArray[Any]:
        squeezed: NDArray[Any] = values.squeeze()
        return squeezed

    def to_json(self, values: Any) -> tuple[Any, bool]:
        dtype = self.element.dtype
        if dtype.subdtype is not None:  # opaque until here
            values = np.ndarray(values.shape, dtype, np.ascontiguousarray(values))
        return number_json(values), not is_finite(values)

    def from_json(self, value: Any, shape: tuple[int, ...]) -> Values:
        if self.dtype.kind in "iuf":
            return numbers_from_json(value, self.dtype, shape)
        forms: list[Element] = [self.element]
        if self._is_picked and len(self.dtype.names or ()) == 1:
            forms.append(Fixed(self.dtype[0]))
        return elements_from_json(self, value, shape, forms)

    def to_bytes(self, values: Any) -> memoryview:
        flat = np.ascontiguousarray(values).reshape(-1)
        return flat.view(np.uint8).data if flat.size else memoryview(b"")

    def from_bytes(self, data: Buffer, count: int, shape: tuple[int, ...]) -> NDArray[Any]:
        if len(data) != count * self.dtype.itemsize:
            raise BadRequest(
                f"The body has {len(data)} bytes; {count} elements of {self.dtype.itemsize} bytes need "
                f"{count * self.dtype.itemsize}."
            )
        values = np.frombuffer(data, np.uint8).view(self.dtype)
        return values.reshape(array_shape(shape)) if count == prod(shape) else values

    def to_region(self, selection: Selection, values: Any) -> bytes:
        return encode_region(selection, values)

    def from_region(self, data: Buffer) -> tuple[Selection, Values]:
        return decode_region(data, self.dtype)
