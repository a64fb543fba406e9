"""Arrays of a variable-length type as two columns: the offsets of the elements, and their bytes.

The bytes of an element are its length-prefixed form, whatever its type. Elements are therefore selected, merged, sent
and stored without being decoded; only the conversion from and to JSON decodes them.

In the length-prefixed form, parts follow each other without gaps. A fixed-size part is its bytes. A string, region
reference or sequence is its length in bytes (u32 little-endian) followed by that many bytes; for a sequence these
bytes are its elements in the same form. An array is its elements without a length, because its type gives their number.
HSDS's clients send this form, and HSDS stores it in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.bounded_cache import remember
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
    element_bytes,
)

MAX_HEAP = 2**32 - 1
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class VlenArray:
    """An immutable array of variable-length elements in the row-major order of `shape`.

    Element i is `heap[offsets[i]:offsets[i + 1]]`: `offsets: (n + 1,) uint32` begin at 0, `heap: (m,) uint8`.
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
        """Return an array of the elements whose bytes are `pieces`, of shape (n,) unless `shape` is given."""
        found = list(pieces)
        offsets = ends(np.fromiter(map(len, found), np.int64, len(found)))
        heap = np.frombuffer(b"".join(found), np.uint8)
        return cls((len(found),) if shape == (-1,) else shape, offsets, heap)

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """The bytes of memory that both columns take."""
        return self.offsets.nbytes + self.heap.nbytes

    @property
    def sizes(self) -> NDArray[np.uint32]:
        """The bytes of each element, (n,) uint32."""
        return np.diff(self.offsets)

    def reshape(self, shape: tuple[int, ...]) -> VlenArray:
        """Return the same elements in another shape."""
        return VlenArray(shape, self.offsets, self.heap)

    def rows(self, first: int, last: int) -> VlenArray:
        """Return the elements `first` to `last` (exclusive) of the first dimension; `heap` is a view."""
        each = prod(self.shape[1:])
        offsets = self.offsets[first * each : last * each + 1]
        heap = self.heap[int(offsets[0]) : int(offsets[-1])]
        return VlenArray((last - first, *self.shape[1:]), offsets - offsets[0], heap)

    def __getitem__(self, place: Any) -> VlenArray:
        """Return a copy of the elements that the numpy index `place` selects in the array's shape."""
        index = np.arange(self.size, dtype=np.intp).reshape(self.shape)[place]
        return take_elements([self], np.asarray(index))

    def __iter__(self) -> Iterator[bytes]:
        """Yield each element's bytes in row-major order."""
        bounds = self.offsets.tolist()
        view = self.heap.data
        for first, last in pairwise(bounds):
            yield bytes(view[first:last])


def ends(sizes: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the offsets (n + 1,) of elements with `sizes` (n,) in bytes; raise `TooLarge` beyond 32 bits."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) > MAX_HEAP:
        raise TooLarge(f"The variable-length data has {offsets[-1]} bytes; the limit is {MAX_HEAP} at once.")
    return offsets.astype(np.uint32)


def taken_sizes(arrays: Sequence[VlenArray], index: Index) -> NDArray[np.uint32]:
    """Return the size of each element that `take_elements` would return, (n,), in the index's row-major order."""
    sizes = np.concatenate([array.sizes for array in arrays]) if arrays else np.zeros(0, np.uint32)
    result: NDArray[np.uint32] = sizes[index.reshape(-1)]
    return result


def take_elements(arrays: Sequence[VlenArray], index: Index) -> VlenArray:
    """Return the elements at positions `index` of the concatenated `arrays`, in the shape of `index`."""
    # Copying all arrays costs less than finding the array of each run.
    whole = arrays[0] if len(arrays) == 1 else join_elements(arrays)
    flat = index.reshape(-1)
    offsets = ends(whole.sizes[flat])
    heap = b"".join(_pieces(whole, flat)) if len(flat) else b""
    return VlenArray(index.shape, offsets, np.frombuffer(heap, np.uint8))


def runs_mask(begins: NDArray[np.int64], sizes: NDArray[np.int64], total: int) -> NDArray[np.bool_]:
    """Return a mask, (total,), of the bytes in runs of `sizes` bytes at `begins`; runs ascend and do not overlap."""
    lengths = np.empty(2 * len(begins) + 1, np.int64)
    stops = begins + sizes
    lengths[1:-1:2] = sizes
    lengths[0] = begins[0] if len(begins) else total
    lengths[2::2] = np.append(begins[1:], total)[: len(begins)] - stops
    inside = np.zeros(len(lengths), np.bool_)
    inside[1::2] = True
    return np.repeat(inside, lengths)


def join_elements(arrays: Sequence[VlenArray]) -> VlenArray:
    """Return the concatenated elements of `arrays`, at least one array, in the shape (n,)."""
    offsets = ends(np.concatenate([array.sizes for array in arrays]))
    return VlenArray((len(offsets) - 1,), offsets, np.concatenate([array.heap for array in arrays]))


def _pieces(array: VlenArray, flat: Index) -> Iterator[bytes | memoryview]:
    """Return the bytes of the elements at `flat`; neighbours, and repeats of one element, are joined to one piece."""
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
    """Return three arrays: starts and ends of runs of adjacent or equal indices, and a mask of runs of equals."""
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
    """Return the rows `first` to `last` (exclusive) of a numpy array or `VlenArray`."""
    return values.rows(first, last) if isinstance(values, VlenArray) else values[first:last]


_READ = Struct("<I").unpack_from
Buffer: TypeAlias = bytes | bytearray | memoryview
Skip: TypeAlias = Callable[[Buffer, int, int], int]
"""`skip(data, at, end)` returns the end of the part at `at`, or raises `ValueError` if the part exceeds `end`."""


def split_elements(data: Buffer, element: Element, shape: tuple[int, ...]) -> VlenArray:
    """Return the elements in `data` as a view; raise `BadRequest` if they are malformed or do not fill `shape` exactly.

    Memory is allocated only if `data` is long enough for the elements of `shape`.
    """
    count = prod(shape)
    if len(data) < count * element.min_size:
        raise BadRequest(
            f"The data has {len(data)} bytes; {count} elements need at least {count * element.min_size}."
        )
    offsets = np.zeros(count + 1, np.uint32)
    try:
        end = _split(data, element, offsets)
    except ValueError as error:
        raise BadRequest(f"The variable-length data do not match their type: {error}.") from error
    if end < len(data) and not _padded(data, end, element):
        raise BadRequest(f"The data has {len(data)} bytes, but its {count} elements end at {end}.")
    return VlenArray(shape, offsets, np.frombuffer(data, np.uint8, end))


def field_bounds(array: VlenArray, element: Compound) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each compound element's fields begin and its last field ends, as offsets (n, fields + 1) int64."""
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
    """Return n strings or sequences in length-prefixed form; `data` has their bytes, `sizes: (n,)` their lengths."""
    offsets = ends(sizes + PREFIX_SIZE)
    heap = np.empty(int(offsets[-1]), np.uint8)
    counts = _prefix_mask(offsets)
    heap[counts] = sizes.astype("<u4").view(np.uint8)
    heap[~counts] = data
    return VlenArray((len(sizes),), offsets, heap)


def strip_prefixes(array: VlenArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes and sizes of strings or sequences without their prefixes: the inverse of `add_prefixes`."""
    return array.heap[~_prefix_mask(array.offsets)], array.sizes.astype(np.int64) - PREFIX_SIZE


def _prefix_mask(offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return a mask of the bytes that belong to the length prefixes of strings or sequences at `offsets`."""
    begins = offsets[:-1].astype(np.int64)
    return runs_mask(begins, np.full(len(begins), PREFIX_SIZE), int(offsets[-1]))


@remember(4 * 1024 * 1024, lambda _, element: 2 * element_bytes(element))
def skipper(element: Element) -> Skip:
    """Return the `Skip` function that finds the end of a part with the structure `element`."""
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
    if isinstance(element, VlenString | Region):  # the same loop as below, inlined: twice as fast
        for row in range(1, len(offsets)):
            at += PREFIX_SIZE
            if at > end:
                raise ValueError("the data ends inside an element")
            at += _READ(data, at - PREFIX_SIZE)[0]
            if at > end:
                raise ValueError("a length prefix reaches beyond the end of the data")
            places[row] = at
        return at
    for row in range(1, len(offsets)):
        at = skip(data, at, end)
        places[row] = at
    return at


def _padded(data: Buffer, end: int, element: Element) -> bool:
    """Return whether the bytes after `end` are the padding that h5json adds: 4 zeros per array of vlen parts."""
    rest = memoryview(data)[end:]
    return has_arrays(element) and not len(rest) % PREFIX_SIZE and len(rest) <= end and not any(rest)


def has_arrays(element: Element) -> bool:
    """Return whether an element contains a compound with an array of variable-length parts."""
    if isinstance(element, Compound):
        return any(isinstance(part, ArrayOfVlen) or has_arrays(part) for part in element.parts)
    return isinstance(element, VlenSequence | ArrayOfVlen) and has_arrays(element.base)


def _fixed_skipper(size: int) -> Skip:
    def skip(data: Buffer, at: int, end: int) -> int:
        if at + size > end:
            raise ValueError("the data ends inside an element")
        return at + size

    return skip


def _run_skipper(size: int) -> Skip:
    def skip(data: Buffer, at: int, end: int) -> int:
        if at + PREFIX_SIZE > end:
            raise ValueError("the data ends inside an element")
        count = _READ(data, at)[0]
        at += PREFIX_SIZE + count
        if at > end:
            raise ValueError("a length prefix reaches beyond the end of the data")
        if count % size:
            raise ValueError(f"a sequence has {count} bytes, not a multiple of its element size, {size}")
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
            raise ValueError("the data ends inside an element")
        for _ in range(count):
            at = inner(data, at, end)
        return at

    return skip


def _record_skipper(element: Compound) -> Skip:
    skips = []
    size = 0
    for part in element.parts:  # consecutive fixed-size parts are skipped in one step
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
    """A selection of a compound's fields, by their positions `places` in `whole`."""

    whole: Compound
    places: tuple[int, ...]

    @classmethod
    def named(cls, element: Element, names: Sequence[str]) -> VlenFields:
        """Return the fields called `names`, in this order; raise `BadRequest` for unknown or repeated names."""
        known = element.names if isinstance(element, Compound) else ()
        for name in names:
            if name not in known:
                raise BadRequest(f"There is no field {name!r}; the fields are: {', '.join(known) or 'none'}.")
        if not isinstance(element, Compound) or len(set(names)) != len(names):
            raise BadRequest("Each field can be named only once.")
        return cls(element, tuple(map(known.index, names)))

    @property
    def element(self) -> Compound:
        """The compound of the picked fields, which is a `Compound` even if all picked fields have a fixed size."""
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
        """Return these fields, which must have a fixed size and not be arrays, as an array (n,) of a compound dtype."""
        edges = field_bounds(array, self.whole)
        result = np.empty(array.size, self.element.dtype)
        for name, place in zip(self.element.names, self.places, strict=True):
            dtype = result.dtype[name]
            if array.size:
                windows = sliding_window_view(array.heap, dtype.itemsize)
                result[name] = windows[edges[:, place]].view(dtype)[:, 0]
        return result

    def merge(self, array: VlenArray, values: VlenArray) -> VlenArray:
        """Return `array` with these fields replaced by `values: (n,) or (1,)`, whose elements are `self.element`."""
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
