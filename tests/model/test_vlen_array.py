"""Columns of variable-length elements against lists of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.vlen_array import VlenArray, ends


def test_what_does_not_fit_together() -> None:
    with pytest.raises(BadRequest):
        VlenArray((3,), np.zeros(2, np.uint32), np.zeros(0, np.uint8))
    with pytest.raises(BadRequest):
        VlenArray((1,), np.array([0, 2], np.uint32), np.zeros(1, np.uint8))
    with pytest.raises(TooLarge):
        ends(np.array([2**31, 2**31]))
