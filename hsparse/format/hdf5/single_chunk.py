"""The index of a dataset of one chunk: its record is the index information of the layout message.

H5.format.html, IV.A.2.i "Single Chunk Indexing Information"; RFC "File Format Changes for Enabling Sparse Storage
in HDF5", version 28, section 4.1, for structured chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.hdf5.chunk_records import (
    ChunkRecords,
    decode_records,
    encode_records,
    is_defined,
    no_records,
    record_type,
)
from hsparse.format.hdf5.index_layout import IndexLayout
from hsparse.format.hdf5.index_plan import IndexPlan


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
    if not is_defined(layout, elements).all():
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
