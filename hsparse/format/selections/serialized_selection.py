"""Selections as HDF5 serialises them: every type and version libhdf5 writes.

HDF5 File Format Specification, "Dataspace Selection" (Reference type, H5S_SEL encodings): none and all
version 1, points versions 1 and 2, hyperslabs versions 1, 2 and 3. Numbers are little-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import CODES, ByteReader
from hsparse.format.selections.orthogonal import Span
from hsparse.model.dataspace import MAX_RANK

NONE, POINTS, HYPERSLABS, ALL = range(4)
REGULAR = 1
"""The flag of hyperslab versions 2 and 3 for one start, stride, count and block a dimension."""
WIDTHS = (2, 4, 8)
UNLIMITED = 2**64 - 1
"""The count, or the block, of a regular hyperslab that has no end in a dimension."""
MAX_END = 2**62
Dims: TypeAlias = Sequence[int] | None
"""An extent; None if it is not known, as that of the source of a virtual dataset."""


@dataclass(frozen=True, slots=True, eq=False)
class PointList:
    """Coordinates in list order, (n, rank) of an unsigned dtype, all inside the extent."""

    coords: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class BlockList:
    """Blocks from `starts` to `ends`, inclusive, (m, rank) uint64, inside the extent; they may overlap.

    `width` is the bytes of a coordinate as it was encoded.
    """

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    width: int


@dataclass(frozen=True, slots=True)
class Regular:
    """One regular hyperslab inside the extent, not empty; only without a known extent it may be unlimited."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AllElements:
    """H5S_SEL_ALL: all elements."""


@dataclass(frozen=True, slots=True)
class NoElements:
    """H5S_SEL_NONE: no element."""


Serialized: TypeAlias = PointList | BlockList | Regular | AllElements | NoElements


# --- reading --------------------------------------------------------------------------------------


def decode_serialized(reader: ByteReader, dims: Dims) -> Serialized:
    """Read a selection over `dims`; bytes may follow it. Raises `Corrupt`.

    Nothing is allocated for more elements than the bytes hold.
    """
    kind, version = reader.numbers(2, 4, "selection header")
    if kind in (NONE, ALL):
        if version != 1 or any(reader.numbers(2, 4, "selection header")):
            raise Corrupt("The selection of all or none has a version other than 1, or a length.")
        result: Serialized = AllElements() if kind == ALL else NoElements()
    elif kind == POINTS:
        result = PointList(_read_points(reader, version, dims))
    elif kind == HYPERSLABS:
        result = _read_hyperslabs(reader, version, dims)
    else:
        raise Corrupt(f"The selection has type {kind}; types 0 to 3 exist.")
    return result


def _read_points(reader: ByteReader, version: int, dims: Dims) -> NDArray[Any]:
    width, length = 4, None
    if version == 1:
        reserved, length = reader.numbers(2, 4, "point selection header")
        if reserved:
            raise Corrupt(f"The reserved field of the point selection is {reserved}, not 0.")
    elif version == 2:
        width = _width(reader)
    else:
        raise Corrupt(f"The point selection has version {version}; 1 and 2 exist.")
    rank = _rank(reader, dims)
    count = reader.number(width, "number of points")
    coords = _by_columns(_table(reader, count, rank, width, "points"))
    if length is not None and length != 8 + coords.nbytes:
        raise Corrupt(f"The point selection says {length} bytes and has {8 + coords.nbytes}.")
    _check_inside(coords, dims)
    return coords


def _read_hyperslabs(reader: ByteReader, version: int, dims: Dims) -> BlockList | Regular:
    width, flags, length = 4, 0, None
    if version == 1:
        reserved, length = reader.numbers(2, 4, "hyperslab header")
        if reserved:
            raise Corrupt(f"The reserved field of the hyperslab is {reserved}, not 0.")
    elif version == 2:
        flags, length, width = reader.number(1, "hyperslab header"), reader.number(4, "hyperslab header"), 8
    elif version == 3:
        flags, width = reader.number(1, "hyperslab header"), _width(reader)
    else:
        raise Corrupt(f"The hyperslab has version {version}; 1, 2 and 3 exist.")
    if flags not in ((REGULAR,) if version == 2 else (0, REGULAR)):
        raise Corrupt(f"The hyperslab of version {version} has flags {flags}.")
    begin = reader.place
    rank = _rank(reader, dims)
    if not flags:
        result: BlockList | Regular = _read_blocks(reader, width, rank, dims)
    else:
        result = _read_unbounded(reader, width, rank) if dims is None else _read_regular(reader, width, dims)
    if length is not None and length != reader.place - begin:
        raise Corrupt(f"The hyperslab says {length} bytes and has {reader.place - begin}.")
    return result


def _read_regular(reader: ByteReader, width: int, dims: Sequence[int]) -> Regular:
    spans = []
    for dim, extent in enumerate(dims):
        span = Span(*reader.numbers(4, width, "regular hyperslab"))
        if not (span.size and span.stride) or (span.count > 1 and span.stride < span.block):
            raise Corrupt(f"The regular hyperslab is empty or overlaps itself in dimension {dim}.")
        if span.stop > extent:
            raise Corrupt(f"The regular hyperslab ends at {span.stop} in dimension {dim}, beyond {extent}.")
        # one block needs no stride, and libhdf5 may write any
        spans.append(Span.range(span.start, span.stop) if span.contiguous else span)
    return Regular(tuple(spans))


def _read_unbounded(reader: ByteReader, width: int, rank: int) -> Regular:
    """Read a hyperslab of an unknown extent; a count or block of all ones, in any width, is `UNLIMITED`."""
    spans = []
    for dim in range(rank):
        start, stride, count, block = reader.numbers(4, width, "regular hyperslab")
        count, block = (UNLIMITED if one == 2 ** (8 * width) - 1 else one for one in (count, block))
        endless = UNLIMITED in (count, block)
        if not (stride and count and block) or (count > 1 and stride < block):
            raise Corrupt(f"The regular hyperslab is empty or overlaps itself in dimension {dim}.")
        if (block == UNLIMITED and count > 1) or (not endless and start + count * stride + block > MAX_END):
            raise Corrupt(f"The regular hyperslab has {count} blocks of {block} in dimension {dim}.")
        spans.append(Span(start, stride, count, block))
    return Regular(tuple(spans))


def _read_blocks(reader: ByteReader, width: int, rank: int, dims: Dims) -> BlockList:
    count = reader.number(width, "number of blocks")
    table = _table(reader, count, 2 * rank, width, "blocks")
    starts, ends = table[:, :rank], table[:, rank:]
    _check_inside(ends, dims)
    if (starts > ends).any():
        raise Corrupt(
            f"Block {int(np.argwhere(starts > ends)[0, 0])} of the hyperslab ends before it starts."
        )
    return BlockList(starts.astype(np.uint64), ends.astype(np.uint64), width)


def _width(reader: ByteReader) -> int:
    width = reader.number(1, "selection header")
    if width not in WIDTHS:
        raise Corrupt(f"The selection encodes numbers in {width} bytes; 2, 4 and 8 are possible.")
    return width


def _rank(reader: ByteReader, dims: Dims) -> int:
    rank = reader.number(4, "rank")
    if not rank or (rank > MAX_RANK if dims is None else rank != len(dims)):
        raise Corrupt(
            f"The selection has rank {rank}, its dataspace {MAX_RANK if dims is None else len(dims)}."
        )
    return rank


def _table(reader: ByteReader, rows: int, width: int, size: int, what: str) -> NDArray[Any]:
    data = reader.take(rows * width * size, what)
    return np.frombuffer(data, f"<u{size}").reshape(rows, width)


def _by_columns(table: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of a table whose columns are contiguous: what follows looks at one after the other."""
    columns = np.empty(table.shape[::-1], table.dtype)
    for dim in range(table.shape[1]):
        columns[dim] = table[:, dim]
    return columns.T


def _check_inside(coords: NDArray[Any], dims: Dims) -> None:
    for dim, extent in enumerate(dims or ()):
        if len(coords) and (highest := int(coords[:, dim].max())) >= extent:
            raise Corrupt(f"The selection has coordinate {highest} in dimension {dim}, not below {extent}.")


# --- writing --------------------------------------------------------------------------------------


def width_for(highest: int) -> int:
    """Return the narrowest width, in bytes, that holds `highest`."""
    return 2 if highest < 2**16 else 4 if highest < 2**32 else 8


def encode_simple(kind: int) -> bytes:
    """Return the encoding of `ALL` or `NONE`."""
    return struct.pack("<IIII", kind, 1, 0, 0)


def points_size(count: int, rank: int, highest: int) -> int:
    """Return the bytes of points version 2; `highest` is the largest coordinate."""
    width = width_for(max(highest, count))
    return 13 + width + width * rank * count


def encode_points(columns: Sequence[NDArray[Any]], version: int = 2) -> bytes:
    """Return points, one array of coordinates a dimension; version 2 in the narrowest width that fits."""
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


def regular_size(spans: Sequence[Span]) -> int:
    """Return the bytes of a regular hyperslab of version 3."""
    return 14 + 4 * len(spans) * width_for(_highest(spans))


def encode_regular(spans: Sequence[Span], version: int = 3) -> bytes:
    """Return a regular hyperslab of version 2 or 3 (in the narrowest width that fits)."""
    width = width_for(_highest(spans)) if version == 3 else 8
    numbers = [number for span in spans for number in (span.start, span.stride, span.count, span.block)]
    body = struct.pack(f"<{len(numbers)}{CODES[width]}", *numbers)
    rank = struct.pack("<I", len(spans))
    if version == 2:
        return struct.pack("<IIBI", HYPERSLABS, 2, REGULAR, 4 + len(body)) + rank + body
    if version == 3:
        return struct.pack("<IIBB", HYPERSLABS, 3, REGULAR, width) + rank + body
    raise BadRequest(f"Regular hyperslabs have no version {version}; 2 and 3 exist, 1 has blocks.")


def encode_hyperslab(spans: Sequence[Span]) -> bytes:
    """Return a regular hyperslab, as a block where that is shorter: with few dimensions, and wide coordinates."""
    is_wide = width_for(_highest(spans)) > WIDTHS[0] and blocks_size(1, len(spans), 0, 1) < regular_size(
        spans
    )
    if is_wide and all(span.contiguous for span in spans):
        corners = np.array([[(span.start, span.stop - 1) for span in spans]], np.uint64)
        return encode_blocks(corners[..., 0], corners[..., 1], 1)
    return encode_regular(spans)


def _highest(spans: Sequence[Span]) -> int:
    """Return the highest number in the encoding of a regular hyperslab, or the end of it."""
    highest = 0
    for span in spans:
        end = span.start + (span.count - 1) * span.stride + span.block
        highest = max(highest, end, span.start, span.stride, span.count, span.block)
    return highest


def blocks_size(count: int, rank: int, highest: int, version: int = 3) -> int:
    """Return the bytes of `count` blocks, of version 1 or 3; `highest` is the largest coordinate."""
    if version == 1:
        return 24 + 8 * rank * count
    width = width_for(max(highest, count))
    return 14 + width + 2 * rank * width * count


def encode_blocks(starts: NDArray[np.uint64], ends: NDArray[np.uint64], version: int = 3) -> bytes:
    """Return blocks with inclusive ends, (m, rank), of version 1 or 3 (in the narrowest width that fits)."""
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
        raise BadRequest(f"{what} of version 1 hold 32-bit coordinates; use a later version for {highest}.")


def volume(spans: Sequence[Span]) -> int:
    """Return the number of elements of a regular hyperslab."""
    return math.prod(span.size for span in spans)
