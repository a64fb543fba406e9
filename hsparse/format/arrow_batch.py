"""Record batches of an Arrow IPC stream, written without a copy of the columns.

"Arrow Columnar Format", Serialization and Interprocess Communication: a message is its metadata, a FlatBuffer, and a
body, the buffers of the columns one after another, each padded to 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.arrow_stream import CONTINUATION, RECORD_BATCH

VERSION_5 = 4
"""Message.fbs: `MetadataVersion.V5`."""
PART = 1 << 16
"""Bytes up to which a batch is one part: to send a part costs as much as to copy so many."""


def batch_parts(columns: Sequence[NDArray[Any]]) -> list[bytes | memoryview]:
    """Return the bytes of a batch of contiguous columns `(n,)`, of numbers or of elements of a fixed size, in parts.

    The parts refer to the columns, which must not change until they are sent.
    """
    (length,) = {len(column) for column in columns}
    parts: list[bytes | memoryview] = [_head(length, [column.nbytes for column in columns])]
    for column in columns:
        parts.append(column.view(np.uint8).data)
        if padding := -column.nbytes % 8:
            parts.append(bytes(padding))
    return parts if sum(map(len, parts)) > PART else [b"".join(parts)]


def _head(length: int, sizes: list[int]) -> bytes:
    """Return what stands before the body: a mark, the size of the metadata, and the metadata.

    They are two tables ("FlatBuffers Internals"), each behind its vtable, and two vectors at the end. Offsets are
    relative to where they stand; places are those in the metadata.
    """
    ends = [0, *accumulate(size + -size % 8 for size in sizes)]
    count = len(sizes)
    message = struct.pack(
        "<I 6H i hBx q I", 16, 12, 20, 4, 6, 16, 8, 12, VERSION_5, RECORD_BATCH, ends[-1], 16
    )
    batch = struct.pack("<5H 2x i I q I", 10, 20, 8, 4, 16, 12, 16, length, 76 + 16 * count - 64)
    nodes = struct.pack("<I", count) + struct.pack("<qq", length, 0) * count
    buffers = b"".join(
        struct.pack("<4q", start, 0, start, size) for start, size in zip(ends[:-1], sizes, strict=True)
    )
    metadata = message + batch + nodes + struct.pack("<4x I", 2 * count) + buffers
    return struct.pack("<II", CONTINUATION, len(metadata)) + metadata
