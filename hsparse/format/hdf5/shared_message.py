"""A message kept elsewhere: in another object's header, or in the file's heap of shared messages.

H5.format.html, IV.A.2, "Shared Message", versions 1 to 3.
"""

from __future__ import annotations

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.widths import Widths, address_bytes

IN_HEAP, COMMITTED = 1, 2


def decode_shared(message: Reader, widths: Widths) -> int:
    """Return the address of the object header that has the message.

    Raises `Corrupt`, and `Unsupported` for messages in the heap, which only `H5Pset_shared_mesg_index` makes.
    """
    version, kind = message.numbers(2, 1, "shared message")
    if not 1 <= version <= 3:
        raise Corrupt(f"The {message.thing} has a shared message of version {version}; 1 to 3 exist.")
    if version == 3 and kind == IN_HEAP:
        raise Unsupported(
            f"The {message.thing} has a message in the file's heap of shared messages; rewrite the file "
            "without them (h5repack)."
        )
    if version == 1:
        message.take(6 + widths.length, "shared message")
    address = widths.read_address(message, "address of a shared message")
    if address is None:
        raise Corrupt(f"The {message.thing} has a shared message that is nowhere.")
    return address


def encode_shared(address: int) -> bytes:
    """Return what stands for the datatype committed at `address`: version 3, which needs HDF5 1.8."""
    return bytes((3, COMMITTED)) + address_bytes(address)
