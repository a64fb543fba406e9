"""Contiguous bytes of any type: functions take each type, so that nothing is copied to change it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview


def byte_view(array: NDArray[Any]) -> memoryview:
    """Return the elements' bytes in C order: a view of `array`, or of a copy when it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
