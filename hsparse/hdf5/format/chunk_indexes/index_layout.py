"""The kinds of chunk indexes, the choice among them for a dataset, and the parameters of an index.

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
    """A chunk index, by its number in layout messages; those before version 4 know the first one alone."""

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
"""The index kinds of structured chunks: their sizes vary, so that an implicit index cannot work."""


def parse_index_kind(number: int, kinds: Sequence[IndexKind]) -> IndexKind:
    """Return the kind of a layout message's index; `Corrupt` for one that is not in `kinds`."""
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
    """Return the index that HDF5 chooses at creation; None in `max_dims` is unlimited.

    `early` says that dense chunks are not filtered and are all allocated at creation. `message_version` is that of
    the layout message.
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
    """A chunk index as the layout message names it, and what its records depend on.

    Dense chunks have no `sections`; for structured ones `revision` says how their records are laid out.
    `chunk` is in elements, without the element size, which is in bytes; None in `max_dims` is unlimited. `filtered`
    says that the dataset has a filter, in any section. `message_version` is the layout message's, 5 for
    structured chunks. `address` is None while nothing is allocated; `info` is the index information of the layout
    message, which for a single chunk has its size. Addresses are relative to the file's base address; they
    and lengths have 2, 4 or 8 bytes, as the superblock says, 8 with structured chunks. `k` is the superblock's too.
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
        """Return the form of packed fields: O is an address, L a length, the others are `struct`'s."""
        address, length = WIDTH_CODES[self.address_width], WIDTH_CODES[self.length_width]
        return Struct("<" + codes.replace("O", address).replace("L", length))

    @property
    def widths(self) -> Widths:
        return Widths(self.address_width, self.length_width)

    @property
    def undefined(self) -> int:
        """The address that means that nothing is allocated."""
        return (1 << 8 * self.address_width) - 1

    @property
    def rank(self) -> int:
        return len(self.chunk)

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk with all elements, unfiltered, in bytes."""
        return prod(self.chunk) * self.element_size

    @property
    def size_width(self) -> int:
        """The bytes that the size of a chunk takes in a record.

        One more than the bytes of the nominal size; 8 with a variable-length section, and in records of dense
        chunks since version 5 of the layout message.
        """
        if self.sections == 3:
            return 8
        if not self.sections and self.message_version > 4:
            return self.length_width
        return min(8, 1 + (self.chunk_bytes.bit_length() + 7) // 8)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """How many chunks there can be in each dimension, None without limit."""
        return tuple(
            None if limit is None else -(-limit // step)
            for limit, step in zip(self.max_dims, self.chunk, strict=True)
        )

    @property
    def client(self) -> int:
        """What the records are of: dense chunks 0, filtered ones 1, structured ones 2 and 3."""
        return 2 * bool(self.sections) + self.filtered

    @property
    def block_version(self) -> int:
        """The version written into a structured index's header and into the blocks of arrays.

        H5.format.html has 0 for dense chunks. RFC version 17 and the prototype have 1, version 28 returns to 0.
        """
        return int(bool(self.sections) and self.revision is not FormatRevision.RFC_2025_10)
