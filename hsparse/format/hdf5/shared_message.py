"""A message kept elsewhere: in another object's header, or in the file's heap of shared messages.

H5.format.html, IV.A.2, "Shared Message", versions 1 to 3.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.widths import Widths, address_bytes

IN_HEAP, COMMITTED = 1, 2
HEAP_ID = 8


class HeapId(NamedTuple):
    """The id of a message in the file's heap of shared messages."""

    id: bytes


Elsewhere: TypeAlias = int | HeapId
"""Where a message stands: at the address of an object header, or in the heap."""


def decode_shared(message: Reader, widths: Widths) -> Elsewhere:
    """Return where the message is; raises `Corrupt`."""
    version, kind = message.numbers(2, 1, "shared message")
    if not 1 <= version <= 3:
        raise Corrupt(f"The {message.thing} has a shared message of version {version}; 1 to 3 exist.")
    if version == 3 and kind == IN_HEAP:
        return HeapId(bytes(message.take(HEAP_ID, "id of a shared message")))
    if version == 1:
        message.take(6 + widths.length, "shared message")
    address = widths.read_address(message, "address of a shared message")
    if address is None:
        raise Corrupt(f"The {message.thing} has a shared message that is nowhere.")
    return address


def encode_shared(address: int) -> bytes:
    """Return what stands for the datatype committed at `address`: version 3, which needs HDF5 1.8."""
    return bytes((3, COMMITTED)) + address_bytes(address)
