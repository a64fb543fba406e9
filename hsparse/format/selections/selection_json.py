"""Selections in HDF5/JSON: the classes `H5S_SEL_ALL`, `H5S_SEL_NONE`, `H5S_SEL_POINTS` and `H5S_SEL_HYPERSLABS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import check_extent
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.model.short_text import short_repr

REGULAR = ("start", "stride", "count", "block")


def selection_json(selection: Selection, *, arrays: bool = False) -> dict[str, Any]:
    """Return a selection as HDF5/JSON: a dict with its `class` and the fields of this class.

    Points have `coordinates`, one list per point. Regular hyperslabs have `start`, `stride`, `count` and `block`.
    Irregular hyperslabs have `coordinates`, two inclusive corners per box. Index lists that are no regular hyperslab
    become points. The shape of points is not part of the result. If `arrays`, the coordinates of points are an array,
    which orjson writes many times faster than lists.
    """
    if selection.size == 0:
        return {"class": "H5S_SEL_NONE"}
    if isinstance(selection, Orthogonal):
        if selection.is_all:
            return {"class": "H5S_SEL_ALL"}
        spans = [span for axis in selection.axes if (span := ax.as_span(axis)) is not None]
        if len(spans) == len(selection.axes):
            fields = {name: [getattr(span, name) for span in spans] for name in REGULAR}
            return {"class": "H5S_SEL_HYPERSLABS", **fields}
    if isinstance(selection, Boxes):
        corners = np.stack((selection.starts, selection.stops - np.uint64(1)), axis=1)
        return {"class": "H5S_SEL_HYPERSLABS", "coordinates": corners.tolist()}
    coords = np.ascontiguousarray(selection.coords())
    return {"class": "H5S_SEL_POINTS", "coordinates": coords if arrays else coords.tolist()}


def parse_selection_json(value: Any, extent: Sequence[int]) -> Selection:
    """Return the selection in an HDF5/JSON object; raise `BadRequest`, naming the field, if it is invalid.

    The keys of region references are accepted as well: `select_type` for `class`, `selection` for `coordinates`.
    """
    if isinstance(extent, SignedExtent):
        return extent.inside(parse_selection_json(extent.unsigned_json(value), extent.lengths))
    extent = check_extent(extent)
    if not isinstance(value, dict):
        raise BadRequest("A selection must be a JSON object with a class.")
    kind = value.get("class", value.get("select_type"))
    if kind == "H5S_SEL_ALL":
        return Orthogonal.all(extent)
    if kind == "H5S_SEL_NONE":
        return Orthogonal.none(extent) if extent else Points(extent, np.zeros((0, 0), np.uint64))
    coordinates = value.get("coordinates", value.get("selection"))
    if kind == "H5S_SEL_POINTS":
        return Points(extent, _numbers(coordinates, (len(extent),), "coordinates of the points"))
    if kind == "H5S_SEL_HYPERSLABS" and not extent:
        raise BadRequest("A scalar dataset has no hyperslabs: use H5S_SEL_ALL.")
    if kind == "H5S_SEL_HYPERSLABS" and coordinates is not None:
        return _boxes(extent, _numbers(coordinates, (2, len(extent)), "coordinates of the hyperslabs"))
    if kind == "H5S_SEL_HYPERSLABS":
        return _regular(extent, value)
    raise BadRequest(
        f"The selection's class is {short_repr(kind)}; it must be H5S_SEL_ALL, H5S_SEL_NONE, H5S_SEL_POINTS "
        "or H5S_SEL_HYPERSLABS."
    )


def places_json(selection: Selection, extent: tuple[int, ...], *, arrays: bool = False) -> dict[str, Any]:
    """Return a selection as HDF5/JSON; if the extent is signed, in the coordinates that the request uses."""
    if isinstance(extent, SignedExtent):
        return extent.signed_json(selection_json(extent.outside(selection), arrays=arrays))
    return selection_json(selection, arrays=arrays)


def _numbers(value: Any, tail: tuple[int, ...], what: str) -> NDArray[np.uint64]:
    """Return nested lists of non-negative integers as an array (n, *tail); raise `BadRequest` for any other value."""
    if not isinstance(value, list):
        raise BadRequest(f"The {what} must be a list.")
    try:
        array = np.array(value)
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"The {what} must be lists of equal length.") from error
    if not value:
        return np.zeros((0, *tail), np.uint64)
    if array.dtype.kind not in "iu" or array.shape[1:] != tail:
        raise BadRequest(f"The {what} must be integers below 2^63, in the shape {['n', *tail]}.")
    if array.dtype.kind == "i" and array.min() < 0:
        raise BadRequest(f"The {what} must not be negative, but one is {array.min()}.")
    return array.astype(np.uint64)


def _boxes(extent: tuple[int, ...], corners: NDArray[np.uint64]) -> Selection:
    if not len(corners):
        return Orthogonal.none(extent)
    starts, ends = corners[:, 0], corners[:, 1]
    if (starts > ends).any():
        box, dim = np.argwhere(starts > ends)[0].tolist()
        raise BadRequest(
            f"Hyperslab {box} ends before it starts in dimension {dim}; both corners are inclusive."
        )
    if len(corners) == 1:
        return Orthogonal.box(extent, starts[0].tolist(), (ends[0] + np.uint64(1)).tolist())
    return Boxes(extent, starts, ends + np.uint64(1))


def _regular(extent: tuple[int, ...], value: dict[str, Any]) -> Orthogonal:
    fields = []
    for name in REGULAR:
        default = [1] * len(extent) if name in ("stride", "block") else None
        given = value.get(name, default)
        if not isinstance(given, list) or len(given) != len(extent):
            raise BadRequest(f"The hyperslab's {name} must be a list of {len(extent)} integers.")
        if not all(type(number) is int and 0 <= number < 2**63 for number in given):
            raise BadRequest(f"The hyperslab's {name} must be integers in 0..2^63-1.")
        fields.append(given)
    return Orthogonal(extent, tuple(map(StridedSpan, *fields)))
