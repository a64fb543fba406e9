"""What a new dataset holds: its fill value, its initializer, and the values given with its creation.

Unwritten elements are the fill value, or what the initializer says: of `["arange", "--start=10", "--step=2"]`, as
HSDS has it, element i of a dataset of one dimension is start + i * step; of integers both are integers.

Choosing chunk dimensions of sparse datasets that are written at once, when the number of elements is known.
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
from hsparse.model.attribute import NAMES, decode_base64, name_non_finite, restore_non_finite, unpack_elements
from hsparse.model.dataspace import Shape, dims_of, num_elements
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.element import Element, Fixed
from hsparse.model.json_values import Values, from_json
from hsparse.model.layout import MAX_CHUNK_ELEMENTS
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import VlenArray, split_elements


def parse_fill_value(properties: dict[str, Any], datatype: Datatype) -> dict[str, Any]:
    """Return the `fillValue` and `fillValue_encoding` of creation properties in their stored form.

    A float that JSON has no number for is stored as `"nan"`, `"inf"` or `"-inf"`; see `fill_value_json`.
    """
    encoding = properties.get("fillValue_encoding")
    if encoding not in (None, "None", "base64"):
        raise BadRequest(f"fillValue_encoding must be base64, not {short_repr(encoding)}.")
    if properties.get("fillValue") is None:
        return {}
    fill_bytes(properties, datatype)
    if encoding == "base64":
        return {"fillValue": properties["fillValue"], "fillValue_encoding": "base64"}
    return {"fillValue": name_non_finite(properties["fillValue"])}


AS_TEXT = "fillValueAsText"
"""The key of a record whose fill value was given as a float's name: it is answered as the same text."""


def is_named_float(value: Any) -> bool:
    """Say whether a fill value in a request is the name of a float that JSON has no number for, as text."""
    return isinstance(value, str) and value in NAMES


def fill_value_json(record: dict[str, Any]) -> Any:
    """Return the fill value in a record as it was given: a float that JSON has no number for is a float again."""
    properties = record["creationProperties"]
    value = properties["fillValue"]
    if not isinstance(value, str | list) or record.get(AS_TEXT) or properties.get("fillValue_encoding"):
        return value
    return restore_non_finite(value, parse_type(record["type"]).element, 0)


def fill_bytes(properties: dict[str, Any], datatype: Datatype) -> bytes:
    """Return one element's bytes in the file type, empty when they are all zero or nothing was asked.

    A variable-length fill value has the length-prefixed form (`hsparse.model.vlen_array`), in base64 too.
    """
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
        # An array type's fill value may be one for all its elements.
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
"""`(start, step)`, or nothing."""
MAX_NUMBER = 2**63


def parse_initializer(value: Any, rank: int, element: Element, *, sparse: bool) -> Arange:
    """Parse the creation property `initializer` (None: not given); `BadRequest` for an unknown one."""
    if value is None or value == []:
        return ()
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest(f"The initializer must be a list of strings, not {value!r:.80}.")
    if words[:1] != ["arange"]:
        raise BadRequest(f"The initializer {words[:1]} is not known; there is arange.")
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
    """Return the elements from number `first` on, (count,); integers beyond the type wrap around."""
    start, step = arange
    if dtype.kind == "f":
        return (start + np.arange(first, first + count, dtype=np.float64) * step).astype(dtype)
    # modulo 2^64, of which every narrower type keeps the end
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
    """Return the values of a whole dataset, in its shape, from JSON; `BadRequest` when they do not fit."""
    check_initial_size(shape, datatype)
    return from_json(value, dims_of(shape) or (), datatype.element)


def parse_initial_bytes(text: Any, shape: Shape, datatype: Datatype) -> Values:
    """Return the same from base64 of the packed elements, length-prefixed where they vary in size."""
    check_initial_size(shape, datatype)
    return unpack_elements(decode_base64(text), shape, datatype)


def check_initial_size(shape: Shape, datatype: Datatype) -> None:
    """Raise `TooLarge` for the values of a dataset that are too large to be given with its creation."""
    if shape["class"] == "H5S_NULL":
        raise BadRequest("A dataset with a null dataspace has no value; leave it out.")
    size = num_elements(shape) * datatype.guessed_size
    if size > MAX_INITIAL_BYTES:
        raise TooLarge(
            f"The value would have {size} bytes; the limit is {MAX_INITIAL_BYTES}: write it by selections."
        )


IN_CHUNK = 1 << 15
"""The average number of elements in a chunk: half of what coordinates of two bytes allow, for chunks above average."""
BAND, LOW_BAND = 16384, 4096
"""Rows of a chunk of a matrix, unless they have too many elements: if it is written by chunks, or in another order."""
LARGEST_BATCH = 1 << 21
"""The most elements of a request that has all elements of its chunks: each write of a part encodes a chunk again."""
LARGEST_BAND = 1 << 24
"""The most elements of the rows of a chunk, which are read for each request that has the elements of some chunks."""


def chunk_of(
    shape: tuple[int, ...], count: int, chunk: tuple[int, ...] = (), *, by_chunks: bool = True
) -> tuple[int, ...]:
    """Return chunk dimensions, so that a chunk has `IN_CHUNK` of `count` elements on average.

    A chunk of a matrix is tall: rows are read many at a time, columns a few. Its number of rows is a power of two, so
    that a block of that many rows, or of a part of them, is in one chunk. Others have equal dimensions. A wanted
    `chunk` is cut to the shape; `Unsupported` if it has another rank. `by_chunks` says that the writer sends whole
    chunks, so that a row of chunks may have more elements than a request.
    """
    if chunk:
        if len(chunk) != len(shape):
            raise Unsupported(f"The chunk has {len(chunk)} dimensions, the sparse array {len(shape)}.")
        return tuple(map(min, chunk, shape))
    wanted = min(MAX_CHUNK_ELEMENTS, max(IN_CHUNK, prod(shape) * IN_CHUNK // max(1, count)))
    if len(shape) != 2:
        return _equal_sides(shape, wanted)
    most, rows = (LARGEST_BAND, BAND) if by_chunks else (LARGEST_BATCH, LOW_BAND)
    band = min(rows, most * 7 // 8 * shape[0] // max(1, count))  # rows differ by an eighth, and more
    rows = min(shape[0], 1 << max(1, band, isqrt(wanted)).bit_length() - 1)
    if wanted // rows < shape[1]:
        return rows, wanted // rows
    return min(shape[0], wanted // shape[1]), shape[1]


def matrix_filters(dims: Sequence[int]) -> list[dict[str, Any]]:
    """Return `creationProperties.filters` of a matrix written at once, whose chunks of `dims` have few elements.

    Hardly any of them has more than 65535, so points have coordinates of two bytes where the dimensions allow it.
    Level 4 takes a tenth to a half longer for values, of counts and their logarithms, and saves 0 to 2 % of a chunk.
    """
    size = len(dims) * (2 if max(dims, default=0) <= 1 << 16 else 4)
    return [
        {"id": 2, "section": "H5_SECTION_SELECTION", "element_size": size},  # shuffle
        {"id": 1, "level": 4, "section": "H5_SECTION_SELECTION"},  # deflate
        {"id": 2, "section": "H5_SECTION_FIXED"},
        {"id": 1, "level": 3, "section": "H5_SECTION_FIXED"},
    ]


def _equal_sides(shape: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return chunk dimensions of `wanted` elements that are equal, except where the shape ends before."""
    chunk = [0] * len(shape)
    left = wanted
    for place, dim in enumerate(sorted(range(len(shape)), key=lambda dim: shape[dim])):
        remaining = len(shape) - place
        side = left if remaining == 1 else isqrt(left) if remaining == 2 else int(left ** (1 / remaining))
        chunk[dim] = max(1, min(shape[dim], side))
        left = max(1, left // chunk[dim])
    return tuple(chunk)
