"""The implicit index: chunks of one size, all allocated at creation, one after another.

H5.format.html, VII.B "Implicit Index". It is read only: nothing that is written here is allocated early.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsparse.errors import Corrupt
from hsparse.format.hdf5.chunk_order import number_chunks, slots
from hsparse.format.hdf5.chunk_records import ChunkRecords, dense_records
from hsparse.format.hdf5.file_bounds import FileBounds
from hsparse.format.hdf5.index_layout import IndexLayout


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
