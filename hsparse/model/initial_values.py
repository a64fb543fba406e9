"""The contents of a new dataset: its fill value, its initializer, and the values given with its creation.

Unwritten elements read as the fill value or as set by the initializer. HSDS's `["arange", "--start=10", "--step=2"]`
sets element i of a one-dimensional dataset to start + i * step; integer types need an integer start and step.

The module also chooses chunk dimensions of sparse datasets whose number of elements is known when they are created.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.model.attribute import decode_base64, name_non_finite, unpack_elements
from hsparse.model.attribute_json import NAMES, restore_non_finite
from hsparse.model.dataspace import Shape, dims_of, num_elements
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.element import Element, Fixed
from hsparse.model.json_values import Values, from_json
from hsparse.model.layout import MAX_CHUNK_ELEMENTS
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import VlenArray, split_elements

MAX_FILL_BYTES = 64 * 1024
"""The most bytes of a fill value: HDF5 stores it in an object header message, which has the same limit."""


def parse_fill_value(properties: dict[str, Any], datatype: Datatype) -> dict[str, Any]:
    """Return the `fillValue` and `fillValue_encoding` of creation properties in their stored form.

    A non-finite float is stored as `"nan"`, `"inf"` or `"-inf"`; see `fill_value_json`. Raises `TooLarge` beyond
    `MAX_FILL_BYTES` (one number may fill a large array type) and `BadRequest` for a value that does not fit the type.
    """
    encoding = properties.get("fillValue_encoding")
    if encoding not in (None, "None", "base64"):
        raise BadRequest(f"fillValue_encoding must be base64, not {short_repr(encoding)}.")
    if properties.get("fillValue") is None:
        return {}
    _check_fill_size(datatype.element.min_size)
    _check_fill_size(len(fill_bytes(properties, datatype)))
    if encoding == "base64":
        return {"fillValue": properties["fillValue"], "fillValue_encoding": "base64"}
    return {"fillValue": name_non_finite(properties["fillValue"])}


def _check_fill_size(size: int) -> None:
    if size > MAX_FILL_BYTES:
        raise TooLarge(
            f"A fill value of this type has {size} bytes; the limit is {MAX_FILL_BYTES}: leave fillValue out, or make "
            "the array a dimension of the dataset."
        )


AS_TEXT = "fillValueAsText"
"""The record key that says that the fill value was given as a float's name, so that responses return this name."""


def is_named_float(value: Any) -> bool:
    """Return whether a fill value in a request is `"nan"`, `"inf"` or `"-inf"`."""
    return isinstance(value, str) and value in NAMES


def fill_value_json(record: dict[str, Any]) -> Any:
    """Return the fill value in a record as the client gave it; names of non-finite floats become floats again."""
    properties = record["creationProperties"]
    value = properties["fillValue"]
    if not isinstance(value, str | list) or record.get(AS_TEXT) or properties.get("fillValue_encoding"):
        return value
    return restore_non_finite(value, parse_type(record["type"]).element, 0)


def fill_bytes(properties: dict[str, Any], datatype: Datatype) -> bytes:
    """Return the fill value as one element's bytes, length-prefixed if vlen, or no bytes if it is zero or not given."""
    value = properties.get("fillValue")
    if value is None or (datatype.is_vlen and value in ("", 0)):
        return b""
    convert = _decode if properties.get("fillValue_encoding") == "base64" else _convert
    data = convert(value, datatype)
    return data if any(data) else b""


def _decode(value: Any, datatype: Datatype) -> bytes:
    if not isinstance(value, str):
        raise BadRequest("A fillValue in base64 must be a string.")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"The fillValue is not valid base64: {error}.") from error
    if not isinstance(datatype.element, Fixed):
        return split_elements(data, datatype.element, ()).heap.tobytes()
    if len(data) != datatype.dtype.itemsize:
        raise BadRequest(
            f"The fillValue has {len(data)} bytes; an element of the type has {datatype.dtype.itemsize}."
        )
    return data


def _convert(value: Any, datatype: Datatype) -> bytes:
    element = datatype.element
    if isinstance(element, Fixed) and element.dtype.subdtype is not None and not isinstance(value, list):
        # One value may fill every element of an array type.
        base, shape = element.dtype.subdtype
        return _convert(value, Datatype(None, Fixed(base))) * prod(shape)
    if isinstance(element, Fixed) and element.dtype.names is not None and type(value) in (int, float):
        # One number fills every field of a compound.
        kinds = [element.dtype[name] for name in element.dtype.names]
        return b"".join(_convert(value, Datatype(None, Fixed(kind))) for kind in kinds)
    try:
        values = from_json(value, (), element)
    except BadRequest as error:
        raise BadRequest(
            f"The fillValue {short_repr(value)} does not fit the type: {error.message}"
        ) from error
    return values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes()


Arange = tuple[float, ...]
"""`(start, step)` of an initializer, or `()` if a dataset has no initializer."""
MAX_NUMBER = 2**63


def parse_initializer(value: Any, rank: int, element: Element, *, sparse: bool) -> Arange:
    """Return `(start, step)` of the creation property `initializer`, `()` if None; raise `BadRequest` if invalid."""
    if value is None or value == []:
        return ()
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest(f"The initializer must be a list of strings, not {value!r:.80}.")
    if words[:1] != ["arange"]:
        raise BadRequest(f"The initializer {words[:1]} is unknown; only arange is supported.")
    kind = element.dtype.kind if isinstance(element, Fixed) and element.dtype.names is None else ""
    if rank != 1 or sparse or kind not in ("i", "u", "f"):
        raise BadRequest(
            "The initializer arange is for dense datasets of one dimension, of integers or floats."
        )
    given: dict[str, float] = {"--start": 0.0, "--step": 1.0} if kind == "f" else {"--start": 0, "--step": 1}
    for word in words[1:]:
        name, _, text = word.partition("=")
        if name not in given:
            raise BadRequest(f"The initializer arange takes --start= and --step=, not {word[:40]!r}.")
        given[name] = _number(text, kind)
    return given["--start"], given["--step"]


def arange_values(arange: Arange, first: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `count` elements of an arange, from index `first`; integers beyond the type wrap around."""
    start, step = arange
    if dtype.kind == "f":
        return (start + np.arange(first, first + count, dtype=np.float64) * step).astype(dtype)
    # Compute modulo 2^64: narrower integer types keep the low bits.
    base = np.uint64((int(start) + first * int(step)) % 2**64)
    values = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        values *= np.uint64(int(step) % 2**64)
        values += base
    return values.view(f"{dtype.kind}8").astype(dtype, copy=False)


def _number(text: str, kind: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise BadRequest(f"{text[:40]!r} in the initializer is no number.") from error
    if kind == "f":
        if not math.isfinite(number):
            raise BadRequest(f"{text[:40]!r} in the initializer is not finite.")
        return number
    if not number.is_integer() or abs(number) >= MAX_NUMBER:
        raise BadRequest(f"{text[:40]!r} in the initializer of integers is no integer below 2^63.")
    return int(text) if text.lstrip("+-").isdigit() else int(number)


MAX_INITIAL_BYTES = 128 * 1024 * 1024


def parse_initial_value(value: Any, shape: Shape, datatype: Datatype) -> Values:
    """Return the JSON value of a whole dataset as an array in its shape; raise `BadRequest` if it does not fit."""
    check_initial_size(shape, datatype)
    return from_json(value, dims_of(shape) or (), datatype.element)


def parse_initial_bytes(text: Any, shape: Shape, datatype: Datatype) -> Values:
    """Return the values of a whole dataset, given as base64 of the elements' bytes (vlen parts are length-prefixed)."""
    check_initial_size(shape, datatype)
    return unpack_elements(decode_base64(text), shape, datatype)


def check_initial_size(shape: Shape, datatype: Datatype) -> None:
    """Raise `TooLarge` if a dataset's values are too large for one request, or `BadRequest` for a null dataspace."""
    if shape["class"] == "H5S_NULL":
        raise BadRequest("A dataset with a null dataspace has no value: leave the value out.")
    size = num_elements(shape) * datatype.guessed_size
    if size > MAX_INITIAL_BYTES:
        raise TooLarge(
            f"The value would have {size} bytes; the limit is {MAX_INITIAL_BYTES}: write it by selections."
        )


IN_CHUNK = 1 << 15
"""The target for a chunk's average number of elements: half of 2^16, so that most chunks have 2-byte coordinates."""
BAND, LOW_BAND = 16384, 4096
"""The most rows in a chunk of a matrix: `BAND` if the writer sends whole chunks, otherwise `LOW_BAND`."""
LARGEST_BATCH = 1 << 21
"""The most elements in a row of chunks, if the writer does not send whole chunks: one batch then has the whole row,
so that no chunk is encoded twice."""
LARGEST_BAND = 1 << 24
"""The most elements in a row of chunks, if the writer sends whole chunks: one chunk may need a whole row read."""


def chunk_of(
    shape: tuple[int, ...], count: int, chunk: tuple[int, ...] = (), *, by_chunks: bool = True
) -> tuple[int, ...]:
    """Return chunk dimensions with which the chunks of a sparse array of `count` elements average `IN_CHUNK` elements.

    A chunk of a matrix is tall, because readers take many rows but few columns at a time. Its number of rows is a power
    of two, so that aligned blocks of rows fall into one row of chunks. Other ranks have equal chunk dimensions. A given
    `chunk` is only clipped to the shape. `by_chunks` says that the writer sends whole chunks, so that a row of
    chunks may have more elements than one request. Raises `Unsupported` if `chunk` has another rank.
    """
    shape = tuple(max(1, length) for length in shape)
    if chunk:
        if len(chunk) != len(shape):
            raise Unsupported(f"The array's chunk must have {len(shape)} dimensions, not {len(chunk)}.")
        return tuple(map(min, chunk, shape))
    wanted = min(MAX_CHUNK_ELEMENTS, max(IN_CHUNK, prod(shape) * IN_CHUNK // max(1, count)))
    if len(shape) != 2:
        return _equal_sides(shape, wanted)
    most, rows = (LARGEST_BAND, BAND) if by_chunks else (LARGEST_BATCH, LOW_BAND)
    band = min(rows, most * 7 // 8 * shape[0] // max(1, count))  # 7/8: leave room for rows above average
    rows = min(shape[0], 1 << max(1, band, isqrt(wanted)).bit_length() - 1)
    if wanted // rows < shape[1]:
        return rows, wanted // rows
    return min(shape[0], wanted // shape[1]), shape[1]


def matrix_filters(dims: Sequence[int]) -> list[dict[str, Any]]:
    """Return `creationProperties.filters` of a sparse matrix with chunks of `dims` that have about `IN_CHUNK` elements.

    Chunks rarely have more than 65535 elements, so their coordinates take two bytes if `dims` allow it. Values use
    deflate level 3: level 4 takes 10 to 50 % longer for counts and their logarithms, and saves 0 to 2 % of a chunk.
    """
    size = len(dims) * (2 if max(dims, default=0) <= 1 << 16 else 4)
    return [
        {"id": 2, "section": "H5_SECTION_SELECTION", "element_size": size},  # shuffle
        {"id": 1, "level": 4, "section": "H5_SECTION_SELECTION"},  # deflate
        {"id": 2, "section": "H5_SECTION_FIXED"},
        {"id": 1, "level": 3, "section": "H5_SECTION_FIXED"},
    ]


def _equal_sides(shape: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return chunk dimensions with about `wanted` elements, equal except where `shape` is shorter."""
    chunk = [0] * len(shape)
    left = wanted
    for place, dim in enumerate(sorted(range(len(shape)), key=lambda dim: shape[dim])):
        remaining = len(shape) - place
        side = left if remaining == 1 else isqrt(left) if remaining == 2 else int(left ** (1 / remaining))
        chunk[dim] = max(1, min(shape[dim], side))
        left = max(1, left // chunk[dim])
    return tuple(chunk)
