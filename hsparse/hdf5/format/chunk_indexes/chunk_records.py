"""The records of a chunk index, as columns, and the numbering of chunks in fixed and extensible arrays.

Dense chunks: H5.format.html, VII.C "Data Block Element" and III.A.2, record types 10 and 11. Structured chunks: RFC
"File Format Changes for Enabling Sparse Storage in HDF5", version 28, section 4. In version 17 of the RFC, filter masks
come first and offsets have 4 bytes; this module assumes that unfiltered sizes have 4 bytes there as well.

Fixed and extensible arrays (VII "Chunk Indexing") number chunks in row-major order over the maximum number of chunks
in each dimension, with the unlimited dimension slowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.container import Section
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout

Columns = NDArray[np.uint64]
EncodedRecords = NDArray[Any]
"""Encoded records: an array of the packed structured dtype that `record_type` returns."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRecords:
    """The coordinates and locations of chunks, as columns; `read_chunk_index` sorts the chunks by scaled coordinates.

    `scaled: (n, rank) uint64`; `address: (n,) uint64`, relative to the file's base address; `size: (n,) uint64`, in
    bytes; `mask: (n,) uint32`, the filter mask of a dense chunk. Structured chunks with N sections also have
    `offsets: (n, N-1) uint64`, the byte offsets of sections 1 to N-1 in the chunk; `unfiltered: (n, N) uint64`, the
    sections' sizes without filters, in bytes; and `masks: (n, N) uint32`, the sections' filter masks. For dense chunks
    these three arrays have no columns.
    """

    scaled: Columns
    address: Columns
    size: Columns
    mask: NDArray[np.uint32]
    offsets: Columns
    unfiltered: Columns
    masks: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.address)

    def take(self, rows: NDArray[Any]) -> ChunkRecords:
        """Return the records at `rows`: an index array or a boolean mask."""
        return ChunkRecords(
            self.scaled[rows],
            self.address[rows],
            self.size[rows],
            self.mask[rows],
            self.offsets[rows],
            self.unfiltered[rows],
            self.masks[rows],
        )

    def sections(self, row: int) -> tuple[Section, ...]:
        """Return the range, unfiltered size and filter mask of each section of the structured chunk at `row`."""
        bounds = [0, *self.offsets[row].tolist(), int(self.size[row])]
        return tuple(
            Section(bounds[number], bounds[number + 1] - bounds[number], unfiltered, mask)
            for number, (unfiltered, mask) in enumerate(
                zip(self.unfiltered[row].tolist(), self.masks[row].tolist(), strict=True)
            )
        )


def dense_records(
    scaled: Columns, address: Columns, size: Columns, mask: NDArray[np.uint32] | None = None
) -> ChunkRecords:
    """Return the records of dense chunks. Without `mask`, the filter masks are 0: no filter was skipped."""
    count = len(address)
    wide = np.zeros((count, 0), np.uint64)
    masks = np.zeros(count, np.uint32) if mask is None else mask
    return ChunkRecords(scaled, address, size, masks, wide, wide, np.zeros((count, 0), np.uint32))


def no_records(layout: IndexLayout) -> ChunkRecords:
    """Return an empty `ChunkRecords` with the columns of `layout`."""
    return decode_records(
        layout, np.zeros(0, record_type(layout, layout.size_width)), np.zeros((0, layout.rank), np.uint64)
    )


def record_type(layout: IndexLayout, size_width: int, *, scaled: bool = False) -> np.dtype[Any]:
    """Return the packed dtype of an encoded record whose chunk size has `size_width` bytes.

    `scaled` adds the chunk's scaled coordinates, which records of a version 2 B-tree have.
    """
    sections = layout.sections
    fields: list[tuple[Any, ...]] = [("address", f"<u{layout.address_width}")]
    if sections or layout.filtered:
        fields.append(("size", "u1", (size_width,)))
    if layout.filtered and not sections:
        fields.append(("mask", "<u4"))
    if scaled:
        fields.append(("scaled", "<u8", (layout.rank,)))
    if sections:
        first = layout.revision is FormatRevision.RFC_2023_07
        width = "<u4" if first else "<u8"
        metadata: list[tuple[Any, ...]] = [("offsets", width, (sections - 1,))]
        if layout.filtered:
            masks = ("masks", "<u4", (sections,))
            metadata.append(("unfiltered", width, (sections,)))
            metadata.insert(0 if first else 2, masks)
        fields.extend(metadata)
    return np.dtype(fields)


def sized_record_type(layout: IndexLayout, size: int, what: str, *, scaled: bool = False) -> np.dtype[Any]:
    """Return the dtype of encoded records of `size` bytes; the width of the chunk size field follows from `size`.

    Raises `Corrupt` if the width would not be 1 to 8 bytes; `what` names the index in the message.
    """
    least = record_type(layout, 1, scaled=scaled)
    width = size - least.itemsize + 1
    has_size = "size" in (least.names or ())
    if not (1 <= width <= 8 if has_size else width == 1):
        raise Corrupt(f"The {what} has records of {size} bytes, which does not fit the dataset's chunks.")
    return record_type(layout, width, scaled=scaled)


def decode_records(layout: IndexLayout, elements: EncodedRecords, scaled: Columns) -> ChunkRecords:
    """Decode the records of allocated chunks with the coordinates `scaled: (n, rank)`.

    Raises `Corrupt` if the sections of a structured chunk are not consecutive within the chunk.
    """
    count = len(elements)
    if "size" in (elements.dtype.names or ()):
        size = _number(elements["size"])
    elif layout.chunk_bytes >= 2**64:
        raise Corrupt(f"A chunk of {list(layout.chunk)} elements cannot have {layout.chunk_bytes} bytes.")
    else:
        size = np.full(count, layout.chunk_bytes, np.uint64)
    address = elements["address"].astype(np.uint64)
    if not layout.sections:
        mask = elements["mask"].astype(np.uint32) if layout.filtered else None
        return dense_records(scaled, address, size, mask)
    offsets = elements["offsets"].astype(np.uint64)
    ends = np.column_stack((offsets, size))
    starts = np.column_stack((np.zeros(count, np.uint64), offsets))
    wrong = np.flatnonzero((starts > ends).any(1))
    if len(wrong):
        raise Corrupt(
            f"The chunk at {scaled[wrong[0]].tolist()} has {size[wrong[0]]} bytes and sections at "
            f"{starts[wrong[0]].tolist()}: the sections are not consecutive."
        )
    unfiltered, masks = ends - starts, np.zeros((count, layout.sections), np.uint32)
    if layout.filtered:
        unfiltered = elements["unfiltered"].astype(np.uint64)
        masks = elements["masks"].astype(np.uint32)
    return ChunkRecords(scaled, address, size, np.zeros(count, np.uint32), offsets, unfiltered, masks)


def encode_records(records: ChunkRecords, dtype: np.dtype[Any]) -> EncodedRecords:
    """Encode records as a `dtype` of `record_type`; raises `BadRequest` if a number is too large for its field."""
    elements = np.zeros(len(records), dtype)
    for name in elements.dtype.names or ():
        column, values = elements[name], getattr(records, name)
        width = column.shape[1] if name == "size" else column.dtype.itemsize
        if len(values) and int(values.max()) >> 8 * width:
            raise BadRequest(
                f"A chunk's record has {int(values.max())} as {name}; the index has {width} bytes for it."
            )
        if name == "size":
            values = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        column[...] = values
    return elements


def is_allocated(layout: IndexLayout, elements: EncodedRecords) -> NDArray[np.bool_]:
    """Return an array of booleans: whether the chunk of each encoded record is allocated.

    libhdf5's prototype of structured chunks may store address 2^64-2 for a structured chunk that was never written.
    """
    result: NDArray[np.bool_] = elements["address"] < layout.undefined - bool(layout.sections)
    return result


def place_elements(count: int, places: NDArray[Any], elements: EncodedRecords) -> Buffer:
    """Return the bytes of `count` encoded records: `elements` at indices `places`, elsewhere unallocated records."""
    block = np.zeros(count, elements.dtype)
    block["address"] = np.iinfo(elements.dtype["address"]).max
    block[places] = elements
    return byte_view(block)


def view_elements(data: Buffer, dtype: np.dtype[Any]) -> EncodedRecords:
    """Return an array of the encoded records in `data`, without a copy."""
    return np.frombuffer(data, dtype)


def _number(column: NDArray[np.uint8]) -> Columns:
    """Convert little-endian numbers, an array (n, width) of uint8, to an array (n,) of uint64."""
    wide = np.zeros((len(column), 8), np.uint8)
    wide[:, : column.shape[1]] = column
    return wide.view("<u8")[:, 0].astype(np.uint64, copy=False)


def slots(layout: IndexLayout) -> int:
    """Return the product, over all limited dimensions, of the maximum number of chunks.

    Raises `Corrupt` if 64 bits cannot number the chunks.
    """
    count = prod(count for count in layout.counts if count is not None)
    if count >= 2**64:
        raise Corrupt(f"Maximum dimensions of {layout.max_dims} have too many chunks for a chunk index.")
    return count


def number_chunks(layout: IndexLayout, scaled: Columns) -> Columns:
    """Return the number of each chunk, (n,) uint64, at the coordinates `scaled: (n, rank)`."""
    slots(layout)
    numbers = np.zeros(len(scaled), np.uint64)
    for dim in _order(layout):
        numbers *= np.uint64(layout.counts[dim] or 1)
        numbers += scaled[:, dim]
    return numbers


def locate_chunks(layout: IndexLayout, numbers: Columns) -> Columns:
    """Return the scaled coordinates, (n, rank) uint64, of the chunks with the numbers `numbers: (n,)`."""
    slots(layout)
    scaled = np.empty((len(numbers), layout.rank), np.uint64)
    rest = numbers
    for dim in reversed(_order(layout)):
        count = layout.counts[dim]
        if count is None:
            scaled[:, dim] = rest
        else:
            rest, scaled[:, dim] = np.divmod(rest, np.uint64(max(count, 1)))
    return scaled


def _order(layout: IndexLayout) -> list[int]:
    """Return the dimensions from the slowest to the fastest in the numbering: unlimited dimensions come first."""
    return sorted(range(layout.rank), key=lambda dim: layout.counts[dim] is not None)


def sort_rows(scaled: Columns) -> NDArray[np.intp]:
    """Return the row indices, (n,), that sort scaled coordinates in row-major order."""
    return np.lexsort(scaled.T[::-1])


def is_ascending(scaled: Columns) -> bool:
    """Return whether scaled coordinates are strictly ascending in row-major order."""
    later, decided = np.zeros(max(len(scaled) - 1, 0), bool), np.zeros(max(len(scaled) - 1, 0), bool)
    for before, after in zip(scaled[:-1].T, scaled[1:].T, strict=True):
        later |= ~decided & (after > before)
        decided |= after != before
    return bool(later.all())
