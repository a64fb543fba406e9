"""The data layout message of HDF5's own layouts, versions 1 to 5.

H5.format.html, IV.A.2.i (message 0x0008). For chunks it has the kind, address and parameters of their index. The
message of structured chunks is recognised and kept as it is (`structured_layout` decodes it).

The data layout message of structured chunks: version 5, class 4.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 28, section 3.1.1, and version 17, where
the composition follows the address, offsets have 4 bytes and the chunk's type is a bit. The message of the library's
prototype is padded with zeros to the longest of its kind.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from hsparse.errors import BadRequest, Corrupt, Unsupported
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
from hsparse.hdf5.format.file_fields import Addressed, Key, Widths, address_bytes, width_of
from hsparse.model.dataspace import MAX_RANK

COMPACT, CONTIGUOUS, CHUNKED, VIRTUAL, STRUCTURED = range(5)
BTREE_1, SINGLE, IMPLICIT, FIXED_ARRAY, EXTENSIBLE_ARRAY, BTREE_2 = IndexKind
"""Kinds of chunk indexes; the first is that of versions 1 to 3, and has no number in a file."""
UNFILTERED_EDGES, SINGLE_FILTERED = 1, 2
"""Flags from version 4 on: chunks beyond the extent are not filtered; a single chunk has a filtered record."""
MAX_COMPACT = 65_535


@dataclass(frozen=True, slots=True)
class CompactLayout:
    """The elements' bytes are in the message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ContiguousLayout:
    """`size` bytes at `address`, None where nothing is allocated; versions 1 and 2 do not tell the size."""

    address: int | None
    size: int | None


@dataclass(frozen=True, slots=True)
class LayoutIndex:
    """Where an index is (its address is a single chunk's own), and the fields that its kind has in the message.

    Parameters: of a single filtered chunk its stored size and filter mask; of a fixed array its page bits; of
    an extensible array maximum bits, elements in the index, least pointers, least elements, page bits; of a
    version 2 B-tree node size, split and merge percent.
    """

    kind: int
    address: int | None
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkedLayout:
    """Chunks of `dims` elements of `item_size` bytes."""

    dims: tuple[int, ...]
    item_size: int
    index: LayoutIndex
    flags: int = 0
    version: int = 3


@dataclass(frozen=True, slots=True)
class VirtualLayout:
    """A mapping of other datasets, kept in a global heap collection at `address`; None where there is none."""

    address: int | None
    index: int


@dataclass(frozen=True, slots=True)
class RawStructuredLayout:
    """Structured chunks: the message as it is."""

    message: bytes


LayoutMessage: TypeAlias = (
    CompactLayout | ContiguousLayout | ChunkedLayout | VirtualLayout | RawStructuredLayout
)
PARAMETERS: dict[int, tuple[int, ...]] = {
    SINGLE: (),
    IMPLICIT: (),
    FIXED_ARRAY: (1,),
    EXTENSIBLE_ARRAY: (1, 1, 1, 1, 1),
    BTREE_2: (4, 1, 1),
}
"""The bytes of each parameter."""


def decode_layout(message: ByteReader, widths: Widths) -> LayoutMessage:
    """Read a layout; raises `Corrupt`."""
    start = message.place
    version = message.number(1, "layout's version")
    if version in (1, 2):
        return _decode_old(message, widths)
    if version not in (3, 4, 5):
        raise Corrupt(f"The {message.subject} has a layout message of version {version}; 1 to 5 exist.")
    kind = message.number(1, "layout's class")
    if kind == COMPACT:
        return CompactLayout(bytes(message.take(message.number(2, "compact data's size"), "compact data")))
    if kind == CONTIGUOUS:
        address = widths.read_address(message, "address of the data")
        return ContiguousLayout(address, widths.read_length(message, "size of the data"))
    if kind == CHUNKED:
        return _decode_chunked(message, widths) if version == 3 else _decode_indexed(message, widths, version)
    if kind == VIRTUAL and version > 3:
        return VirtualLayout(
            widths.read_address(message, "address of the mapping"), message.number(4, "mapping's index")
        )
    if kind == STRUCTURED and version > 4:
        return RawStructuredLayout(bytes(message.data[start:]))
    raise Corrupt(
        f"The {message.subject} has a layout of class {kind} in version {version}, which has none such."
    )


def _decode_old(message: ByteReader, widths: Widths) -> LayoutMessage:
    rank, kind = message.numbers(2, 1, "layout's header")
    message.take(5, "layout's header")
    address = None if kind == COMPACT else widths.read_address(message, "address of the data")
    sizes = message.numbers(rank, 4, "layout's dimensions")
    if kind == COMPACT:
        return CompactLayout(bytes(message.take(message.number(4, "compact data's size"), "compact data")))
    if kind == CONTIGUOUS:
        return ContiguousLayout(address, None)
    if kind != CHUNKED:
        raise Corrupt(f"The {message.subject} has a layout of class {kind}; versions 1 and 2 have 0 to 2.")
    return _chunked(message, sizes, LayoutIndex(BTREE_1, address), 0, 2)


def _decode_chunked(message: ByteReader, widths: Widths) -> ChunkedLayout:
    rank = message.number(1, "layout's dimensionality")
    address = widths.read_address(message, "address of the chunk index")
    sizes = message.numbers(rank, 4, "chunk's dimensions")
    return _chunked(message, sizes, LayoutIndex(BTREE_1, address), 0, 3)


def _decode_indexed(message: ByteReader, widths: Widths, version: int) -> ChunkedLayout:
    flags, rank, width = message.numbers(3, 1, "layout's header")
    if not 1 <= width <= 8 or flags & ~(UNFILTERED_EDGES | SINGLE_FILTERED):
        raise Corrupt(
            f"The {message.subject} has a layout with flags {flags} and dimensions of {width} bytes."
        )
    sizes = message.numbers(rank, width, "chunk's dimensions")
    kind = message.number(1, "kind of the chunk index")
    if kind not in PARAMETERS:
        raise Corrupt(f"The {message.subject} has a chunk index of kind {kind}; 1 to 5 exist.")
    if kind == SINGLE and flags & SINGLE_FILTERED:
        size = widths.read_length(message, "chunk's size")
        parameters: tuple[int, ...] = (size, message.number(4, "filter mask"))
    else:
        parameters = tuple(message.number(bytes_, "chunk index's parameters") for bytes_ in PARAMETERS[kind])
    address = widths.read_address(message, "address of the chunk index")
    return _chunked(message, sizes, LayoutIndex(kind, address, parameters), flags, version)


def _chunked(
    message: ByteReader, sizes: tuple[int, ...], index: LayoutIndex, flags: int, version: int
) -> ChunkedLayout:
    """Return a chunked layout of `sizes`: the chunk's dimensions, then the bytes of an element."""
    if not 1 < len(sizes) <= MAX_RANK + 1 or not all(sizes):
        raise Corrupt(f"The {message.subject} has chunks of {list(sizes)}, elements' size last.")
    return ChunkedLayout(sizes[:-1], sizes[-1], index, flags, version)


# --- writing --------------------------------------------------------------------------------------


def encode_layout(layout: LayoutMessage, version: int = 3) -> bytes:
    """Return the message: version 3 or 4, of chunks that of their index."""
    if isinstance(layout, RawStructuredLayout):
        return layout.message
    if isinstance(layout, ChunkedLayout):
        return _encode_chunked(layout)
    if isinstance(layout, CompactLayout):
        if len(layout.data) > MAX_COMPACT:
            raise BadRequest(f"Compact data can have {MAX_COMPACT} bytes, not {len(layout.data)}.")
        return struct.pack("<BBH", version, COMPACT, len(layout.data)) + layout.data
    if isinstance(layout, ContiguousLayout):
        size = struct.pack("<Q", layout.size or 0)
        return bytes((version, CONTIGUOUS)) + address_bytes(layout.address) + size
    return bytes((4, VIRTUAL)) + address_bytes(layout.address) + struct.pack("<I", layout.index)


def _encode_chunked(layout: ChunkedLayout) -> bytes:
    index = layout.index
    sizes = (*layout.dims, layout.item_size)
    if max(sizes) >= 2**32 and layout.version < 5:
        raise BadRequest(f"A chunk's dimensions must be less than 2^32, not {list(sizes)}.")
    if index.kind == BTREE_1:
        head = bytes((3, CHUNKED, len(sizes))) + address_bytes(index.address)
        return head + struct.pack(f"<{len(sizes)}I", *sizes)
    width = width_of(max(sizes))
    head = bytes((max(layout.version, 4), CHUNKED, layout.flags, len(sizes), width))
    dims = b"".join(size.to_bytes(width, "little") for size in sizes)
    filtered = index.kind == SINGLE and layout.flags & SINGLE_FILTERED
    bytes_ = (8, 4) if filtered else PARAMETERS[index.kind]
    pairs = zip(index.parameters, bytes_, strict=True)
    parameters = b"".join(value.to_bytes(width, "little") for value, width in pairs)
    return head + dims + bytes((index.kind,)) + parameters + address_bytes(index.address)


VERSION, CLASS, PROPERTY_VERSION = 5, 4, 0
RFC_SPARSE, RFC_VL = 1, 2
"""Bits of the chunk's type in the RFC; the prototype has 0 for sparse chunks."""
METADATA = {2: METADATA_FIXED, 3: METADATA_VL}
"""The sections that hold metadata, by how many there are."""
SUBJECT = "structured layout message"


class _Head(NamedTuple):
    """What comes before the chunk's composition."""

    kind: int
    flags: int
    chunk: tuple[int, ...]
    element_size: int


@dataclass(frozen=True, slots=True)
class StructuredLayout:
    """A dataset's structured chunks: their index, with the number of sections, and whether edge chunks are filtered."""

    index: IndexLayout
    filtered_edges: bool = True

    @property
    def metadata(self) -> tuple[int, ...]:
        """The sections that hold metadata, each with a checksum."""
        return METADATA[self.index.sections]


def decode_structured_layout(
    message: Buffer, max_dims: tuple[int | None, ...], *, filtered: bool
) -> StructuredLayout:
    """Return the layout of a dataset with these limits, None without; `filtered` says that a section has filters.

    Versions 28 and the prototype's are the same; of both it says the newest revision. `Corrupt` when the message
    contradicts itself, the dataspace or the filters, `Unsupported` for dense chunks of variable-length data.
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
    # The first byte of a composition is 8, which is no index's type.
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
            f"The {SUBJECT} has {dimensionality} dimensions of {width} bytes; the dataspace has {rank}, to which the "
            "element's size comes."
        )
    *chunk, element_size = reader.numbers(dimensionality, width, "dimensions")
    if not element_size or not all(0 < length < 2**32 for length in chunk):
        raise Corrupt(f"The {SUBJECT} has chunks of {chunk} elements of {element_size} bytes.")
    return _Head(kind, flags, tuple(chunk), element_size)


def _decode_composition(reader: ByteReader, kind: int) -> int:
    """Return how many sections there are."""
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
    """Return the index of version 17: the length of its information depends on the composition that follows."""
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
    """Return the message, as the index's revision has it.

    The index has its address and, from `index_info`, its information.
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
    """Return the message of a planned file; `key` is the piece that the address leads to, None where there is none."""
    data = encode_structured_layout(replace(layout, index=replace(layout.index, address=None)))
    index = layout.index
    first = index.revision is FormatRevision.RFC_2023_07
    behind = _composition(index) if first else _padding(index)
    return Addressed(data) if key is None else Addressed(data, ((len(data) - len(behind) - 8, key),))


def _composition(index: IndexLayout) -> bytes:
    """Return the size of offsets, the number of sections, and which of them hold metadata."""
    metadata = METADATA[index.sections]
    offset_size = 4 if index.revision is FormatRevision.RFC_2023_07 else 8
    return bytes((offset_size, index.sections, len(metadata), *metadata))


def _padding(index: IndexLayout) -> bytes:
    """Return the zeros that the prototype pads with: three metadata sections, a size of 8 bytes."""
    unused = 8 - index.size_width if index.kind is IndexKind.SINGLE else 0
    return bytes(3 - len(METADATA[index.sections]) + unused)
