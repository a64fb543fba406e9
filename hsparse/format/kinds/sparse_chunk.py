"""A sparse chunk: the offsets of its defined elements and their values, and its object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.chunk_spec import statistics_bytes
from hsparse.format.filters.definition import Filter
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import (
    METADATA_FIXED,
    Footer,
    Section,
    build,
    decoding,
    open_chunk,
    open_planes,
    open_section,
    seal,
    unseal,
)

Offsets = NDArray[np.uint32]
ValueColumn = NDArray[Any]

RECORD_LIMIT = 16
"""The most bytes an encoded selection spends on an element, a dimension: a block with 8-byte coordinates."""
IMAGE_LIMIT = 4096
"""More bytes than an encoded selection has besides its records."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseChunk:
    """The defined elements of a chunk of dimensions `dims`; never modified in place.

    `offsets: (n,) uint32` are row-major offsets in the chunk, strictly ascending. `values: (n,)` has the file
    datatype (an array datatype adds its own dimensions). Both are made read-only.
    """

    dims: tuple[int, ...]
    offsets: Offsets
    values: ValueColumn

    def __post_init__(self) -> None:
        self.offsets.flags.writeable = False
        self.values.flags.writeable = False

    @classmethod
    def empty(cls, dims: tuple[int, ...], dtype: np.dtype[Any]) -> SparseChunk:
        """Return a chunk with nothing defined."""
        return cls(dims, np.empty(0, np.uint32), np.empty(0, dtype))

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes."""
        return self.offsets.nbytes + self.values.nbytes

    def merge(self, offsets: NDArray[Any], values: ValueColumn) -> SparseChunk:
        """Define elements: `offsets: (m,)` in any order, `values: (m,)`; of a repeated offset the last wins.

        `BadRequest` when an offset is outside the chunk.
        """
        assert len(offsets) == len(values)
        if not len(offsets):
            return self
        if int(offsets.max()) >= math.prod(self.dims) or int(offsets.min()) < 0:
            raise BadRequest(
                f"The offsets {offsets.min()} to {offsets.max()} are not all inside a chunk of {self.dims}."
            )
        offsets, values = _ascending(offsets, values)
        dtype = self.values.dtype
        if not len(self.offsets):
            return self._with(np.array(offsets), np.array(values, dtype))
        if offsets[0] > self.offsets[-1]:
            return self._with(np.concatenate((self.offsets, offsets)), _join(self.values, values, dtype))
        if offsets[-1] < self.offsets[0]:
            return self._with(np.concatenate((offsets, self.offsets)), _join(values, self.values, dtype))
        return self._interleave(offsets, values)

    def select(self, mask: NDArray[np.bool_]) -> SparseChunk:
        """Return the chunk with only the elements where `mask: (n,)` is set."""
        return self._with(self.offsets[mask], _plain(self.values)[mask].view(self.values.dtype))

    def erase(self, offsets: NDArray[Any]) -> SparseChunk:
        """Make the elements at `offsets: (m,)`, in any order, undefined, where they are not already."""
        if not len(offsets) or not len(self.offsets):
            return self
        place = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        keep = np.ones(len(self.offsets), np.bool_)
        keep[place[self.offsets[place] == offsets]] = False
        return self if keep.all() else self.select(keep)

    def _interleave(self, offsets: Offsets, values: ValueColumn) -> SparseChunk:
        """Merge ascending columns linearly: one search, then one pass over each column."""
        place = np.searchsorted(self.offsets, offsets)
        known = self.offsets[np.minimum(place, len(self.offsets) - 1)] == offsets
        old = _plain(self.values)
        new = _plain(np.ascontiguousarray(values, self.values.dtype))
        if known.any():
            old = old.copy()
            old[place[known]] = new[known]
        fresh = ~known
        added = int(np.count_nonzero(fresh))
        if not added:
            return self._with(self.offsets, old.view(self.values.dtype))
        # A fresh element lands behind the old ones before it and the fresh ones before it.
        where = place[fresh] + np.arange(added)
        stay = np.ones(len(old) + added, np.bool_)
        stay[where] = False
        all_offsets = np.empty(len(stay), np.uint32)
        all_offsets[stay], all_offsets[where] = self.offsets, offsets[fresh]
        all_values = np.empty((len(stay), *old.shape[1:]), old.dtype)
        all_values[stay], all_values[where] = old, new[fresh]
        return self._with(all_offsets, all_values.view(self.values.dtype))

    def _with(self, offsets: Offsets, values: ValueColumn) -> SparseChunk:
        return SparseChunk(self.dims, offsets, values)


def encode_sparse(
    chunk: SparseChunk,
    pipelines: Sequence[tuple[Filter, ...]],
    max_dims: tuple[int, ...] | None = None,
    *,
    statistics: bool = False,
) -> bytes:
    """Return the object of a chunk: selection and values, each through its pipeline, and the footer.

    With nothing defined the selection is "none": a tombstone, so that erasing the last element can be a
    conditional put. `BadRequest` when a filter that is not optional fails.
    """
    if chunk.values.dtype.hasobject:
        raise Unsupported("Sparse chunks of a variable-length datatype are not supported.")
    selection = encode_offsets(chunk.offsets, chunk.dims, max_dims)
    stored = build((selection, byte_view(chunk.values)), METADATA_FIXED, pipelines)
    words = statistics_bytes(chunk.values, chunk.values.dtype) if statistics else b""
    return seal(stored, len(chunk.offsets), words)


def decode_sparse(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipelines: Sequence[tuple[Filter, ...]]
) -> SparseChunk:
    """Read the object of a chunk; `Corrupt`, naming the section, when any byte is damaged."""
    selection, values, footer = unseal_sparse(data, dims, dtype, pipelines)
    chunk = _decode(selection, values, dims, dtype, data)
    check_defined(len(chunk.offsets), footer)
    return chunk


def unseal_sparse(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipelines: Sequence[tuple[Filter, ...]]
) -> tuple[BytePlanes | Buffer, Buffer, Footer]:
    """Return the sections of a chunk's object without filters, of places maybe shuffled still, and its footer.

    `Corrupt` when any byte is damaged.
    """
    if dtype.hasobject:
        raise Unsupported("Sparse chunks of a variable-length datatype are not supported.")
    content, footer = unseal(data)
    check_sizes(footer.sections, dims, dtype.itemsize)
    if len(pipelines) != 2:
        raise Corrupt(f"The chunk has 2 sections; the dataset's chunks have {len(pipelines)}.")
    places, fixed = footer.sections
    selection = open_planes(0, content[: places.size], places, METADATA_FIXED, pipelines[0])
    values = open_section(1, content[fixed.offset :], fixed, METADATA_FIXED, pipelines[1])
    return selection, values, footer


def check_defined(count: int, footer: Footer) -> None:
    """Raise `Corrupt` unless the footer says that a chunk has so many elements."""
    if count != footer.defined:
        raise Corrupt(f"Section 0 (selection) has {count} elements, the footer {footer.defined}.")


def open_sparse(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    dtype: np.dtype[Any],
    pipelines: Sequence[tuple[Filter, ...]],
) -> SparseChunk:
    """Read a chunk as an HDF5 file holds it, without footer, given its sections; `Corrupt` as `decode_sparse`."""
    check_sizes(sections, dims, dtype.itemsize)
    selection, values = open_chunk(content, sections, METADATA_FIXED, pipelines)
    return _decode(selection, values, dims, dtype, content)


def _decode(
    selection: BytePlanes | Buffer,
    values: Buffer,
    dims: tuple[int, ...],
    dtype: np.dtype[Any],
    stored: Buffer,
) -> SparseChunk:
    """Return the chunk of two unfiltered sections, which may be views of the bytes `stored`."""
    count = len(values) // dtype.itemsize
    with decoding(0):
        offsets, order = decode_offsets(selection, dims, count)
    column: ValueColumn = np.ndarray((count,), dtype, values)
    if order is not None:
        column = column[order]
    if np.may_share_memory(column, np.frombuffer(stored, np.uint8)):
        column = column.copy()  # a view would keep the whole object in memory
    return SparseChunk(dims, offsets, column)


def check_sizes(sections: Sequence[Section], dims: tuple[int, ...], itemsize: int) -> None:
    """Raise `Corrupt` when the sections are larger than those of such a chunk can be."""
    if len(sections) != 2:
        raise Corrupt(f"The chunk has {len(sections)} sections; fixed-size sparse data has 2.")
    selection, values = sections
    count, rest = divmod(values.unfiltered, itemsize)
    if rest or count > math.prod(dims):
        raise Corrupt(
            f"Section 1 (fixed-size values) has {values.unfiltered} bytes: no number of {itemsize}-byte"
            f" elements that a chunk of {dims} can have."
        )
    if selection.unfiltered > RECORD_LIMIT * max(len(dims), 1) * count + IMAGE_LIMIT:
        raise Corrupt(f"Section 0 (selection) has {selection.unfiltered} bytes for {count} elements.")


def _ascending(offsets: NDArray[Any], values: ValueColumn) -> tuple[Offsets, ValueColumn]:
    """Return the columns in ascending order of offsets, of each repeated one the last."""
    narrow = offsets.astype(np.uint32, copy=False)
    if (narrow[1:] > narrow[:-1]).all():
        return narrow, values
    # Sorting keys of offset and place is 10 times as fast as a stable argsort.
    keys = narrow.astype(np.uint64) << np.uint64(32) | np.arange(len(narrow), dtype=np.uint64)
    keys.sort()
    narrow = (keys >> np.uint64(32)).astype(np.uint32)
    last = np.append(narrow[1:] != narrow[:-1], True)
    return narrow[last], values[(keys[last] & np.uint64(0xFFFFFFFF)).astype(np.intp)]


def _plain(values: ValueColumn) -> ValueColumn:
    """Return a view whose elements are copied as bytes where numpy would copy field by field."""
    return values if values.dtype.names is None else values.view(f"V{values.dtype.itemsize}")


def _join(first: ValueColumn, second: ValueColumn, dtype: np.dtype[Any]) -> ValueColumn:
    """Concatenate into `dtype`; numpy's own concatenate would turn it into the machine's byte order."""
    result = np.empty((len(first) + len(second), *first.shape[1:]), dtype)
    result[: len(first)] = first
    result[len(first) :] = second
    return result
