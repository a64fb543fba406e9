"""Sparse values of any region as structured-chunk bytes: encoded selection, checksum, values.

Sections 0 and 1 of RFC "File Format Changes for Enabling Sparse Storage in HDF5", unfiltered, over a
dataset's extent instead of a chunk's: an H5Sencode image, its lookup3 checksum (little-endian), then the
elements, packed, in the selection's order. Of a variable-length type (`vlen_region`) these are elements with
references and their checksum, and section 2 follows, the heap (`hsparse.format.structured.heap`) and its checksum;
either is absent when it is empty. This is `application/octet-stream` for sparse reads and writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.checksum import lookup3
from hsparse.format.selections.encoded_selection import decode_first, encode_selection
from hsparse.format.selections.selection import Selection

CHECKSUM_BYTES = 4


def encode_region(selection: Selection, values: NDArray[Any]) -> bytes:
    """Return the bytes of `values: (n,)`, in the order of `selection`; `BadRequest` when there are not n."""
    if values.shape != (selection.size,):
        raise BadRequest(
            f"There are {selection.size} elements and values of shape {list(values.shape)}; give one each."
        )
    section = encode_selection(selection)
    return b"".join((section, lookup3(section).to_bytes(CHECKSUM_BYTES, "little"), values.tobytes()))


def decode_region(data: Buffer, dtype: np.dtype[Any]) -> tuple[Selection, NDArray[Any]]:
    """Return the selection and its values, (n,), a view of `data`; `Corrupt` names what is wrong."""
    selection, values = open_selection(data)
    if len(values) != selection.size * dtype.itemsize:
        raise Corrupt(
            f"There are {len(values)} bytes of values; {selection.size} elements of {dtype.itemsize} bytes "
            f"need {selection.size * dtype.itemsize}."
        )
    return selection, np.frombuffer(values, np.uint8).view(dtype)


def open_selection(data: Buffer) -> tuple[Selection, memoryview]:
    """Return the selection that `data` begins with, its checksum checked, and what follows."""
    view = memoryview(data).cast("B")
    selection, length = decode_first(view)
    section, checksum, rest = view[:length], view[length:][:CHECKSUM_BYTES], view[length + CHECKSUM_BYTES :]
    if bytes(checksum) != lookup3(section).to_bytes(CHECKSUM_BYTES, "little"):
        raise Corrupt("The checksum of the encoded selection does not match.")
    return selection, rest
