"""The records of a chunk index, by column, and the numbering of chunks in an array.

H5.format.html, VII.C "Data Block Element" and III.A.2 record types 10 and 11 for dense chunks; RFC "File Format
Changes for Enabling Sparse Storage in HDF5", version 28, section 4, for structured ones. In version 17 masks come
first and offsets have 4 bytes; that unfiltered sizes have 4 there too is inferred.

Fixed and extensible arrays (VII "Chunk Indexing") number chunks in row-major order of the most chunks that each
dimension can have, the unlimited dimension first.
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
"""Records as they are stored: an array of a packed structured type."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRecords:
    """Chunks and where they are stored, by column, ascending by scaled coordinates when read.

    `scaled: (n, rank) uint64`; `address: (n,) uint64`, relative to the file's base address, and `size: (n,) uint64`,
    in bytes; `mask: (n,) uint32`, HDF5's filter mask of a dense chunk. Of structured chunks with N sections
    `offsets: (n, N-1) uint64` of sections from 1 on, `unfiltered: (n, N) uint64` sizes, `masks: (n, N) uint32`; of
    dense ones these have no columns.
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
        """Return the records at `rows`, places or booleans."""
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
        """Return the sections of a structured chunk."""
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
    """Return records of dense chunks; without `mask`, no filter was skipped."""
    count = len(address)
    wide = np.zeros((count, 0), np.uint64)
    masks = np.zeros(count, np.uint32) if mask is None else mask
    return ChunkRecords(scaled, address, size, masks, wide, wide, np.zeros((count, 0), np.uint32))


def no_records(layout: IndexLayout) -> ChunkRecords:
    """Return records of no chunks."""
    return decode_records(
        layout, np.zeros(0, record_type(layout, layout.size_width)), np.zeros((0, layout.rank), np.uint64)
    )


def record_type(layout: IndexLayout, size_width: int, *, scaled: bool = False) -> np.dtype[Any]:
    """Return the packed type of a stored record; those of B-trees have scaled coordinates."""
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
    """Return the type of records of `size` bytes, whatever width they leave for the chunk's size.

    `Corrupt`, naming `what`, when no width of 1 to 8 bytes makes them so long.
    """
    least = record_type(layout, 1, scaled=scaled)
    width = size - least.itemsize + 1
    has_size = "size" in (least.names or ())
    if not (1 <= width <= 8 if has_size else width == 1):
        raise Corrupt(f"The {what} has records of {size} bytes; the dataset's cannot be so long.")
    return record_type(layout, width, scaled=scaled)


def decode_records(layout: IndexLayout, elements: EncodedRecords, scaled: Columns) -> ChunkRecords:
    """Return the columns of stored records, all of which have an address.

    `Corrupt`, naming the chunk, when the sections of a structured chunk do not lie in it one after another.
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
            f"{starts[wrong[0]].tolist()}: they do not follow one another."
        )
    unfiltered, masks = ends - starts, np.zeros((count, layout.sections), np.uint32)
    if layout.filtered:
        unfiltered = elements["unfiltered"].astype(np.uint64)
        masks = elements["masks"].astype(np.uint32)
    return ChunkRecords(scaled, address, size, np.zeros(count, np.uint32), offsets, unfiltered, masks)


def encode_records(records: ChunkRecords, dtype: np.dtype[Any]) -> EncodedRecords:
    """Return records as they are stored, of a `record_type`; `BadRequest` when a number is too large for its field."""
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
    """Return which stored records are of a chunk that was allocated.

    The prototype may leave the address 2^64-2 where a structured chunk was never written.
    """
    result: NDArray[np.bool_] = elements["address"] < layout.undefined - bool(layout.sections)
    return result


def place_elements(count: int, places: NDArray[Any], elements: EncodedRecords) -> Buffer:
    """Return the bytes of `count` records: `elements` at `places`, and between them those of no chunk."""
    block = np.zeros(count, elements.dtype)
    block["address"] = np.iinfo(elements.dtype["address"]).max
    block[places] = elements
    return byte_view(block)


def view_elements(data: Buffer, dtype: np.dtype[Any]) -> EncodedRecords:
    """Return stored records as an array over their bytes."""
    return np.frombuffer(data, dtype)


def _number(column: NDArray[np.uint8]) -> Columns:
    """Return little-endian numbers, (n, width) uint8, as (n,) uint64."""
    wide = np.zeros((len(column), 8), np.uint8)
    wide[:, : column.shape[1]] = column
    return wide.view("<u8")[:, 0].astype(np.uint64, copy=False)


def slots(layout: IndexLayout) -> int:
    """Return how many chunks there can be where no dimension is unlimited.

    `Corrupt` when they cannot be numbered in 64 bits.
    """
    count = prod(count for count in layout.counts if count is not None)
    if count >= 2**64:
        raise Corrupt(f"A dataset of at most {layout.max_dims} elements has too many chunks for an array.")
    return count


def number_chunks(layout: IndexLayout, scaled: Columns) -> Columns:
    """Return the numbers, (n,), of chunks at `scaled` coordinates, (n, rank)."""
    slots(layout)
    numbers = np.zeros(len(scaled), np.uint64)
    for dim in _order(layout):
        numbers *= np.uint64(layout.counts[dim] or 1)
        numbers += scaled[:, dim]
    return numbers


def locate_chunks(layout: IndexLayout, numbers: Columns) -> Columns:
    """Return the scaled coordinates, (n, rank), of the chunks with these numbers, (n,)."""
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
    """Return the dimensions from the slowest to the fastest."""
    return sorted(range(layout.rank), key=lambda dim: layout.counts[dim] is not None)


def sort_rows(scaled: Columns) -> NDArray[np.intp]:
    """Return the order that makes scaled coordinates ascend, slowest dimension first."""
    return np.lexsort(scaled.T[::-1])


def is_ascending(scaled: Columns) -> bool:
    """Say whether each chunk comes after the one before it, slowest dimension first."""
    later, decided = np.zeros(max(len(scaled) - 1, 0), bool), np.zeros(max(len(scaled) - 1, 0), bool)
    for before, after in zip(scaled[:-1].T, scaled[1:].T, strict=True):
        later |= ~decided & (after > before)
        decided |= after != before
    return bool(later.all())
