"""Buffers: the bytes of any array."""

from __future__ import annotations

import numpy as np

from hsparse.format.buffer import byte_view


def test_a_contiguous_array_is_not_copied() -> None:
    array = np.zeros(3, "<u2")
    view = byte_view(array)
    array[1] = 0x0102
    assert view.tobytes() == b"\0\0\2\1\0\0"
