"""The RFC's heap: offsets and lengths into it, in either width."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.structured.heap import PackedHeap


def test_more_bytes_than_offsets_tell() -> None:
    sizes = np.array([2**32 - 4], np.int64)
    with pytest.raises(TooLarge, match="offsets have 4"):
        PackedHeap(4).draft(sizes, sizes)


@pytest.mark.parametrize("data", [b"\1", b"\0\0\0", b"\1\0\0\0", b"\2\0\0\0a", b"\xff" * 10])
def test_more_unused_bytes_than_there_are(data: bytes) -> None:
    with pytest.raises(Corrupt, match="unused"):
        PackedHeap(8).open(data)


@pytest.mark.parametrize(
    ("begin", "size", "reason"),
    [
        (0, 1, "leads out"),
        (3, 2, "leads out"),
        (4, 9, "leads out"),
        (13, 1, "leads out"),
        (2**64 - 1, 2, "leads out"),
        (4, 2**64 - 1, "leads out"),
        (4, 3, "no number of elements of 2"),
    ],
)
def test_references_that_lie(begin: int, size: int, reason: str) -> None:
    references = np.array([[begin, size]], "<u8").view(np.uint8).reshape(1, 16)
    with pytest.raises(Corrupt, match=reason):
        PackedHeap(8).open(bytes(12)).find(references, 2)


def test_bytes_beside_a_pair_must_be_zero() -> None:
    references = np.array([[4, 2, 0, 1]], "<u4").view(np.uint8).reshape(1, 16)
    with pytest.raises(Corrupt, match="must be zero"):
        PackedHeap(4).open(bytes(12)).find(references, 1)
