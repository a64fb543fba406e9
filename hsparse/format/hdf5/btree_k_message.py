"""The B-tree 'K' values message, in the superblock extension: how many entries nodes of v1 B-trees have.

H5.format.html, IV.A.2.t (message 0x0013). Superblocks of version 0 and 1 have the values themselves.
"""

from __future__ import annotations

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader


def decode_chunk_k(message: Reader) -> int:
    """Return half the entries of a node of chunks; those of groups are found in each node. Raises `Corrupt`."""
    version = message.number(1, "version")
    if version:
        raise Corrupt(
            f"The {message.thing} has a message of B-tree values of version {version}; only 0 is known."
        )
    return check_chunk_k(message.number(2, "chunk K"), message.thing)


def check_chunk_k(k: int, thing: str) -> int:
    """Return the value; raises `Corrupt` for 0, with which a node has no entries."""
    if not k:
        raise Corrupt(f"The {thing} says that nodes of chunk B-trees have no entries.")
    return k
