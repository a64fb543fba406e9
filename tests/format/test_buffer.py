"""Buffers: the bytes of any array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.format.buffer import byte_view

RECORD = np.dtype([("a", ">i2"), ("b", "S3")])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">u4"),
        np.arange(6.0).reshape(2, 3).T,
        np.zeros(4, RECORD),
        np.zeros(0, RECORD),
        np.zeros((2, 0)),
        np.array(7, "<i8"),
        np.array([b"ab", b"c"], "S2"),
        np.array([True, False]),
    ],
    ids=str,
)
def test_the_view_has_the_bytes_in_c_order(array: NDArray[Any]) -> None:
    assert byte_view(array).tobytes() == array.tobytes()


def test_a_contiguous_array_is_not_copied() -> None:
    array = np.zeros(3, "<u2")
    view = byte_view(array)
    array[1] = 0x0102
    assert view.tobytes() == b"\0\0\2\1\0\0"
