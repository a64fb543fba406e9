"""Some fields of compound elements of a variable-length type: picked out, or set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import Compound, Element
from hsparse.model.length_prefixed import field_bounds
from hsparse.model.vlen_array import VlenArray


@dataclass(frozen=True, slots=True)
class VlenFields:
    """The fields at `places` of a compound, and the compound of these alone."""

    whole: Compound
    places: tuple[int, ...]

    @classmethod
    def named(cls, element: Element, names: Sequence[str]) -> VlenFields:
        """Return the fields with these names, in this order; `BadRequest` for one that is not there."""
        known = element.names if isinstance(element, Compound) else ()
        for name in names:
            if name not in known:
                raise BadRequest(f"There is no field {name!r}; there are: {', '.join(known) or 'none'}.")
        if not isinstance(element, Compound) or len(set(names)) != len(names):
            raise BadRequest("Each field can be named once.")
        return cls(element, tuple(map(known.index, names)))

    @property
    def element(self) -> Compound:
        """The picked elements, a compound even where all picked fields have a fixed size."""
        names = tuple(self.whole.names[place] for place in self.places)
        parts = tuple(self.whole.parts[place] for place in self.places)
        dtype = np.dtype([(name, part.dtype) for name, part in zip(names, parts, strict=True)])
        return Compound(dtype, names, parts)

    def pick(self, array: VlenArray) -> VlenArray:
        """Return the elements with only these fields."""
        edges = field_bounds(array, self.whole)
        data = array.heap.data
        rows = zip(
            edges[:, list(self.places)].tolist(),
            edges[:, [at + 1 for at in self.places]].tolist(),
            strict=True,
        )
        pieces = (
            b"".join(data[first:last] for first, last in zip(firsts, lasts, strict=True))
            for firsts, lasts in rows
        )
        return VlenArray.of(pieces, array.shape)

    def columns(self, array: VlenArray) -> NDArray[Any]:
        """Return these fields, of fixed size all and none an array, as a compound column (n,)."""
        edges = field_bounds(array, self.whole)
        result = np.empty(array.size, self.element.dtype)
        for name, place in zip(self.element.names, self.places, strict=True):
            dtype = result.dtype[name]
            if array.size:
                windows = sliding_window_view(array.heap, dtype.itemsize)
                result[name] = windows[edges[:, place]].view(dtype)[:, 0]
        return result

    def merge(self, array: VlenArray, values: VlenArray) -> VlenArray:
        """Return `array` with these fields taken from `values`, as many elements of `element`, or one for all."""
        old, new = field_bounds(array, self.whole).tolist(), field_bounds(values, self.element).tolist()
        if len(new) == 1:
            new *= len(old)
        there, come = array.heap.data, values.heap.data
        source = {place: number for number, place in enumerate(self.places)}
        pieces = []
        for row, other in zip(old, new, strict=True):
            parts = []
            for place in range(len(self.whole.parts)):
                number = source.get(place)
                if number is None:
                    parts.append(there[row[place] : row[place + 1]])
                else:
                    parts.append(come[other[number] : other[number + 1]])
            pieces.append(b"".join(parts))
        return VlenArray.of(pieces, array.shape)
