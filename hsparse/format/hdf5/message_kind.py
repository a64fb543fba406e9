"""The types of object header messages, by number.

H5.format.html, IV.A.2. Types that no reader here asks for are left out.
"""

from __future__ import annotations

from enum import IntEnum


class MessageKind(IntEnum):
    """A message's type."""

    DATASPACE = 0x01
    LINK_INFO = 0x02
    DATATYPE = 0x03
    OLD_FILL = 0x04
    FILL = 0x05
    LINK = 0x06
    EXTERNAL_FILES = 0x07
    LAYOUT = 0x08
    GROUP_INFO = 0x0A
    PIPELINE = 0x0B
    ATTRIBUTE = 0x0C
    COMMENT = 0x0D
    OLD_TIME = 0x0E
    SHARED_TABLE = 0x0F
    CONTINUATION = 0x10
    SYMBOL_TABLE = 0x11
    TIME = 0x12
    BTREE_K = 0x13
    ATTRIBUTE_INFO = 0x15
    REFERENCE_COUNT = 0x16
