"""Sparse values as an Arrow IPC stream: columns `dim_0 ... dim_{n-1}` and `value`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import nanoarrow as na
import numpy as np
from nanoarrow import ipc
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.sn.arrow_reader import Column, read_batches

VALUE = "value"
Array = NDArray[Any]

TYPES: dict[str, Any] = {
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


class ArrowWriter:
    """Makes a stream piece by piece: `batch` for each piece, then `end`.

    Numbers are columns of their own type; anything else (compound, string, boolean) is a
    fixed-size binary column of the elements' bytes.
    """

    def __init__(self, extent: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._dim_types = [np.dtype("u4" if length <= 2**32 else "u8") for length in extent]
        self._value = number_type(dtype)
        value_type = self._value or na.fixed_size_binary(dtype.itemsize)
        fields = {f"dim_{i}": _kind(kind) for i, kind in enumerate(self._dim_types)}
        self._schema = na.c_schema(na.struct({**fields, VALUE: value_type}))
        self._value_schema = na.c_schema(value_type)
        self._dtype = dtype
        self._started = False
        self._sink = io.BytesIO()
        self._writer = ipc.StreamWriter.from_writable(self._sink)

    def batch(self, columns: Sequence[Array], values: Array) -> bytes:
        """Return the bytes of one record batch: a column of coordinates a dimension, and the values."""
        children = [
            na.c_array_from_buffers(_kind(kind), len(column), [None, np.ascontiguousarray(column, kind)])
            for column, kind in zip(columns, self._dim_types, strict=True)
        ]
        children.append(self._values(values))
        batch = na.c_array_from_buffers(self._schema, len(values), buffers=[None], children=children)
        self._writer.write_array(batch)
        self._started = True
        return self._taken()

    def end(self) -> bytes:
        """Return the stream's last bytes; without any batch these are the schema and an empty one."""
        head = b""
        if not self._started:
            head = self.batch([np.zeros(0, kind) for kind in self._dim_types], np.zeros(0, self._dtype))
        self._writer.close()
        return head + self._taken()

    def _values(self, values: Array) -> Any:
        native = values.dtype if self._value is None else values.dtype.newbyteorder("=")
        data = np.ascontiguousarray(values, native).view(np.uint8)
        return na.c_array_from_buffers(self._value_schema, len(values), [None, data])

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def _kind(dtype: np.dtype[Any]) -> Any:
    return TYPES[dtype.str[1:]]()


def number_type(dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type of a number, None for anything else."""
    make = TYPES.get(dtype.str[1:]) if dtype.names is None and dtype.subdtype is None else None
    return None if make is None else make()


def read_arrow(data: bytes | bytearray, rank: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return `coords: (n, rank) uint64` and `values: (n,)` of `dtype` from a stream's bytes.

    `BadRequest` when it is no such stream, a column is missing, has nulls or does not fit the dataset.
    """
    batches = [_columns(length, columns, rank, dtype) for length, columns in read_batches(data)]
    coords = np.concatenate([c for c, _ in batches]) if batches else np.zeros((0, rank), np.uint64)
    values = np.concatenate([v for _, v in batches]) if batches else np.zeros(0, dtype)
    return coords, values.astype(dtype, copy=False)


def _columns(length: int, columns: dict[str, Column], rank: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    places = [_column(columns, f"dim_{dim}") for dim in range(rank)]
    values = _column(columns, VALUE)
    coords = np.empty((length, rank), np.uint64)
    for dim, column in enumerate(places):
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise BadRequest(f"Column dim_{dim} must hold integers, not {column.dtype}.")
        if column.dtype.kind == "i" and len(column) and column.min() < 0:
            raise BadRequest(f"Column dim_{dim} has a negative coordinate.")
        coords[:, dim] = column
    if number_type(dtype) is None:
        if values.dtype != np.uint8 or values.shape != (length, dtype.itemsize):
            raise BadRequest(f"Column value must be fixed-size binary of {dtype.itemsize} bytes.")
        return coords, values.copy().reshape(-1).view(dtype)
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="))
    if dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return coords, cast


def _column(columns: dict[str, Column], name: str) -> Array:
    column = columns.get(name)
    if column is None:
        raise BadRequest(f"The Arrow stream has no column {name!r}.")
    if column.nulls:
        raise BadRequest(f"Column {name!r} has nulls; an undefined element is simply not sent.")
    if column.values is None:
        raise BadRequest(f"Column {name!r} must hold numbers or fixed-size binary.")
    return column.values
