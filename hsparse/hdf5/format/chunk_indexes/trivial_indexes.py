"""The indexes that have no bytes of their own: of a single chunk, and the implicit one.

H5.format.html, IV.A.2.i "Single Chunk Indexing Information" (for structured chunks RFC "File Format Changes for
Enabling Sparse Storage in HDF5", version 28, section 4.1): the record of a single chunk is the index information of
the layout message. VII.B "Implicit Index": chunks of one size, all allocated at creation, one after another; it is
read only, since no file that is planned allocates chunks early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    decode_records,
    dense_records,
    encode_records,
    is_allocated,
    no_records,
    number_chunks,
    record_type,
    slots,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan
from hsparse.hdf5.format.hdf5_file import FileBounds


def single_info_type(layout: IndexLayout) -> np.dtype[Any]:
    """Return the packed type of a single chunk's record; all but its address are index information.

    A dense chunk's size is a length here, as long as any.
    """
    return record_type(layout, layout.size_width if layout.sections else layout.length_width)


def single_info_size(layout: IndexLayout) -> int:
    """Return the length of the index information in bytes."""
    return single_info_type(layout).itemsize - layout.address_width


def single_records(layout: IndexLayout, address: int) -> ChunkRecords:
    """Return the chunk at `address` that the index information is about; `Corrupt` when that has another length."""
    dtype = single_info_type(layout)
    size = single_info_size(layout)
    if len(layout.info) != size:
        raise Corrupt(f"The index information of a single chunk has {len(layout.info)} bytes, not {size}.")
    elements = np.frombuffer(address.to_bytes(layout.address_width, "little") + layout.info, dtype)
    if not is_allocated(layout, elements).all():
        return no_records(layout)
    return decode_records(layout, elements, np.zeros((1, layout.rank), np.uint64))


def encode_single(layout: IndexLayout, records: ChunkRecords) -> bytes:
    """Return the index information about one chunk, or about none that was written."""
    dtype = single_info_type(layout)
    if not len(records):
        return bytes(single_info_size(layout))
    return bytes(byte_view(encode_records(records, dtype))[layout.address_width :])


class SingleChunkPlan(IndexPlan):
    """Nothing outside the layout message."""

    __slots__ = ()

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        yield from ()


def implicit_records(
    layout: IndexLayout, counts: Sequence[int], address: int, bounds: FileBounds
) -> ChunkRecords:
    """Return the chunks of an extent of `counts` chunks; the first one of the limits' is at `address`.

    `Corrupt` when the file ends before the last one.
    """
    if layout.filtered or layout.sections:
        raise Corrupt("Chunks whose sizes vary have an implicit index, which has no room for sizes.")
    if any(count > (limit or 0) for count, limit in zip(counts, layout.counts, strict=True)):
        raise Corrupt(
            f"An extent of {list(counts)} chunks is beyond {layout.max_dims}, all of them allocated."
        )
    bounds.block(address, slots(layout) * layout.chunk_bytes, "space of implicitly indexed chunks")
    scaled = np.indices(counts, np.uint64).reshape(layout.rank, -1).T.copy()
    addresses = np.uint64(address) + number_chunks(layout, scaled) * np.uint64(layout.chunk_bytes)
    return dense_records(scaled, addresses, np.full(len(scaled), layout.chunk_bytes, np.uint64))
