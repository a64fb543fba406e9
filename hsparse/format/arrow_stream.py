"""Reader of Arrow IPC streams ("Arrow Columnar Format", Serialization and Interprocess Communication).

The bytes are not trusted: every offset and length is checked against the available bytes. The reader supports columns
of fixed width, of strings and binary elements, and of lists of numbers; it skips other flat columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.flat_buffer import INVALID, Table, part, root_table, unpack

CONTINUATION = 0xFFFFFFFF
SCHEMA, RECORD_BATCH = 1, 3
"""The members of `MessageHeader` (Message.fbs) that occur in a stream without dictionaries."""
INT, FLOAT, FIXED_SIZE_BINARY = 2, 3, 15
BYTES_OFFSETS = {4: "<i4", 5: "<i4", 19: "<i8", 20: "<i8"}
"""The dtype of offsets of Binary, Utf8, LargeBinary and LargeUtf8, by their number in the union `Type` (Schema.fbs)."""
LIST_OFFSETS = {12: "<i4", 21: "<i8"}
"""The dtype of offsets of the types List and LargeList, by their number in the union `Type`."""
BUFFERS = {1: 0, 2: 2, 3: 2, 4: 3, 5: 3, 6: 2, 7: 2, 8: 2, 9: 2, 10: 2, 11: 2, 15: 2, 18: 2, 19: 3, 20: 3} | {
    12: 2,
    21: 2,
}
"""The number of buffers of a column of each supported or skipped `Type`; buffers of a list's child are not counted."""
MAX_FIELDS = 1024
KEPT_SCHEMA = 4096
"""Schema messages of at most this many bytes are cached: a client that appends sends one schema with each request."""
FLOATS = ("<f2", "<f4", "<f8")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one batch: `values` are (n,) numbers, (n, width) bytes, or None for an unsupported type.

    If there are `offsets: (n + 1,) int64`, ascending, element i is `values[offsets[i]:offsets[i + 1]]`: bytes, or a
    list of numbers if `is_list`. `nulls` is the number of null elements.
    """

    values: NDArray[Any] | None
    nulls: int
    offsets: NDArray[np.int64] | None = None
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    buffers: int
    dtype: np.dtype[Any] | None
    width: int
    """Bytes of a fixed-size binary element, 0 for other types."""
    offset: np.dtype[Any] | None = None
    """The dtype of the offsets of variable-width elements, or None for fixed-width elements."""
    child: _Field | None = None
    """The field of a list's items, or None for any other type."""


Batch: TypeAlias = tuple[int, dict[str, Column]]
Take: TypeAlias = Callable[[int], Buffer]
"""`take(n)` returns the next n bytes of the stream, or fewer bytes at the end of the stream."""


def read_batches(data: bytes | bytearray) -> Iterator[Batch]:
    """Yield a pair for each record batch: its length, and a dict of its columns; raise `BadRequest` if invalid."""
    view = memoryview(data).cast("B")
    at = 0

    def take(size: int) -> memoryview:
        nonlocal at
        at += size
        return view[at - size : at]

    try:
        yield from _batches(take, ends_itself=False)
    except INVALID as error:
        raise BadRequest(f"The body is not an Arrow stream: {error}.") from error


class ColumnRoom(Protocol):
    """Preallocated arrays into which the columns of a stream are received without a copy."""

    def columns(self, length: int) -> Mapping[str, NDArray[Any]] | None:
        """Return arrays for the next batch's columns, (length,) or (length, width), or None if no arrays are left."""
        ...

    def receive(self, data: memoryview) -> None:
        """Fill `data` with the next bytes of the stream."""
        ...


def stream_batches(take: Take, room: ColumnRoom | None = None) -> Iterator[Batch]:
    """Yield the batches of a stream while it arrives; raise `Corrupt` if it is invalid or incomplete.

    Batches whose columns match the arrays of `room` in length and dtype are received into these arrays.
    """
    try:
        yield from _batches(take, ends_itself=True, room=room)
    except INVALID as error:
        raise Corrupt(f"The answer is not a complete Arrow stream: {error}.") from error


def _batches(take: Take, *, ends_itself: bool, room: ColumnRoom | None = None) -> Iterator[Batch]:
    """Yield the batches of a stream; if `ends_itself`, raise `ValueError` if the end-of-stream marker is missing."""
    fields: Sequence[_Field] | None = None
    while (size := _message_size(take)) != 0:
        if size is None:
            if ends_itself:
                raise ValueError("its end-of-stream marker is missing")
            break
        data = _exactly(take, size)
        if fields is None:
            fields, nbytes = _kept_schema(bytes(data)) if size <= KEPT_SCHEMA else _schema(data)
            _exactly(take, nbytes)
            continue
        message = root_table(data)
        header, nbytes = _header(message, RECORD_BATCH), message.number(3, "<q", 0)
        placed = None if room is None else _receive_in_place(header, fields, nbytes, take, room)
        yield placed or _batch(header, fields, _exactly(take, nbytes))
    if fields is None:
        raise ValueError("the stream has no schema message")


def _schema(data: Buffer) -> tuple[Sequence[_Field], int]:
    """Return a pair: the fields of a schema message, and the length of the message's body in bytes."""
    message = root_table(memoryview(data))
    return _fields(_header(message, SCHEMA)), message.number(3, "<q", 0)


_kept_schema = lru_cache(maxsize=64)(_schema)


def _header(message: Table, expected: int) -> Table:
    kind, header = message.number(1, "<B", 0), message.table(2)
    if kind != expected or header is None:
        raise ValueError(f"a message has kind {kind}, not {expected}; dictionaries are not supported")
    return header


def _message_size(take: Take) -> int | None:
    """Return the next message's length in bytes, 0 for the end-of-stream marker, or None if no bytes are left."""
    head = take(4)
    if not len(head):
        return None
    (size,) = unpack("<I", memoryview(head), 0)
    return int(unpack("<I", _exactly(take, 4), 0)[0]) if size == CONTINUATION else int(size)


def _exactly(take: Take, size: int) -> memoryview:
    if size < 0:
        raise ValueError(f"a message has the negative length {size}")
    data = memoryview(take(size))
    if len(data) != size:
        raise ValueError(f"only {len(data)} of {size} bytes of a message are there")
    return data


def _fields(schema: Table) -> list[_Field]:
    if schema.number(0, "<h", 0):
        raise ValueError("its numbers are big-endian, which is not supported")
    places = schema.tables(1)
    if len(places) > MAX_FIELDS:
        raise ValueError(f"it has {len(places)} columns; the limit is {MAX_FIELDS}")
    return [_field(schema.data, place) for place in places]


def _field(data: memoryview, place: int, depth: int = 0) -> _Field:
    table = Table(data, place)
    name, kind, type_table = table.text(0), table.number(2, "<B", 0), table.table(3)
    children = table.tables(5)
    if (
        kind not in BUFFERS
        or table.table(4) is not None
        or len(children) != (kind in LIST_OFFSETS)
        or depth > (kind not in LIST_OFFSETS)
    ):
        raise ValueError(f"column {name!r} is nested or has a dictionary, which is not supported")
    if kind in LIST_OFFSETS:
        child = _field(data, children[0], depth + 1)
        return _Field(name, BUFFERS[kind], None, 0, np.dtype(LIST_OFFSETS[kind]), child)
    if kind in BYTES_OFFSETS:
        return _Field(name, BUFFERS[kind], np.dtype(np.uint8), 0, np.dtype(BYTES_OFFSETS[kind]))
    return _fixed_field(name, kind, type_table)


def _fixed_field(name: str, kind: int, type_table: Table | None) -> _Field:
    dtype, width = None, 0
    if kind == INT and type_table is not None:
        bits, signed = type_table.number(0, "<i", 0), type_table.number(1, "<B", 0)
        if bits not in (8, 16, 32, 64):
            raise ValueError(f"column {name!r} has integers of {bits} bits, not 8, 16, 32 or 64")
        dtype = np.dtype(f"<{'i' if signed else 'u'}{bits // 8}")
    elif kind == FLOAT and type_table is not None:
        precision = type_table.number(0, "<h", 0)
        if not 0 <= precision < len(FLOATS):
            raise ValueError(f"column {name!r} has floats of the unknown precision {precision}")
        dtype = np.dtype(FLOATS[precision])
    elif kind == FIXED_SIZE_BINARY and type_table is not None:
        dtype, width = np.dtype(np.uint8), type_table.number(0, "<i", 0)
        if width <= 0:
            raise ValueError(f"column {name!r} has elements of {width} bytes, not of at least 1")
    return _Field(name, BUFFERS[kind], dtype, width)


def _batch(header: Table, fields: Sequence[_Field], body: memoryview) -> tuple[int, dict[str, Column]]:
    if header.table(3) is not None:
        raise ValueError("it is compressed, which is not supported; write it uncompressed")
    length = header.number(0, "<q", 0)
    nodes, buffers = header.pairs(1), header.pairs(2)
    flat = [one for field in fields for one in (field, field.child) if one is not None]
    if len(nodes) != len(flat) or len(buffers) != sum(field.buffers for field in flat):
        raise ValueError("a record batch does not have the columns of the schema")
    reader = _BatchReader(body, iter(nodes), iter(buffers))
    columns: dict[str, Column] = {}
    for field in fields:
        count, column = reader.column(field)
        if count != length:
            raise ValueError(f"column {field.name!r} has {count} elements; its batch has {length}")
        columns.setdefault(field.name, column)
    return length, columns


def _receive_in_place(
    header: Table, fields: Sequence[_Field], nbytes: int, take: Take, room: ColumnRoom
) -> Batch | None:
    """Receive a batch into the arrays of `room`, or receive nothing and return None if a column does not fit."""
    length = header.number(0, "<q", 0)
    arrays = room.columns(length) if length > 0 else None
    nodes, buffers = header.pairs(1), header.pairs(2)
    if arrays is None or header.table(3) is not None or len(buffers) != 2 * len(fields):
        return None
    spans, end = dict[str, tuple[int, NDArray[Any]]](), 0
    for field, node, (start, present) in zip(fields, nodes, buffers[1::2], strict=True):
        array = arrays.get(field.name)
        shape = (length, field.width) if field.width else (length,)
        if array is None or (array.dtype, array.shape) != (field.dtype, shape):
            return None
        if node != (length, 0) or start < end or present < array.nbytes:
            return None
        spans[field.name] = start, array
        end = start + array.nbytes
    if end > nbytes or len(spans) != len(fields):
        return None
    at = 0
    for start, array in spans.values():
        _exactly(take, start - at)
        room.receive(byte_view(array))
        at = start + array.nbytes
    _exactly(take, nbytes - at)
    return length, {name: Column(array, 0) for name, (_, array) in spans.items()}


@dataclass(frozen=True, slots=True)
class _BatchReader:
    """A batch's body, and iterators over its unread field nodes (length, nulls) and buffers (offset, length)."""

    body: memoryview
    nodes: Iterator[tuple[int, int]]
    buffers: Iterator[tuple[int, int]]

    def column(self, field: _Field) -> tuple[int, Column]:
        """Consume the nodes and buffers of a column; return a pair: the column's length, and the column."""
        count, nulls = next(self.nodes)
        some = [next(self.buffers) for _ in range(field.buffers)]
        if count < 0:
            raise ValueError(f"column {field.name!r} has the negative length {count}")
        if field.child is not None:
            length, child = self.column(field.child)
            offsets = self._offsets(field, some[1], count, length)
            values = None if child.offsets is not None else child.values
            return count, Column(values, nulls + child.nulls, offsets, is_list=True)
        if field.offset is not None:
            offsets = self._offsets(field, some[1], count, some[2][1])
            return count, Column(np.frombuffer(part(self.body, *some[2]), np.uint8), nulls, offsets)
        if field.dtype is None:
            return count, Column(None, nulls)
        values = self._numbers(field, some[1], count * (field.width or 1), field.dtype)
        return count, Column(values.reshape(count, field.width) if field.width else values, nulls)

    def _offsets(self, field: _Field, buffer: tuple[int, int], count: int, end: int) -> NDArray[np.int64]:
        """Return the offsets of `count` elements; raise `ValueError` unless the offsets ascend from 0 to `end`."""
        assert field.offset is not None
        if not count and not buffer[1]:  # a column without elements may omit its only offset
            return np.zeros(1, np.int64)
        offsets = self._numbers(field, buffer, count + 1, field.offset).astype(np.int64)
        if int(offsets[0]) < 0 or int(offsets[-1]) > end or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"the offsets of column {field.name!r} do not ascend to at most {end}")
        return offsets

    def _numbers(
        self, field: _Field, buffer: tuple[int, int], count: int, dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        offset, present = buffer
        size = count * dtype.itemsize
        if present < size:
            raise ValueError(f"column {field.name!r} has {present} bytes; its elements need {size}")
        return np.frombuffer(part(self.body, offset, size), dtype)
