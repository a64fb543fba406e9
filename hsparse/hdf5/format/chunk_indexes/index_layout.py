"""The kinds of chunk indexes, the choice of a kind for a dataset, and the parameters of an index.

H5.format.html, IV.A.2.i "The Data Layout Message", version 4, "Chunk Indexing Type"; VII, "Chunk Indexing".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from struct import Struct

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.format.file_fields import WIDTH_CODES, Widths
from hsparse.hdf5.format.hdf5_file import DEFAULT_K


class IndexKind(IntEnum):
    """A kind of chunk index, numbered as in layout messages of version 4; earlier versions imply `BTREE_V1`."""

    BTREE_V1 = 0
    SINGLE = 1
    IMPLICIT = 2
    FIXED_ARRAY = 3
    EXTENSIBLE_ARRAY = 4
    BTREE_V2 = 5


STRUCTURED_KINDS = (
    IndexKind.SINGLE,
    IndexKind.FIXED_ARRAY,
    IndexKind.EXTENSIBLE_ARRAY,
    IndexKind.BTREE_V2,
)
"""The index kinds of structured chunks. An implicit index is not possible, because the chunks' sizes vary."""


def parse_index_kind(number: int, kinds: Sequence[IndexKind]) -> IndexKind:
    """Return the index kind with a layout message's `number`; raises `Corrupt` if `kinds` lacks this kind."""
    for kind in kinds:
        if kind == number:
            return kind
    allowed = ", ".join(str(int(kind)) for kind in kinds)
    raise Corrupt(f"The layout message has chunk index type {number}; it can be {allowed}.")


def choose_index_kind(
    extent: Sequence[int],
    max_dims: Sequence[int | None],
    chunk: Sequence[int],
    *,
    early: bool = False,
    message_version: int = 4,
) -> IndexKind:
    """Return the index kind that HDF5 chooses when it creates a dataset (None in `max_dims` is unlimited).

    `early` is true if the chunks are dense, unfiltered, and all allocated at creation. `message_version` is the version
    of the layout message.
    """
    if message_version < 4:
        return IndexKind.BTREE_V1
    unlimited = sum(limit is None for limit in max_dims)
    if unlimited:
        return IndexKind.EXTENSIBLE_ARRAY if unlimited == 1 else IndexKind.BTREE_V2
    if tuple(extent) == tuple(max_dims) == tuple(chunk):
        return IndexKind.SINGLE
    return IndexKind.IMPLICIT if early else IndexKind.FIXED_ARRAY


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The parameters of a chunk index from the layout message, and the dataset's properties that its records depend on.

    `chunk` and `max_dims` are in elements (None in `max_dims` is unlimited), `element_size` is in bytes. `filtered` is
    true if the dataset has a filter, in any section. `sections` is 0 for dense chunks; for structured chunks,
    `revision` selects the record layout. `message_version` is the layout message's version, 5 for structured chunks.
    `address`, relative to the file's base address, is None if nothing is allocated. `info` is the layout message's
    index information. Three values are from the superblock: `k`, half the maximum number of entries in a v1 B-tree
    node, and `address_width` and `length_width`, which are 2, 4 or 8 bytes (always 8 for structured chunks).
    """

    kind: IndexKind
    chunk: tuple[int, ...]
    max_dims: tuple[int | None, ...]
    element_size: int
    filtered: bool = False
    sections: int = 0
    revision: FormatRevision = NEWEST_REVISION
    message_version: int = 4
    address: int | None = None
    info: bytes = b""
    k: int = DEFAULT_K
    address_width: int = 8
    length_width: int = 8

    def fields(self, codes: str) -> Struct:
        """Return the `Struct` of little-endian fields: `O` is an address, `L` a length, other codes as in `struct`."""
        address, length = WIDTH_CODES[self.address_width], WIDTH_CODES[self.length_width]
        return Struct("<" + codes.replace("O", address).replace("L", length))

    @property
    def widths(self) -> Widths:
        return Widths(self.address_width, self.length_width)

    @property
    def undefined(self) -> int:
        """The undefined address, which marks a structure that is not allocated."""
        return (1 << 8 * self.address_width) - 1

    @property
    def rank(self) -> int:
        return len(self.chunk)

    @property
    def chunk_bytes(self) -> int:
        """The size in bytes of an unfiltered dense chunk."""
        return prod(self.chunk) * self.element_size

    @property
    def size_width(self) -> int:
        """The width, in bytes, of a chunk's size in a record.

        It is 8 for chunks with a vlen section, and `length_width` for dense chunks if the layout message has version 5.
        For all other chunks it is one more than the bytes that `chunk_bytes` needs, and at most 8.
        """
        if self.sections == 3:
            return 8
        if not self.sections and self.message_version > 4:
            return self.length_width
        return min(8, 1 + (self.chunk_bytes.bit_length() + 7) // 8)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """The maximum number of chunks in each dimension, or None if the dimension is unlimited."""
        return tuple(
            None if limit is None else -(-limit // step)
            for limit, step in zip(self.max_dims, self.chunk, strict=True)
        )

    @property
    def client(self) -> int:
        """The client id in an index's blocks: 0 for dense, 2 for structured chunks; plus 1 if chunks are filtered."""
        return 2 * bool(self.sections) + self.filtered

    @property
    def block_version(self) -> int:
        """The version that is written into the header and blocks of an index: 0 for dense chunks (H5.format.html).

        For structured chunks, it is 0 in RFC version 28, and 1 in RFC version 17 and in libhdf5's prototype.
        """
        return int(bool(self.sections) and self.revision is not FormatRevision.RFC_2025_10)
