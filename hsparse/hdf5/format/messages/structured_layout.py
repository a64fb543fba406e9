"""The data layout message of structured chunks (version 5, class 4).

RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 28, section 3.1.1. The message has the
composition of the chunks: the number of sections, and which sections hold metadata. In version 17 of the RFC, the
composition follows the address, offsets have 4 bytes and the chunk type has other values. libhdf5's prototype pads the
message with zeros to the length of the longest message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.dataspace_message import NEWEST_REVISION, ByteReader, FormatRevision
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL
from hsparse.hdf5.format.chunk_indexes.index_layout import (
    STRUCTURED_KINDS,
    IndexKind,
    IndexLayout,
    parse_index_kind,
)
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info_size
from hsparse.hdf5.format.file_fields import Addressed, Key, Widths, address_bytes
from hsparse.hdf5.format.messages.layout_message import (
    CLASS,
    PROPERTY_VERSION,
    RFC_SPARSE,
    RFC_VL,
    SINGLE_FILTERED,
    UNFILTERED_EDGES,
    VERSION,
)
from hsparse.model.dataspace import MAX_RANK

METADATA = {2: METADATA_FIXED, 3: METADATA_VL}
"""Maps the number of sections to the numbers of the sections that hold metadata."""
SUBJECT = "structured layout message"


class _Head(NamedTuple):
    """The fields of the message that precede the composition: chunk type, flags, chunk dimensions and element size."""

    kind: int
    flags: int
    chunk: tuple[int, ...]
    element_size: int


@dataclass(frozen=True, slots=True)
class StructuredLayout:
    """The layout of structured chunks: their index, and whether partial edge chunks are filtered."""

    index: IndexLayout
    filtered_edges: bool = True

    @property
    def metadata(self) -> tuple[int, ...]:
        """The numbers of the sections that hold metadata; each of these sections has a checksum."""
        return METADATA[self.index.sections]


def decode_structured_layout(
    message: Buffer, max_dims: tuple[int | None, ...], *, filtered: bool
) -> StructuredLayout:
    """Decode the layout of a dataset. None in `max_dims` is unlimited. `filtered` is true if any section has filters.

    RFC version 28 and the prototype have the same message, which is decoded as the newest revision. Raises `Corrupt`
    if the message contradicts itself, the dataspace or the filters, and `Unsupported` for dense chunks of vlen data.
    """
    reader = ByteReader(memoryview(message), subject=SUBJECT)
    head = _decode_head(reader, len(max_dims))
    base = IndexLayout(
        IndexKind.SINGLE,
        head.chunk,
        max_dims,
        head.element_size,
        filtered,
        2,
        NEWEST_REVISION,
        message_version=VERSION,
    )
    # A composition begins with byte 8, which is not an index type.
    if bytes(reader.data[reader.place : reader.place + 1]) == b"\x08":
        sections = _decode_composition(reader, head.kind)
        kind = parse_index_kind(reader.number(1, "index type"), STRUCTURED_KINDS)
        index = _decode_index(reader, replace(base, kind=kind, sections=sections))
    else:
        index = _decode_2023(reader, base)
    if index.kind is IndexKind.SINGLE and bool(head.flags & SINGLE_FILTERED) != filtered:
        raise Corrupt(f"The {SUBJECT} has flags {head.flags}, which contradict the dataset's filters.")
    return StructuredLayout(index, not head.flags & UNFILTERED_EDGES)


def _decode_head(reader: ByteReader, rank: int) -> _Head:
    version, layout_class, property_version = reader.numbers(3, 1, "header")
    if (version, layout_class, property_version) != (VERSION, CLASS, PROPERTY_VERSION):
        raise Corrupt(
            f"The {SUBJECT} has version {version}, class {layout_class} and property version {property_version}, not "
            f"{VERSION}, {CLASS} and {PROPERTY_VERSION}."
        )
    kind = reader.number(2, "chunk type")
    flags, dimensionality, width = reader.numbers(3, 1, "header")
    if flags & ~(UNFILTERED_EDGES | SINGLE_FILTERED):
        raise Corrupt(f"The {SUBJECT} has flags {flags:#x}, which are not known.")
    if dimensionality != rank + 1 or not 0 < rank <= MAX_RANK or not 0 < width <= 8:
        raise Corrupt(
            f"The {SUBJECT} has {dimensionality} dimensions of {width} bytes; it needs {rank + 1}: the dataspace's "
            f"{rank} and the element size."
        )
    *chunk, element_size = reader.numbers(dimensionality, width, "dimensions")
    if not element_size or not all(0 < length < 2**32 for length in chunk):
        raise Corrupt(f"The {SUBJECT} has invalid chunks of {chunk} elements of {element_size} bytes.")
    return _Head(kind, flags, tuple(chunk), element_size)


def _decode_composition(reader: ByteReader, kind: int) -> int:
    """Decode the composition of the chunks; return the number of sections."""
    _, sections, count = reader.numbers(3, 1, "composition")
    metadata = reader.numbers(count, 1, "composition")
    if METADATA.get(sections) == metadata and kind in (0, RFC_SPARSE, RFC_SPARSE | RFC_VL):
        return sections
    if sections == 2 and metadata == (0, 1):
        raise Unsupported("Structured chunks of dense variable-length data are not supported.")
    raise Corrupt(f"The {SUBJECT} has type {kind}, {sections} sections and metadata in sections {metadata}.")


def _decode_index(reader: ByteReader, index: IndexLayout) -> IndexLayout:
    info = bytes(reader.take(index_info_size(index), "index information"))
    return replace(index, info=info, address=Widths().read_address(reader, "address"))


def _decode_2023(reader: ByteReader, base: IndexLayout) -> IndexLayout:
    """Decode the index in a message of RFC version 17.

    The size of the index information depends on the number of sections, but this number follows the index.
    """
    kind = parse_index_kind(reader.number(1, "index type"), STRUCTURED_KINDS)
    start = reader.place
    for sections in METADATA:
        index = replace(base, kind=kind, sections=sections, revision=FormatRevision.RFC_2023_07)
        end = start + index_info_size(index) + 8
        composition = _composition(index)
        if reader.data[end : end + len(composition)] == composition:
            return _decode_index(reader, index)
    raise Corrupt(f"The {SUBJECT} has no composition, neither before its index nor after it.")


def encode_structured_layout(layout: StructuredLayout) -> bytes:
    """Encode the layout message in the format revision of `layout.index`.

    The index must have an address and its index information (`index_info`).
    """
    index = layout.index
    lengths = (*index.chunk, index.element_size)
    width = (max(lengths).bit_length() + 7) // 8
    flags = 0 if layout.filtered_edges else UNFILTERED_EDGES
    if index.kind is IndexKind.SINGLE and index.filtered:
        flags |= SINGLE_FILTERED
    first = index.revision is FormatRevision.RFC_2023_07
    kind = (RFC_SPARSE | (RFC_VL if index.sections == 3 else 0)) if first else 0
    head = bytes((VERSION, CLASS, PROPERTY_VERSION, kind, 0, flags, len(lengths), width))
    dims = b"".join(length.to_bytes(width, "little") for length in lengths)
    place = bytes((index.kind,)) + index.info + address_bytes(index.address)
    if first:
        return head + dims + place + _composition(index)
    return head + dims + _composition(index) + place + _padding(index)


def plan_structured_layout(layout: StructuredLayout, key: Key | None) -> Addressed:
    """Encode the layout message for a planned file, in which addresses are not known yet.

    `key` is the key of the piece whose address the message contains, or None if the message contains no address.
    """
    data = encode_structured_layout(replace(layout, index=replace(layout.index, address=None)))
    index = layout.index
    first = index.revision is FormatRevision.RFC_2023_07
    behind = _composition(index) if first else _padding(index)
    return Addressed(data) if key is None else Addressed(data, ((len(data) - len(behind) - 8, key),))


def _composition(index: IndexLayout) -> bytes:
    """Encode the composition: the size of offsets, the number of sections, and the sections that hold metadata."""
    metadata = METADATA[index.sections]
    offset_size = 4 if index.revision is FormatRevision.RFC_2023_07 else 8
    return bytes((offset_size, index.sections, len(metadata), *metadata))


def _padding(index: IndexLayout) -> bytes:
    """Return the zeros that pad the message to the length it has with 3 metadata sections and 8-byte chunk sizes."""
    unused = 8 - index.size_width if index.kind is IndexKind.SINGLE else 0
    return bytes(3 - len(METADATA[index.sections]) + unused)
