"""Transcoded chunks: chunks whose bytes in a planned file differ from those in the store.

`transcode_chunk` returns all elements of a chunk, unfiltered, as elements of a file. Vlen values are in heap
collections (H5.format.html, III.E) directly after the elements. One stored object therefore determines the chunk,
all data that the chunk refers to, and the size of chunk and data.

`transcode_sections` returns a structured chunk in another revision or with converted references. Stored chunks have the
heap of the newest revision; older revisions have another heap (`hsparse.format.structured.heap`). References are
object names in stored chunks, and addresses in files. The selection section does not change.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.kinds.dense import decode_dense
from hsparse.format.kinds.sparse import open_sparse
from hsparse.format.kinds.vlen_chunk import NAMES, decode_bare_vlen, decode_dense_vlen, open_sparse_vlen
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, build, open_chunk
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.hdf5.format.file_fields import Addressed, AddressOf, Key
from hsparse.hdf5.format.messages.file_type import file_type, has_references, without_gaps
from hsparse.hdf5.format.messages.filter_pipeline_message import Pipelines
from hsparse.hdf5.format.plan.file_plan import ALIGNMENT
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_chunks import KeyOf, PlannedChunks, Uint64Column
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray, take_elements

PACKING = (Filter(1, (1,), optional=False),)
"""The filters of packed sparse chunks: deflate only. Shuffle gains nothing if most elements are the fill value."""
CHUNK_HEAP = "collections of a chunk"
"""The name of a chunk's own heap plan, which distinguishes the keys of its collections from all other keys."""


def transcoded_size(spec: ChunkSpec, data: Buffer, sections: Uint64Column, key_of: KeyOf) -> int:
    """Return the bytes that a chunk takes in a file with its heap collections; `sections: (k, 3)` as in `ChunkRows`."""
    return _laid_out_size(*_plan(spec, chunk_values(spec, data, sections), key_of))


def transcode_chunk(
    spec: ChunkSpec, data: Buffer, sections: Uint64Column, address: int, address_of: AddressOf, key_of: KeyOf
) -> bytes:
    """Return the bytes of a chunk that is at `address` in a file: its elements and its heap collections.

    `data` are the stored bytes; raises `Corrupt` if the stored bytes cannot be decoded.
    """
    elements, heap = _plan(spec, chunk_values(spec, data, sections), key_of)
    return _laid_out(elements, heap, address, address_of)


def unwritten_size(spec: ChunkSpec, key_of: KeyOf) -> int:
    """Return the size in bytes that an unwritten chunk has in a file, including its heap collections."""
    return _laid_out_size(*_plan(spec, unwritten_values(spec, (0,) * len(spec.dims)), key_of))


def transcode_unwritten(
    spec: ChunkSpec, scaled: tuple[int, ...], address: int, address_of: AddressOf, key_of: KeyOf
) -> bytes:
    """Return the bytes of an unwritten chunk that is at `address` in a file: its elements and heap collections."""
    elements, heap = _plan(spec, unwritten_values(spec, scaled), key_of)
    return _laid_out(elements, heap, address, address_of)


def encode_defined_set(spec: ChunkSpec, data: Buffer, sections: Uint64Column) -> bytes:
    """Return one byte for each element of a sparse chunk: 1 if the element is defined, else 0."""
    found = np.zeros(prod(spec.dims), np.uint8)
    element = spec.datatype.element
    parts = sections_of(sections)
    if spec.datatype.is_vlen:
        found[open_sparse_vlen(data, parts, spec.dims, element, spec.filters).offsets] = 1
    else:
        found[open_sparse(data, parts, spec.dims, spec.dtype, spec.filters).offsets] = 1
    return found.tobytes()


def pack_chunk(spec: ChunkSpec, data: Buffer, sections: Uint64Column, key_of: KeyOf) -> Buffer:
    """Return all elements of a sparse chunk, deflated; the elements must not have vlen values or references."""
    elements, _ = _plan(spec, chunk_values(spec, data, sections), key_of)
    return apply_filters(PACKING, elements.data)[0]


def pack_defined_set(spec: ChunkSpec, data: Buffer, sections: Uint64Column) -> Buffer:
    """Return the booleans of `encode_defined_set`, deflated."""
    return apply_filters(PACKING, encode_defined_set(spec, data, sections))[0]


def packed_sizes(spec: ChunkSpec, data: Buffer, sections: Uint64Column, key_of: KeyOf) -> tuple[int, int]:
    """Return a pair: the sizes in bytes of a sparse chunk's deflated elements, and of its deflated booleans."""
    return len(pack_chunk(spec, data, sections, key_of)), len(pack_defined_set(spec, data, sections))


def _plan(spec: ChunkSpec, values: Values, key_of: KeyOf) -> tuple[Addressed, GlobalHeapPlan]:
    heap = GlobalHeapPlan(CHUNK_HEAP)
    return plan_elements(file_type(spec.datatype.item), values, heap, key_of), heap


def _laid_out_size(elements: Addressed, heap: GlobalHeapPlan) -> int:
    collections = sum(piece.size for piece in heap.pieces())
    return _aligned(len(elements.data)) + collections if collections else len(elements.data)


def _laid_out(elements: Addressed, heap: GlobalHeapPlan, address: int, address_of: AddressOf) -> bytes:
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


def unwritten_values(spec: ChunkSpec, scaled: tuple[int, ...]) -> Values:
    """Return the elements of the unwritten chunk at the scaled coordinates `scaled`."""
    if spec.datatype.is_vlen:
        return take_elements([VlenArray.of([bytes(spec.vlen_fill.heap)])], np.zeros(prod(spec.dims), np.intp))
    return np.ascontiguousarray(np.broadcast_to(spec.fill_of(scaled), spec.dims))


def chunk_values(spec: ChunkSpec, data: Buffer, sections: Uint64Column) -> Values:
    """Decode all elements of a chunk; undefined elements get the fill value. Raises `Corrupt` if decoding fails."""
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


def _filled(spec: ChunkSpec, data: Buffer, sections: Uint64Column) -> Values:
    chunk = open_sparse(data, sections_of(sections), spec.dims, spec.dtype, spec.filters)
    size = spec.dtype.itemsize
    # Copy elements as bytes, because numpy copies compounds field by field.
    found = np.full(prod(spec.dims), spec.fill_value.view(f"V{size}"), f"V{size}")
    found[chunk.offsets] = chunk.values.view(f"V{size}")
    return found


def _filled_variable(spec: ChunkSpec, data: Buffer, sections: Uint64Column) -> Values:
    element = spec.datatype.element
    chunk = open_sparse_vlen(data, sections_of(sections), spec.dims, element, spec.filters)
    numbers = np.zeros(prod(spec.dims), np.intp)
    numbers[chunk.offsets] = np.arange(1, len(chunk.offsets) + 1)
    return take_elements([VlenArray.of([bytes(spec.vlen_fill.heap)]), chunk.values], numbers)


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def needs_transcoding(spec: ChunkSpec, revision: FormatRevision) -> bool:
    """Return whether a sparse dataset's sections in a file of this revision differ from the stored sections."""
    if spec.datatype.is_vlen:
        return revision is not NEWEST_REVISION
    return has_references(file_type(spec.datatype.item))


def check_sections(spec: ChunkSpec) -> None:
    """Raise `Unsupported` if structured chunks cannot have elements of the dataset's type.

    Region references need the file's global heap; references beside vlen parts would be addresses in a filtered heap.
    """
    if spec.datatype.is_vlen and has_references(file_type(spec.datatype.item)):
        raise Unsupported(
            f"{spec.dataset} is sparse and has references to regions, or references beside parts of variable length, "
            "which structured chunks cannot have: ask for layout=stock."
        )


def file_filters(spec: ChunkSpec) -> Pipelines:
    """Return the pipelines of a sparse dataset's sections in a file.

    References are not filtered, because the sizes of sections must be known before addresses.
    """
    if not spec.datatype.is_vlen and has_references(file_type(spec.datatype.item)):
        return spec.filters[0], ()
    return spec.filters


def resize_references(spec: ChunkSpec, chunks: PlannedChunks) -> PlannedChunks:
    """Return chunks of fixed-size elements with references, with the sizes and sections that they have in a file."""
    nbytes = chunks.defined * np.uint64(file_type(without_gaps(spec.datatype.item)).size)
    sections = chunks.sections.copy()
    sections[:, 1] = np.stack((nbytes, nbytes, np.zeros_like(nbytes)), axis=1)
    return chunks.with_sections(sections)


def transcode_sections(
    spec: ChunkSpec, data: Buffer, sections: Uint64Column, revision: FormatRevision, key_of: KeyOf
) -> tuple[NDArray[np.uint64], Addressed]:
    """Return a pair: a chunk's sections in a file, (k, 3) as in `ChunkRows`, and its bytes in the file.

    `data` and `sections` are those of the stored chunk; raises `Corrupt` if they cannot be decoded.
    """
    try:
        if spec.datatype.is_vlen:
            return _transcode_heap(spec, data, sections, revision)
        return _transcode_references(spec, data, sections, key_of)
    except Corrupt as error:
        raise Corrupt(f"A chunk of {spec.dataset} is corrupt: {error.message}") from error


def _transcode_heap(
    spec: ChunkSpec, data: Buffer, sections: Uint64Column, revision: FormatRevision
) -> tuple[NDArray[np.uint64], Addressed]:
    element = spec.datatype.element
    selection, fixed, heap = open_chunk(data, sections_of(sections), METADATA_VL, spec.filters)
    values = decode_elements(fixed, heap, element, NAMES)
    encoded = build((selection, *encode_elements(values, element, revision)), METADATA_VL, spec.filters)
    table = [(one.size, one.unfiltered, one.mask) for one in encoded.sections]
    return np.array(table, np.uint64), Addressed(encoded.data)


def _transcode_references(
    spec: ChunkSpec, data: Buffer, sections: Uint64Column, key_of: KeyOf
) -> tuple[NDArray[np.uint64], Addressed]:
    _, fixed = open_chunk(data, sections_of(sections), METADATA_FIXED, spec.filters)
    values = np.frombuffer(fixed, np.uint8)
    elements = plan_elements(file_type(without_gaps(spec.datatype.item)), values, GlobalHeapPlan(), key_of)
    selection = Addressed(bytes(memoryview(data)[: int(sections[0, 0])]))
    size = len(elements.data)
    table = np.array([sections[0], (size, size, 0)], np.uint64)
    return table, Addressed.join((selection, elements))
