"""A frame of a sparse dataset, as a scipy array that plotting functions accept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array


class FrameArray(csr_array):  # type: ignore[misc]
    """A `csr_array` that numpy converts to its dense values; scipy's own class becomes an array of one object.

    The class is used only for parts of datasets of rank 3 or more, because AnnData accepts only scipy's own types.
    """

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("copy=False is impossible: the elements are sparse, so numpy gets a copy.")
        return np.asarray(self.toarray(), dtype)
