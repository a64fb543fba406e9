"""Columns of an Arrow stream: conversion of numbers, and the forms of vlen elements.

A UTF-8 string is stored as a `utf8` element, an ASCII string as a `binary` element, and a sequence of numbers as a
`list`. Any other vlen element is a `binary` element with the bytes of its length-prefixed form.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.arrow_stream import Column
from hsparse.model.element import Element, Fixed, VlenSequence, VlenString
from hsparse.model.vlen_array import VlenArray, add_prefixes, split_elements, strip_prefixes
from hsparse.sn.values.media.arrow_reductions import NUMBER_TYPES


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is a type of number that Arrow supports, in any byte order."""
    return dtype.names is None and dtype.subdtype is None and dtype.str[1:] in NUMBER_TYPES


def as_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast a column's numbers to `dtype` in native byte order; raise `BadRequest` if a number is out of its range.

    Numbers that already have this type are not copied.
    """
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="), copy=False)
    if cast is not values and dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return cast


class ColumnForm(Enum):
    """The Arrow type of a column of vlen elements."""

    UTF8 = "utf8"
    BINARY = "binary"
    LIST = "list"


def column_form(element: Element) -> ColumnForm:
    """Return the Arrow type of a column of vlen elements that `element` describes."""
    if isinstance(element, VlenString):
        return ColumnForm.UTF8 if dict(element.dtype.metadata or {}).get("vlen") is str else ColumnForm.BINARY
    return ColumnForm.BINARY if list_item_type(element) is None else ColumnForm.LIST


def list_item_type(element: Element) -> np.dtype[Any] | None:
    """Return the dtype of the items if `element` is a vlen sequence of numbers, otherwise None."""
    base = element.base if isinstance(element, VlenSequence) else None
    return base.dtype if isinstance(base, Fixed) and is_number(base.dtype) else None


def vlen_buffers(values: VlenArray, element: Element) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return a pair of buffers of a column of n elements: `offsets: (n + 1,)`, and the elements' bytes or numbers.

    Raises `BadRequest` if a UTF-8 string is not valid UTF-8.
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
    """Return the elements of a column, (n,); raise `BadRequest` if the column does not fit `element`."""
    if column.values is None or column.offsets is None:
        raise BadRequest(
            "Column value must hold strings, binary elements or lists, as the dataset's type requires."
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
        raise BadRequest("Column value must hold one element in length-prefixed form in each row.")
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
        raise BadRequest("A string is not UTF-8, as Arrow requires: use application/octet-stream instead.")
