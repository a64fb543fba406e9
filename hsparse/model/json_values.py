"""Values of any datatype as JSON: numbers, strings, and lists for compounds, arrays and sequences.

A boolean is true or false, an enum or bitfield is an integer, a complex number is `[r, i]`, an opaque value is base64
(`""` if all zero), an object reference is a string, and a region reference is an object. A non-finite float is accepted
as a float or by name (`"nan"`, `"inf"`, `"-inf"`) and returned as a float.

The size of values in JSON includes their lists, because even a selection without elements may have many lists.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import (
    PREFIX_SIZE,
    ArrayOfVlen,
    Compound,
    Element,
    Fixed,
    Region,
    VlenSequence,
    VlenString,
    is_object_reference,
)
from hsparse.model.link import region_bytes, region_json
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import Buffer, VlenArray

Values = NDArray[Any] | VlenArray
ELEMENTS_AT_ONCE = 1 << 16
"""The number of elements that are converted at a time."""
FAILURES = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, UnicodeError)


# --- from JSON ------------------------------------------------------------------------------------


def from_json(value: Any, dims: tuple[int, ...], element: Element) -> Values:
    """Convert a JSON value to an array of shape `dims`; raise `BadRequest` if it does not fit.

    The value is nested as `dims`, with or without the dimensions of length 1, or a flat list of all elements.
    """
    reason = ""
    for shape in _nestings(dims):
        try:
            leaves = leaves_of(value, shape)
            return _pack(leaves, element, dims)
        except FAILURES as error:
            reason = reason or _reason(error)
    raise BadRequest(f"The value does not fit {prod(dims)} elements of its type: {reason}.")


def _nestings(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the nestings that are accepted for elements of shape `dims`, with `dims` first."""
    narrow = tuple(dim for dim in dims if dim != 1)
    found = [dims, narrow, (prod(dims),)] + ([()] if prod(dims) == 1 else [])
    return list(dict.fromkeys(found))


def _reason(error: Exception) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def leaves_of(value: Any, dims: tuple[int, ...]) -> list[Any]:
    """Return the leaves of lists nested as `dims`, in row-major order; raise `ValueError` for wrong list lengths."""
    found = [value]
    for dim in dims:
        for part in found:
            if not isinstance(part, list | tuple) or len(part) != dim:
                raise ValueError(f"{short_repr(part)} is not a list of {dim} items")
        found = list(chain.from_iterable(found))
    return found


def _pack(leaves: list[Any], element: Element, dims: tuple[int, ...]) -> Values:
    with np.errstate(over="raise", invalid="raise"):
        if isinstance(element, Fixed):
            array = fixed_array(leaves, element.dtype)
            return array.reshape(dims + array.shape[1:])
        return VlenArray.of(_pieces(leaves, element), dims)


def fixed_array(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert n JSON values of a fixed-size type to an array (n,), or (n, *dims) for an array type of shape dims.

    The values are converted in blocks of `ELEMENTS_AT_ONCE` so that other threads can run in between.
    """
    if len(values) > ELEMENTS_AT_ONCE:
        return _in_blocks(values, dtype)
    if dtype.subdtype is not None or dtype.names is not None:
        return _of_parts(values, dtype)
    if dtype.kind == "S":
        return np.array([_text(value, dtype) for value in values], dtype)
    if dtype.kind == "V":
        return np.frombuffer(b"".join(_opaque(value, dtype.itemsize) for value in values), dtype)
    return _numbers(values, dtype)


def _in_blocks(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    first = fixed_array(values[:ELEMENTS_AT_ONCE], dtype)
    whole = np.empty((len(values), *first.shape[1:]), first.dtype)
    whole[:ELEMENTS_AT_ONCE] = first
    for start in range(ELEMENTS_AT_ONCE, len(values), ELEMENTS_AT_ONCE):
        whole[start : start + ELEMENTS_AT_ONCE] = fixed_array(values[start : start + ELEMENTS_AT_ONCE], dtype)
    return whole


def _of_parts(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert n JSON values to an array (n,) of an array type (which appends its dimensions) or a compound."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        leaves = [leaf for value in values for leaf in leaves_of(value, shape)]
        inner = fixed_array(leaves, base)
        return inner.reshape(len(values), *shape, *inner.shape[1:])
    array = np.zeros(len(values), dtype)
    rows = _rows(values, len(dtype.names or ()))
    for place, name in enumerate(dtype.names or ()):
        array[name] = fixed_array([row[place] for row in rows], dtype[name])
    return array


def _rows(values: list[Any], count: int) -> list[Any]:
    if set(map(type, values)) == {list} and set(map(len, values)) == {count}:
        return values
    for value in values:
        if not isinstance(value, list | tuple) or len(value) != count:
            raise ValueError(f"a compound needs a list of its {count} fields, not {short_repr(value)}")
    return values


def _numbers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert numbers without loss: numpy itself would truncate fractions and parse numbers in strings."""
    allowed: tuple[type, ...] = (int, float) if dtype.kind == "f" else (int,)
    if dtype.kind != "f" and float in set(map(type, values)):
        values = [_whole(value) for value in values]
    for kind in set(map(type, values)):
        if not issubclass(kind, allowed) and not (dtype.kind == "f" and kind in (str, type(None))):
            raise ValueError(f"a {kind.__name__} is not {'a float' if dtype.kind == 'f' else 'an integer'}")
    if dtype.kind == "f":
        names = [value for value in values if isinstance(value, str)]
        if any(name not in ("nan", "inf", "-inf", "NaN", "Infinity", "-Infinity") for name in names):
            raise ValueError("a string is not a float")
    result = np.array(values, dtype)
    if result.ndim != 1:
        raise ValueError("lists are nested too deeply")
    return result


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: Any, dtype: np.dtype[Any]) -> bytes:
    """Return text as bytes, truncated at a character to the type's size; object references must fit (`ValueError`)."""
    data, size = _bytes(value), dtype.itemsize
    if len(data) <= size:
        return data
    if is_object_reference(dtype):
        raise ValueError(f"{short_repr(value)} is no reference to an object")
    return data[:size].decode(errors="ignore").encode()


def _bytes(value: Any) -> bytes:
    """Return text as UTF-8 bytes; 0 and None stand for elements that were never set, and become empty text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if value is None or (value == 0 and type(value) is int):
        return b""
    raise ValueError(f"{short_repr(value)} is no text")


def _opaque(value: Any, size: int) -> bytes:
    """Return an opaque value's bytes from base64, or from plain text of exactly `size` bytes, as h5pyd 0.24 sends."""
    if not isinstance(value, str):
        raise ValueError(f"{short_repr(value)} is no base64 text")
    plain = value.encode()
    try:
        data = base64.b64decode(value, validate=True)
        if len(data) == size or (len(data) < size and len(plain) != size):
            return data.ljust(size, b"\0")
    except binascii.Error:
        pass
    if len(plain) == size:
        return plain
    raise ValueError(f"{short_repr(value)} is no base64 of at most {size} bytes")


def _pieces(values: list[Any], element: Element) -> list[bytes]:
    """Return each value's length-prefixed bytes; parts of compounds are converted column by column."""
    if isinstance(element, Fixed):
        data, size = fixed_array(values, element.dtype).tobytes(), element.dtype.itemsize
        return [data[at : at + size] for at in range(0, len(data), size)]
    if isinstance(element, VlenString):
        return [_length_prefixed(_bytes(value)) for value in values]
    if isinstance(element, Region):
        return [_length_prefixed(region_bytes(value)) for value in values]
    if isinstance(element, ArrayOfVlen):
        leaves = [leaf for value in values for leaf in leaves_of(value, element.dims)]
        return _joined(_pieces(leaves, element.base), [prod(element.dims)] * len(values))
    if isinstance(element, Compound):
        rows = _rows(values, len(element.parts))
        columns = (_pieces([row[i] for row in rows], part) for i, part in enumerate(element.parts))
        return [b"".join(row) for row in zip(*columns, strict=True)]
    lists = [_list(value) for value in values]
    items = _pieces(list(chain.from_iterable(lists)), element.base)
    return [_length_prefixed(data) for data in _joined(items, map(len, lists))]


def _list(value: Any) -> list[Any]:
    if value is None or (value == 0 and type(value) is int):
        return []  # the element was never set
    if not isinstance(value, list | tuple):
        raise ValueError(f"{short_repr(value)} is no list")
    return list(value)


def _joined(pieces: list[bytes], lengths: Iterable[int]) -> list[bytes]:
    bounds = pairwise(accumulate(lengths, initial=0))
    return [b"".join(pieces[first:last]) for first, last in bounds]


def _length_prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(PREFIX_SIZE, "little") + data


# --- to JSON --------------------------------------------------------------------------------------


def to_json(values: Values, element: Element) -> Any:
    """Convert values to JSON, nested in lists by their shape.

    Raises `BadRequest` for text that is not UTF-8 and for an invalid region reference, which JSON cannot represent.
    """
    if not isinstance(values, VlenArray):
        return array_json(values)
    read, data = _reader(element), values.heap.data
    try:
        return _nested([read(data, at)[0] for at in values.offsets[:-1].tolist()], values.shape)
    except ValueError as error:
        raise _no_json(error) from error


def array_json(array: NDArray[Any]) -> Any:
    """Convert an array of a fixed-size type to JSON; raise `BadRequest` for text that is not UTF-8."""
    try:
        return fixed_json(array)
    except ValueError as error:
        raise _no_json(error) from error


def _no_json(error: ValueError) -> BadRequest:
    return BadRequest(
        f"The values cannot be written as JSON ({_reason(error)}): ask for application/octet-stream."
    )


def fixed_json(array: NDArray[Any]) -> Any:
    """Convert an array of a fixed-size type to JSON; raise `ValueError` for text that is not UTF-8."""
    if array.dtype.names is not None:
        flat = array.reshape(-1)
        columns = [fixed_json(flat[name]) for name in array.dtype.names]
        return _nested(list(map(list, zip(*columns, strict=True))), array.shape)
    if array.dtype.kind == "S":
        return _nested([text.decode() for text in array.reshape(-1).tolist()], array.shape)
    if array.dtype.kind == "V":
        size, data = array.dtype.itemsize, array.tobytes()
        return _nested([_base64(data[at : at + size]) for at in range(0, len(data), size)], array.shape)
    return array.tolist()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode() if any(data) else ""


def _nested(flat: list[Any], dims: tuple[int, ...]) -> Any:
    """Return the items of a flat list nested in lists by `dims`, or the only item if `dims` is empty."""
    if not dims:
        return flat[0]
    for dim in reversed(dims[1:]):
        count = len(flat) // dim if dim else prod(dims[:-1])
        flat = [flat[at * dim : (at + 1) * dim] for at in range(count)]
    return flat if prod(dims) else _empty(dims)


def _empty(dims: tuple[int, ...]) -> Any:
    return [_empty(dims[1:]) for _ in range(dims[0])] if len(dims) > 1 and dims[0] else []


ElementReader = Callable[[Buffer, int], tuple[Any, int]]
"""`read(data, at)` returns a pair: the JSON of the part at offset `at`, and the part's end. `data` must be valid."""


def _reader(element: Element) -> ElementReader:
    if isinstance(element, Fixed):
        return _fixed_reader(element.dtype)
    if isinstance(element, VlenString):
        return _run_reader(lambda data: data.decode())
    if isinstance(element, Region):
        return _run_reader(region_json)
    if isinstance(element, VlenSequence):
        if isinstance(element.base, Fixed):
            dtype = element.base.dtype
            return _run_reader(lambda data: fixed_json(_column(data, dtype)))
        return _sequence_reader(_reader(element.base))
    if isinstance(element, ArrayOfVlen):
        return _array_reader(element.dims, _reader(element.base))
    return _record_reader([_reader(part) for part in element.parts])


def _column(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.ndarray((len(data) // dtype.itemsize,), dtype, data)


def _fixed_reader(dtype: np.dtype[Any]) -> ElementReader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        end = at + dtype.itemsize
        return fixed_json(_column(bytes(data[at:end]), dtype))[0], end

    return read


def _run_reader(convert: Callable[[bytes], Any]) -> ElementReader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        begin = at + PREFIX_SIZE
        end = begin + int.from_bytes(data[at:begin], "little")
        return convert(bytes(data[begin:end])), end

    return read


def _sequence_reader(inner: ElementReader) -> ElementReader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        begin = at + PREFIX_SIZE
        end = begin + int.from_bytes(data[at:begin], "little")
        found, at = [], begin
        while at < end:
            value, at = inner(data, at)
            found.append(value)
        return found, end

    return read


def _array_reader(dims: tuple[int, ...], inner: ElementReader) -> ElementReader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        found = []
        for _ in range(prod(dims)):
            value, at = inner(data, at)
            found.append(value)
        return _nested(found, dims), at

    return read


def _record_reader(parts: list[ElementReader]) -> ElementReader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        found = []
        for part in parts:
            value, at = part(data, at)
            found.append(value)
        return found, at

    return read


LIST_BYTES = 4
"""Estimated bytes of a list in JSON text: its brackets and a comma."""
LIST_MEMORY = 64
"""Estimated bytes of a list in memory."""


class JsonSize(NamedTuple):
    """The number of lists and leaves (numbers and strings) of JSON, without the contents of sequences."""

    lists: int
    leaves: int

    @property
    def items(self) -> int:
        return self.lists + self.leaves


def json_size(shape: Sequence[int], element: Element) -> JsonSize:
    """Return the size of the JSON of an array of this shape."""
    return _array(shape, _of_element(element))


def list_count(shape: Sequence[int]) -> int:
    """Return the number of lists in the JSON of an array: 3 for the shape (2, 3) and for (2, 0), 0 for ()."""
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
    """Return the number of items in all lists and objects of a JSON value; counting stops beyond `most`."""
    count, waiting = 1, [value]
    while waiting and count <= most:
        part = waiting.pop()
        items = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        count += len(items)
        if count <= most:
            waiting.extend(item for item in items if isinstance(item, list | dict))
    return count
