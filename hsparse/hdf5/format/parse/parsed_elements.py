"""Convert elements of a file to elements of hsparse: without gaps, with length-prefixed vlen parts, and with
fixed-length text padded with zeros.

H5.format.html, IV.A.2.d and VIII (references). A vlen element has the address and number of an object in a global heap;
the object may itself contain vlen elements. Elements are converted in columns, so that each level of nesting
takes one reading step.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.fields import ended_texts
from hsparse.format.selections.serialized_selection import (
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    decode_serialized,
)
from hsparse.hdf5.format.file_fields import Reads, concurrently
from hsparse.hdf5.format.global_heap import MIN_COLLECTION, GlobalHeap, read_global_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.file_type import (
    OBJECT_REFERENCE,
    FileType,
    dims_of_array,
    is_byte_identical,
)
from hsparse.model.element import Fixed, element_of
from hsparse.model.json_values import Values
from hsparse.model.link import MAX_POINTS, region_bytes
from hsparse.model.vlen_array import VlenArray

Bytes: TypeAlias = NDArray[np.uint8]
PartColumn: TypeAlias = Bytes | list[bytes]
"""The bytes of one member of n elements: an array (n, size) of uint8, or a list of n bytes if sizes vary."""


MAX_ELEMENT = 2**31 - 1
"""The maximum size in bytes of an element that a numpy dtype can describe."""


class ReferenceTarget(NamedTuple):
    """The target of a reference: its name in hsparse (`datasets/d-...`), and its extent if it is a dataset."""

    reference: str
    dims: tuple[int, ...] = ()


FindObject: TypeAlias = Callable[[int], ReferenceTarget | None]
"""A function that returns the object whose header is at an address, or None to make the reference null."""


def parse_elements(
    file: Hdf5File, datatype: FileType, data: bytes | memoryview, shape: tuple[int, ...], find: FindObject
) -> Reads[Values]:
    """Convert `data`, elements of type `datatype` in a file, to hsparse's values of `shape` and type `datatype.item`.

    Raises `Corrupt`, or `Unsupported` for types that hsparse does not support.
    """
    check_readable(datatype)
    element = element_of(datatype.item)
    count = prod(shape)
    if len(data) != count * datatype.size:
        raise Corrupt(f"There are {len(data)} bytes for {count} elements of {datatype.size} bytes.")
    rows = np.frombuffer(data, np.uint8).reshape(count, datatype.size)
    column = yield from _Conversion(file, find, [file.size]).column(datatype, rows)
    if isinstance(element, Fixed):
        joined = b"".join(column) if isinstance(column, list) else column.tobytes()
        return np.ndarray(shape, element.dtype, joined)  # an array type adds its dimensions to the shape
    return VlenArray.of(column if isinstance(column, list) else map(bytes, column), shape)


def check_readable(datatype: FileType) -> None:
    """Raise `Unsupported` if hsparse does not support the type."""
    if "bits" in datatype.item or datatype.item["class"] == "H5T_COMPLEX":
        raise Unsupported(f"Elements of type {datatype.item} cannot be read.")
    if datatype.size > MAX_ELEMENT:
        raise Unsupported(f"Elements of {datatype.size} bytes cannot be read.")
    for part in datatype.parts:
        check_readable(part)


class _Conversion(NamedTuple):
    """Converts elements; `left` has one number, the bytes of heap objects that the conversion may still read."""

    file: Hdf5File
    find: FindObject
    left: list[int]

    def column(self, datatype: FileType, rows: Bytes) -> Reads[PartColumn]:
        item = datatype.item
        kind = item["class"]
        if is_byte_identical(datatype):
            return rows
        if datatype.bits is not None:
            return _whole_integers(datatype, rows)
        if kind == "H5T_COMPOUND":
            return (yield from self._compound(datatype, rows))
        if kind == "H5T_ARRAY":
            return (yield from self._array(datatype, rows))
        if kind == "H5T_VLEN" or item.get("length") == "H5T_VARIABLE":
            return (yield from self._sequences(datatype, rows))
        if kind == "H5T_STRING":
            return ended_texts(rows, item["strPad"])
        if item["base"] == OBJECT_REFERENCE:
            return self._references(rows)
        return (yield from self._regions(rows))

    def _compound(self, datatype: FileType, rows: Bytes) -> Reads[PartColumn]:
        columns = yield from concurrently(
            self.column(part, rows[:, offset : offset + part.size])
            for part, offset in zip(datatype.parts, datatype.offsets, strict=True)
        )
        return _side_by_side(columns)

    def _array(self, datatype: FileType, rows: Bytes) -> Reads[PartColumn]:
        (base,) = datatype.parts
        count = prod(dims_of_array(datatype.item))
        flat = np.ascontiguousarray(rows).reshape(len(rows) * count, base.size)
        column = yield from self.column(base, flat)
        if isinstance(column, list):
            return [b"".join(column[at : at + count]) for at in range(0, len(column), count)]
        return column.reshape(len(rows), count * column.shape[1])

    def _sequences(self, datatype: FileType, rows: Bytes) -> Reads[PartColumn]:
        self._check_size(rows, 8 + self.file.widths.address)
        counts = _numbers(rows[:, :4]).tolist()
        size = datatype.parts[0].size if datatype.parts else 1
        found = yield from self._objects(
            rows[:, 4 : 8 + self.file.widths.address], [count > 0 for count in counts]
        )
        pieces = []
        for row, data, count in zip(rows, found, counts, strict=True):
            if len(data) < count * size:
                raise Corrupt(
                    f"The {_spelled(row[4:], self.file.widths.address)} has {len(data)} bytes; "
                    f"{count} elements of {size} bytes need more."
                )
            pieces.append(data[: count * size])
        if not datatype.parts:  # text: it ends at the first zero
            return [_length_prefixed(bytes(piece).partition(b"\0")[0]) for piece in pieces]
        flat = np.frombuffer(b"".join(pieces), np.uint8).reshape(sum(counts), size)
        column = yield from self.column(datatype.parts[0], flat)
        result, at = [], 0
        for count in counts:
            part = column[at : at + count]
            result.append(_length_prefixed(b"".join(part) if isinstance(part, list) else part.tobytes()))
            at += count
        return result

    def _check_size(self, rows: Bytes, least: int) -> None:
        if not least <= rows.shape[1] <= 16:
            raise Corrupt(f"The address of a heap object has {rows.shape[1]} bytes, not {least}.")

    def _references(self, rows: Bytes) -> Bytes:
        addresses = _numbers(rows[:, : self.file.widths.address])
        unique, index = np.unique(addresses, return_inverse=True)
        names = [self._target(address) for address in unique.tolist()]
        spelled = np.array([target.reference.encode() if target else b"" for target in names], "S48")
        return spelled[index].view(np.uint8).reshape(len(rows), 48)

    def _regions(self, rows: Bytes) -> Reads[PartColumn]:
        width = self.file.widths.address
        self._check_size(rows, 4 + width)
        rows = rows[:, : 4 + width]
        found = yield from self._objects(rows, _numbers(rows[:, :width]).astype(bool).tolist())
        return [_length_prefixed(self._region(data) if len(data) else b"") for data in found]

    def _region(self, data: memoryview) -> bytes:
        reader = ByteReader(data, subject="region reference")
        target = self._target(reader.number(self.file.widths.address, "address"))
        if target is None:
            return b""
        selected = _selection_json(reader, target.dims)
        uuid = target.reference.rpartition("/")[2].partition("-")[2]
        try:
            return region_bytes({"id": uuid, **selected})
        except ValueError as error:
            raise Unsupported(f"A region reference cannot be kept: {error}.") from error

    def _target(self, address: int) -> ReferenceTarget | None:
        if not address or address == 2 ** (8 * self.file.widths.address) - 1:
            return None
        return self.find(address)

    def _objects(self, places: Bytes, present: list[bool]) -> Reads[list[memoryview]]:
        """Read the heap objects at `places: (n, width) uint8`, addresses and numbers; b"" for objects not `present`."""
        width = self.file.widths.address
        addresses = _numbers(places[:, :width]).tolist()
        numbers = _numbers(places[:, width:]).tolist()
        wanted = sorted({address for address, has in zip(addresses, present, strict=True) if has})
        walk = self.file.walk("values of variable length")
        guess = walk.limit_guess(MIN_COLLECTION, len(wanted))
        found = yield from concurrently(read_global_heap(walk, address, guess) for address in wanted)
        heaps: dict[int, GlobalHeap] = dict(zip(wanted, found, strict=True))
        empty = memoryview(b"")
        result = [
            heaps[address][number] if has else empty
            for address, number, has in zip(addresses, numbers, present, strict=True)
        ]
        self.left[0] -= sum(map(len, result))
        if self.left[0] < 0:
            raise Corrupt("Elements of variable length have more bytes together than the file.")
        return result


def _selection_json(reader: ByteReader, dims: tuple[int, ...]) -> dict[str, Any]:
    match decode_serialized(reader, dims):
        case AllElements():
            return {}
        case NoElements():
            return {"select_type": "H5S_SEL_POINTS", "selection": []}
        case PointList(coords):
            return {"select_type": "H5S_SEL_POINTS", "selection": coords.tolist()}
        case BlockList(starts, ends):
            pairs = [list(pair) for pair in zip(starts.tolist(), ends.tolist(), strict=True)]
        case Regular(spans):
            if prod(span.count for span in spans) > MAX_POINTS:
                raise Unsupported(f"A region reference has more than {MAX_POINTS} blocks, the limit.")
            firsts = product(*([span.start + at * span.stride for at in range(span.count)] for span in spans))
            pairs = [
                [list(first), [low + span.block - 1 for low, span in zip(first, spans, strict=True)]]
                for first in firsts
            ]
    return {"select_type": "H5S_SEL_HYPERSLABS", "selection": pairs}


def _numbers(rows: Bytes) -> NDArray[np.uint64]:
    """Convert little-endian numbers, an array (n, width) of uint8, to an array (n,) of uint64."""
    wide = np.zeros((len(rows), 8), np.uint8)
    wide[:, : rows.shape[1]] = rows
    return wide.view("<u8").reshape(len(rows))


def _spelled(place: Bytes, width: int) -> str:
    """Return a phrase for error messages that names a heap object by its address and number."""
    address, number = (
        int.from_bytes(part.tobytes(), "little") for part in (place[:width], place[width : width + 4])
    )
    return f"object {number} of the global heap collection at address {address}"


def _whole_integers(datatype: FileType, rows: Bytes) -> Bytes:
    """Convert integers with unused bits to equal integers of the same size that use all bits."""
    assert datatype.bits is not None
    offset, precision = datatype.bits
    dtype = element_of(datatype.item).dtype
    values = np.ascontiguousarray(rows).view(dtype.str.replace("i", "u")).ravel()
    unused = 8 * datatype.size - precision
    # Shift the highest used bit to the front; shifting signed integers back then extends their sign.
    values = (values << values.dtype.type(unused - offset)).astype(values.dtype)
    signed = values.view(dtype)
    whole: Bytes = (signed >> dtype.type(unused)).astype(dtype).view(np.uint8)
    return whole.reshape(len(rows), datatype.size)


def _length_prefixed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _side_by_side(columns: Sequence[PartColumn]) -> PartColumn:
    if all(not isinstance(column, list) for column in columns):
        return np.concatenate([column for column in columns if not isinstance(column, list)], axis=1)
    spelled = [column if isinstance(column, list) else list(map(bytes, column)) for column in columns]
    return [b"".join(row) for row in zip(*spelled, strict=True)]
