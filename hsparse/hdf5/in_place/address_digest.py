"""Encode the address of an HDF5 object into the second half of its id, so that a server finds the object by its id."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from hsparse.model.ids import second_half

BITS = 64


def address_digest(root: str) -> Callable[[int], bytes]:
    """Return a function that encodes an address (negative for a sparse dataset) as 8 bytes, masked by the root id."""
    mask = _mask(root)
    return lambda address: (address % 2**BITS ^ mask).to_bytes(BITS // 8)


def address_of(id: str, root: str) -> int:
    """Return the address that the second half of an id encodes: the inverse of `address_digest`."""
    address = int.from_bytes(second_half(id)) ^ _mask(root)
    return address - 2**BITS if address >> (BITS - 1) else address


def _mask(root: str) -> int:
    return int.from_bytes(sha256(root.encode()).digest()[: BITS // 8])
