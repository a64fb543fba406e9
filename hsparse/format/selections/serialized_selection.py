"""Decoding of HDF5's serialized selections, in every type and version that libhdf5 writes.

The HDF5 File Format Specification, "Dataspace Selection" (Reference type, H5S_SEL encodings), defines version 1 of none
and all, versions 1 and 2 of points, and versions 1, 2 and 3 of hyperslabs. Numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.model.dataspace import MAX_RANK

NONE, POINTS, HYPERSLABS, ALL = range(4)
REGULAR = 1
"""The flag of a regular hyperslab (one start, stride, count and block per dimension) in versions 2 and 3."""
WIDTHS = (2, 4, 8)
UNLIMITED = 2**64 - 1
"""The count or the block of a regular hyperslab in the dimension in which the hyperslab is unlimited."""
MAX_END = 2**62
Dims: TypeAlias = Sequence[int] | None
"""An extent, or None if it is unknown, for instance for the source of a virtual dataset."""


@dataclass(frozen=True, slots=True, eq=False)
class PointList:
    """Points: coordinates in list order, (n, rank) of an unsigned dtype, all inside the extent."""

    coords: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class BlockList:
    """Blocks from `starts` to `ends` (inclusive), (m, rank) uint64 each, inside the extent; they may overlap.

    `width` is the number of bytes of an encoded coordinate.
    """

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    width: int


@dataclass(frozen=True, slots=True)
class Regular:
    """A regular hyperslab, not empty and inside the extent; only in an unknown extent, it may be unlimited."""

    spans: tuple[StridedSpan, ...]


@dataclass(frozen=True, slots=True)
class AllElements:
    """A selection of all elements (H5S_SEL_ALL)."""


@dataclass(frozen=True, slots=True)
class NoElements:
    """A selection of no elements (H5S_SEL_NONE)."""


Serialized: TypeAlias = PointList | BlockList | Regular | AllElements | NoElements


def decode_serialized(reader: ByteReader, dims: Dims) -> Serialized:
    """Read a selection over `dims`; raise `Corrupt` if the selection is invalid. Other bytes may follow.

    Memory is allocated only for points and blocks that the bytes list.
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
        raise Corrupt(f"The point selection claims {length} bytes and has {8 + coords.nbytes}.")
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
        raise Corrupt(f"The hyperslab claims {length} bytes and has {reader.place - begin}.")
    return result


def _read_regular(reader: ByteReader, width: int, dims: Sequence[int]) -> Regular:
    spans = []
    for dim, extent in enumerate(dims):
        span = StridedSpan(*reader.numbers(4, width, "regular hyperslab"))
        if not (span.size and span.stride) or (span.count > 1 and span.stride < span.block):
            raise Corrupt(f"The regular hyperslab is empty or overlaps itself in dimension {dim}.")
        if span.stop > extent:
            raise Corrupt(f"The regular hyperslab ends at {span.stop} in dimension {dim}, beyond {extent}.")
        # The stride of a single block has no meaning, and libhdf5 may write any value.
        spans.append(StridedSpan.range(span.start, span.stop) if span.contiguous else span)
    return Regular(tuple(spans))


def _read_unbounded(reader: ByteReader, width: int, rank: int) -> Regular:
    """Read a regular hyperslab of an unknown extent; a count or block with all bits set becomes `UNLIMITED`."""
    spans = []
    for dim in range(rank):
        start, stride, count, block = reader.numbers(4, width, "regular hyperslab")
        count, block = (UNLIMITED if one == 2 ** (8 * width) - 1 else one for one in (count, block))
        endless = UNLIMITED in (count, block)
        if not (stride and count and block) or (count > 1 and stride < block):
            raise Corrupt(f"The regular hyperslab is empty or overlaps itself in dimension {dim}.")
        if (block == UNLIMITED and count > 1) or (not endless and start + count * stride + block > MAX_END):
            raise Corrupt(f"The hyperslab has {count} blocks of {block} in dimension {dim}, too many.")
        spans.append(StridedSpan(start, stride, count, block))
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
            f"The selection has rank {rank}; the right rank is {MAX_RANK if dims is None else len(dims)}."
        )
    return rank


def _table(reader: ByteReader, rows: int, width: int, size: int, what: str) -> NDArray[Any]:
    data = reader.take(rows * width * size, what)
    return np.frombuffer(data, f"<u{size}").reshape(rows, width)


def _by_columns(table: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of a table with contiguous columns, because callers process column after column."""
    columns = np.empty(table.shape[::-1], table.dtype)
    for dim in range(table.shape[1]):
        columns[dim] = table[:, dim]
    return columns.T


def _check_inside(coords: NDArray[Any], dims: Dims) -> None:
    for dim, extent in enumerate(dims or ()):
        if len(coords) and (highest := int(coords[:, dim].max())) >= extent:
            raise Corrupt(f"The selection has coordinate {highest} in dimension {dim}, not below {extent}.")
