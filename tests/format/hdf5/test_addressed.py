"""Bytes whose addresses come later."""

from __future__ import annotations

from hsparse.hdf5.format.file_fields import Addressed, address_to

ADDRESSES = {"a": 0x0102, "b": 2**63}


def test_addresses_are_put_in() -> None:
    whole = Addressed.join(
        (Addressed(b"xy"), address_to("a"), Addressed(b"z"), address_to("b"), address_to(None))
    )
    assert whole.data == b"xy" + bytes(8) + b"z" + bytes(8) + b"\xff" * 8
    assert (
        whole.filled(ADDRESSES.__getitem__) == b"xy\2\1" + bytes(6) + b"z" + bytes(7) + b"\x80" + b"\xff" * 8
    )
    nested = Addressed.join((Addressed(b"-"), whole))
    assert nested.filled(ADDRESSES.__getitem__) == b"-" + whole.filled(ADDRESSES.__getitem__)


def test_nothing() -> None:
    assert Addressed.join(()).filled(ADDRESSES.__getitem__) == b""
