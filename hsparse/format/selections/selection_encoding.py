"""Encoding of selections: the offsets of a chunk's elements become section 0 in the smallest form.

Offsets are encoded as one regular hyperslab if possible, or else as disjoint boxes or points, whichever is smaller. All
are HDF5's serialization, which `hsparse.format.selections.serialized_selection` reads: none and all version 1,
points versions 1 and 2, hyperslabs versions 1, 2 and 3.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import CODES, image_head
from hsparse.format.selections.extent import coordinate_columns, strides, unravel
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.serialized_selection import ALL, HYPERSLABS, NONE, POINTS, REGULAR, WIDTHS


def encode_offsets(
    offsets: NDArray[np.uint32], chunk: Sequence[int], max_dims: Sequence[int] | None = None
) -> bytes:
    """Return section 0, without checksum, of a chunk whose elements at `offsets` are defined.

    `offsets: (n,) uint32` are row-major in `chunk`, ascending and unique. Iterating the encoded selection gives the
    same order. The form (NONE, ALL, one regular hyperslab, disjoint boxes or points) is chosen by size before it is
    built, in the narrowest encoding that libhdf5 1.12 and later decode.
    """
    count, head = len(offsets), image_head(tuple(chunk), max_dims and tuple(max_dims))
    if count == 0 or count == math.prod(chunk):
        return head + encode_simple(ALL if count else NONE)
    runs = row_runs(offsets, chunk[-1])
    spans = find_regular(runs, chunk)
    if spans is not None:
        return head + encode_hyperslab(spans)
    boxes = _boxes_if_smaller(runs, offsets, chunk)
    if boxes is not None:
        return head + encode_blocks(boxes[0], boxes[1] - np.uint64(1))
    return head + encode_points(coordinate_columns(offsets, chunk))


# The choice is made by size before compression. The size after shuffle and deflate nearly always agrees: for runs of
# 1-3, 1-4, 2-3, 3 and 1-8 elements, points take 1.03, 1.30, 1.26, 1.52 and 2.24 times the bytes of boxes before, and
# 1.02, 1.22, 1.41, 1.57 and 1.83 times after compression (lcls data: 3.8 and 2.6 times). It disagrees for more than
# 65535 points in short runs, whose 4-byte coordinates have two zero bytes: points take 1.7 to 3.3 times the bytes of
# boxes before, but 0.76 to 0.95 times after compression. Boxes are chosen nevertheless, being faster to read.
def _boxes_if_smaller(
    runs: RowRuns, offsets: NDArray[np.uint32], chunk: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """Return a pair, starts and (exclusive) stops of merged boxes, or None if points take no more bytes than boxes."""
    count, rank = len(offsets), len(chunk)
    as_points = points_size(count, rank, max(chunk) - 1)
    fewest = len(runs.begins)
    if blocks_size(fewest, rank, max(chunk) - 1) >= as_points:
        fewest = max(1, fewest - count_mergers(runs, chunk, fewest))
        if blocks_size(fewest, rank, max(chunk) - 1) >= as_points:
            return None
    starts, stops = merge(runs, chunk)
    return (starts, stops) if blocks_size(len(starts), rank, max(chunk) - 1) < as_points else None


DENSE = 64
"""If a chunk has at most this many elements per run, a lookup in a table is faster than a binary search."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRuns:
    """Maximal runs along the last dimension: their first offsets, ascending, and lengths, (k,) uint32 each."""

    begins: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def row_runs(offsets: NDArray[np.uint32], width: int) -> RowRuns:
    """Return the runs of ascending offsets, (n,) uint32 and n > 0, in rows of `width` elements."""
    breaks = offsets[1:] - offsets[:-1] != 1
    near = np.flatnonzero(~breaks) + 1
    breaks[near[offsets[near] % np.uint32(width) == 0] - 1] = True
    firsts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    lengths = np.diff(firsts, append=len(offsets)).astype(np.uint32)
    return RowRuns(offsets[firsts], lengths)


def find_regular(runs: RowRuns, dims: Sequence[int]) -> tuple[StridedSpan, ...] | None:
    """Return one span per dimension if the runs form a regular hyperslab, or else None."""
    if not (runs.lengths == runs.lengths[0]).all():
        return None
    width = np.uint32(dims[-1])
    rows = runs.begins // width
    count = int(np.searchsorted(rows, rows[0], "right"))
    if len(rows) % count or (rows[::count] != rows[count - 1 :: count]).any():
        return None
    columns = (runs.begins - rows * width).reshape(-1, count)
    if (columns != columns[0]).any():
        return None
    stride = int(columns[0, 1] - columns[0, 0]) if count > 1 else 1
    if count > 2 and (np.diff(columns[0]) != stride).any():
        return None
    block = int(runs.lengths[0])
    start = int(columns[0, 0])
    span = StridedSpan(start, stride, count, block)
    if len(dims) == 1:
        return (span,)
    leading = find_regular(row_runs(rows[::count], dims[-2]), dims[:-1])
    return None if leading is None else (*leading, span)


def count_mergers(runs: RowRuns, dims: Sequence[int], limit: int) -> int:
    """Return the number of pairs of runs of equal length that are one step apart in a dimension other than the last.

    Each pair saves at most one box in a merge. Counting stops after the dimension in which `limit` is reached.
    """
    total = 0
    volume = math.prod(dims)
    table = None
    if volume <= DENSE * len(runs.begins):
        table = np.zeros(volume, np.uint32)
        table[runs.begins] = runs.lengths
    for dim, stride in list(enumerate(strides(dims)))[:-1]:
        if table is None:
            total += int((_continued(runs.begins, runs.lengths[:, None], dims, dim, stride) >= 0).sum())
        else:
            total += _count_continued(table, runs, dims[dim], stride)
        if total >= limit:
            break
    return total


def _count_continued(table: NDArray[np.uint32], runs: RowRuns, length: int, stride: int) -> int:
    """Return the number of runs with a run of equal length one step further; `table[offset]` is a run's length."""
    inside = (runs.begins // np.uint32(stride)) % np.uint32(length) != length - 1
    begins, lengths = runs.begins[inside], runs.lengths[inside]
    return int(np.count_nonzero(table[begins + np.uint32(stride)] == lengths))


def merge(runs: RowRuns, dims: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Merge runs to disjoint boxes; return a pair: corners `starts` and (exclusive) `stops`, (m, rank) uint64 each.

    Boxes of equal shape that follow each other in a dimension are merged, for each dimension from the last but one to
    the first. The result is sorted by first offset.
    """
    rank = len(dims)
    begins = runs.begins
    shape = np.ones((len(begins), rank), np.uint32)
    shape[:, -1] = runs.lengths
    for dim in range(rank - 2, -1, -1):
        following = _continued(begins, shape, dims, dim, strides(dims)[dim])
        heads = np.ones(len(begins), np.bool_)
        heads[following[following >= 0]] = False
        shape[:, dim] = _chain_lengths(following)
        begins, shape = begins[heads], shape[heads]
    starts = unravel(begins, dims)
    return starts, starts + shape


def _continued(
    begins: NDArray[np.uint32], shape: NDArray[np.uint32], dims: Sequence[int], dim: int, stride: int
) -> NDArray[np.intp]:
    """Return for each box the number of the box of equal shape one step further in `dim`, or -1 if there is none."""
    targets = begins.astype(np.uint64) + np.uint64(stride)
    place = np.minimum(
        np.searchsorted(begins, np.minimum(targets, 2**32 - 1).astype(np.uint32)), len(begins) - 1
    )
    found = begins[place] == targets
    hits = np.flatnonzero(found)
    # A step beyond the last index of the dimension leads to another row, not to a neighbour.
    inside = (targets[hits] // np.uint64(stride)) % np.uint64(dims[dim]) != 0
    equal = (shape[hits] == shape[place[hits]]).all(axis=1)
    result = np.full(len(begins), -1, np.intp)
    kept = hits[inside & equal]
    result[kept] = place[kept]
    return result


def _chain_lengths(following: NDArray[np.intp]) -> NDArray[np.uint32]:
    """Return the length of the chain that begins at each box, by pointer doubling in logarithmically many steps."""
    lengths = (following >= 0).astype(np.uint32)
    jump = following.copy()
    active = np.flatnonzero(jump >= 0)
    while len(active):
        onward = jump[active]
        add, further = lengths[onward], jump[onward]
        lengths[active] += add
        jump[active] = further
        active = active[further >= 0]
    return lengths + np.uint32(1)


def width_for(highest: int) -> int:
    """Return the narrowest width in bytes (2, 4 or 8) that holds `highest`."""
    return 2 if highest < 2**16 else 4 if highest < 2**32 else 8


def encode_simple(kind: int) -> bytes:
    """Return the encoding of `ALL` or `NONE`."""
    return struct.pack("<IIII", kind, 1, 0, 0)


def points_size(count: int, rank: int, highest: int) -> int:
    """Return the size of `count` points in version 2, in bytes; `highest` is the largest coordinate."""
    width = width_for(max(highest, count))
    return 13 + width + width * rank * count


def encode_points(columns: Sequence[NDArray[Any]], version: int = 2) -> bytes:
    """Encode points given by one array of coordinates per dimension; version 2 uses the narrowest width."""
    count, rank = len(columns[0]), len(columns)
    highest = max((int(column.max()) for column in columns if count), default=0)
    width = width_for(max(highest, count)) if version == 2 else 4
    _check_32(highest, count, version, "Points")
    table = np.empty((count, rank), f"<u{width}")
    for dim, column in enumerate(columns):
        table[:, dim] = column
    if version == 1:
        head = struct.pack("<IIIIII", POINTS, 1, 0, 8 + table.nbytes, rank, count)
    elif version == 2:
        head = struct.pack("<IIBI", POINTS, 2, width, rank) + count.to_bytes(width, "little")
    else:
        raise BadRequest(f"Points have no version {version}; 1 and 2 exist.")
    return head + table.tobytes()


def regular_size(spans: Sequence[StridedSpan]) -> int:
    """Return the size of a regular hyperslab in version 3, in bytes."""
    return 14 + 4 * len(spans) * width_for(_highest(spans))


def encode_regular(spans: Sequence[StridedSpan], version: int = 3) -> bytes:
    """Encode a regular hyperslab in version 2 or 3 (which uses the narrowest width)."""
    width = width_for(_highest(spans)) if version == 3 else 8
    numbers = [number for span in spans for number in (span.start, span.stride, span.count, span.block)]
    body = struct.pack(f"<{len(numbers)}{CODES[width]}", *numbers)
    rank = struct.pack("<I", len(spans))
    if version == 2:
        return struct.pack("<IIBI", HYPERSLABS, 2, REGULAR, 4 + len(body)) + rank + body
    if version == 3:
        return struct.pack("<IIBB", HYPERSLABS, 3, REGULAR, width) + rank + body
    raise BadRequest(f"Regular hyperslabs have no version {version}; use 2 or 3 (1 has only blocks).")


def encode_hyperslab(spans: Sequence[StridedSpan]) -> bytes:
    """Encode a regular hyperslab or, if one block is shorter (few dimensions, wide coordinates), one block."""
    is_wide = width_for(_highest(spans)) > WIDTHS[0] and blocks_size(1, len(spans), 0, 1) < regular_size(
        spans
    )
    if is_wide and all(span.contiguous for span in spans):
        corners = np.array([[(span.start, span.stop - 1) for span in spans]], np.uint64)
        return encode_blocks(corners[..., 0], corners[..., 1], 1)
    return encode_regular(spans)


def _highest(spans: Sequence[StridedSpan]) -> int:
    """Return the highest number in the encoding of a regular hyperslab, including the ends of its spans."""
    highest = 0
    for span in spans:
        end = span.start + (span.count - 1) * span.stride + span.block
        highest = max(highest, end, span.start, span.stride, span.count, span.block)
    return highest


def blocks_size(count: int, rank: int, highest: int, version: int = 3) -> int:
    """Return the size of `count` blocks in version 1 or 3, in bytes; `highest` is the largest coordinate."""
    if version == 1:
        return 24 + 8 * rank * count
    width = width_for(max(highest, count))
    return 14 + width + 2 * rank * width * count


def encode_blocks(starts: NDArray[np.uint64], ends: NDArray[np.uint64], version: int = 3) -> bytes:
    """Encode blocks with (inclusive) `ends`, (m, rank), in version 1 or 3 (which uses the narrowest width)."""
    count, rank = starts.shape
    highest = int(ends.max()) if count else 0
    width = width_for(max(highest, count)) if version == 3 else 4
    _check_32(highest, count, version, "Blocks")
    table = np.empty((count, 2 * rank), f"<u{width}")
    table[:, :rank], table[:, rank:] = starts, ends
    if version == 1:
        head = struct.pack("<IIIIII", HYPERSLABS, 1, 0, 8 + table.nbytes, rank, count)
    elif version == 3:
        head = struct.pack("<IIBBI", HYPERSLABS, 3, 0, width, rank) + count.to_bytes(width, "little")
    else:
        raise BadRequest(f"Irregular hyperslabs have no version {version}; 1 and 3 exist.")
    return head + table.tobytes()


def _check_32(highest: int, count: int, version: int, what: str) -> None:
    if version == 1 and max(highest, count) >= 2**32:
        raise BadRequest(f"{what} of version 1 hold 32-bit numbers, not {highest}: use a later version.")


def volume(spans: Sequence[StridedSpan]) -> int:
    """Return the number of elements of a regular hyperslab."""
    return math.prod(span.size for span in spans)
