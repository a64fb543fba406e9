"""Convert elements of hsparse to elements of a planned file, the inverse of
`hsparse.hdf5.format.parse.parsed_elements`.

Gaps are filled with zeros, vlen values are added to a global heap, and references become addresses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.buffer import byte_view
from hsparse.format.selections.selection_encoding import encode_blocks, encode_points, encode_simple
from hsparse.format.selections.serialized_selection import ALL
from hsparse.hdf5.format.file_fields import Addressed, Key, address_to
from hsparse.hdf5.format.messages.file_type import (
    OBJECT_REFERENCE,
    FileType,
    dims_of_array,
    has_addresses,
    is_written_as_stored,
)
from hsparse.hdf5.format.plan.planned_chunks import KeyOf
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.json_values import Values
from hsparse.model.link import region_json
from hsparse.model.vlen_array import VlenArray

REFERENCE_SIZE = 48
"""The size in bytes of an object reference in hsparse."""
LENGTH_PREFIX = 4


def plan_elements(datatype: FileType, values: Values, heap: GlobalHeapPlan, key_of: KeyOf) -> Addressed:
    """Convert `values`, of type `datatype.item`, to elements of a file, and add the bytes of vlen values to `heap`.

    Raises `Unsupported` if a region reference is invalid.
    """
    data = values.heap.data if isinstance(values, VlenArray) else byte_view(values)
    if is_written_as_stored(datatype):
        return Addressed(bytes(data))
    if not has_addresses(datatype):
        rows = np.frombuffer(data, np.uint8).reshape(-1, _stored_size(datatype))
        return Addressed(_file_rows(datatype, rows).tobytes())
    count = values.size if isinstance(values, VlenArray) else len(data) // _stored_size(datatype)
    writing = _Writing(heap, key_of, data)
    result = bytearray(count * datatype.size)
    for number in range(count):
        writing.put(datatype, result, number * datatype.size)
    return Addressed(bytes(result), tuple(writing.places))


@dataclass(slots=True)
class _Writing:
    """Converts elements from `data` at offset `at`; `places` has the (offset, key) of each address in the output.

    `known` caches the result of `is_written_as_stored` by the identity of types; each part of each element needs it.
    """

    heap: GlobalHeapPlan
    key_of: KeyOf
    data: memoryview
    at: int = 0
    places: list[tuple[int, Key]] = field(default_factory=list)
    known: dict[int, bool] = field(default_factory=dict)

    def is_written_as_stored(self, datatype: FileType) -> bool:
        found = self.known.get(id(datatype))
        if found is None:
            found = self.known[id(datatype)] = is_written_as_stored(datatype)
        return found

    def put(self, datatype: FileType, out: bytearray, place: int) -> None:
        """Convert the next value of `data`, of type `datatype`, and write it to `out` at offset `place`."""
        item = datatype.item
        kind = item["class"]
        if self.is_written_as_stored(datatype):
            out[place : place + datatype.size] = self.take(datatype.size)
        elif kind == "H5T_STRING" and item["length"] != "H5T_VARIABLE":
            rows = np.frombuffer(self.take(datatype.size), np.uint8).reshape(1, -1)
            out[place : place + datatype.size] = _file_rows(datatype, rows).tobytes()
        elif kind == "H5T_COMPOUND":
            for part, offset in zip(datatype.parts, datatype.offsets, strict=True):
                self.put(part, out, place + offset)
        elif kind == "H5T_ARRAY":
            (base,) = datatype.parts
            for number in range(prod(dims_of_array(item))):
                self.put(base, out, place + number * base.size)
        elif kind == "H5T_REFERENCE" and item["base"] == OBJECT_REFERENCE:
            name = bytes(self.take(REFERENCE_SIZE)).rstrip(b"\0").decode()
            key = self.key_of(name) if name else None
            self.places += [] if key is None else [(place, key)]
        else:
            self.put_run(datatype, out, place)

    def put_run(self, datatype: FileType, out: bytearray, place: int) -> None:
        """Write the reference to a sequence, text or region reference at `place`, and add its bytes to the heap."""
        run = self.take(int.from_bytes(self.take(LENGTH_PREFIX), "little"))
        if datatype.item["class"] == "H5T_REFERENCE":
            found = self.region(bytes(run))
        elif not datatype.parts:
            found = Addressed(bytes(run))
        else:
            found = self.sequence(datatype.parts[0], run)
        if not found.data and (datatype.parts or datatype.item["class"] == "H5T_REFERENCE"):
            return  # empty text does get an object: without one, libhdf5 returns NULL
        if datatype.item["class"] != "H5T_REFERENCE":
            size = datatype.parts[0].size if datatype.parts else 1
            struct.pack_into("<I", out, place, len(found.data) // size)
            place += LENGTH_PREFIX
        key, number = self.heap.add(found)
        self.places.append((place, key))
        struct.pack_into("<I", out, place + 8, number)

    def sequence(self, base: FileType, run: memoryview) -> Addressed:
        if self.is_written_as_stored(base):
            return Addressed(bytes(run))
        inner = _Writing(self.heap, self.key_of, run, known=self.known)
        out = bytearray()
        while inner.at < len(run):
            out += bytes(base.size)
            inner.put(base, out, len(out) - base.size)
        return Addressed(bytes(out), tuple(inner.places))

    def region(self, data: bytes) -> Addressed:
        """Return the heap object of a region reference: address and selection, or no bytes for a null reference."""
        try:
            value = region_json(data)
            key = None if value is None else self.key_of(f"datasets/d-{value['id']}")
            return Addressed(b"") if key is None else Addressed.join((address_to(key), _selection(value)))
        except ValueError as error:
            raise Unsupported(f"A region reference cannot be written to a file: {error}.") from error

    def take(self, size: int) -> memoryview:
        self.at += size
        return self.data[self.at - size : self.at]


def _file_rows(datatype: FileType, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert elements without addresses, (n, bytes) uint8: insert the file type's gaps, and pad texts as it does."""
    item = datatype.item
    if is_written_as_stored(datatype):
        return rows
    if item["class"] == "H5T_ARRAY":
        (base,) = datatype.parts
        flat = rows.reshape(len(rows) * prod(dims_of_array(item)), -1)
        return _file_rows(base, flat).reshape(len(rows), datatype.size)
    if item["class"] == "H5T_STRING":
        is_behind = np.logical_and.accumulate(rows[:, ::-1] == 0, axis=1)[:, ::-1]
        return np.where(is_behind, np.uint8(ord(" ")), rows)
    result, at = np.zeros((len(rows), datatype.size), np.uint8), 0
    for part, offset in zip(datatype.parts, datatype.offsets, strict=True):
        size = _stored_size(part)
        result[:, offset : offset + part.size] = _file_rows(part, rows[:, at : at + size])
        at += size
    return result


def _stored_size(datatype: FileType) -> int:
    """Return the size in bytes of an element of this type in hsparse, not counting vlen parts."""
    item = datatype.item
    if item["class"] == "H5T_COMPOUND":
        return sum(map(_stored_size, datatype.parts))
    if item["class"] == "H5T_ARRAY":
        return prod(dims_of_array(item)) * _stored_size(datatype.parts[0])
    return REFERENCE_SIZE if item["class"] == "H5T_REFERENCE" else datatype.size


def _selection(value: dict[str, Any]) -> Addressed:
    """Encode a selection in the serialization versions that every HDF5 library reads."""
    selection = value.get("selection")
    if not selection:
        return Addressed(encode_simple(ALL))
    numbers = np.array(selection, np.uint64)
    if value.get("select_type") == "H5S_SEL_POINTS":
        return Addressed(encode_points(list(numbers.T), version=1))
    return Addressed(encode_blocks(numbers[:, 0], numbers[:, 1], version=1))
