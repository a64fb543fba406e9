"""The data layout message, versions 1 to 5 (H5.format.html, IV.A.2.i; message 0x0008).

For chunked datasets, the message has the kind, address and parameters of the chunk index. `decode_layout` returns the
message of structured chunks undecoded; `hsparse.hdf5.format.messages.structured_layout` decodes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.file_fields import Widths, address_bytes, width_of
from hsparse.model.dataspace import MAX_RANK

COMPACT, CONTIGUOUS, CHUNKED, VIRTUAL, STRUCTURED = range(5)
BTREE_1, SINGLE, IMPLICIT, FIXED_ARRAY, EXTENSIBLE_ARRAY, BTREE_2 = IndexKind
"""The kinds of chunk indexes. `BTREE_1`, the index in messages of versions 1 to 3, has no number in files."""
PARAMETERS: dict[int, tuple[int, ...]] = {
    SINGLE: (),
    IMPLICIT: (),
    FIXED_ARRAY: (1,),
    EXTENSIBLE_ARRAY: (1, 1, 1, 1, 1),
    BTREE_2: (4, 1, 1),
}
"""Maps each index kind to the widths in bytes of its parameters."""
UNFILTERED_EDGES, SINGLE_FILTERED = 1, 2
"""Flags of versions 4 and 5: partial edge chunks are unfiltered; a single chunk's record has size and filter mask."""
MAX_COMPACT = 65_535


@dataclass(frozen=True, slots=True)
class CompactLayout:
    """A layout whose message contains the elements' bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ContiguousLayout:
    """Contiguous data of `size` bytes at `address`; the address is None if no data is allocated.

    The size is None for messages of versions 1 and 2, which have no size.
    """

    address: int | None
    size: int | None


@dataclass(frozen=True, slots=True)
class LayoutIndex:
    """A chunk index: its address (a single chunk's own address), and its parameters in the layout message.

    The parameters of a filtered single chunk are its stored size and filter mask; of a fixed array, the page bits; of
    an extensible array, the maximum bits, the number of elements in the index block, the minimum number of pointers
    and of elements, and the page bits; of a version 2 B-tree, the node size and the split and merge percentages.
    """

    kind: int
    address: int | None
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkedLayout:
    """Chunks of `dims` elements of `item_size` bytes, and their index; `version` is the version of the message."""

    dims: tuple[int, ...]
    item_size: int
    index: LayoutIndex
    flags: int = 0
    version: int = 3


@dataclass(frozen=True, slots=True)
class VirtualLayoutMessage:
    """A virtual layout, whose mappings are the object `index` of the global heap collection at `address`.

    The address is None if there are no mappings.
    """

    address: int | None
    index: int


@dataclass(frozen=True, slots=True)
class RawStructuredLayout:
    """The layout of structured chunks, as the undecoded message."""

    message: bytes


LayoutMessage: TypeAlias = (
    CompactLayout | ContiguousLayout | ChunkedLayout | VirtualLayoutMessage | RawStructuredLayout
)


def decode_layout(message: ByteReader, widths: Widths) -> LayoutMessage:
    """Decode a layout message; raises `Corrupt`."""
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
        return VirtualLayoutMessage(
            widths.read_address(message, "address of the mapping"), message.number(4, "mapping's index")
        )
    if kind == STRUCTURED and version > 4:
        return RawStructuredLayout(bytes(message.data[start:]))
    raise Corrupt(
        f"The {message.subject} has a layout of class {kind}, which does not exist in version {version}."
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
            f"The {message.subject} has a layout with unknown flags {flags}, or dimensions of {width} bytes."
        )
    sizes = message.numbers(rank, width, "chunk's dimensions")
    kind = message.number(1, "kind of the chunk index")
    if kind not in PARAMETERS:
        raise Corrupt(f"The {message.subject} has a chunk index of kind {kind}; only 1 to 5 are known.")
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
    """Return a chunked layout; `sizes` are the chunk dimensions, followed by the element size. Raises `Corrupt`."""
    if not 1 < len(sizes) <= MAX_RANK + 1 or not all(sizes):
        raise Corrupt(f"The {message.subject} has invalid chunks of {list(sizes)}, element size last.")
    return ChunkedLayout(sizes[:-1], sizes[-1], index, flags, version)


# --- writing --------------------------------------------------------------------------------------


def encode_layout(layout: LayoutMessage, version: int = 3) -> bytes:
    """Encode a layout message in `version`, 3 or 4; chunked, virtual and structured layouts ignore `version`."""
    if isinstance(layout, RawStructuredLayout):
        return layout.message
    if isinstance(layout, ChunkedLayout):
        return _encode_chunked(layout)
    if isinstance(layout, CompactLayout):
        if len(layout.data) > MAX_COMPACT:
            raise BadRequest(f"Compact data can have at most {MAX_COMPACT} bytes, not {len(layout.data)}.")
        return struct.pack("<BBH", version, COMPACT, len(layout.data)) + layout.data
    if isinstance(layout, ContiguousLayout):
        size = struct.pack("<Q", layout.size or 0)
        return bytes((version, CONTIGUOUS)) + address_bytes(layout.address) + size
    return bytes((4, VIRTUAL)) + address_bytes(layout.address) + struct.pack("<I", layout.index)


def _encode_chunked(layout: ChunkedLayout) -> bytes:
    index = layout.index
    sizes = (*layout.dims, layout.item_size)
    if max(sizes) >= 2**32 and layout.version < 5:
        raise BadRequest(f"A chunk's dimensions and element size must be less than 2^32, not {list(sizes)}.")
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
"""Bits of the chunk type in RFC version 17; in libhdf5's prototype, the type of sparse chunks is 0."""
