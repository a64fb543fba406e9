"""Columns of an Arrow stream: conversion of numbers, and the forms of variable-length elements.

A UTF-8 string is a `utf8` element, an ASCII string a `binary` element, and a sequence of numbers a `list`. Any other
variable-length element is a `binary` element: the bytes of its length-prefixed form.

The result of a reduction as an Arrow stream: a row for each of its places.

Columns are `dim_i` for the axes that are kept, with their indices in the dataset, `group` for the labels of groups, and
one column for each operation.
"""

from __future__ import annotations

import io
from enum import Enum
from typing import Any

import nanoarrow as na
import numpy as np
from aiohttp import web
from nanoarrow import ipc
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.arrow_stream import Column
from hsparse.model.element import Element, Fixed, VlenSequence, VlenString
from hsparse.model.vlen_array import VlenArray, add_prefixes, split_elements, strip_prefixes
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.http.response import respond_computed
from hsparse.sn.request import Request
from hsparse.sn.values.reduction.dataset_reduction import Reduced

NUMBER_TYPES: dict[str, Any] = {
    "i1": na.int8,
    "i2": na.int16,
    "i4": na.int32,
    "i8": na.int64,
    "u1": na.uint8,
    "u2": na.uint16,
    "u4": na.uint32,
    "u8": na.uint64,
    "f2": na.float16,
    "f4": na.float32,
    "f8": na.float64,
}


def is_number(dtype: np.dtype[Any]) -> bool:
    """Say whether Arrow has a type for such numbers; it stores them in the machine's byte order."""
    return dtype.names is None and dtype.subdtype is None and dtype.str[1:] in NUMBER_TYPES


def number_type(dtype: np.dtype[Any]) -> Any:
    """Return Arrow's type for numbers of `dtype`, for which `is_number` holds."""
    return NUMBER_TYPES[dtype.str[1:]]()


def as_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast the numbers of a column to `dtype`, in the machine's byte order; `BadRequest` if one does not fit.

    They are not copied if they have it.
    """
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="), copy=False)
    if cast is not values and dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return cast


class ColumnForm(Enum):
    """The Arrow type of a column of variable-length elements."""

    UTF8 = "utf8"
    BINARY = "binary"
    LIST = "list"


def column_form(element: Element) -> ColumnForm:
    """Return the form of a column of such elements."""
    if isinstance(element, VlenString):
        return ColumnForm.UTF8 if dict(element.dtype.metadata or {}).get("vlen") is str else ColumnForm.BINARY
    return ColumnForm.BINARY if list_item_type(element) is None else ColumnForm.LIST


def list_item_type(element: Element) -> np.dtype[Any] | None:
    """Return the type of the numbers in an element that is a sequence of them, None for other elements."""
    base = element.base if isinstance(element, VlenSequence) else None
    return base.dtype if isinstance(base, Fixed) and is_number(base.dtype) else None


def vlen_buffers(values: VlenArray, element: Element) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the buffers of a column: `offsets: (n + 1,)`, and the bytes or numbers of its n elements.

    `BadRequest` if a UTF-8 string is not valid UTF-8.
    """
    numbers = list_item_type(element)
    if numbers is None and not isinstance(element, VlenString):
        return values.offsets.astype(np.int32), values.heap
    data, sizes = strip_prefixes(values)
    if numbers is not None:
        return _offsets(sizes // numbers.itemsize), data.view(numbers).astype(numbers.newbyteorder("="))
    offsets = _offsets(sizes)
    if column_form(element) is ColumnForm.UTF8:
        _check_utf8(data, offsets)
    return offsets, data


def vlen_values(column: Column, element: Element) -> VlenArray:
    """Return the elements of a column, (n,); `BadRequest` if it does not fit their type."""
    if column.values is None or column.offsets is None:
        raise BadRequest(
            "Column value must hold strings, binary elements or lists, as the type of the dataset is."
        )
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    data, sizes = column.values[first:last], np.diff(column.offsets)
    numbers = list_item_type(element)
    if numbers is not None:
        if not column.is_list:
            raise BadRequest(f"Column value must hold lists of {numbers}.")
        cast = as_numbers(data, numbers).astype(numbers)
        return add_prefixes(cast.view(np.uint8), sizes * numbers.itemsize)
    if column.is_list:
        raise BadRequest("Column value must hold strings or binary elements, not lists.")
    if isinstance(element, VlenString):
        return add_prefixes(data, sizes)
    found = split_elements(data.data, element, (len(sizes),))
    if not np.array_equal(found.sizes, sizes):
        raise BadRequest("Column value must hold elements in length-prefixed form, each the bytes of one.")
    return found


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.append(0, np.cumsum(sizes)).astype(np.int32)


def _check_utf8(data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
    """Raise `BadRequest` unless all bytes are UTF-8 and no string begins inside a character."""
    starts = offsets[:-1][offsets[:-1] < len(data)]
    try:
        str(data.data, "utf-8")
        valid = not (data[starts] >> 6 == 0b10).any()
    except UnicodeDecodeError:
        valid = False
    if not valid:
        raise BadRequest("A string is not UTF-8, which Arrow needs: ask for application/octet-stream.")


GROUP = "group"


async def answer_reduced(request: Request, reduced: Reduced) -> web.StreamResponse:
    """Answer with the result as a table."""
    return await respond_computed(
        reduced.reduction.places,
        lambda: web.Response(body=arrow_table(reduced), content_type=ARROW_TYPE),
    )


def arrow_table(reduced: Reduced) -> bytes:
    """Return the bytes of the stream, in one record batch."""
    shape = reduced.reduction.result_shape
    columns: dict[str, Any] = {}
    for place, dim in enumerate(reduced.reduction.kept):
        each = (-1,) + (1,) * (len(shape) - place - 1)
        if reduced.labels is not None and dim == reduced.reduction.grouped:
            codes = np.broadcast_to(np.arange(len(reduced.labels)).reshape(each), shape).reshape(-1)
            columns[GROUP] = _labels(reduced.labels, codes)
        else:
            coords = np.broadcast_to(reduced.coords[dim].reshape(each), shape).reshape(-1)
            columns[f"dim_{dim}"] = _numbers(coords)
    columns |= {name: _numbers(values.reshape(-1)) for name, values in reduced.values.items()}
    schema = na.c_schema(na.struct({name: kind for name, (kind, _) in columns.items()}))
    sink = io.BytesIO()
    writer = ipc.StreamWriter.from_writable(sink)
    children = [column for _, column in columns.values()]
    writer.write_array(
        na.c_array_from_buffers(schema, reduced.reduction.places, buffers=[None], children=children)
    )
    writer.close()
    return sink.getvalue()


def _numbers(values: NDArray[Any]) -> tuple[Any, Any]:
    """Return the Arrow type and the column of numbers; truth values are 0 and 1."""
    native = np.ascontiguousarray(
        values, "u1" if values.dtype.kind == "b" else values.dtype.newbyteorder("=")
    )
    kind = number_type(native.dtype)
    return kind, na.c_array_from_buffers(na.c_schema(kind), len(native), [None, native])


def _labels(labels: list[Any], codes: NDArray[np.intp]) -> tuple[Any, Any]:
    """Return the Arrow type and the column of the labels of groups: text, or numbers."""
    if all(isinstance(label, str) for label in labels):
        encoded = [label.encode("utf-8", "surrogatepass") for label in labels]
        sizes = np.array([len(text) for text in encoded], np.int64)
        offsets = np.concatenate(([0], np.cumsum(sizes[codes]))).astype(np.int32)
        data = np.frombuffer(b"".join([encoded[code] for code in codes.tolist()]), np.uint8)
        return na.string(), na.c_array_from_buffers(
            na.c_schema(na.string()), len(codes), [None, offsets, data]
        )
    return _numbers(np.array(labels)[codes])
