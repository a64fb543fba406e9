"""Region references: the bytes in which h5json keeps one, and the JSON for it.

JSON: `{"id": uuid, "select_type": "H5S_SEL_POINTS" or "H5S_SEL_HYPERSLABS", "selection": [...]}`, without a
selection for the whole dataset, None for a null reference. The bytes are h5json's own and are kept as they come.
"""

from __future__ import annotations

import struct
from itertools import starmap
from math import prod
from typing import Any

from hsparse.optional_module import OptionalModule

# It imports h5py, which takes as long as all of the client.
H5JSON = OptionalModule("h5json.hdf5dtype", "files")
MAX_POINTS = 1 << 16
"""Elements of a selection in several pieces: h5json spells each of them out."""
MAX_RANK = 32
FAILURES = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)


def region_bytes(value: Any) -> bytes:
    """Return a region reference's bytes, empty for None or 0; `ValueError` when `value` is none."""
    if value is None or value == 0:
        return b""
    try:
        _check(value)
        return bytes(_h5json().from_json(value).tobytes())
    except FAILURES as error:
        raise ValueError(f"it is no region reference: {error}") from error


def region_json(data: bytes) -> Any:
    """Return what `region_bytes` was given; `ValueError` when the bytes are no region reference."""
    if not data:
        return None
    try:
        return _h5json().frombytes(data).to_json()
    except FAILURES as error:
        raise ValueError(f"the bytes are no region reference: {error}") from error


def _h5json() -> Any:
    """Return h5json's class of region references; `Misconfigured` where it is not installed."""
    return H5JSON.load().RegionReference


def _check(value: Any) -> None:
    """Raise `ValueError` for what h5json would work on for too long."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise ValueError("an object with an id is needed")
    if "selection_dict" in value:
        _check_dict(value["selection_dict"])
        return
    selection = value.get("selection") or []
    if not isinstance(selection, list) or len(selection) > MAX_POINTS:
        raise ValueError(f"the selection must be a list of at most {MAX_POINTS}")
    if value.get("select_type") == "H5S_SEL_HYPERSLABS":
        volumes = sum(starmap(_volume, selection))
        if len(selection) > 1 and volumes > MAX_POINTS:
            raise ValueError(f"several blocks can have {MAX_POINTS} elements together")
    elif any(not 0 < len(point) <= MAX_RANK or min(point) < 0 for point in selection):
        raise ValueError("points need non-negative coordinates")


def _check_dict(selection: dict[str, Any]) -> None:
    """Check h5json's form of what HDF5 has no region for: steps, and lists of indices."""
    shape, slices = selection["shape"], selection.get("slices", [])
    if not isinstance(shape, list) or len(shape) > MAX_RANK or any(not 0 <= dim < 2**63 for dim in shape):
        raise ValueError("the shape of a selection must be a list of extents")
    if len(slices) > MAX_RANK or any(len(one.get("values", ())) > MAX_POINTS for one in slices):
        raise ValueError(f"a selection can have {MAX_RANK} dimensions and {MAX_POINTS} indices in each")


def _volume(start: list[int], end: list[int]) -> int:
    pairs = list(zip(start, end, strict=True))
    if not 0 < len(pairs) <= MAX_RANK or any(not 0 <= low <= high < 2**63 for low, high in pairs):
        raise ValueError("a block needs a start and an end that is not before it")
    return prod(high - low + 1 for low, high in pairs)
