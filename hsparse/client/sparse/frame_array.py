"""A frame of a sparse dataset, as an array of scipy that plots take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array


class FrameArray(csr_array):  # type: ignore[misc]
    """A `csr_array` that numpy converts to its values: scipy's own become an array of one object.

    Only for a part of a dataset that is no matrix: AnnData knows the types of matrices by name.
    """

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("The elements are sparse: numpy gets a copy.")
        return np.asarray(self.toarray(), dtype)
