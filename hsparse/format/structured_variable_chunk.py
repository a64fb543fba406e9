"""The objects of structured chunks of variable-length types: selection, elements with references, heap.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", section 2.1, tables 6 and 7; the heap in the newest
form (`hsparse.format.heap_set`). All sections hold metadata and have checksums. Of a dense chunk, whose elements are
all defined, the selection is absent: section 0 has no bytes, and section 1 begins at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.encoded_selection import decode_offsets, encode_offsets
from hsparse.format.sparse_chunk import IMAGE_LIMIT, RECORD_LIMIT
from hsparse.format.sparse_variable_chunk import SparseVariableChunk
from hsparse.format.structured_chunk import CHECKSUM, METADATA_VL, Section, build, name_section, open_chunk
from hsparse.format.structured_footer import seal, unseal
from hsparse.format.variable_sections import decode_elements, encode_elements
from hsparse.model.element import Element
from hsparse.model.filter import Filter
from hsparse.model.layout import MAX_CHUNK_BYTES
from hsparse.model.variable_array import VariableArray

MAX_SECTION = 5 * MAX_CHUNK_BYTES
"""The most bytes of a section: a count of 4 bytes is a reference of 16, beside frames of `MAX_REFERENCES` objects."""
NAMES = (name_section(1).capitalize(), name_section(2).capitalize())

Pipelines = Sequence[tuple[Filter, ...]]


def encode_sparse_variable(
    chunk: SparseVariableChunk,
    element: Element,
    pipelines: Pipelines,
    max_dims: tuple[int, ...] | None = None,
) -> bytes:
    """Return the object of a sparse chunk; with nothing defined a tombstone, as `encode_sparse` has it.

    `BadRequest` when a filter that is not optional fails.
    """
    selection = encode_offsets(chunk.offsets, chunk.dims, max_dims)
    return _encode(selection, chunk.values, element, pipelines)


def encode_dense_variable(array: VariableArray, element: Element, pipelines: Pipelines) -> bytes:
    """Return the object of a chunk all of whose elements are defined, without a selection; as above."""
    return _encode(b"", array, element, pipelines)


def _encode(selection: bytes, values: VariableArray, element: Element, pipelines: Pipelines) -> bytes:
    stored = build((selection, *encode_elements(values, element)), METADATA_VL, pipelines)
    return seal(stored, values.size)


def decode_sparse_variable(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> SparseVariableChunk:
    """Read the object of a sparse chunk; `Corrupt`, naming the section, when any byte of it is not as written."""
    content, footer = unseal(data)
    chunk = open_sparse_variable(content, footer.sections, dims, element, pipelines)
    if len(chunk.offsets) != footer.defined:
        raise Corrupt(
            f"Section 0 (selection) has {len(chunk.offsets)} elements, the footer {footer.defined}."
        )
    return chunk


def open_sparse_variable(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    element: Element,
    pipelines: Pipelines,
) -> SparseVariableChunk:
    """Read a sparse chunk as an HDF5 file holds it, without footer, given its sections; `Corrupt` as above."""
    selection, values = _open(content, sections, dims, element, pipelines)
    try:
        offsets, order = decode_offsets(selection, dims, values.size)
    except Corrupt as error:
        raise Corrupt(f"Section 0 (selection) does not decode: {error.message}") from error
    return SparseVariableChunk(dims, offsets, values if order is None else values[order])


def decode_dense_variable(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> VariableArray:
    """Read the object of a dense chunk, shape `dims`; `Corrupt` as above."""
    content, footer = unseal(data)
    selection, values = _open(content, footer.sections, dims, element, pipelines)
    if len(selection) or values.size != math.prod(dims) or footer.defined != values.size:
        raise Corrupt(
            f"Section 0 (selection) has {len(selection)} bytes, and there are {values.size} elements: a dense chunk "
            f"has none, and all {math.prod(dims)}."
        )
    return values.reshape(dims)


def _open(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    element: Element,
    pipelines: Pipelines,
) -> tuple[Buffer, VariableArray]:
    """Return the selection's section, and the values."""
    _check_sizes(sections, dims, element)
    selection, fixed, heap = open_chunk(content, sections, METADATA_VL, pipelines)
    return selection, decode_elements(fixed, heap, element, NAMES)


def _check_sizes(sections: Sequence[Section], dims: tuple[int, ...], element: Element) -> None:
    """Raise `Corrupt` when the sections are larger than such a chunk's can be."""
    if len(sections) != 3:
        raise Corrupt(f"The chunk has {len(sections)} sections; variable-length data has 3.")
    selection, fixed, heap = sections
    count, rest = divmod(max(0, fixed.unfiltered - CHECKSUM.size), element.file_size)
    if rest or count > math.prod(dims) or fixed.unfiltered > MAX_SECTION:
        raise Corrupt(
            f"{NAMES[0]} has {fixed.unfiltered} bytes: no checksum and number of {element.file_size}-byte elements "
            f"that a chunk of {dims} can have."
        )
    if selection.unfiltered > RECORD_LIMIT * max(len(dims), 1) * count + IMAGE_LIMIT:
        raise Corrupt(f"Section 0 (selection) has {selection.unfiltered} bytes for {count} elements.")
    if heap.unfiltered > MAX_SECTION:
        raise Corrupt(f"{NAMES[1]} has {heap.unfiltered} bytes; the limit is {MAX_SECTION}.")
