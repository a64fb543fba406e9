"""Numbers that Arrow has, and numbers of one type as another.

Elements of variable length as Arrow columns.

A string is a `utf8` or, where its character set is ASCII, a `binary` element; a sequence of numbers a `list`.
Anything else is a `binary` element with the bytes of its length-prefixed form.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import Element, Fixed, VlenSequence, VlenString
from hsparse.model.length_prefixed import add_prefixes, split_elements, strip_prefixes
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.values.media.arrow_reader import Column

NUMBERS = frozenset({"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def is_number(dtype: np.dtype[Any]) -> bool:
    """Say whether Arrow has numbers of the type, in the machine's byte order."""
    return dtype.names is None and dtype.subdtype is None and dtype.str[1:] in NUMBERS


def as_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a column's numbers as a dataset's, in the machine's byte order; `BadRequest` where they do not fit."""
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="))
    if dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return cast


class ColumnForm(Enum):
    """What a column's elements are."""

    UTF8 = "utf8"
    BINARY = "binary"
    LIST = "list"


def column_form(element: Element) -> ColumnForm:
    """Return what a column of such elements holds."""
    if isinstance(element, VlenString):
        return ColumnForm.UTF8 if dict(element.dtype.metadata or {}).get("vlen") is str else ColumnForm.BINARY
    return ColumnForm.BINARY if numbers_of(element) is None else ColumnForm.LIST


def numbers_of(element: Element) -> np.dtype[Any] | None:
    """Return the type of the numbers of which elements are sequences, None for other elements."""
    base = element.base if isinstance(element, VlenSequence) else None
    return base.dtype if isinstance(base, Fixed) and is_number(base.dtype) else None


def vlen_buffers(values: VlenArray, element: Element) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the offsets, (n + 1,), of elements, (n,), in a column's bytes or numbers, and these.

    `BadRequest` for text that is no UTF-8 where it must be.
    """
    numbers = numbers_of(element)
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
    """Return a column as elements, (n,); `BadRequest` when it does not fit them."""
    if column.values is None or column.offsets is None:
        raise BadRequest(
            "Column value must hold strings, binary elements or lists, as the type of the dataset is."
        )
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    data, sizes = column.values[first:last], np.diff(column.offsets)
    numbers = numbers_of(element)
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
    """Raise `BadRequest` unless each string is UTF-8: all of it, and none begins inside a character."""
    begins = offsets[:-1][offsets[:-1] < len(data)]
    try:
        str(data.data, "utf-8")
        whole = not (data[begins] >> 6 == 0b10).any()
    except UnicodeDecodeError:
        whole = False
    if not whole:
        raise BadRequest("A string is not UTF-8, which Arrow needs: ask for application/octet-stream.")
