"""Linear offsets against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.extent import (
    as_indices,
    check_extent,
    widen,
)


def test_widen() -> None:
    offsets = np.array([1], np.uint32)
    assert widen(offsets, (2**16, 2**16 - 1)) is offsets
    assert widen(offsets, (2**16, 2**16)).dtype == np.uint64
    with pytest.raises(TooLarge, match="2\\^64"):
        widen(offsets, (2**40, 2**40))


def test_check_extent() -> None:
    assert check_extent([np.uint64(3), 0]) == (3, 0)
    with pytest.raises(BadRequest, match="Dimension 1"):
        check_extent([3, -1])
    with pytest.raises(BadRequest, match="33 dimensions"):
        check_extent([1] * 33)


def test_as_indices() -> None:
    given = np.array([1], np.uint64)
    assert as_indices(given, "indices") is given
    assert as_indices([], "indices").dtype == np.uint64
    with pytest.raises(BadRequest, match="corners must not be negative; -4 is"):
        as_indices([1, -4], "corners")
    with pytest.raises(BadRequest, match="corners must be non-negative integers"):
        as_indices(["a"], "corners")
