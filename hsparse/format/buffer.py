"""The types of contiguous bytes: functions accept any `Buffer`, so that callers need not copy one type to another."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview


def byte_view(array: NDArray[Any]) -> memoryview:
    """Return the bytes of `array` in C order: a view of the array, or of a copy if it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
