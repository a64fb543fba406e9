"""Regions: sparse values of a selection in the form of a structured chunk (encoded selection, checksum, values).

A region has the unfiltered sections 0 and 1 of RFC "File Format Changes for Enabling Sparse Storage in HDF5", over a
dataset's extent instead of a chunk's: an H5Sencode image, its lookup3 checksum (little-endian), and the packed elements
in the selection's order. For a variable-length type, section 1 has elements with references and a checksum, and section
2 follows: the heap (`hsparse.format.structured.heap`) and its checksum. Empty sections have no bytes. The media type
`application/octet-stream` is a region in sparse reads and writes.
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
    """Return a region of `values: (n,)` in the order of `selection`; raise `BadRequest` if the numbers differ."""
    if values.shape != (selection.size,):
        raise BadRequest(
            f"Values of shape {list(values.shape)} do not fit {selection.size} elements: give one value per element."
        )
    section = encode_selection(selection)
    return b"".join((section, lookup3(section).to_bytes(CHECKSUM_BYTES, "little"), values.tobytes()))


def decode_region(data: Buffer, dtype: np.dtype[Any]) -> tuple[Selection, NDArray[Any]]:
    """Return a pair: a region's selection, and its values, (n,), a view of `data`; raise `Corrupt` if it is invalid."""
    selection, values = open_selection(data)
    if len(values) != selection.size * dtype.itemsize:
        raise Corrupt(
            f"The region has {len(values)} bytes of values; {selection.size} elements of {dtype.itemsize} bytes "
            f"need {selection.size * dtype.itemsize}."
        )
    return selection, np.frombuffer(values, np.uint8).view(dtype)


def open_selection(data: Buffer) -> tuple[Selection, memoryview]:
    """Return a pair: the selection at the start of `data`, and the bytes after its checksum; may raise `Corrupt`."""
    view = memoryview(data).cast("B")
    selection, length = decode_first(view)
    section, checksum, rest = view[:length], view[length:][:CHECKSUM_BYTES], view[length + CHECKSUM_BYTES :]
    if bytes(checksum) != lookup3(section).to_bytes(CHECKSUM_BYTES, "little"):
        raise Corrupt("The checksum of the encoded selection does not match.")
    return selection, rest


def encode_vlen_region(selection: Selection, values: VlenArray, element: Element) -> bytes:
    """Return a region of variable-length `values: (n,)` in the order of `selection`.

    Raises `BadRequest` if the numbers differ, and `TooLarge` for more references than a chunk may have.
    """
    if values.shape != (selection.size,):
        raise BadRequest(
            f"Values of shape {list(values.shape)} do not fit {selection.size} elements: give one value per element."
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
    """Return a pair: a region's selection, and its values, (n,); raise `Corrupt` if the region is invalid."""
    selection, rest = open_selection(data)
    size = selection.size * element.file_size
    size += CHECKSUM_BYTES if size else 0
    if len(rest) < size:
        raise Corrupt(
            f"The region has {len(rest)} bytes of elements; {selection.size} elements and a checksum need {size}."
        )
    fixed, heap = (
        open_section(number, part, Section(0, len(part), len(part), 0), METADATA_VL, ())
        for number, part in ((1, rest[:size]), (2, rest[size:]))
    )
    return selection, decode_elements(fixed, heap, element, NAMES)
