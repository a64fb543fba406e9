"""Sparse values of a variable-length type of any region as structured-chunk bytes, see `format.structured.region`."""

from __future__ import annotations

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.kinds.vlen_chunk import NAMES
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.selection import Selection
from hsparse.format.structured.container import METADATA_VL, Section, build, open_section
from hsparse.format.structured.region import CHECKSUM_BYTES, open_selection
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.element import Element
from hsparse.model.layout import MAX_REFERENCES
from hsparse.model.vlen_array import VlenArray


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
