"""The group info message: when a group's links move to dense storage and back.

H5.format.html, IV.A.2.k (message 0x000A).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader

HAS_PHASES, HAS_ESTIMATES = 1, 2
MAX_COMPACT, MIN_DENSE = 8, 6
"""HDF5's defaults."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """Most links kept compact, fewest kept dense, and estimates of a new group's links and their names' length."""

    max_compact: int = MAX_COMPACT
    min_dense: int = MIN_DENSE
    links: int = 4
    name_length: int = 8


def decode_group_info(message: Reader) -> GroupInfo:
    """Read the message; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "group info's header")
    if version or flags & ~(HAS_PHASES | HAS_ESTIMATES):
        raise Corrupt(
            f"The {message.thing} has a group info message of version {version} with flags {flags}."
        )
    info = GroupInfo()
    phases = message.numbers(2, 2, "group info") if flags & HAS_PHASES else (info.max_compact, info.min_dense)
    estimates = (
        message.numbers(2, 2, "group info") if flags & HAS_ESTIMATES else (info.links, info.name_length)
    )
    return GroupInfo(*phases, *estimates)


def encode_group_info(info: GroupInfo) -> bytes:
    """Return the message; what is HDF5's default is left out."""
    default = GroupInfo()
    phases, estimates = (info.max_compact, info.min_dense), (info.links, info.name_length)
    pieces, flags = [], 0
    if phases != (default.max_compact, default.min_dense):
        flags |= HAS_PHASES
        pieces.append(struct.pack("<HH", *phases))
    if estimates != (default.links, default.name_length):
        flags |= HAS_ESTIMATES
        pieces.append(struct.pack("<HH", *estimates))
    return bytes((0, flags)) + b"".join(pieces)
