"""Chunks of a planned file whose bytes are not those stored: elements as a file has them, made when asked for.

Parts of variable length are in heap collections (H5.format.html, III.E) right behind the chunk's elements, so that a
chunk and all it refers to are made of one stored object, and their size is known once that was read.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_rows import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.addressed import Addressed, AddressOf, Key
from hsparse.format.hdf5.file_plan import ALIGNMENT
from hsparse.format.hdf5.heap_plan import HeapPlan
from hsparse.format.hdf5.planned_chunks import Column
from hsparse.format.hdf5.planned_elements import KeyOf, plan_elements
from hsparse.format.hdf5.stored_type import stored_type
from hsparse.format.kinds.dense import decode_dense
from hsparse.format.kinds.sparse_chunk import open_sparse
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen, decode_dense_vlen, open_sparse_vlen
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray, take

HEAP = "collections of a chunk"
"""The name of a chunk's own heap: no other key begins with it."""


def made_size(spec: ChunkSpec, data: Buffer, sections: Column, key_of: KeyOf) -> int:
    """Return the bytes that a chunk takes with its collections; `sections: (k, 3)` as in `ChunkRows`."""
    return _laid_out_size(*_plan(spec, _values(spec, data, sections), key_of))


def make_chunk(
    spec: ChunkSpec, data: Buffer, sections: Column, address: int, address_of: AddressOf, key_of: KeyOf
) -> bytes:
    """Return a chunk's elements and its collections, in a file at `address`.

    `Corrupt` when the stored bytes, `data`, do not decode.
    """
    elements, heap = _plan(spec, _values(spec, data, sections), key_of)
    return _laid_out(elements, heap, address, address_of)


def unwritten_size(spec: ChunkSpec, key_of: KeyOf) -> int:
    """Return the bytes that a chunk takes to which nothing was written."""
    return _laid_out_size(*_plan(spec, _unwritten(spec, (0,) * len(spec.dims)), key_of))


def make_unwritten(
    spec: ChunkSpec, scaled: tuple[int, ...], address: int, address_of: AddressOf, key_of: KeyOf
) -> bytes:
    """Return the elements of a chunk to which nothing was written, and its collections, in a file at `address`."""
    elements, heap = _plan(spec, _unwritten(spec, scaled), key_of)
    return _laid_out(elements, heap, address, address_of)


def make_defined(spec: ChunkSpec, data: Buffer, sections: Column) -> bytes:
    """Return a byte an element of a sparse chunk: 1 where it is defined."""
    found = np.zeros(prod(spec.dims), np.uint8)
    element = spec.datatype.element
    parts = sections_of(sections)
    if spec.datatype.is_vlen:
        found[open_sparse_vlen(data, parts, spec.dims, element, spec.filters).offsets] = 1
    else:
        found[open_sparse(data, parts, spec.dims, spec.dtype, spec.filters).offsets] = 1
    return found.tobytes()


def _plan(spec: ChunkSpec, values: Values, key_of: KeyOf) -> tuple[Addressed, HeapPlan]:
    heap = HeapPlan(HEAP)
    return plan_elements(stored_type(spec.datatype.item), values, heap, key_of), heap


def _laid_out_size(elements: Addressed, heap: HeapPlan) -> int:
    collections = sum(piece.size for piece in heap.pieces())
    return _aligned(len(elements.data)) + collections if collections else len(elements.data)


def _laid_out(elements: Addressed, heap: HeapPlan, address: int, address_of: AddressOf) -> bytes:
    pieces = list(heap.pieces())
    places: dict[Key, int] = {}
    end = address + _aligned(len(elements.data))
    for piece in pieces:
        places[piece.key] = end
        end += piece.size

    def find(key: Key) -> int:
        place = places.get(key)
        return address_of(key) if place is None else place

    parts = [elements.filled(find)]
    if pieces:
        parts.append(bytes(-len(parts[0]) % ALIGNMENT))
    for piece in pieces:
        assert piece.make is not None
        parts.append(piece.make(find))
    return b"".join(parts)


def _unwritten(spec: ChunkSpec, scaled: tuple[int, ...]) -> Values:
    """Return the elements of a chunk to which nothing was written."""
    if spec.datatype.is_vlen:
        return take([VlenArray.of([bytes(spec.vlen_fill.heap)])], np.zeros(prod(spec.dims), np.intp))
    return np.ascontiguousarray(np.broadcast_to(spec.fill_of(scaled), spec.dims))


def _values(spec: ChunkSpec, data: Buffer, sections: Column) -> Values:
    """Return all elements of a chunk, the fill value where none is defined."""
    datatype = spec.datatype
    try:
        if spec.sparse:
            return (
                _filled_variable(spec, data, sections) if datatype.is_vlen else _filled(spec, data, sections)
            )
        if not datatype.is_vlen:
            return decode_dense(data, spec.dims, datatype.element_dtype, spec.filters[0])
        if spec.structured:
            return decode_dense_vlen(data, spec.dims, datatype.element, spec.filters)
        return decode_bare_vlen(data, spec.dims, datatype.element, spec.filters[0])
    except Corrupt as error:
        raise Corrupt(f"A chunk of {spec.dataset} is corrupt: {error.message}") from error


def _filled(spec: ChunkSpec, data: Buffer, sections: Column) -> Values:
    chunk = open_sparse(data, sections_of(sections), spec.dims, spec.dtype, spec.filters)
    size = spec.dtype.itemsize
    # As bytes: numpy would copy compounds field by field.
    found = np.full(prod(spec.dims), spec.fill_value.view(f"V{size}"), f"V{size}")
    found[chunk.offsets] = chunk.values.view(f"V{size}")
    return found


def _filled_variable(spec: ChunkSpec, data: Buffer, sections: Column) -> Values:
    element = spec.datatype.element
    chunk = open_sparse_vlen(data, sections_of(sections), spec.dims, element, spec.filters)
    numbers = np.zeros(prod(spec.dims), np.intp)
    numbers[chunk.offsets] = np.arange(1, len(chunk.offsets) + 1)
    return take([VlenArray.of([bytes(spec.vlen_fill.heap)]), chunk.values], numbers)


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT
