"""Sparse values as the server's `application/octet-stream` has them: the structured chunk of a region.

Sections 0 and 1 of RFC "File Format Changes for Enabling Sparse Storage in HDF5", unfiltered, over the
dataset's extent: an H5Sencode image, its lookup3 checksum (little-endian), then the elements, packed, in
the selection's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.checksum import lookup3
from hsparse.format.encoded_selection import decode_first, encode_selection
from hsparse.format.points import Points

CHECKSUM_BYTES = 4


def encode_sparse(coords: NDArray[Any], values: NDArray[Any], extent: Sequence[int]) -> bytes:
    """Return the bytes of `values: (n,)` at `coords: (n, rank)`; `BadRequest` when they do not fit."""
    points = Points(tuple(extent), coords)
    if values.shape != (points.size,):
        raise BadRequest(
            f"There are {points.size} points and values of shape {list(values.shape)}; give one each."
        )
    section = encode_selection(points)
    return b"".join((section, lookup3(section).to_bytes(CHECKSUM_BYTES, "little"), values.tobytes()))


def decode_sparse(data: Buffer, dtype: np.dtype[Any]) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return coordinates, (n, rank) uint64, and values, (n,), read-only; `Corrupt` when anything is off."""
    view = memoryview(data).cast("B")
    selection, length = decode_first(view)
    section, checksum, values = view[:length], view[length:][:CHECKSUM_BYTES], view[length + CHECKSUM_BYTES :]
    if bytes(checksum) != lookup3(section).to_bytes(CHECKSUM_BYTES, "little"):
        raise Corrupt("The checksum of the answer's encoded selection does not match; ask again.")
    if len(values) != selection.size * dtype.itemsize:
        raise Corrupt(
            f"The answer has {len(values)} bytes of values, not {selection.size} elements of {dtype.itemsize} bytes; "
            "ask again."
        )
    return selection.coords(), np.frombuffer(values, dtype)
