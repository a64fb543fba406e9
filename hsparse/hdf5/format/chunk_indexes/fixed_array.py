"""The fixed array: an index with one element for each chunk that the dataset's limits allow.

H5.format.html, VII.C "The Fixed Array Index". An array of more elements than a page has a bitmap of the pages
that were written; the other pages are allocated only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    decode_records,
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
"""Bytes of a record, bits of a page's number of elements, number of elements, address of the data block."""
PAGE_BITS = 10
INFO = bytes((PAGE_BITS,))
"""The index information of the layout message."""


def read_fixed_array(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the fixed array at `address`; `Corrupt` when it is not one of such chunks."""
    what = f"fixed array header at {address}"
    (data,) = yield (bounds.block(address, fixed_header_size(layout), "fixed array header"),)
    header = open_block(data, b"FAHD", layout.client, what)
    size, bits, count, block = layout.fields(HEADER).unpack(header)
    dtype = sized_record_type(layout, size, what)
    if count != slots(layout) or not 0 < bits < 64:
        raise Corrupt(
            f"The {what} has {count} elements in pages of 2^{bits}; there are {slots(layout)} chunks."
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
    """Return the first number and the elements' bytes of each page that was written."""
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
    """`numbers: (n,) uint64` are the chunks' numbers, ascending; `count` is the number of elements."""

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
    """Plan the fixed array of chunks at `scaled` coordinates, (n, rank)."""
    numbers, count = number_chunks(layout, scaled), slots(layout)
    order = np.argsort(numbers)
    pages = _pages(count)
    elements = count * record_type(layout, layout.size_width).itemsize
    size = fixed_header_size(layout) + _prefix(layout) + elements + 4
    if pages:
        size += -(-pages // 8) + 4 * pages
    return FixedArrayPlan(layout, order, check_planned(size), numbers[order], count)


def fixed_header_size(layout: IndexLayout) -> int:
    """Return the bytes of the header, which the data block follows when written."""
    return BLOCK_PREFIX + layout.fields(HEADER).size + 4


def _prefix(layout: IndexLayout) -> int:
    """Return the bytes of a data block before its bitmap or elements."""
    return BLOCK_PREFIX + layout.address_width


def _pages(count: int) -> int:
    """Return how many pages `count` elements are in, 0 where they need none."""
    return -(-count >> PAGE_BITS) if count > 1 << PAGE_BITS else 0
