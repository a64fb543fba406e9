"""The first slices, and single blocks, of unlimited hyperslabs in mappings of virtual datasets.

A slice has all selected elements with the same index in the unlimited dimension. The extents of unlimited virtual
datasets follow libhdf5 (`H5D__virtual_set_extent_unlim` with the default view, which ends at the last available data).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.plan.virtual_plan import MAX_LISTED, Indices
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.serialized_selection import (
    UNLIMITED,
    BlockList,
    NoElements,
    Regular,
    Serialized,
)
from hsparse.model.dataspace import MAX_EXTENT


def slices_before(span: StridedSpan, end: int) -> int:
    """Return the number of indices of an unlimited span that are below `end`."""
    if end <= span.start:
        return 0
    if span.block == UNLIMITED:
        return end - span.start
    blocks, rest = divmod(end - span.start, span.stride)
    return blocks * span.block + min(rest, span.block)


def end_of_slices(span: StridedSpan, slices: int) -> int:
    """Return the highest of the first `slices` indices of an unlimited span, plus one, or 0 if `slices` is 0.

    Raises `Corrupt` if the result is beyond the largest extent.
    """
    if not slices:
        return 0
    if span.block == UNLIMITED or span.block == span.stride:
        end = span.start + slices
    else:
        blocks, rest = divmod(slices, span.block)
        end = span.start + (blocks * span.stride + rest if rest else (blocks - 1) * span.stride + span.block)
    if end > MAX_EXTENT:
        raise Corrupt(f"A mapped selection reaches {end}; a dataset ends at {MAX_EXTENT} at most.")
    return end


def clipped(selection: Regular, dim: int, slices: int) -> Serialized:
    """Return the first `slices` slices of a selection that is unlimited in `dim`.

    If the slices end inside a block, the result is a list of blocks.
    """
    span = selection.spans[dim]
    if not slices:
        return NoElements()
    if span.block == UNLIMITED or span.block == span.stride:
        return _with(selection, dim, StridedSpan.range(span.start, span.start + slices))
    blocks, rest = divmod(slices, span.block)
    if not rest:
        return _with(selection, dim, replace(span, count=blocks))
    if not blocks:
        return _with(selection, dim, StridedSpan.range(span.start, span.start + rest))
    return _blocks(_with(selection, dim, replace(span, count=blocks + 1)), dim, end_of_slices(span, slices))


def block_of(selection: Regular, dim: int, number: int) -> Regular:
    """Return the block `number`, counted from 0, of a selection that is unlimited in `dim`."""
    span = selection.spans[dim]
    start = span.start + number * span.stride
    return _with(selection, dim, StridedSpan.range(start, start + span.block))


def _with(selection: Regular, dim: int, span: StridedSpan) -> Regular:
    return Regular((*selection.spans[:dim], span, *selection.spans[dim + 1 :]))


def _blocks(selection: Regular, dim: int, end: int) -> BlockList:
    """Return the blocks of a limited hyperslab, clipped at `end` in dimension `dim`."""
    if (count := prod(span.count for span in selection.spans)) > MAX_LISTED:
        raise TooLarge(f"A mapped selection has {count} blocks; the limit is {MAX_LISTED}: map it in parts.")
    starts = [span.start + np.arange(span.count) * span.stride for span in selection.spans]
    lasts = [one + span.block - 1 for one, span in zip(starts, selection.spans, strict=True)]
    lasts[dim] = np.minimum(lasts[dim], end - 1)
    return BlockList(_corners(starts), _corners(lasts), 8)


def _corners(lists: list[Indices]) -> NDArray[np.uint64]:
    return np.stack([one.ravel() for one in np.meshgrid(*lists, indexing="ij")], 1).astype(np.uint64)
