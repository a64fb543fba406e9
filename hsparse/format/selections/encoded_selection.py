"""Section 0 of a structured chunk without its checksum: the H5Sencode image of a selection.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", "Encoded Selection". The extent is the
chunk's full dimensions, also of an edge chunk. The fixed-size section follows the selection's iteration
order: row-major over the union for hyperslabs, list order for points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, HsparseError
from hsparse.format.buffer import Buffer
from hsparse.format.dataspace_message import decode_image, encode_image
from hsparse.format.selections import axis as ax
from hsparse.format.selections.axis import Span
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points
from hsparse.format.selections.selection import Selection
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
    encode_blocks,
    encode_points,
    encode_regular,
    encode_simple,
)


def decode_selection(data: Buffer) -> Selection:
    """Return the selection of an H5Sencode image of any version; `Corrupt` when it is damaged.

    Blocks outside the extent or overlapping are `Corrupt` too. Nothing is allocated for more elements than `data`
    describes point by point or block by block.
    """
    selection, length = decode_first(data)
    if length != memoryview(data).nbytes:
        excess = memoryview(data).nbytes - length
        raise Corrupt(f"The selection is followed by {excess} bytes that do not belong.")
    return selection


def decode_first(data: Buffer) -> tuple[Selection, int]:
    """Return the selection that `data` begins with, as `decode_selection` does, and how long its image is."""
    dims, reader = decode_image(data)
    found = decode_serialized(reader, dims)
    try:
        return _as_selection(found, dims), reader.place
    except Corrupt:
        raise
    except HsparseError as error:
        raise Corrupt(f"The encoded selection does not hold together: {error.message}") from error


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

    `version` is of the selection's encoding: 1 for all and none; 1 or 2 for points; 1, 2 (regular only) or
    3 for hyperslabs; by default the last. `message_version` is the dataspace message's, 1 or 2. Index
    lists that ascend are hyperslabs, others points. `BadRequest` for a version that the type does not have.
    """
    if message_version not in (1, 2):
        raise BadRequest(f"The dataspace message has no version {message_version}; 1 and 2 exist.")
    if max_dims is not None and len(max_dims) != len(selection.extent):
        raise BadRequest(f"There are {len(max_dims)} maximum dimensions for {len(selection.extent)}.")
    return encode_image(selection.extent, max_dims, _serialize(selection, version), message_version)


def _serialize(selection: Selection, version: int | None) -> bytes:
    simple = NONE if selection.size == 0 else ALL if _is_whole(selection) else None
    if simple is not None:
        if version not in (None, 1):
            raise BadRequest(f"The selection of all or none has no version {version}; 1 exists.")
        return encode_simple(simple)
    if isinstance(selection, Orthogonal):
        spans = [ax.as_span(axis) for axis in selection.axes]
        regular = [span for span in spans if span is not None]
        if len(regular) == len(spans):
            if version == 1:
                return encode_blocks(*_blocks_of(selection), 1)
            return encode_regular(regular, version or 3)
        if all(isinstance(axis, Span) or (axis[1:] > axis[:-1]).all() for axis in selection.axes):
            return encode_blocks(*_blocks_of(selection), version or 3)
    if isinstance(selection, Boxes):
        return encode_blocks(selection.starts, selection.stops - np.uint64(1), version or 3)
    coords = selection.coords()
    return encode_points([coords[:, dim] for dim in range(coords.shape[1])], version or 2)


def _is_whole(selection: Selection) -> bool:
    return isinstance(selection, Orthogonal) and selection.is_all


def _blocks_of(selection: Orthogonal) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the blocks of a product of ascending axes, row-major, ends inclusive."""
    firsts, lasts = [], []
    for axis in selection.axes:
        found = ax.indices(axis)
        if isinstance(axis, Span) and not axis.contiguous:  # HDF5 keeps blocks that touch apart
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
