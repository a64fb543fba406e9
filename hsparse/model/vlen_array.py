"""Elements of a variable-length type as two columns: where each ends, and all their bytes.

An element's bytes are its length-prefixed form (`hsparse.model.length_prefixed`), whatever its type. So
elements are selected, merged, sent and stored without being taken apart: only what reads or makes JSON looks inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge

MAX_HEAP = 2**32 - 1
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class VlenArray:
    """Elements in row-major order of `shape`; never modified.

    `offsets: (n + 1,) uint32` begin at 0: element i is `heap[offsets[i]:offsets[i + 1]]`. `heap: (m,) uint8`.
    """

    shape: tuple[int, ...]
    offsets: NDArray[np.uint32]
    heap: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if len(self.offsets) != prod(self.shape) + 1 or int(self.offsets[-1]) != len(self.heap):
            raise BadRequest(
                f"{len(self.offsets)} offsets to {len(self.heap)} bytes are no array of shape {self.shape}."
            )

    @classmethod
    def of(cls, pieces: Iterable[bytes], shape: tuple[int, ...] = (-1,)) -> VlenArray:
        """Make an array of its elements' bytes; of shape (n,) unless another is given."""
        found = list(pieces)
        offsets = ends(np.fromiter(map(len, found), np.int64, len(found)))
        heap = np.frombuffer(b"".join(found), np.uint8)
        return cls((len(found),) if shape == (-1,) else shape, offsets, heap)

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """The memory the columns take, in bytes."""
        return self.offsets.nbytes + self.heap.nbytes

    @property
    def sizes(self) -> NDArray[np.uint32]:
        """The bytes of each element, (n,) uint32."""
        return np.diff(self.offsets)

    def reshape(self, shape: tuple[int, ...]) -> VlenArray:
        """Return the same elements in another shape."""
        return VlenArray(shape, self.offsets, self.heap)

    def rows(self, first: int, last: int) -> VlenArray:
        """Return the elements at these positions of the first dimension; their bytes are not copied."""
        each = prod(self.shape[1:])
        offsets = self.offsets[first * each : last * each + 1]
        heap = self.heap[int(offsets[0]) : int(offsets[-1])]
        return VlenArray((last - first, *self.shape[1:]), offsets - offsets[0], heap)

    def __getitem__(self, place: Any) -> VlenArray:
        """Return the elements that a numpy index of the array's shape selects, copied."""
        index = np.arange(self.size, dtype=np.intp).reshape(self.shape)[place]
        return take_elements([self], np.asarray(index))

    def __iter__(self) -> Iterator[bytes]:
        """Yield each element's bytes in turn."""
        bounds = self.offsets.tolist()
        view = self.heap.data
        for first, last in pairwise(bounds):
            yield bytes(view[first:last])


def ends(sizes: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the offsets of elements of these sizes, (n,), in bytes; `TooLarge` beyond what 32 bits tell."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) > MAX_HEAP:
        raise TooLarge(f"Variable-length data of {offsets[-1]} bytes is more than {MAX_HEAP} at once.")
    return offsets.astype(np.uint32)


def taken_sizes(arrays: Sequence[VlenArray], index: Index) -> NDArray[np.uint32]:
    """Return the bytes of each element that `take_elements` would return, in the index's row-major order."""
    sizes = np.concatenate([array.sizes for array in arrays]) if arrays else np.zeros(0, np.uint32)
    result: NDArray[np.uint32] = sizes[index.reshape(-1)]
    return result


def take_elements(arrays: Sequence[VlenArray], index: Index) -> VlenArray:
    """Return the elements at `index`, in its shape, where `arrays` are numbered through, one after the other."""
    # A copy costs less than finding the array of each run.
    whole = arrays[0] if len(arrays) == 1 else join_elements(arrays)
    flat = index.reshape(-1)
    offsets = ends(whole.sizes[flat])
    heap = b"".join(_pieces(whole, flat)) if len(flat) else b""
    return VlenArray(index.shape, offsets, np.frombuffer(heap, np.uint8))


def runs_mask(begins: NDArray[np.int64], sizes: NDArray[np.int64], total: int) -> NDArray[np.bool_]:
    """Return which of `total` bytes are in runs that ascend and do not overlap."""
    lengths = np.empty(2 * len(begins) + 1, np.int64)
    stops = begins + sizes
    lengths[1:-1:2] = sizes
    lengths[0] = begins[0] if len(begins) else total
    lengths[2::2] = np.append(begins[1:], total)[: len(begins)] - stops
    inside = np.zeros(len(lengths), np.bool_)
    inside[1::2] = True
    return np.repeat(inside, lengths)


def join_elements(arrays: Sequence[VlenArray]) -> VlenArray:
    """Return the elements of all arrays, one at least, in one row."""
    offsets = ends(np.concatenate([array.sizes for array in arrays]))
    return VlenArray((len(offsets) - 1,), offsets, np.concatenate([array.heap for array in arrays]))


def _pieces(array: VlenArray, flat: Index) -> Iterator[bytes | memoryview]:
    """Return the bytes of the elements at `flat`, runs of neighbours and of repeats in one piece each."""
    firsts, lasts, repeats = _runs(flat)
    begins = array.offsets[flat[firsts]].tolist()
    stops = array.offsets[flat[lasts - 1] + 1].tolist()
    view = array.heap.data
    if not repeats.any():
        return map(view.__getitem__, map(slice, begins, stops))
    counts = np.where(repeats, lasts - firsts, 1).tolist()
    return (
        view[begin:stop] if count == 1 else bytes(view[begin:stop]) * count
        for begin, stop, count in zip(begins, stops, counts, strict=True)
    )


def _runs(flat: Index) -> tuple[Index, Index, NDArray[np.bool_]]:
    """Return first and end positions of runs that ascend by one or stay, and which of them stay."""
    steps = np.diff(flat)
    kind = np.where(steps == 1, 1, np.where(steps == 0, 0, 2))
    new = np.zeros(len(flat), np.bool_)
    new[0] = True
    new[1:] = kind == 2
    new[2:] |= (kind[1:] != kind[:-1]) & (kind[:-1] != 2)
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(flat))
    stay = np.zeros(len(firsts), np.bool_)
    longer = lasts - firsts > 1
    stay[longer] = kind[firsts[longer]] == 0
    return firsts, lasts, stay


def rows_of(values: Any, first: int, last: int) -> Any:
    """Return rows of an array of either kind, see `VlenArray.rows`."""
    return values.rows(first, last) if isinstance(values, VlenArray) else values[first:last]
