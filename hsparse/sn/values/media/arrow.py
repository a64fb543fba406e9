"""The defined elements of sparse datasets as an Arrow IPC stream, `application/vnd.apache.arrow.stream`.

The columns are `dim_0`, `dim_1` and so on, with the coordinates in each dimension, and `value`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

import nanoarrow as na
import numpy as np
from aiohttp import web
from nanoarrow import ipc
from numpy.typing import DTypeLike, NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import BadRequest
from hsparse.format.arrow_stream import CONTINUATION, RECORD_BATCH, Column, read_batches
from hsparse.format.selections.points import Selection
from hsparse.format.selections.signed_extent import SignedExtent, points_of
from hsparse.model.element import Element, dtype_bytes
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray, join_elements
from hsparse.sn.http.request import ARROW_TYPE
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.append import parse_append
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.sn.values.media.arrow_columns import (
    ColumnForm,
    as_numbers,
    column_form,
    is_number,
    list_item_type,
    vlen_buffers,
    vlen_values,
)
from hsparse.sn.values.media.arrow_reductions import answer_reduced, number_type
from hsparse.sn.values.media.binary import refuse_fields
from hsparse.sn.values.media.json import JSON
from hsparse.sn.values.media.medium import STREAM_PAGES, CoordinatesBody, ValueRead

VALUE = "value"
Array = NDArray[Any]
U4, U8, I8 = map(np.dtype[Any], ("u4", "u8", "i8"))
BYTES_TYPES = {ColumnForm.UTF8: na.string, ColumnForm.BINARY: na.binary}


class ArrowWriter:
    """Encodes a stream batch by batch: call `parts` or `batch` for each batch, then `end`.

    Numbers have a column of their type; other fixed-size elements (compound, string, boolean) are fixed-size binary.
    `element` describes vlen elements, whose column types are listed in `hsparse.sn.values.media.arrow_columns`; it is
    None for fixed-size elements. A dimension whose length in `extent` is negative has signed coordinates.
    """

    def __init__(self, extent: tuple[int, ...], dtype: np.dtype[Any], element: Element | None = None) -> None:
        self._dim_types = tuple([I8 if length < 0 else U4 if length <= 2**32 else U8 for length in extent])
        self._vlen = None if element is None else _Encoder(self._dim_types, dtype, element)
        if element is None:
            key = self._dim_types, dtype
            self._head, self._none, self._end, self._dtype = _STREAMS.get(key) or _fixed_stream(*key)
        self._started = False

    def parts(self, columns: Sequence[Array], values: Array | VlenArray) -> list[bytes | memoryview]:
        """Return one record batch as parts of bytes, preceded by the schema if it is the first batch.

        `columns` has the coordinates (n,) of each dimension. Columns of fixed-size elements are not copied.
        """
        is_first, self._started = not self._started, True
        if self._vlen is not None:
            return [self._vlen.batch(columns, values)]
        coords = [np.ascontiguousarray(one, kind) for one, kind in zip(columns, self._dim_types, strict=True)]
        parts = batch_parts([*coords, np.ascontiguousarray(values, self._dtype)])
        return [self._head, *parts] if is_first else parts

    def batch(self, columns: Sequence[Array], values: Array | VlenArray) -> bytes:
        """Return the parts of one record batch, joined."""
        return b"".join(self.parts(columns, values))

    def end(self) -> bytes:
        """Return the end of the stream, preceded by the schema and an empty batch if there was no batch."""
        if self._vlen is not None:
            return self._vlen.end(started=self._started)
        return self._end if self._started else self._head + self._none + self._end


class SignedArrowWriter(ArrowWriter):
    """An `ArrowWriter` for a dataset with lower bounds; it converts coordinates of the chunk grid to the request's."""

    def __init__(self, extent: SignedExtent, dtype: np.dtype[Any], element: Element | None = None) -> None:
        super().__init__((-1,) * len(extent) if extent.in_places else extent.lengths, dtype, element)
        self._extent = extent

    def parts(self, columns: Sequence[Array], values: Array | VlenArray) -> list[bytes | memoryview]:
        return super().parts(self._extent.columns(columns), values)


class _Encoder:
    """Encodes a stream with nanoarrow, which copies the columns."""

    def __init__(
        self, dim_types: tuple[np.dtype[Any], ...], dtype: np.dtype[Any], element: Element | None
    ) -> None:
        self._dim_types = dim_types
        self._element = element
        value_type = _fixed_type(dtype) if element is None else _vlen_type(element)
        fields = {f"dim_{i}": number_type(kind) for i, kind in enumerate(dim_types)}
        self._schema = na.c_schema(na.struct({**fields, VALUE: value_type}))
        self._value_schema = na.c_schema(value_type)
        self._sink = io.BytesIO()
        self._writer = ipc.StreamWriter.from_writable(self._sink)

    def batch(self, columns: Sequence[Array], values: Array | VlenArray) -> bytes:
        """Return the bytes of a record batch, preceded by the schema if it is the first batch."""
        children = [
            na.c_array_from_buffers(
                number_type(kind), len(column), [None, np.ascontiguousarray(column, kind)]
            )
            for column, kind in zip(columns, self._dim_types, strict=True)
        ]
        children.append(self._values(values))
        batch = na.c_array_from_buffers(self._schema, values.size, buffers=[None], children=children)
        self._writer.write_array(batch)
        return self._drain()

    def end(self, *, started: bool = True) -> bytes:
        """Return the end of the stream, preceded by the schema and an empty batch if the stream was not started."""
        none = [np.zeros(0, kind) for kind in self._dim_types]
        head = b"" if started else self.batch(none, VlenArray.of([]))
        self._writer.close()
        return head + self._drain()

    def _values(self, values: Array | VlenArray) -> Any:
        if isinstance(values, VlenArray):
            assert self._element is not None
            return _vlen_column(self._value_schema, values, self._element)
        return na.c_array_from_buffers(self._value_schema, len(values), [None, values.view(np.uint8)])

    def _drain(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


_FixedStream: TypeAlias = tuple[bytes, bytes, bytes, np.dtype[Any]]
_STREAMS: BoundedCache[tuple[tuple[np.dtype[Any], ...], np.dtype[Any]], _FixedStream] = BoundedCache(2**20)


def _fixed_stream(dim_types: tuple[np.dtype[Any], ...], dtype: np.dtype[Any]) -> _FixedStream:
    """Return a tuple: a stream's schema message, an empty batch, the stream's end, and the dtype of the values."""
    encoder = _Encoder(dim_types, dtype, None)
    data = encoder.batch([np.zeros(0, kind) for kind in dim_types], np.zeros(0, dtype))
    size = 8 + int.from_bytes(data[4:8], "little")
    native = dtype.newbyteorder("=") if is_number(dtype) else dtype
    found = data[:size], data[size:], encoder.end(), native
    _STREAMS.keep((dim_types, dtype), found, len(data) + 2 * dtype_bytes(dtype))
    return found


def _fixed_type(dtype: np.dtype[Any]) -> Any:
    return number_type(dtype) if is_number(dtype) else na.fixed_size_binary(dtype.itemsize)


def _vlen_type(element: Element) -> Any:
    numbers = list_item_type(element)
    return BYTES_TYPES[column_form(element)]() if numbers is None else na.list_(number_type(numbers))


def _vlen_column(schema: Any, values: VlenArray, element: Element) -> Any:
    offsets, data = vlen_buffers(values, element)
    numbers = list_item_type(element)
    if numbers is None:
        return na.c_array_from_buffers(schema, values.size, [None, offsets, data])
    child = na.c_array_from_buffers(na.c_schema(number_type(numbers)), len(data), [None, data])
    return na.c_array_from_buffers(schema, values.size, [None, offsets], children=[child])


def read_arrow(
    data: bytes | bytearray, rank: int, dtype: np.dtype[Any], *, signed: bool = False
) -> tuple[Array, Array]:
    """Decode a stream to `coords: (n, rank) uint64`, int64 if `signed`, and `values: (n,)` of `dtype`.

    Raises `BadRequest` if the bytes are no Arrow stream, or a column is missing, has nulls or does not fit the dtype.
    """
    coords, values = list[Array](), list[Array]()
    for length, columns in read_batches(data):
        coords.append(_coords(length, columns, rank, signed=signed))
        values.append(_values(length, columns, dtype))
    return _joined(coords, (rank,), np.int64 if signed else np.uint64), _joined(values, (), dtype)


def _joined(arrays: list[Array], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Concatenate arrays, each (n, *shape), as `dtype`; a single array of that dtype is not copied."""
    joined = np.concatenate(arrays) if len(arrays) > 1 else arrays[0] if arrays else np.zeros((0, *shape))
    return joined.astype(dtype, copy=False)


def read_vlen_arrow(
    data: bytes | bytearray, rank: int, element: Element, *, signed: bool = False
) -> tuple[Array, VlenArray]:
    """Decode a stream of vlen elements to `coords: (n, rank)` and values, (n,), as `read_arrow` does."""
    coords = [np.zeros((0, rank), np.int64 if signed else np.uint64)]
    values = [VlenArray.of([])]
    for length, columns in read_batches(data):
        coords.append(_coords(length, columns, rank, signed=signed))
        values.append(vlen_values(_column(columns, VALUE), element))
    return np.concatenate(coords), join_elements(values)


def _coords(length: int, columns: dict[str, Column], rank: int, *, signed: bool = False) -> Array:
    coords = np.empty((length, rank), np.int64 if signed else np.uint64)
    for dim, column in enumerate([_fixed_values(columns, f"dim_{dim}") for dim in range(rank)]):
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise BadRequest(f"Column dim_{dim} must hold integers, not {column.dtype}.")
        if column.dtype.kind == "i" and len(column) and column.min() < 0 and not signed:
            raise BadRequest(f"Column dim_{dim} has a negative coordinate; the least is 0.")
        coords[:, dim] = column
    return coords


def _values(length: int, columns: dict[str, Column], dtype: np.dtype[Any]) -> Array:
    values = _fixed_values(columns, VALUE)
    if is_number(dtype):
        return as_numbers(values, dtype)
    if values.dtype != np.uint8 or values.shape != (length, dtype.itemsize):
        raise BadRequest(f"Column value must be fixed-size binary of {dtype.itemsize} bytes.")
    return values.copy().reshape(-1).view(dtype)


def _fixed_values(columns: dict[str, Column], name: str) -> Array:
    column = _column(columns, name)
    if column.values is None or column.offsets is not None:
        raise BadRequest(f"Column {name!r} must hold numbers or fixed-size binary.")
    return column.values


def _column(columns: dict[str, Column], name: str) -> Column:
    column = columns.get(name)
    if column is None:
        raise BadRequest(f"The Arrow stream has no column {name!r}: add the column.")
    if column.nulls:
        raise BadRequest(f"Column {name!r} has nulls: leave out undefined elements instead.")
    return column


# --- record batches without a copy of the columns ---------------------------------------------------
# A message has metadata, which are a FlatBuffer, and a body: the buffers of the columns, each padded to 8 bytes.

VERSION_5 = 4
"""Message.fbs: `MetadataVersion.V5`."""
JOINED_BATCH_BYTES = 1 << 16
"""The parts of a smaller batch are joined, because sending a part costs as much as copying this many bytes."""


def batch_parts(columns: Sequence[NDArray[Any]]) -> list[bytes | memoryview]:
    """Return the parts of a record batch of fixed-size columns, which must not change until the parts are sent."""
    (length,) = {len(column) for column in columns}
    parts: list[bytes | memoryview] = [_batch_head(length, [column.nbytes for column in columns])]
    for column in columns:
        parts.append(column.view(np.uint8).data)
        if padding := -column.nbytes % 8:
            parts.append(bytes(padding))
    return parts if sum(map(len, parts)) > JOINED_BATCH_BYTES else [b"".join(parts)]


def _batch_head(length: int, sizes: list[int]) -> bytes:
    """Return the bytes before a record batch's body: continuation mark, size of the metadata, and metadata.

    The metadata are a FlatBuffer (see "FlatBuffers Internals"): two tables, each preceded by its vtable, followed by
    two vectors. An offset is relative to its own position in the metadata.
    """
    ends = [0, *accumulate(size + -size % 8 for size in sizes)]
    count = len(sizes)
    message = struct.pack(
        "<I 6H i hBx q I", 16, 12, 20, 4, 6, 16, 8, 12, VERSION_5, RECORD_BATCH, ends[-1], 16
    )
    batch = struct.pack("<5H 2x i I q I", 10, 20, 8, 4, 16, 12, 16, length, 76 + 16 * count - 64)
    nodes = struct.pack("<I", count) + struct.pack("<qq", length, 0) * count
    buffers = b"".join(
        struct.pack("<4q", start, 0, start, size) for start, size in zip(ends[:-1], sizes, strict=True)
    )
    metadata = message + batch + nodes + struct.pack("<4x I", 2 * count) + buffers
    return struct.pack("<II", CONTINUATION, len(metadata)) + metadata


# --- the medium -------------------------------------------------------------------------------------


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """Answer with the defined elements as a stream, whose size is not limited."""
    request, page_size = read.request, read.request.service.settings.page_size
    async with request.service.answers.hold(STREAM_PAGES * page_size):
        return await respond_stream(request, ARROW_TYPE, defined_batches(read, page_size))


async def defined_batches(read: ValueRead, page_size: int) -> AsyncGenerator[bytes | memoryview, None]:
    """Yield the bytes of an Arrow stream of the defined elements, in batches of about `page_size` bytes."""
    dataset, chunks = read.dataset, ChunkFanout(read.request.service.owners, read.dataset)
    element = None if dataset.arrays.is_exact else dataset.spec.datatype.element
    kind: Any = SignedArrowWriter if dataset.spec.base else ArrowWriter
    writer = kind(dataset.extent, dataset.dtype, element)
    async for parts in DefinedRead(chunks, page_size, form=writer.parts).pieces(read.selection):
        for part in parts:
            yield part
    yield writer.end()


@dataclass(frozen=True, slots=True)
class ArrowBody(CoordinatesBody):
    """A `WriteBody` whose bytes are an Arrow stream of coordinates and values."""

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        refuse_fields(fields)
        coords: NDArray[Any]
        values: Values
        rank = len(dataset.extent)
        signed = isinstance(dataset.extent, SignedExtent) and dataset.extent.in_places
        if dataset.arrays.is_exact:
            coords, values = read_arrow(self.data, rank, dataset.dtype, signed=signed)
        else:
            coords, values = read_vlen_arrow(self.data, rank, dataset.spec.datatype.element, signed=signed)
        return points_of(dataset.extent, coords), values


async def read_body(request: Request) -> ArrowBody:
    """Read the body of a write."""
    append = parse_append(request.number("append"), request.number("append_dim"), request.arg("append_side"))
    return ArrowBody(await request.body(), append, request.arg("fields"))


ARROW = replace(
    JSON, name=ARROW_TYPE, read_body=read_body, answer_defined=answer_defined, answer_reduced=answer_reduced
)
