"""Chunk indexes of datasets without unlimited dimensions: fixed array, single chunk and implicit.

Fixed array (H5.format.html, VII.C): one element for each chunk that the maximum dimensions allow. An array with more
elements than a page has a bitmap of the pages that were written; unwritten pages are allocated but have no content.

Single chunk (IV.A.2.i "Single Chunk Indexing Information"; for structured chunks RFC "File Format Changes for Enabling
Sparse Storage in HDF5", version 28, section 4.1): the chunk's record is the index information of the layout message.

Implicit (VII.B): chunks of equal size, allocated consecutively when the dataset is created. This module reads implicit
indexes and never plans one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    decode_records,
    dense_records,
    encode_records,
    is_allocated,
    locate_chunks,
    no_records,
    number_chunks,
    place_elements,
    record_type,
    sized_record_type,
    slots,
    view_elements,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan, check_planned
from hsparse.hdf5.format.file_fields import BLOCK_PREFIX, Reads, open_block, open_page, seal_block, seal_page
from hsparse.hdf5.format.hdf5_file import FileBounds

HEADER = "BBLO"
"""The fields: record size in bytes, log2 of a page's elements, number of elements, address of the data block."""
PAGE_BITS = 10
INFO = bytes((PAGE_BITS,))
"""The index information of a fixed array in the layout message."""


def read_fixed_array(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the chunk records of the fixed array with its header at `address`; raises `Corrupt` if it is invalid."""
    what = f"fixed array header at {address}"
    (data,) = yield (bounds.block(address, fixed_header_size(layout), "fixed array header"),)
    header = open_block(data, b"FAHD", layout.client, what)
    size, bits, count, block = layout.fields(HEADER).unpack(header)
    dtype = sized_record_type(layout, size, what)
    if count != slots(layout) or not 0 < bits < 64:
        raise Corrupt(
            f"The {what} has {count} elements in pages of 2^{bits}; it needs {slots(layout)} elements for the dataset."
        )
    if block == layout.undefined:
        return no_records(layout)
    if count > 1 << bits:
        pages = yield from _read_pages(layout, block, address, count, bits, size, bounds)
    else:
        length = _prefix(layout) + count * size + 4
        (data,) = yield (bounds.block(block, length, "fixed array data block"),)
        pages = [(0, _open_data_block(data, layout, block, address))]
    numbers, elements = [np.zeros(0, np.uint64)], [np.zeros(0, dtype)]
    for first, page in pages:
        found = view_elements(page, dtype)
        places = np.flatnonzero(is_allocated(layout, found))
        numbers.append(places.astype(np.uint64) + np.uint64(first))
        elements.append(found[places])
    scaled = locate_chunks(layout, np.concatenate(numbers))
    return decode_records(layout, np.concatenate(elements), scaled)


def _open_data_block(data: Buffer, layout: IndexLayout, block: int, header: int) -> memoryview:
    what = f"fixed array data block at {block}"
    content = open_block(data, b"FADB", layout.client, what)
    owner = int.from_bytes(content[: layout.address_width], "little")
    if owner != header:
        raise Corrupt(f"The {what} belongs to the header at {owner}, not to the one at {header}.")
    return content[layout.address_width :]


def _read_pages(
    layout: IndexLayout, block: int, header: int, count: int, bits: int, size: int, bounds: FileBounds
) -> Reads[list[tuple[int, memoryview]]]:
    """Return a pair for each page that was written: the number of its first element, and its elements' bytes."""
    total = -(-count >> bits)
    prefix = _prefix(layout) + -(-total // 8) + 4
    (data,) = yield (bounds.block(block, prefix, "fixed array data block"),)
    bitmap = _open_data_block(data, layout, block, header)
    written = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), count=total)).tolist()
    firsts = [page << bits for page in written]
    addresses = [block + prefix + page * ((size << bits) + 4) for page in written]
    what = "fixed array page"
    ranges = tuple(
        bounds.block(place, min(1 << bits, count - first) * size + 4, what)
        for first, place in zip(firsts, addresses, strict=True)
    )
    pages = (yield ranges) if ranges else ()
    return [
        (first, open_page(page, f"{what} at {place}"))
        for first, place, page in zip(firsts, addresses, pages, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class FixedArrayPlan(IndexPlan):
    """The plan of a fixed array of `count` elements; `numbers: (n,) uint64` are the chunks' numbers, ascending."""

    numbers: NDArray[np.uint64]
    count: int

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        layout = self.layout
        elements = encode_records(records.take(self.order), record_type(layout, layout.size_width))
        version, client, size = layout.block_version, layout.client, elements.itemsize
        start = fixed_header_size(layout)
        header = layout.fields(HEADER).pack(size, PAGE_BITS, self.count, address + start)
        yield 0, seal_block(b"FAHD", version, client, header)
        owner = address.to_bytes(layout.address_width, "little")
        if not _pages(self.count):
            data = place_elements(self.count, self.numbers, elements)
            yield start, seal_block(b"FADB", version, client, owner, data)
            return
        numbers, firsts = np.unique(self.numbers >> np.uint64(PAGE_BITS), return_index=True)
        bitmap = np.zeros(_pages(self.count), np.uint8)
        bitmap[numbers] = 1
        prefix = seal_block(b"FADB", version, client, owner, np.packbits(bitmap).tobytes())
        yield start, prefix
        places = self.numbers & np.uint64((1 << PAGE_BITS) - 1)
        spans = pairwise((*firsts.tolist(), len(elements)))
        for page, (low, high) in zip(numbers.tolist(), spans, strict=True):
            length = min(1 << PAGE_BITS, self.count - (page << PAGE_BITS))
            data = place_elements(length, places[low:high], elements[low:high])
            yield start + len(prefix) + page * ((size << PAGE_BITS) + 4), seal_page(data)


def plan_fixed_array(layout: IndexLayout, scaled: NDArray[np.uint64]) -> FixedArrayPlan:
    """Plan the fixed array of chunks at `scaled: (n, rank) uint64` coordinates."""
    numbers, count = number_chunks(layout, scaled), slots(layout)
    order = np.argsort(numbers)
    pages = _pages(count)
    elements = count * record_type(layout, layout.size_width).itemsize
    size = fixed_header_size(layout) + _prefix(layout) + elements + 4
    if pages:
        size += -(-pages // 8) + 4 * pages
    return FixedArrayPlan(layout, order, check_planned(size), numbers[order], count)


def fixed_header_size(layout: IndexLayout) -> int:
    """Return the size in bytes of an array's header. In planned arrays, the data block follows the header."""
    return BLOCK_PREFIX + layout.fields(HEADER).size + 4


def _prefix(layout: IndexLayout) -> int:
    """Return the size in bytes of a data block's prefix, which precedes its bitmap or elements."""
    return BLOCK_PREFIX + layout.address_width


def _pages(count: int) -> int:
    """Return the number of pages of an array of `count` elements, or 0 if the array has no pages."""
    return -(-count >> PAGE_BITS) if count > 1 << PAGE_BITS else 0


def single_info_type(layout: IndexLayout) -> np.dtype[Any]:
    """Return the packed dtype of a single chunk's record; the fields after the address are the index information.

    The size of a dense chunk has the width that the superblock gives for lengths.
    """
    return record_type(layout, layout.size_width if layout.sections else layout.length_width)


def single_info_size(layout: IndexLayout) -> int:
    """Return the size in bytes of the index information of a single chunk."""
    return single_info_type(layout).itemsize - layout.address_width


def single_records(layout: IndexLayout, address: int) -> ChunkRecords:
    """Return the records of the single chunk at `address`; raises `Corrupt` if `layout.info` has a wrong size."""
    dtype = single_info_type(layout)
    size = single_info_size(layout)
    if len(layout.info) != size:
        raise Corrupt(f"The index information of a single chunk has {len(layout.info)} bytes, not {size}.")
    elements = np.frombuffer(address.to_bytes(layout.address_width, "little") + layout.info, dtype)
    if not is_allocated(layout, elements).all():
        return no_records(layout)
    return decode_records(layout, elements, np.zeros((1, layout.rank), np.uint64))


def encode_single(layout: IndexLayout, records: ChunkRecords) -> bytes:
    """Return the index information of one chunk; empty `records`, for a chunk that was never written, give zeros."""
    dtype = single_info_type(layout)
    if not len(records):
        return bytes(single_info_size(layout))
    return bytes(byte_view(encode_records(records, dtype))[layout.address_width :])


class SingleChunkPlan(IndexPlan):
    """The plan of an index without bytes of its own: the layout message has the whole index."""

    __slots__ = ()

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        yield from ()


def implicit_records(
    layout: IndexLayout, counts: Sequence[int], address: int, bounds: FileBounds
) -> ChunkRecords:
    """Return the records of all chunks of a dataset with `counts` chunks per dimension, the first at `address`.

    Raises `Corrupt` if chunk sizes vary, `counts` exceeds the maximum dimensions, or the file ends before a chunk.
    """
    if layout.filtered or layout.sections:
        raise Corrupt("Chunks of varying sizes have an implicit index, which cannot store their sizes.")
    if any(count > (limit or 0) for count, limit in zip(counts, layout.counts, strict=True)):
        raise Corrupt(
            f"An extent of {list(counts)} chunks is beyond the maximum dimensions {layout.max_dims}."
        )
    bounds.block(address, slots(layout) * layout.chunk_bytes, "space of implicitly indexed chunks")
    scaled = np.indices(counts, np.uint64).reshape(layout.rank, -1).T.copy()
    addresses = np.uint64(address) + number_chunks(layout, scaled) * np.uint64(layout.chunk_bytes)
    return dense_records(scaled, addresses, np.full(len(scaled), layout.chunk_bytes, np.uint64))
