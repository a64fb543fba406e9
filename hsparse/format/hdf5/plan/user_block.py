"""The user block of a file, bytes before the superblock that HDF5 leaves to others: MATLAB's head, a script.

It is a creation property of a domain's root group: `{"size": 512, "value_base64": ...}`, without the zeros at its end.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.hdf5.superblock import FIRST_USER_BLOCK

USER_BLOCK = "userBlock"
MAX_CONTENT = 256 * 1024
"""The most bytes of a user block up to its last one that is not zero: they are in a record."""
MAX_SIZE = 1 << 26
Json = dict[str, Any]


def user_block_json(data: bytes) -> Json | None:
    """Return a user block as a creation property, None for one that is too long."""
    content = data.rstrip(b"\0")
    if len(content) > MAX_CONTENT or len(data) > MAX_SIZE:
        return None
    return {"size": len(data), "value_base64": base64.b64encode(content).decode()}


def user_block_of(root: Json) -> bytes:
    """Return the user block of a domain's file by the record of its root group; `BadRequest` for a wrong property."""
    found = (root.get("creationProperties") or {}).get(USER_BLOCK)
    if found is None:
        return b""
    try:
        size, content = found["size"], base64.b64decode(found["value_base64"], validate=True)
    except (TypeError, KeyError, binascii.Error, ValueError):
        size, content = 0, b""
    is_power = isinstance(size, int) and FIRST_USER_BLOCK <= size <= MAX_SIZE and not size & (size - 1)
    if not is_power or len(content) > size:
        raise BadRequest(
            f"The creation property {USER_BLOCK} must have a size, a power of two from {FIRST_USER_BLOCK} to "
            f"{MAX_SIZE}, and value_base64 of no more bytes."
        )
    return bytes(content.ljust(size, b"\0"))
