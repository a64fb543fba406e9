"""Serialised selections: the documented bytes of every type and version, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.selections.orthogonal import Span
from hsparse.format.selections.selection_encoding import (
    encode_blocks,
    encode_points,
    encode_regular,
)
from hsparse.format.selections.serialized_selection import (
    Serialized,
    decode_serialized,
)

DIMS = (60,)


def read(text: str, dims: tuple[int, ...] = DIMS) -> Serialized:
    reader = ByteReader(memoryview(bytes.fromhex(text)))
    found = decode_serialized(reader, dims)
    reader.done("selection")
    return found


def column(*values: int) -> np.ndarray:
    return np.array(values, np.uint64).reshape(-1, 1)


BLOCK_V1 = "02000000 01000000 00000000 10000000 01000000 01000000 02000000 04000000"
BLOCKS_V1 = (
    "02000000 01000000 00000000 20000000 01000000 03000000"
    "00000000 00000000 07000000 08000000 14000000 15000000"
)
BLOCKS_V3 = "02000000 03000000 00 02 01000000 0300 0000 0000 0700 0800 1400 1500"
REGULAR_V2 = (
    "02000000 02000000 01 24000000 01000000"
    "0100000000000000 0a00000000000000 0500000000000000 0200000000000000"
)
REGULAR_V3 = "02000000 03000000 01 02 01000000 0100 0a00 0500 0200"
POINTS_V1 = "01000000 01000000 00000000 14000000 01000000 03000000 07000000 02000000 05000000"
POINTS_V2 = "01000000 02000000 02 01000000 0300 0700 0200 0500"


def test_no_such_version() -> None:
    for call in (
        lambda: encode_points([np.array([1])], 3),
        lambda: encode_blocks(column(1), column(1), 2),
        lambda: encode_regular([Span(1)], 1),
    ):
        with pytest.raises(BadRequest, match="no version"):
            call()
    with pytest.raises(BadRequest, match="32-bit"):
        encode_points([np.array([2**32], np.uint64)], 1)
    with pytest.raises(BadRequest, match="32-bit"):
        encode_blocks(column(0), column(2**32), 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("04000000 01000000 00000000 00000000", "type 4"),
        ("03000000 02000000 00000000 00000000", "version other than 1"),
        ("03000000 01000000 00000000 04000000", "or a length"),
        ("03000000 01000000 00000000 00000000 00", "followed by 1 bytes"),
        ("03000000 01000000 00000000 0000", "ends inside its selection header"),
        (POINTS_V1.replace("14000000", "15000000"), "says 21 bytes and has 20"),
        (POINTS_V1.replace("00000000", "01000000", 1), "reserved"),
        (POINTS_V1.replace("01000000 01000000", "01000000 03000000", 1), "version 3"),
        (POINTS_V2.replace("0700", "3c00"), "coordinate 60 in dimension 0, not below 60"),
        (POINTS_V2.replace("02000000 02", "02000000 03"), "in 3 bytes"),
        (POINTS_V2.replace("01000000 0300", "02000000 0300"), "rank 2, its dataspace 1"),
        (POINTS_V2.replace("0300", "ffff"), "131070 bytes are needed"),
        (BLOCK_V1.replace("02000000 04000000", "04000000 02000000"), "ends before it starts"),
        (BLOCK_V1.replace("04000000", "3c000000"), "not below 60"),
        (BLOCK_V1.replace("10000000", "0f000000"), "says 15 bytes"),
        (BLOCKS_V1.replace("00000000 20000000", "00000001 20000000", 1), "reserved"),
        (BLOCKS_V3.replace("00 02", "02 02"), "flags 2"),
        (REGULAR_V2.replace("01 24", "00 24"), "flags 0"),
        (REGULAR_V2.replace("24000000", "25000000"), "says 37 bytes"),
        (REGULAR_V2.replace("02000000 02000000", "02000000 04000000"), "version 4"),
        (REGULAR_V3.replace("0a00 0500", "0a00 0700"), "ends at 63"),
        (REGULAR_V3.replace("0a00", "0100"), "overlaps itself"),
        (REGULAR_V3.replace("0500 0200", "0000 0200"), "empty"),
        (REGULAR_V3.replace("0500 0200", "0500 0000"), "empty"),
        (REGULAR_V3.replace("0a00", "0000"), "overlaps itself|empty"),
        (REGULAR_V3.replace("0500", "ffff"), "ends at"),
    ],
)
def test_corrupt(text: str, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(text)


def test_counts_are_checked_before_anything_is_allocated() -> None:
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("01000000 02000000 08 01000000 ffffffffffffff7f", (2**62,))
    with pytest.raises(Corrupt, match="bytes are needed"):
        read("02000000 03000000 00 08 01000000 ffffffffffffffff", (2**62,))
