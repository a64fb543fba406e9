"""Chunks of variable-length types: the columns of a sparse one, and the objects of sparse and dense ones.

Bare object, of a dense chunk as HSDS has it: the elements in length-prefixed form, in C order, filtered. Shuffling
filters, which need elements of one size, are never in its pipeline.

Structured object, of a sparse chunk and of a dense one whose layout says so: selection, elements with references,
heap. RFC "File Format Changes for Enabling Sparse Storage in HDF5", section 2.1, tables 6 and 7; the heap has the
newest form (`hsparse.format.structured.heap`). All sections hold metadata and have checksums. A dense chunk, whose
elements are all defined, has no selection: section 0 has no bytes, and section 1 begins at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import decode_hsds_frame
from hsparse.format.filters.pipeline import UNKNOWN_LIMIT, apply_filters, undo_filters
from hsparse.format.kinds.sparse import IMAGE_LIMIT, RECORD_LIMIT, Offsets, SparseChunk
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import (
    CHECKSUM,
    METADATA_VL,
    Section,
    build,
    name_section,
    open_chunk,
    seal,
    unseal,
)
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.element import Element
from hsparse.model.layout import MAX_CHUNK_BYTES, MAX_REFERENCES
from hsparse.model.vlen_array import VlenArray, split_elements, take_elements, taken_sizes


@dataclass(frozen=True, slots=True, eq=False)
class SparseVlenChunk:
    """The defined elements of a chunk of dimensions `dims`; never modified in place.

    `offsets: (n,) uint32` are row-major offsets in the chunk, strictly ascending; `values` has shape (n,). Their
    arrays are made read-only.
    """

    dims: tuple[int, ...]
    offsets: Offsets
    values: VlenArray

    def __post_init__(self) -> None:
        for array in (self.offsets, self.values.offsets, self.values.heap):
            array.flags.writeable = False

    @classmethod
    def empty(cls, dims: tuple[int, ...]) -> SparseVlenChunk:
        """Return a chunk with nothing defined."""
        return cls(dims, np.empty(0, np.uint32), VlenArray.of([]))

    @property
    def nbytes(self) -> int:
        """The memory the columns take, in bytes."""
        return self.offsets.nbytes + self.values.nbytes

    def merge(self, offsets: NDArray[Any], values: VlenArray, references: int = 1) -> SparseVlenChunk:
        """Define elements: `offsets: (m,)` in any order, `values` one each or one for all; of a repeated offset
        the last wins.

        Bytes that no element has any more are dropped. `BadRequest` when an offset is outside the chunk, `TooLarge`
        when the values would have more bytes than a chunk may have or, with so many `references` an element, more of
        these.
        """
        if not len(offsets):
            return self
        count = len(self.offsets)
        new = np.arange(len(offsets)) if values.size == len(offsets) else np.zeros(len(offsets), np.intp)
        numbers = SparseChunk(self.dims, self.offsets, np.arange(count)).merge(offsets, count + new)
        arrays = [self.values, values]
        nbytes = int(taken_sizes(arrays, numbers.values).sum(dtype=np.int64))
        if nbytes > MAX_CHUNK_BYTES or len(numbers.offsets) * references > MAX_REFERENCES:
            raise TooLarge(
                f"A chunk would have {nbytes} bytes and {len(numbers.offsets) * references} strings and sequences; "
                f"the limits are {MAX_CHUNK_BYTES} and {MAX_REFERENCES}: make the dataset's chunks smaller."
            )
        return SparseVlenChunk(self.dims, numbers.offsets, take_elements(arrays, numbers.values))

    def select(self, mask: NDArray[np.bool_]) -> SparseVlenChunk:
        """Return the chunk with only the elements where `mask: (n,)` is set."""
        return SparseVlenChunk(self.dims, self.offsets[mask], self.values[mask])


def encode_bare_vlen(array: VlenArray, pipeline: tuple[Filter, ...]) -> Buffer:
    """Return the object of a chunk; without filters a view of its heap. `BadRequest` when a filter fails."""
    data, mask = apply_filters(tuple(replace(filter, optional=False) for filter in pipeline), array.heap.data)
    assert mask == 0
    return data


def decode_bare_vlen(
    data: Buffer,
    dims: tuple[int, ...],
    element: Element,
    pipeline: tuple[Filter, ...],
    most: int = UNKNOWN_LIMIT,
) -> VlenArray:
    """Return a chunk's elements, shape `dims`; `Corrupt` when the object does not decode to exactly these.

    Nor may it decode to more than `most` bytes.
    """
    content = decode_hsds_frame(data, pipeline, most)
    if content is None:
        content = undo_filters(pipeline, data, 0, None, most)
    try:
        return split_elements(content, element, dims)
    except BadRequest as error:
        raise Corrupt(error.message) from error


SECTIONS_COPIES, ENCODED_COPIES = 5, 6
"""How often the bytes of a chunk's sections, and of its columns, are in memory while they are decoded and encoded."""
VLEN_BYTES = 150
"""Bytes of an element besides, by measurement: where its parts begin and end, in 64 bits."""
MAX_SECTION = 5 * MAX_CHUNK_BYTES
"""The most bytes of a section: a count of 4 bytes is a reference of 16, beside frames of `MAX_REFERENCES` objects."""
NAMES = (name_section(1).capitalize(), name_section(2).capitalize())

Pipelines = Sequence[tuple[Filter, ...]]


def encode_sparse_vlen(
    chunk: SparseVlenChunk,
    element: Element,
    pipelines: Pipelines,
    max_dims: tuple[int, ...] | None = None,
) -> bytes:
    """Return the object of a sparse chunk; with nothing defined a tombstone, see `encode_sparse`.

    `BadRequest` when a filter that is not optional fails.
    """
    selection = encode_offsets(chunk.offsets, chunk.dims, max_dims)
    return _encode(selection, chunk.values, element, pipelines)


def encode_dense_vlen(array: VlenArray, element: Element, pipelines: Pipelines) -> bytes:
    """Return the object of a dense chunk, without a selection; raises as `encode_sparse_vlen`."""
    return _encode(b"", array, element, pipelines)


def _encode(selection: bytes, values: VlenArray, element: Element, pipelines: Pipelines) -> bytes:
    stored = build((selection, *encode_elements(values, element)), METADATA_VL, pipelines)
    return seal(stored, values.size)


def decode_sparse_vlen(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> SparseVlenChunk:
    """Read the object of a sparse chunk; `Corrupt`, naming the section, when any byte is damaged."""
    content, footer = unseal(data)
    chunk = open_sparse_vlen(content, footer.sections, dims, element, pipelines)
    if len(chunk.offsets) != footer.defined:
        raise Corrupt(
            f"Section 0 (selection) has {len(chunk.offsets)} elements, the footer {footer.defined}."
        )
    return chunk


def open_sparse_vlen(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    element: Element,
    pipelines: Pipelines,
) -> SparseVlenChunk:
    """Read a sparse chunk as an HDF5 file has it, without footer, given its sections; raises `Corrupt` too."""
    selection, values = _open(content, sections, dims, element, pipelines)
    try:
        offsets, order = decode_offsets(selection, dims, values.size)
    except Corrupt as error:
        raise Corrupt(f"Section 0 (selection) does not decode: {error.message}") from error
    return SparseVlenChunk(dims, offsets, values if order is None else values[order])


def decode_dense_vlen(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> VlenArray:
    """Read the object of a dense chunk, shape `dims`; `Corrupt` as `decode_sparse_vlen`."""
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
) -> tuple[Buffer, VlenArray]:
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
