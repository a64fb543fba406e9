"""Elements of a variable-length type as two columns: where each ends, and all their bytes.

An element's bytes are its length-prefixed form, whatever its type. So elements are selected, merged, sent and stored
without being taken apart: only what reads or makes JSON looks inside.

In that form parts follow each other in order, nothing between them: a fixed-size part is its bytes; a string, region
reference or sequence is its length in bytes, u32 little-endian, then that many bytes, of a sequence those of its
elements in this same form; arrays have no count, for their type has it. This is what HSDS's clients send and
what HSDS stores of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.element import (
    PREFIX_SIZE,
    ArrayOfVlen,
    Compound,
    Element,
    Fixed,
    Region,
    VlenSequence,
    VlenString,
)

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


_READ = Struct("<I").unpack_from
Buffer: TypeAlias = bytes | bytearray | memoryview
Skip: TypeAlias = Callable[[Buffer, int, int], int]
"""`skip(data, at, end)` returns where the part that begins at `at` ends; `ValueError` when that is beyond `end`."""


def split_elements(data: Buffer, element: Element, shape: tuple[int, ...]) -> VlenArray:
    """Return the elements that `data` has, a view of it; `BadRequest` when they are not exactly of `shape`.

    Memory is allocated for no more elements than the bytes can hold.
    """
    count = prod(shape)
    if len(data) < count * element.min_size:
        raise BadRequest(
            f"There are {len(data)} bytes; {count} elements need at least {count * element.min_size}."
        )
    offsets = np.zeros(count + 1, np.uint32)
    try:
        end = _split(data, element, offsets)
    except ValueError as error:
        raise BadRequest(f"The variable-length data are not as their type says: {error}.") from error
    if end < len(data) and not _padded(data, end, element):
        raise BadRequest(f"There are {len(data)} bytes; {count} elements take only {end} of them.")
    return VlenArray(shape, offsets, np.frombuffer(data, np.uint8, end))


def field_bounds(array: VlenArray, element: Compound) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where the fields of each compound element begin, and the last one ends, (n, fields + 1) int64."""
    result = np.empty((array.size, len(element.parts) + 1), np.int64)
    skips = [skipper(part) for part in element.parts]
    data, end = array.heap.data, len(array.heap)
    for row, at in enumerate(array.offsets[:-1].tolist()):
        places = [at]
        for skip in skips:
            at = skip(data, at, end)
            places.append(at)
        result[row] = places
    return result


def add_prefixes(data: NDArray[np.uint8], sizes: NDArray[np.int64]) -> VlenArray:
    """Return strings or sequences, (n,), of which `data` has the bytes, of `sizes: (n,)`, without counts."""
    offsets = ends(sizes + PREFIX_SIZE)
    heap = np.empty(int(offsets[-1]), np.uint8)
    counts = _prefix_mask(offsets)
    heap[counts] = sizes.astype("<u4").view(np.uint8)
    heap[~counts] = data
    return VlenArray((len(sizes),), offsets, heap)


def strip_prefixes(array: VlenArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes and sizes of strings or sequences: the inverse of `add_prefixes`."""
    return array.heap[~_prefix_mask(array.offsets)], array.sizes.astype(np.int64) - PREFIX_SIZE


def _prefix_mask(offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which bytes of elements that begin with a count are those counts."""
    begins = offsets[:-1].astype(np.int64)
    return runs_mask(begins, np.full(len(begins), PREFIX_SIZE), int(offsets[-1]))


@lru_cache(maxsize=1024)
def skipper(element: Element) -> Skip:
    """Return the function that finds the end of such a part."""
    if isinstance(element, Fixed):
        return _fixed_skipper(element.dtype.itemsize)
    if isinstance(element, VlenString | Region):
        return _run_skipper(1)
    if isinstance(element, VlenSequence):
        if isinstance(element.base, Fixed):
            return _run_skipper(element.base.dtype.itemsize)
        return _sequence_skipper(skipper(element.base))
    if isinstance(element, ArrayOfVlen):
        return _array_skipper(prod(element.dims), element.min_size, skipper(element.base))
    return _record_skipper(element)


def _split(data: Buffer, element: Element, offsets: np.ndarray[Any, np.dtype[np.uint32]]) -> int:
    at, end, skip = 0, len(data), skipper(element)
    places = offsets.data
    if isinstance(element, VlenString | Region):  # the loop below at twice the speed
        for row in range(1, len(offsets)):
            at += PREFIX_SIZE
            if at > end:
                raise ValueError("they are cut short")
            at += _READ(data, at - PREFIX_SIZE)[0]
            if at > end:
                raise ValueError("a count reaches beyond their end")
            places[row] = at
        return at
    for row in range(1, len(offsets)):
        at = skip(data, at, end)
        places[row] = at
    return at


def _padded(data: Buffer, end: int, element: Element) -> bool:
    """Say whether what follows is what h5json appends: 4 zeros for each array of variable-length parts."""
    rest = memoryview(data)[end:]
    return has_arrays(element) and not len(rest) % PREFIX_SIZE and len(rest) <= end and not any(rest)


def has_arrays(element: Element) -> bool:
    """Say whether there are arrays of variable-length parts in a compound."""
    if isinstance(element, Compound):
        return any(isinstance(part, ArrayOfVlen) or has_arrays(part) for part in element.parts)
    return isinstance(element, VlenSequence | ArrayOfVlen) and has_arrays(element.base)


def _fixed_skipper(size: int) -> Skip:
    def skip(data: Buffer, at: int, end: int) -> int:
        if at + size > end:
            raise ValueError("they are cut short")
        return at + size

    return skip


def _run_skipper(size: int) -> Skip:
    def skip(data: Buffer, at: int, end: int) -> int:
        if at + PREFIX_SIZE > end:
            raise ValueError("they are cut short")
        count = _READ(data, at)[0]
        at += PREFIX_SIZE + count
        if at > end:
            raise ValueError("a count reaches beyond their end")
        if count % size:
            raise ValueError(f"a count of {count} bytes is no number of elements of {size} bytes")
        return int(at)

    return skip


def _sequence_skipper(inner: Skip) -> Skip:
    outer = _run_skipper(1)

    def skip(data: Buffer, at: int, end: int) -> int:
        stop = outer(data, at, end)
        at += PREFIX_SIZE
        while at < stop:
            at = inner(data, at, stop)
        return stop

    return skip


def _array_skipper(count: int, least: int, inner: Skip) -> Skip:
    def skip(data: Buffer, at: int, end: int) -> int:
        if at + least > end:
            raise ValueError("they are cut short")
        for _ in range(count):
            at = inner(data, at, end)
        return at

    return skip


def _record_skipper(element: Compound) -> Skip:
    skips = []
    size = 0
    for part in element.parts:  # neighbours of fixed size are one step
        if isinstance(part, Fixed):
            size += part.dtype.itemsize
            continue
        if size:
            skips.append(_fixed_skipper(size))
        size = 0
        skips.append(skipper(part))
    if size:
        skips.append(_fixed_skipper(size))

    def skip(data: Buffer, at: int, end: int) -> int:
        for one in skips:
            at = one(data, at, end)
        return at

    return skip


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
