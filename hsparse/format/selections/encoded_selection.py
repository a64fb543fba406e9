"""Section 0 of a structured chunk without its checksum: the H5Sencode image of a selection.

The image follows RFC "File Format Changes for Enabling Sparse Storage in HDF5", "Encoded Selection". Its extent is the
chunk's full dimensions, even for an edge chunk. The fixed-size section follows the selection's iteration order:
row-major over the union for hyperslabs, list order for points.

The image is decoded as a `Selection`, as offsets in the chunk, or as columns of coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, HsparseError
from hsparse.format.buffer import Buffer
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.dataspace_message import decode_image, encode_image
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import coordinate_columns, count_runs, expand, runs_of, strides
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.planar import planar_blocks, planar_points
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.selection_encoding import (
    encode_blocks,
    encode_points,
    encode_regular,
    encode_simple,
    volume,
)
from hsparse.format.selections.serialized_selection import (
    ALL,
    NONE,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
    decode_serialized,
)


def decode_selection(data: Buffer) -> Selection:
    """Return the selection in an H5Sencode image of any version; raise `Corrupt` if the image is damaged.

    Raises `Corrupt` also for blocks that overlap or are outside the extent. Memory is allocated only for the points or
    blocks that `data` lists.
    """
    selection, length = decode_first(data)
    if length != memoryview(data).nbytes:
        excess = memoryview(data).nbytes - length
        raise Corrupt(f"The selection is followed by {excess} unexpected bytes.")
    return selection


def decode_first(data: Buffer) -> tuple[Selection, int]:
    """Return a pair: the selection that the image at the start of `data` encodes, and the length of the image."""
    dims, reader = decode_image(data)
    found = decode_serialized(reader, dims)
    try:
        return _as_selection(found, dims), reader.place
    except Corrupt:
        raise
    except HsparseError as error:
        raise Corrupt(f"The encoded selection is inconsistent: {error.message}") from error


def _as_selection(found: Serialized, dims: tuple[int, ...]) -> Selection:
    match found:
        case AllElements():
            return Orthogonal.all(dims)
        case NoElements():
            return Orthogonal.none(dims) if dims else Points(dims, np.zeros((0, 0), np.uint64))
        case Regular(spans):
            return Orthogonal(dims, spans)
        case PointList(coords):
            return Points(dims, coords.astype(np.uint64))
        case BlockList(starts, ends):
            stops = ends + np.uint64(1)
            if len(starts) == 0:
                return Orthogonal.none(dims)
            if len(starts) == 1:
                return Orthogonal.box(dims, starts[0].tolist(), stops[0].tolist())
            return Boxes(dims, starts, stops)


def encode_selection(
    selection: Selection,
    version: int | None = None,
    max_dims: Sequence[int] | None = None,
    message_version: int = 1,
) -> bytes:
    """Return the H5Sencode image of a selection.

    `version` is the version of the selection's encoding: 1 for all and none; 1 or 2 for points; 1, 2 (only regular) or
    3 for hyperslabs; by default the highest. `message_version` (1 or 2) is the dataspace message's version. Ascending
    index lists are encoded as hyperslabs, other lists as points. Raises `BadRequest` for a version that does not exist.
    """
    if message_version not in (1, 2):
        raise BadRequest(f"The dataspace message has no version {message_version}; 1 and 2 exist.")
    if max_dims is not None and len(max_dims) != len(selection.extent):
        raise BadRequest(f"max_dims has {len(max_dims)} numbers; it needs {len(selection.extent)}.")
    return encode_image(selection.extent, max_dims, _serialize(selection, version), message_version)


def _serialize(selection: Selection, version: int | None) -> bytes:
    simple = NONE if selection.size == 0 else ALL if _is_whole(selection) else None
    if simple is not None:
        if version not in (None, 1):
            raise BadRequest(f"The selection of all or none has only version 1, not {version}.")
        return encode_simple(simple)
    if isinstance(selection, Orthogonal):
        spans = [ax.as_span(axis) for axis in selection.axes]
        regular = [span for span in spans if span is not None]
        if len(regular) == len(spans):
            if version == 1:
                return encode_blocks(*_blocks_of(selection), 1)
            return encode_regular(regular, version or 3)
        if all(isinstance(axis, StridedSpan) or (axis[1:] > axis[:-1]).all() for axis in selection.axes):
            return encode_blocks(*_blocks_of(selection), version or 3)
    if isinstance(selection, Boxes):
        return encode_blocks(selection.starts, selection.stops - np.uint64(1), version or 3)
    coords = selection.coords()
    return encode_points([coords[:, dim] for dim in range(coords.shape[1])], version or 2)


def _is_whole(selection: Selection) -> bool:
    return isinstance(selection, Orthogonal) and selection.is_all


def _blocks_of(selection: Orthogonal) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a pair: the first and (inclusive) last corners of the blocks of a product of ascending axes, row-major."""
    firsts, lasts = [], []
    for axis in selection.axes:
        found = ax.indices(axis)
        if isinstance(axis, StridedSpan) and not axis.contiguous:  # HDF5 does not join adjacent blocks
            first = found[:: axis.block]
            last = found[axis.block - 1 :: axis.block]
        else:
            breaks = found[1:] - found[:-1] != 1
            first = found[np.concatenate(([True], breaks))]
            last = found[np.concatenate((breaks, [True]))]
        firsts.append(first)
        lasts.append(last)
    return _product(firsts), _product(lasts)


def _product(lists: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    grid = np.meshgrid(*lists, indexing="ij")
    return np.stack([part.ravel() for part in grid], axis=1)


MAX_ELEMENTS = 2**32 - 1
"""The most elements of a chunk, because offsets in a chunk have 32 bits."""
SMALL_BLOCK = 16
"""Blocks of at most this many elements on average are expanded element by element, larger blocks by runs."""
SORTED_DIVISOR = 8
"""If at most 1/SORTED_DIVISOR of a chunk is defined, sorting offsets is faster than scanning a mask of the chunk."""


def decode_offsets(
    data: Buffer | BytePlanes, chunk: Sequence[int], count: int | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.intp] | None]:
    """Return a pair: the offsets of a chunk's defined elements, and the `order` that sorts their values likewise.

    `data` is section 0 without checksum, possibly shuffled. The offsets, (n,) uint32, are row-major in `chunk`,
    ascending and unique. `values[order]` are the values in the order of the offsets; `order` is None if the values
    already have this order. The last value of a repeated point wins. `count` is the number of values, if known: the
    size is checked against `count` before memory is allocated. Raises `Corrupt` if the section is damaged.
    """
    if isinstance(data, BytePlanes):
        points = None if count is None else planar_points(data, chunk, count)
        if points is not None:
            return _offsets_of_points(points, chunk)
        offsets = None if count is None else _planar_blocks(data, chunk, count)
        if offsets is not None:
            return offsets, None
        data = data.joined()
    found, size = _decode_places(data, chunk, count)
    return _as_offsets(found, chunk, size)


def decode_columns(
    data: Buffer | BytePlanes, chunk: Sequence[int], count: int | None = None
) -> tuple[tuple[NDArray[Any], ...], NDArray[np.intp] | None]:
    """Return the same pair as `decode_offsets`, but with one column of coordinates per dimension instead of offsets.

    The columns are (n,) of an unsigned dtype. Sorted points, the most frequent encoding, are converted without offsets;
    their columns then have the width of the encoding or, if `data` is shuffled, the width that the dimension needs.
    """
    if isinstance(data, BytePlanes) and count is not None:
        points = planar_points(data, chunk, count)
        if points is not None and _ascend(points):
            return points, None
        blocks = None if points is not None else _planar_blocks(data, chunk, count)
        if blocks is not None:
            return tuple(coordinate_columns(blocks, chunk)), None
    if isinstance(data, BytePlanes):
        data = data.joined()
    found, size = _decode_places(data, chunk, count)
    if isinstance(found, PointList):
        columns = tuple(np.ascontiguousarray(found.coords[:, dim]) for dim in range(len(chunk)))
        if _ascend(columns):
            return columns, None
    offsets, order = _as_offsets(found, chunk, size)
    return tuple(coordinate_columns(offsets, chunk)), order


def _decode_places(data: Buffer, chunk: Sequence[int], count: int | None) -> tuple[Serialized, int]:
    """Return a pair: the selection of a chunk's elements, and its size; raise `Corrupt` as `decode_offsets`."""
    dims, reader = decode_image(data)
    if dims != tuple(chunk):
        raise Corrupt(f"The encoded selection has extent {list(dims)}; the chunk has {list(chunk)}.")
    if math.prod(dims) > MAX_ELEMENTS:
        raise Corrupt(f"The chunk of {list(dims)} has more than 2^32-1 elements.")
    found = decode_serialized(reader, dims)
    reader.done("selection")
    size = _size_of(found, dims)
    if count is not None and size != count:
        raise Corrupt(f"The encoded selection has {size} elements, but there are {count} values.")
    return found, size


def _as_offsets(
    found: Serialized, dims: Sequence[int], size: int
) -> tuple[NDArray[np.uint32], NDArray[np.intp] | None]:
    match found:
        case AllElements():
            return np.arange(size, dtype=np.uint32), None
        case NoElements():
            return np.zeros(0, np.uint32), None
        case Regular(spans):
            return Orthogonal.trusted(tuple(dims), spans).offsets().astype(np.uint32), None
        case BlockList(starts, ends):
            return _offsets_of_blocks(starts, ends, dims, size), None
        case PointList(coords):
            return _offsets_of_points([coords[:, dim] for dim in range(len(dims))], dims)


def _ascend(columns: Sequence[NDArray[Any]]) -> bool:
    """Return whether coordinates, one column per dimension, are in row-major order and unique."""
    ascends = columns[-1][1:] > columns[-1][:-1]
    for column in reversed(columns[:-1]):
        ascends &= column[1:] == column[:-1]
        ascends |= column[1:] > column[:-1]
    return bool(ascends.all())


def _size_of(found: Serialized, dims: Sequence[int]) -> int:
    match found:
        case AllElements():
            return math.prod(dims)
        case NoElements():
            return 0
        case Regular(spans):
            return volume(spans)
        case PointList(coords):
            return len(coords)
        case BlockList(starts, ends):
            # 64 bits suffice: a block has at most 2^32-1 elements, and there are far fewer than 2^32 blocks.
            lengths = (ends - starts + np.uint64(1)).T
            return int(reduce(np.multiply, lengths).sum())  # column by column: five times as fast as `prod`


def _offsets_of_blocks(
    starts: NDArray[np.uint64], ends: NDArray[np.uint64], dims: Sequence[int], size: int
) -> NDArray[np.uint32]:
    if len(dims) == 2 and size <= min(math.prod(dims), SMALL_BLOCK * len(starts)):
        return _offsets_of_small_blocks((*starts.T,), (*ends.T,), dims)
    stops = ends + np.uint64(1)
    if size > math.prod(dims) or count_runs(starts, stops, dims) > size:
        raise Corrupt(f"Blocks of the hyperslab overlap: the blocks have {size} elements in all.")
    begins, run_ends = runs_of(starts, stops, dims)
    if (begins[1:] < run_ends[:-1]).any():
        raise Corrupt(
            f"Blocks of the hyperslab overlap at offset {begins[1:][begins[1:] < run_ends[:-1]][0]}."
        )
    return expand(begins, run_ends).astype(np.uint32)


def _planar_blocks(data: BytePlanes, dims: Sequence[int], count: int) -> NDArray[np.uint32] | None:
    """Return the offsets of shuffled small blocks of a 2D chunk, or None if the section is invalid or another one."""
    found = planar_blocks(data, dims) if len(dims) == 2 else None
    if found is None:
        return None
    starts, ends = found
    lengths = [
        (end - start).astype(np.uint64) + np.uint64(1) for start, end in zip(starts, ends, strict=True)
    ]
    size = int(reduce(np.multiply, lengths).sum())
    if size != count or size > min(math.prod(dims), SMALL_BLOCK * len(starts[0])):
        return None
    return _offsets_of_small_blocks(starts, ends, dims)


def _offsets_of_small_blocks(
    starts: Sequence[NDArray[Any]], ends: Sequence[NDArray[Any]], dims: Sequence[int]
) -> NDArray[np.uint32]:
    """Return the same as `_offsets_of_blocks` for small blocks of a 2D chunk, without computing a run per row.

    The blocks are given by columns of coordinates of any unsigned dtype.
    """
    width = dims[1]
    rows, columns = (column.astype(np.uint32) for column in starts)
    heights = ends[0].astype(np.uint32) - rows + np.uint32(1)
    widths = ends[1].astype(np.uint32) - columns + np.uint32(1)
    offsets = _expand_steps(rows * np.uint32(width) + columns, heights, width)
    if (widths != 1).any():
        offsets = _expand_steps(offsets, np.repeat(widths, heights), 1)
    area = dims[0] * dims[1]
    if len(offsets) * SORTED_DIVISOR > area:
        is_taken = np.zeros(area, bool)
        is_taken[offsets] = True
        found = np.flatnonzero(is_taken)
        if len(found) == len(offsets):
            return found.astype(np.uint32)
    offsets = np.sort(offsets)
    twice = offsets[1:] == offsets[:-1]
    if twice.any():
        raise Corrupt(f"Blocks of the hyperslab overlap at offset {offsets[1:][twice][0]}.")
    return offsets


def _expand_steps(first: NDArray[np.uint32], counts: NDArray[np.uint32], step: int) -> NDArray[np.uint32]:
    """Return the concatenated sequences `first[i], first[i] + step, ...` of `counts[i]` numbers each (at least 1)."""
    total = int(counts.sum())
    if total == len(first):
        return first
    differences = np.full(total, step, np.uint32)
    last = first + (counts - np.uint32(1)) * np.uint32(step)
    differences[0] = first[0]
    differences[np.cumsum(counts[:-1], dtype=np.intp)] = first[1:] - last[:-1]  # wraps modulo 2^32
    return np.cumsum(differences, dtype=np.uint32)


def _offsets_of_points(
    columns: Sequence[NDArray[Any]], dims: Sequence[int]
) -> tuple[NDArray[np.uint32], NDArray[np.intp] | None]:
    offsets = np.zeros(len(columns[0]) if columns else 1, np.uint32)
    for column, stride in zip(columns, strides(dims), strict=True):
        wide = column.astype(np.uint32)
        if stride != 1:
            wide *= np.uint32(stride)
        offsets += wide
    if (offsets[1:] > offsets[:-1]).all():
        return offsets, None
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    last = np.concatenate((offsets[1:] != offsets[:-1], [True]))
    return offsets[last], order[last]
