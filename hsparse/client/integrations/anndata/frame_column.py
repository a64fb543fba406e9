"""A column of a data frame as arrays of numpy: the one form that pandas, polars and xarray make theirs of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.optional_module import OptionalModule

PANDAS = OptionalModule("pandas", "anndata")


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """Values, (n,), or codes of `categories`, -1 where there is none; with a `mask`, true where a value is missing."""

    values: NDArray[Any]
    categories: Any = None
    is_ordered: bool = False
    mask: NDArray[np.bool_] | None = None

    def to_pandas(self) -> Any:
        """Return what pandas has in a data frame: an array of numpy or of its own."""
        if self.categories is not None:
            categorical = PANDAS.load().Categorical
            return categorical.from_codes(self.values, self.categories, ordered=self.is_ordered)
        if self.mask is None:
            return self.values
        pandas = PANDAS.load()
        if self.values.dtype.kind == "b":
            return pandas.arrays.BooleanArray(self.values, mask=self.mask)
        if self.values.dtype.kind in "iu":
            return pandas.arrays.IntegerArray(self.values, mask=self.mask)
        texts = pandas.array(self.values, dtype=pandas.StringDtype())
        texts[self.mask] = pandas.NA
        return texts

    @property
    def missing(self) -> NDArray[np.bool_] | None:
        """Where a value is missing; None if none can be."""
        return self.mask if self.categories is None else self.values < 0
