"""The mappings of a virtual dataset as JSON, as in the layout of a dataset's creation properties.

    {"file": "a.h5", "dataset": "/x", "source": selection, "virtual": selection}

Selections have the classes of HDF5/JSON (`H5S_SEL_ALL`, `_NONE`, `_POINTS`, `_HYPERSLABS`). The count or block of a
regular hyperslab may be `H5S_UNLIMITED` in one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.serialized_selection import (
    MAX_END,
    UNLIMITED,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
)
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.short_text import short_repr

Json = dict[str, Any]
NO_END = "H5S_UNLIMITED"
REGULAR = ("start", "stride", "count", "block")


def mapping_json(one: VirtualMapping) -> Json:
    """Convert a mapping to JSON; equal mappings have equal JSON."""
    kept = {"source": selection_json(one.source), "virtual": selection_json(one.virtual)}
    return {"file": one.file, "dataset": one.dataset, **kept}


def mapping_of(one: Json) -> VirtualMapping:
    """Convert JSON to a mapping; raises `BadRequest` if a selection is invalid."""
    return VirtualMapping(
        one["file"], one["dataset"], parse_selection(one.get("source")), parse_selection(one.get("virtual"))
    )


def parse_selection(value: Any) -> Serialized:
    """Parse a selection (None: all elements); raises `BadRequest`. Bounds are not checked."""
    if value is None:
        return AllElements()
    kind = value.get("class") if isinstance(value, dict) else None
    if kind == "H5S_SEL_ALL":
        return AllElements()
    if kind == "H5S_SEL_NONE":
        return NoElements()
    if kind == "H5S_SEL_POINTS":
        return PointList(_numbers(value.get("coordinates"), 2))
    if kind == "H5S_SEL_HYPERSLABS" and "coordinates" in value:
        corners = _numbers(value["coordinates"], 3)
        if corners.shape[1] != 2 or (corners[:, 0] > corners[:, 1]).any():
            raise BadRequest("Each hyperslab must be a pair of inclusive corners, the lower corner first.")
        return BlockList(corners[:, 0], corners[:, 1], 8)
    if kind == "H5S_SEL_HYPERSLABS":
        return _regular(value)
    raise BadRequest(
        "A selection must have the class H5S_SEL_ALL, H5S_SEL_NONE, H5S_SEL_POINTS or H5S_SEL_HYPERSLABS, not "
        f"{short_repr(kind)}."
    )


def _numbers(value: Any, dims: int) -> NDArray[np.uint64]:
    try:
        found = np.array(value)
    except (ValueError, OverflowError) as error:
        raise BadRequest("The coordinates of a selection must be lists of equal length.") from error
    good = found.ndim == dims and found.size and found.dtype.kind in "iu" and found.shape[-1] <= MAX_RANK
    if not good or found.min() < 0 or int(found.max()) >= MAX_END:
        raise BadRequest("The coordinates of a selection must be lists of integers that are not negative.")
    return found.astype(np.uint64)


def _regular(value: Json) -> Regular:
    start = value.get("start")
    rank = len(start) if isinstance(start, list) else 0
    lists = [value.get(name, [1] * rank) for name in REGULAR]
    if not 0 < rank <= MAX_RANK or not all(isinstance(one, list) and len(one) == rank for one in lists):
        raise BadRequest("A hyperslab needs start and count: lists of integers of equal length.")
    spans = [_span(dim, *numbers) for dim, numbers in enumerate(zip(*lists, strict=True))]
    if sum(UNLIMITED in (span.count, span.block) for span in spans) > 1:
        raise BadRequest(f"A hyperslab can be {NO_END} in only one dimension: limit the others.")
    return Regular(tuple(spans))


def _span(dim: int, start: Any, stride: Any, count: Any, block: Any) -> StridedSpan:
    count, block = (UNLIMITED if one == NO_END else one for one in (count, block))
    for one, least in ((start, 0), (stride, 1), (count, 1), (block, 1)):
        if type(one) is not int or one < least:
            raise BadRequest(
                f"The hyperslab is invalid in dimension {dim}: {start=}, {stride=}, {count=}, {block=}."
            )
    if block == UNLIMITED:
        if count != 1:
            raise BadRequest(f"In dimension {dim}, count must be 1 if block is {NO_END}.")
        return StridedSpan(start, 1, 1, UNLIMITED)
    if count > 1 and stride < block:
        raise BadRequest(f"The blocks of the hyperslab overlap in dimension {dim}.")
    if count != UNLIMITED and start + count * stride + block > MAX_END:
        raise BadRequest(f"The hyperslab ends beyond 2^62 in dimension {dim}, the limit.")
    # A contiguous selection has a normal form without stride.
    span = StridedSpan(start, stride, count, block)
    return StridedSpan.range(start, span.stop) if count != UNLIMITED and span.contiguous else span


def selection_json(selection: Serialized) -> Json:
    """Convert a selection to JSON that `parse_selection` reads."""
    match selection:
        case AllElements():
            return {"class": "H5S_SEL_ALL"}
        case NoElements():
            return {"class": "H5S_SEL_NONE"}
        case PointList(coords):
            return {"class": "H5S_SEL_POINTS", "coordinates": coords.tolist()}
        case BlockList(starts, ends):
            corners = np.stack((starts, ends), 1)
            return {"class": "H5S_SEL_HYPERSLABS", "coordinates": corners.tolist()}
        case Regular(spans):
            return {"class": "H5S_SEL_HYPERSLABS"} | _regular_json(spans)


def _regular_json(spans: Sequence[StridedSpan]) -> Json:
    """Return a dict of start, stride, count and block; stride and block are omitted if all their numbers are 1."""
    found = {name: [getattr(span, name) for span in spans] for name in REGULAR}
    for name in ("count", "block"):
        found[name] = [NO_END if one == UNLIMITED else one for one in found[name]]
    return {
        name: numbers
        for name, numbers in found.items()
        if name in ("start", "count") or any(one != 1 for one in numbers)
    }
