"""The length-prefixed form of variable-length elements, in which they travel and are stored.

Parts follow each other in order, nothing between them: a fixed-size part is its bytes; a string, region
reference or sequence is its length in bytes, u32 little-endian, then that many bytes, of a sequence those of its
elements in this same form; arrays have no count, for their type has it. This is what HSDS's clients send and
what HSDS stores of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
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
from hsparse.model.vlen_array import VlenArray, ends, runs_mask

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
