"""The packing of values by the conventions of CF, undone for sparse arrays: xarray's own code makes dense ones.

https://cfconventions.org/cf-conventions/cf-conventions.html#packed-data, #missing-data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")


@dataclass(frozen=True, slots=True)
class SparsePacking:
    """How values are packed: `missing` ones are NaN, others are multiplied, then added to."""

    missing: tuple[Any, ...]
    scale: float
    offset: float
    dtype: np.dtype[Any]
    """The type of the values: the narrowest float that has those of the packed type."""

    @classmethod
    def take(cls, attributes: dict[str, Any], encoding: dict[str, Any], packed: np.dtype[Any]) -> Self | None:
        """Move the attributes of packing to an encoding and return what they say; None if there are none."""
        found = {name: attributes.pop(name) for name in PACKING if name in attributes}
        encoding.update(found)
        if not found or packed.kind not in "iuf":
            attributes.update(found)
            return None
        missing = [np.atleast_1d(found[name]) for name in PACKING[:2] if name in found]
        scale, offset = (found.get(name) for name in PACKING[2:])
        return cls(
            tuple(one for values in missing for one in values.tolist()),
            1.0 if scale is None else float(scale),
            0.0 if offset is None else float(offset),
            packed
            if packed.kind == "f" and packed.itemsize >= 4
            else np.result_type(packed, np.float32 if packed.itemsize <= 2 else np.float64),
        )

    def undo(self, array: Any) -> Any:
        """Return a `sparse.COO` of the values of a packed one; its fill value is one of them."""
        fill = self._values(np.atleast_1d(array.fill_value))[0]
        values = self._values(array.data)
        return type(array)(
            array.coords, values, shape=array.shape, has_duplicates=False, sorted=True, fill_value=fill
        )

    def _values(self, packed: NDArray[Any]) -> NDArray[Any]:
        values: NDArray[Any] = packed.astype(self.dtype) * self.dtype.type(self.scale) + self.dtype.type(
            self.offset
        )
        values[np.isin(packed, self.missing)] = np.nan
        return values
