"""Sparse values as the bytes of a structured chunk of the region: encoded selection, checksum, values.

Sections 0 and 1 of RFC "File Format Changes for Enabling Sparse Storage in HDF5", unfiltered, over the
dataset's extent instead of a chunk's: an H5Sencode image with its lookup3 checksum, then the elements,
packed, in the selection's order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.checksum import lookup3
from hsparse.format.encoded_selection import decode_first, encode_selection
from hsparse.format.selection import Selection

CHECKSUM_BYTES = 4


def write_structured(selection: Selection, values: NDArray[Any]) -> bytes:
    """Return the bytes of `values: (n,)`, in the order of `selection`."""
    section = encode_selection(selection)
    data = np.ascontiguousarray(values).view(np.uint8).tobytes()
    return section + lookup3(section).to_bytes(CHECKSUM_BYTES, "little") + data


def read_structured(
    data: bytes | bytearray, extent: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Selection, NDArray[Any]]:
    """Return the selection and its values `(n,)`; `BadRequest` names what is wrong with the bytes."""
    view = memoryview(data)
    try:
        selection, length = decode_first(view)
    except Corrupt as error:
        raise BadRequest(f"The body's encoded selection is malformed: {error.message}") from error
    section, rest = view[:length], view[length:]
    if bytes(rest[:CHECKSUM_BYTES]) != lookup3(section).to_bytes(CHECKSUM_BYTES, "little"):
        raise BadRequest("The checksum of the body's encoded selection does not match.")
    if selection.extent != extent:
        raise BadRequest(
            f"The body selects in {list(selection.extent)}; the extent is {list(extent)}."
        )
    values = rest[CHECKSUM_BYTES:]
    if len(values) != selection.size * dtype.itemsize:
        raise BadRequest(
            f"There are {len(values)} bytes of values; {selection.size} elements of {dtype.itemsize} bytes "
            f"need {selection.size * dtype.itemsize}."
        )
    return selection, np.frombuffer(values, np.uint8).view(dtype)
