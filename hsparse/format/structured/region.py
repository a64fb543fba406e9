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

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.codec_library import lookup3
from hsparse.format.kinds.vlen_chunk import NAMES
from hsparse.format.selections.encoded_selection import decode_first, encode_selection
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import METADATA_VL, Section, build, open_section
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.element import Element
from hsparse.model.layout import MAX_REFERENCES
from hsparse.model.vlen_array import VlenArray

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


def encode_vlen_region(selection: Selection, values: VlenArray, element: Element) -> bytes:
    """Return the bytes of elements of a variable-length type, (n,), in the order of `selection`.

    `TooLarge` for more references than a chunk may have.
    """
    if values.shape != (selection.size,):
        raise BadRequest(
            f"There are {selection.size} elements and values of shape {list(values.shape)}; give one each."
        )
    try:
        sections = encode_elements(values, element)
    except TooLarge as error:
        raise TooLarge(
            f"{selection.size} elements have too many strings and sequences for one heap (the limit is "
            f"{MAX_REFERENCES}): select less, or take them as an Arrow stream."
        ) from error
    return build((encode_selection(selection), *sections), METADATA_VL, ((), (), ())).data


def decode_vlen_region(data: Buffer, element: Element) -> tuple[Selection, VlenArray]:
    """Return the selection and its values, (n,); `Corrupt` names what is wrong."""
    selection, rest = open_selection(data)
    size = selection.size * element.file_size
    size += CHECKSUM_BYTES if size else 0
    if len(rest) < size:
        raise Corrupt(
            f"There are {len(rest)} bytes of elements; {selection.size} need {size} with a checksum."
        )
    fixed, heap = (
        open_section(number, part, Section(0, len(part), len(part), 0), METADATA_VL, ())
        for number, part in ((1, rest[:size]), (2, rest[size:]))
    )
    return selection, decode_elements(fixed, heap, element, NAMES)
