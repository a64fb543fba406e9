"""The kinds of chunk indexes, and which one a dataset has.

H5.format.html, IV.A.2.i "The Data Layout Message", version 4, "Chunk Indexing Type"; VII, "Chunk Indexing".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hsparse.errors import Corrupt


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
"""What structured chunks can be indexed by: their sizes vary, so that nothing is implicit."""


def parse_kind(number: int, kinds: Sequence[IndexKind]) -> IndexKind:
    """Return the kind of a layout message's index; `Corrupt` for one that is not in `kinds`."""
    for kind in kinds:
        if kind == number:
            return kind
    allowed = ", ".join(str(int(kind)) for kind in kinds)
    raise Corrupt(f"The layout message has chunk index type {number}; it can be {allowed}.")


def choose_index(
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
