"""Chunks of variable-length types: the columns of sparse chunks, and the objects of sparse and dense chunks.

A bare object stores a dense chunk as HSDS does: the filtered elements in length-prefixed form, in C order. Its pipeline
never has shuffling filters, which need elements of equal size.

A structured object stores a sparse chunk, or a dense chunk if the layout says so, in three sections: selection,
elements with heap references, and heap. The sections follow RFC "File Format Changes for Enabling Sparse Storage in
HDF5", section 2.1, tables 6 and 7; the heap has the newest form (`hsparse.format.structured.heap`). All sections
hold metadata and have checksums. In a dense chunk all elements are defined, so section 0 (selection) is empty and
section 1 begins at byte 0.
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
    """The defined elements of a chunk of dimensions `dims`; immutable.

    `offsets: (n,) uint32` are row-major offsets in the chunk, strictly ascending; `values` has the shape (n,). All
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
        """Return a chunk without defined elements."""
        return cls(dims, np.empty(0, np.uint32), VlenArray.of([]))

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take."""
        return self.offsets.nbytes + self.values.nbytes

    def merge(self, offsets: NDArray[Any], values: VlenArray, references: int = 1) -> SparseVlenChunk:
        """Return the chunk with the elements at `offsets: (m,)`, in any order, set to `values`, (m,) or one for all.

        The last value of a repeated offset wins. Bytes of replaced elements are dropped. Raises `BadRequest` if an
        offset is outside the chunk, and `TooLarge` if the chunk would exceed `MAX_CHUNK_BYTES` bytes or
        `MAX_REFERENCES` heap references; each element has `references` heap references.
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
    """Return a chunk's bare object (a view of its heap without filters); raise `BadRequest` if a filter fails."""
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
    """Return the elements in a bare object, in the shape `dims`.

    Raises `Corrupt` if the object does not decode to exactly these elements, or decodes to more than `most` bytes.
    """
    content = decode_hsds_frame(data, pipeline, most)
    if content is None:
        content = undo_filters(pipeline, data, 0, None, most)
    try:
        return split_elements(content, element, dims)
    except BadRequest as error:
        raise Corrupt(error.message) from error


SECTIONS_COPIES, ENCODED_COPIES = 5, 6
"""The number of copies of a chunk's sections in memory while it is decoded, and of its columns while it is encoded."""
VLEN_BYTES = 150
"""Measured bytes of additional memory per element: 64-bit offsets at which its parts begin and end."""
MAX_SECTION = 5 * MAX_CHUNK_BYTES
"""The most bytes of a section.

A 4-byte length in a chunk becomes a 16-byte reference, and the heap adds up to `MAX_REFERENCES` frames of 16 bytes.
"""
NAMES = (name_section(1).capitalize(), name_section(2).capitalize())

Pipelines = Sequence[tuple[Filter, ...]]


def encode_sparse_vlen(
    chunk: SparseVlenChunk,
    element: Element,
    pipelines: Pipelines,
    max_dims: tuple[int, ...] | None = None,
) -> bytes:
    """Return the object of a sparse chunk, which is a tombstone without defined elements, see `encode_sparse`.

    Raises `BadRequest` if a filter that is not optional fails.
    """
    selection = encode_offsets(chunk.offsets, chunk.dims, max_dims)
    return _encode(selection, chunk.values, element, pipelines)


def encode_dense_vlen(array: VlenArray, element: Element, pipelines: Pipelines) -> bytes:
    """Return the structured object of a dense chunk; raise the same errors as `encode_sparse_vlen`."""
    return _encode(b"", array, element, pipelines)


def _encode(selection: bytes, values: VlenArray, element: Element, pipelines: Pipelines) -> bytes:
    stored = build((selection, *encode_elements(values, element)), METADATA_VL, pipelines)
    return seal(stored, values.size)


def decode_sparse_vlen(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> SparseVlenChunk:
    """Return the sparse chunk in an object's bytes; raise `Corrupt`, naming the section, if any byte is damaged."""
    content, footer = unseal(data)
    chunk = open_sparse_vlen(content, footer.sections, dims, element, pipelines)
    if len(chunk.offsets) != footer.defined:
        raise Corrupt(
            f"Section 0 (selection) has {len(chunk.offsets)} elements; the footer has {footer.defined}."
        )
    return chunk


def open_sparse_vlen(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    element: Element,
    pipelines: Pipelines,
) -> SparseVlenChunk:
    """Return a sparse chunk from the bytes in an HDF5 file, which have no footer; raise `Corrupt` if damaged."""
    selection, values = _open(content, sections, dims, element, pipelines)
    try:
        offsets, order = decode_offsets(selection, dims, values.size)
    except Corrupt as error:
        raise Corrupt(f"Section 0 (selection) does not decode: {error.message}") from error
    return SparseVlenChunk(dims, offsets, values if order is None else values[order])


def decode_dense_vlen(
    data: Buffer, dims: tuple[int, ...], element: Element, pipelines: Pipelines
) -> VlenArray:
    """Return the dense chunk in a structured object, in the shape `dims`; raise `Corrupt` as `decode_sparse_vlen`."""
    content, footer = unseal(data)
    selection, values = _open(content, footer.sections, dims, element, pipelines)
    if len(selection) or values.size != math.prod(dims) or footer.defined != values.size:
        raise Corrupt(
            f"Section 0 (selection) has {len(selection)} bytes, and there are {values.size} elements; a dense chunk "
            f"must have no selection and {math.prod(dims)} elements."
        )
    return values.reshape(dims)


def _open(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    element: Element,
    pipelines: Pipelines,
) -> tuple[Buffer, VlenArray]:
    """Return a pair: the unfiltered selection section, and the decoded values, (n,)."""
    _check_sizes(sections, dims, element)
    selection, fixed, heap = open_chunk(content, sections, METADATA_VL, pipelines)
    return selection, decode_elements(fixed, heap, element, NAMES)


def _check_sizes(sections: Sequence[Section], dims: tuple[int, ...], element: Element) -> None:
    """Raise `Corrupt` if the sections are larger than in any possible chunk of `dims`."""
    if len(sections) != 3:
        raise Corrupt(f"The chunk has {len(sections)} sections; variable-length data needs 3.")
    selection, fixed, heap = sections
    count, rest = divmod(max(0, fixed.unfiltered - CHECKSUM.size), element.file_size)
    if rest or count > math.prod(dims) or fixed.unfiltered > MAX_SECTION:
        raise Corrupt(
            f"{NAMES[0]} has {fixed.unfiltered} bytes: no checksum plus a number of {element.file_size}-byte elements "
            f"that a chunk of {dims} can have."
        )
    if selection.unfiltered > RECORD_LIMIT * max(len(dims), 1) * count + IMAGE_LIMIT:
        raise Corrupt(f"Section 0 (selection) has {selection.unfiltered} bytes, too many for {count} values.")
    if heap.unfiltered > MAX_SECTION:
        raise Corrupt(f"{NAMES[1]} has {heap.unfiltered} bytes; the limit is {MAX_SECTION}.")
