"""The axis of a slice or a single index in a key; for places and positions see `hsparse.client.indexing.key_axes`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsparse.client.indexing.key_axes import Array, Columns
from hsparse.format.selections.orthogonal import EMPTY_SPAN, Axis, StridedSpan


@dataclass(frozen=True, slots=True)
class SlicedAxis:
    """A dimension with a slice `cut`, whose step may be negative; or a single index, which removes the dimension."""

    dim: int
    cut: range
    is_index: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.is_index else (len(self.cut),)

    @property
    def size(self) -> int:
        return len(self.cut)

    def selected(self) -> Axis:
        """Return the selected places in ascending order."""
        if not self.cut:
            return EMPTY_SPAN
        low, step = min(self.cut[0], self.cut[-1]), abs(self.cut.step)
        return StridedSpan.range(low, low + self.size) if step == 1 else StridedSpan(low, step, self.size)

    def order(self) -> Array | None:
        """Return the index of the selected place at each position, or None if positions ascend like the places."""
        return np.arange(self.size - 1, -1, -1) if self.cut.step < 0 and self.size > 1 else None

    def place(self, columns: Columns) -> tuple[list[Array], None]:
        """Return a pair: the positions of places in the result, and None, because no place has two positions."""
        (column,) = columns
        if self.is_index:
            return [], None
        cut = self.cut
        if not len(column) or (cut.start == 0 and cut.step == 1):
            return [column], None
        shifted = column - column.dtype.type(cut[0]) if cut.step > 0 else column.dtype.type(cut[0]) - column
        if abs(cut.step) > 1 and len(cut) > 1:
            shifted //= shifted.dtype.type(abs(cut.step))
        return [shifted], None

    def locate(self, columns: Columns) -> tuple[list[Array], None]:
        """Return a pair: the places at positions in the result, and None, because no place is repeated."""
        if self.is_index:
            return [], None
        return [columns[0].astype(np.int64) * self.cut.step + self.cut.start], None

    def arrange(self, array: Array, axis: int) -> Array:
        """Return `array` with its axis `axis`, along the selected places, replaced by the dimensions of the result."""
        if self.is_index:
            return array.squeeze(axis)
        return np.flip(array, axis) if self.cut.step < 0 else array

    def collect(self, array: Array, axis: int) -> Array:
        """Apply the inverse of `arrange`: replace the dimensions of the result by an axis along the places."""
        if self.is_index:
            return np.expand_dims(array, axis)
        return np.flip(array, axis) if self.cut.step < 0 else array
