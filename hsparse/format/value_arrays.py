"""Arrays of a dataset's values: one protocol for fixed-size and variable-length elements.

Service nodes plan, page, gather and convert values of either type through the protocol. Fixed-size
elements are numpy arrays; variable-length elements are offsets and a heap (`hsparse.model.vlen_array`).
`ValueArrays.of_fields` handles selected fields of a compound, so that callers need no code for fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.fields import packed_type, pick_fields
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections.points import Selection
from hsparse.format.structured.region import (
    decode_region,
    decode_vlen_region,
    encode_region,
    encode_vlen_region,
)
from hsparse.model.element import Compound, Element, Fixed
from hsparse.model.json_values import Values, array_json, from_json, to_json
from hsparse.model.vlen_array import VlenArray, VlenFields, join_elements, split_elements, take_elements


def numbers_from_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Convert JSON to numbers in `shape`, or to one number for all, (1,); raise `BadRequest` if neither fits."""
    size = prod(shape)
    array = _plain_numbers(value, dtype)
    if array is None:  # names of floats, nulls, or values that do not fit
        found = from_json(value, shape if isinstance(value, list) or size == 1 else (), Fixed(dtype))
        assert not isinstance(found, VlenArray)
        array = found
    if array.size != size and (array.size != 1 or isinstance(value, list)):
        raise BadRequest(f"The value has {array.size} elements; the selection has {size}: send {size}.")
    return array.reshape(shape) if array.size == size else array.reshape(1)


def _plain_numbers(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return nested lists of numbers as an array of `dtype`, or None for other values and for numbers out of range."""
    try:
        natural = np.array(value)
    except ValueError:
        return None
    if natural.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
        return None
    if dtype.kind == "f":
        try:
            with np.errstate(over="raise", invalid="raise"):
                return natural.astype(dtype)
        except FloatingPointError:
            return None
    limits = np.iinfo(dtype)
    if natural.size and (int(natural.min()) < limits.min or int(natural.max()) > limits.max):
        return None
    return natural.astype(dtype)


def number_json(values: NDArray[Any]) -> Any:
    """Convert values to JSON as in `hsparse.model.json_values`, but keep plain numbers in an array.

    The reason is speed: orjson writes arrays many times faster than lists.
    """
    if values.dtype.kind in "iufb" and values.dtype.names is None:
        if not values.ndim:
            return values.item()
        # Floats become float64, to have the digits of Python's floats: orjson would write fewer for a float32.
        kind = np.dtype(np.float64) if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        return np.ascontiguousarray(values, kind)
    return array_json(values)


def is_finite(values: NDArray[Any]) -> bool:
    """Return whether all floats in `values`, including those in fields, are finite."""
    if values.dtype.names is not None:
        return all(is_finite(values[name]) for name in values.dtype.names)
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())


MAX_REPEATED = 128 * 1024 * 1024
"""The most bytes that the values of a write may take when they are repeated to fill the selection."""
MOST_ELEMENTS = 1 << 32
"""The limit of elements that a numpy array of any itemsize can have; dimensions of length 0 are not counted."""


class ValueArrays(Protocol):
    """Operations on arrays of one dataset's values, or of some of their fields."""

    element: Element
    """The structure of an element."""
    fill: Any
    """The fill value, an array of shape ()."""
    guessed_size: int
    """The bytes of an element: exact for fixed-size elements, otherwise an estimate for planning."""
    is_exact: bool
    """Whether `guessed_size` is exact."""

    def of_fields(self, names: Sequence[str]) -> ValueArrays:
        """Return the operations on packed compounds of the fields `names`, in this order, or `self` for no names."""
        ...

    # --- sizes, in bytes ----------------------------------------------------------------------------

    def expected(self, count: int) -> int:
        """Return an estimate of the most bytes that `count` elements take."""
        ...

    def least(self, count: int) -> int:
        """Return the fewest bytes that `count` elements can take."""
        ...

    def nbytes(self, values: Values) -> int:
        """Return the number of bytes that `to_bytes` returns for `values`."""
        ...

    # --- assembling and cutting ------------------------------------------------------------

    def received(self, values: Values) -> Values:
        """Return a data node's values with the dataset's dtype, because nodes send compounds as opaque bytes."""
        ...

    def stored(self, values: Values, shape: tuple[int, ...]) -> Values:
        """Return parsed values with the stored dtype in `shape`; an element of an array type becomes opaque."""
        ...

    def join(self, arrays: Sequence[Values]) -> Values:
        """Return the concatenated elements of `arrays`, (n,)."""
        ...

    def assemble(
        self, selection: Selection, planned: Sequence[PlannedChunk], read: Sequence[Values | None]
    ) -> Values:
        """Return values in the selection's shape: each planned chunk's `read` values, and the fill value elsewhere."""
        ...

    def cut(self, selection: Selection, planned: Sequence[PlannedChunk], values: Values) -> list[Values]:
        """Return each planned chunk's part of `values`, which have the selection's shape or are one value for all."""
        ...

    def squeeze(self, values: Values) -> Values:
        """Return values without dimensions of length 1."""
        ...

    # --- other forms --------------------------------------------------------------------------------

    def to_json(self, values: Values) -> tuple[Any, bool]:
        """Return a pair: `values` as JSON (numbers stay an array), and whether they may have non-finite floats."""
        ...

    def from_json(self, value: Any, shape: tuple[int, ...]) -> Values:
        """Convert JSON to values in `shape`, or to one value for all; raise `BadRequest` if `value` does not fit.

        If only one field is picked, each value may omit the list around it.
        """
        ...

    def to_bytes(self, values: Values) -> memoryview:
        """Return the elements' bytes in C order, without a copy if `values` are contiguous."""
        ...

    def from_bytes(self, data: Buffer, count: int, shape: tuple[int, ...]) -> Values:
        """Return the `count` elements in `data`, in `shape` or as one value for all: the inverse of `to_bytes`.

        Raises `BadRequest` if `data` has more or fewer elements.
        """
        ...

    def to_region(self, selection: Selection, values: Values) -> bytes:
        """Return `values: (n,)`, in the selection's order, as a region, see `hsparse.format.structured.region`."""
        ...

    def from_region(self, data: Buffer) -> tuple[Selection, Values]:
        """Return a pair: the selection and the values in a region's bytes; raise `Corrupt` if the bytes are invalid."""
        ...


def array_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return `shape`, shortened if it has no elements and numpy would reject it, such as (2^31, 0, 2^31).

    A shortened shape ends at its first dimension of length 0, because JSON has no deeper lists, or is (0,).
    """
    if 0 not in shape or prod(filter(None, shape)) < MOST_ELEMENTS:
        return shape
    kept = shape[: shape.index(0) + 1]
    return kept if prod(kept[:-1]) < MOST_ELEMENTS else (0,)


def repeat_values(arrays: ValueArrays, values: Values, shape: tuple[int, ...]) -> Values:
    """Return `values`, whose shape is the end of `shape`, repeated over its first dimensions; one element stays one.

    Raises `TooLarge` if the repeated values take more than `MAX_REPEATED` bytes.
    """
    size = prod(shape)
    if values.size == size:
        return values.reshape(array_shape(shape))
    if values.size == 1:
        return values
    nbytes = arrays.nbytes(values) * (size // values.size)
    if nbytes > MAX_REPEATED:
        raise TooLarge(
            f"The repeated values take {nbytes} bytes; the limit is {MAX_REPEATED}: write fewer at a time."
        )
    if isinstance(values, VlenArray):
        return take_elements([values], np.broadcast_to(np.arange(values.size).reshape(values.shape), shape))
    return np.broadcast_to(values, shape)


def elements_from_json(
    arrays: ValueArrays, value: Any, shape: tuple[int, ...], forms: Sequence[Element]
) -> Values:
    """Convert JSON to values in `shape` or (1,), by the first of `forms` that fits; raise `BadRequest` if none does."""
    reason = ""
    for form in forms:
        for dims in (shape, (1,)):
            try:
                return arrays.stored(from_json(value, dims, form), dims)
            except BadRequest as error:
                reason = reason or error.message
    raise BadRequest(reason)


class FixedArrays:
    """`ValueArrays` of numpy arrays of `dtype`, the stored dtype of `element`."""

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

    def received(self, values: Any) -> NDArray[Any]:
        return values if values.dtype == self.dtype else np.asarray(values.view(self.dtype))

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
        if dtype.subdtype is not None:  # the values of an array type are opaque
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
                f"The body has {len(data)} bytes, but {count} elements of {self.dtype.itemsize} bytes need "
                f"{count * self.dtype.itemsize}."
            )
        values = np.frombuffer(data, np.uint8).view(self.dtype)
        return values.reshape(array_shape(shape)) if count == prod(shape) else values

    def to_region(self, selection: Selection, values: Any) -> bytes:
        return encode_region(selection, values)

    def from_region(self, data: Buffer) -> tuple[Selection, Values]:
        return decode_region(data, self.dtype)


MIN_ESTIMATE = 16 * 1024
"""The smallest estimate for any number of variable-length elements, in bytes."""


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

    def received(self, values: Any) -> VlenArray:
        found: VlenArray = values
        return found

    def stored(self, values: Any, shape: tuple[int, ...]) -> VlenArray:
        if isinstance(values, VlenArray):
            return values
        size = values.dtype.itemsize  # values of a single fixed-size field of a variable-length compound
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
