"""Check and normalize the JSON layout of a virtual dataset, and compute the bounds of its regular hyperslabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.serialized_selection import (
    BlockList,
    PointList,
    Regular,
    Serialized,
)
from hsparse.hdf5.format.parse.mapping_json import NO_END, REGULAR, Json, mapping_json, mapping_of
from hsparse.hdf5.format.parse.virtual_mapping import THIS_FILE, VirtualMapping, unlimited_dim
from hsparse.hdf5.virtual_dataset.merging import merged_mappings
from hsparse.model.link import MAX_PATH
from hsparse.model.short_text import short_repr

MAX_MAPPINGS = 100_000
FILL, ERROR = "fill", "error"
KEYS = frozenset({"class", "mappings", "missing", "flags", "dims"})


def checked_layout(layout: Json, rank: int) -> Json:
    """Return the normal form of the layout of a new dataset with `rank` dimensions; raise `BadRequest` if invalid."""
    if unknown := set(layout) - KEYS:
        raise BadRequest(f"A virtual layout has no {min(unknown)[:40]!r}; it has: {', '.join(sorted(KEYS))}.")
    mappings = layout.get("mappings")
    if not isinstance(mappings, list) or len(mappings) > MAX_MAPPINGS:
        raise BadRequest(f"A virtual layout needs mappings, a list of at most {MAX_MAPPINGS}.")
    missing = layout.get("missing", ERROR)
    if missing not in (FILL, ERROR):
        raise BadRequest(f"missing must be {ERROR} or {FILL}, not {short_repr(missing)}.")
    checked = [_checked(one, number, rank) for number, one in enumerate(mappings)]
    return layout | {"mappings": list(map(mapping_json, merged_mappings(checked))), "missing": missing}


def _checked(one: Any, number: int, rank: int) -> VirtualMapping:
    """Parse mapping `number` of a new dataset's layout; raise `BadRequest` if the mapping is invalid."""
    if not isinstance(one, dict) or not set(one) <= {"file", "dataset", "source", "virtual"}:
        raise BadRequest(f"Mapping {number} must have file, dataset, source and virtual, and nothing else.")
    file, path = one.get("file", THIS_FILE), one.get("dataset")
    for name, text in (("file", file), ("dataset", path)):
        if not isinstance(text, str) or not 0 < len(text) <= MAX_PATH:
            raise BadRequest(f"The {name} of mapping {number} must be a name, not {short_repr(text)}.")
    try:
        found = mapping_of({**one, "file": file})
    except BadRequest as error:
        raise BadRequest(f"Mapping {number}: {error.message}") from error
    if (own := _rank(found.virtual)) not in (None, rank):
        raise BadRequest(f"Mapping {number} has a virtual selection of {own} dimensions, not {rank}.")
    _check_ends(found, number)
    return found


def _rank(selection: Serialized) -> int | None:
    """Return the number of dimensions of a selection, or None for `all` and `none`, which fit any extent."""
    match selection:
        case Regular(spans):
            return len(spans)
        case PointList(coords):
            return int(coords.shape[1])
        case BlockList(starts, _):
            return int(starts.shape[1])
    return None


def _check_ends(one: VirtualMapping, number: int) -> None:
    """Raise `BadRequest` unless both or no selections of a mapping are unlimited or, with %b, only the virtual one."""
    virtual, source = unlimited_dim(one.virtual), unlimited_dim(one.source)
    if one.by_blocks and (virtual is None or source is not None):
        raise BadRequest(
            f"Mapping {number} names sources by block (%b): give only its virtual selection the count {NO_END}."
        )
    if not one.by_blocks and (virtual is None) != (source is None):
        raise BadRequest(f"Mapping {number} has one unlimited selection: make both unlimited, or neither.")


def has_no_end(one: Json) -> bool:
    """Return whether a mapping in its normal form is unlimited."""
    virtual = one["virtual"]
    return NO_END in virtual.get("count", ()) or NO_END in virtual.get("block", ())


def is_plain(selection: Json) -> bool:
    """Return whether a selection in its normal form is a limited regular hyperslab."""
    return (
        "start" in selection and NO_END not in selection["count"] and NO_END not in selection.get("block", ())
    )


def plain_bounds(selections: Sequence[Json], rank: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a pair: lower and (exclusive) upper corners of limited regular hyperslabs, each (n, rank) int64."""
    ones = [1] * rank
    start, stride, count, block = (
        np.array([one.get(name, ones) for one in selections], np.int64).reshape(-1, rank) for name in REGULAR
    )
    return start, start + (count - 1) * stride + block
