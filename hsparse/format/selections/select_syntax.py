"""The REST API's `select` strings: `[0:100:2,5,[1,3,7]]`, one item a dimension.

Selections in the forms of HDF5/JSON: `H5S_SEL_ALL`, `_NONE`, `_POINTS`, `_HYPERSLABS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import check_extent
from hsparse.format.selections.orthogonal import EMPTY_SPAN, Axis, Orthogonal, Span
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.model.short_text import short_repr

NUMBER = r"[0-9]{1,19}"
INDEX = re.compile(NUMBER)
SLICE = re.compile(rf"({NUMBER})?:({NUMBER})?(?::({NUMBER})?)?")
LIST = re.compile(rf"\[(?:{NUMBER}(?:,{NUMBER})*)?\]")
MAX_PAIRED_BYTES = 1 << 27
"""The most bytes of the points that lists paired with each other select together with slices."""
COORDINATE_BYTES = 8
MAX_SCANNED = 1 << 18
"""The most characters of a selection whose indices are counted before it is parsed: that takes 1 ms."""


def parse_select(text: str | None, extent: Sequence[int], *, orthogonal: bool = False) -> Selection:
    """Return what a `select` string selects; None, the empty string and `[...]` select all.

    An item is an index (the dimension stays, with one element), a slice `start:stop:step` with any number
    left out, or a list of indices in any order. Two or more lists must be of one length and are paired,
    as HSDS does: they give one dimension of the result, in the place of the first. If `orthogonal`, each list is
    for its own dimension instead. `BadRequest` names the item that is malformed, negative or beyond the extent;
    `TooLarge` when the points of paired lists with slices take more than `MAX_PAIRED_BYTES` bytes.
    """
    axes, extent = parse_axes(text, extent), check_extent(extent)
    lists = [dim for dim, axis in enumerate(axes) if not isinstance(axis, Span)]
    if orthogonal or len(lists) < 2:
        return Orthogonal.trusted(extent, tuple(axes))
    return _paired(extent, axes, lists)


def parse_axes(text: str | None, extent: Sequence[int]) -> list[Axis]:
    """Return the item for each dimension of a `select` string, a list as an array; see `parse_select`."""
    body = re.sub(r"\s+", "", text or "")
    if body in ("", "[...]", "..."):
        return [_axis(":", dim, extent) for dim in range(len(extent))]
    if len(body) < 2 or body[0] != "[" or body[-1] != "]":
        raise BadRequest(f"The selection {short_repr(body)} must be enclosed in brackets, as in [0:10,5].")
    pieces = _pieces(body[1:-1])
    if not extent and pieces in ([""], ["0"], [":"], ["0:1"]):
        return []
    if len(pieces) != len(extent):
        raise BadRequest(
            f"The selection {short_repr(body)} has {len(pieces)} dimensions, the dataset {len(extent)}."
        )
    return [_axis(piece, dim, extent) for dim, piece in enumerate(pieces)]


def _pieces(body: str) -> list[str]:
    """Split at the commas outside lists."""
    result = []
    place = 0
    while True:
        end = body.find("]", place) + 1 if body.startswith("[", place) else body.find(",", place)
        if end == 0 and body.startswith("[", place):
            raise BadRequest(f"The list {short_repr(body[place:])} of the selection is not closed.")
        if end == -1:
            end = len(body)
        result.append(body[place:end])
        if end == len(body):
            return result
        if body[end] != ",":
            raise BadRequest(
                f"The selection has {short_repr(body[end:])} after the list {short_repr(result[-1])}."
            )
        place = end + 1


def _axis(piece: str, dim: int, extent: Sequence[int]) -> Axis:
    if isinstance(extent, SignedExtent):
        return ax.translate(_axis(extent.unsigned(piece, dim), dim, extent.lengths), extent.first[dim])
    length = extent[dim]
    if INDEX.fullmatch(piece):
        if int(piece) >= length:
            raise _refused(piece, dim, f"is not below the extent {length}.")
        return Span(int(piece))
    if match := SLICE.fullmatch(piece):
        start, stop, step = int(match[1] or 0), int(match[2] or length), int(match[3] or 1)
        if step < 1:
            raise _refused(piece, dim, f"has step {step}; it must be at least 1.")
        if stop > length:
            raise _refused(piece, dim, f"stops beyond the extent {length}.")
        if start > stop:
            raise _refused(piece, dim, f"starts at {start}, after its stop {stop}.")
        if step == 1 or stop - start <= 1:
            return Span(start, 1, 1, stop - start) if stop > start else EMPTY_SPAN
        return Span(start, step, -(-(stop - start) // step))
    if LIST.fullmatch(piece):
        values = [int(value) for value in piece[1:-1].split(",")] if len(piece) > 2 else []
        if values and max(values) >= length:
            raise _refused(piece, dim, f"has index {max(values)}, not below the extent {length}.")
        return np.array(values, np.uint64)
    if "-" in piece:
        raise _refused(piece, dim, "is negative; count from the start of the dimension.")
    raise _refused(piece, dim, "is neither an index, a slice start:stop:step nor a list [i,j,...].")


def _refused(piece: str, dim: int, why: str) -> BadRequest:
    return BadRequest(f"Piece {short_repr(piece)} of the selection (dimension {dim}) {why}")


def _paired(extent: tuple[int, ...], axes: Sequence[Axis], lists: Sequence[int]) -> Points:
    """Return the points of paired lists crossed with the other axes, row-major in the result's shape."""
    lengths = [axes[dim].size for dim in lists]
    if len(set(lengths)) > 1:
        raise BadRequest(
            f"The lists of the selection have {lengths} indices; lists are paired, so one length."
        )
    kept = [dim for dim in range(len(axes)) if dim not in lists[1:]]
    shape = tuple(axes[dim].size for dim in kept)
    check_paired(shape, len(extent))
    coords = np.empty((*shape, len(extent)), np.uint64)
    for dim, axis in enumerate(axes):
        place = kept.index(lists[0] if dim in lists else dim)
        coords[..., dim] = ax.indices(axis).reshape((-1,) + (1,) * (len(shape) - place - 1))
    return Points(extent, coords.reshape(-1, len(extent)), shape)


def most_paired(rank: int) -> int:
    """Return how many elements of a dataset of `rank` dimensions lists paired with slices may select."""
    return MAX_PAIRED_BYTES // (rank * COORDINATE_BYTES)


def check_paired(shape: Sequence[int], rank: int) -> int:
    """Return the bytes of the points of a selection of paired lists, of this shape.

    `TooLarge` beyond `MAX_PAIRED_BYTES`. A dimension of no elements counts as one: the indices of the others are
    listed nevertheless.
    """
    places = math.prod(max(1, length) for length in shape)
    if places > most_paired(rank):
        raise TooLarge(
            f"Lists paired with slices may select {most_paired(rank)} elements of {rank} dimensions, not {places}: "
            "select less at a time."
        )
    return math.prod(shape) * rank * COORDINATE_BYTES


def paired_bytes(text: str, extent: Sequence[int]) -> int:
    """Return the bytes of the points that `parse_select` will make of paired lists, 0 if it makes none or fails.

    No list is parsed. `TooLarge` as there. Of text of more than `MAX_SCANNED` characters it is at least so much, and
    not too large: 32 MB of text take 2 ms.
    """
    is_counted = len(text) <= MAX_SCANNED
    at, parts, listed = text.find("[") + 1, ["["], -1
    while (start := text.find("[", at)) >= 0 and (end := text.find("]", start)) >= 0:
        if listed < 0:
            listed = text.count(",", start, end) + 1 if is_counted else (end - start) // 2 + 1
            listed -= is_counted and not text[start + 1 : end].strip()
        parts += text[at:start], "[]"
        at = end + 1
        if len(parts) > 2 * len(extent) + 1:
            return 0
    if len(text) - at + sum(map(len, parts)) > MAX_SCANNED:
        return MAX_PAIRED_BYTES
    try:
        pieces = _pieces(re.sub(r"\s+", "", "".join((*parts, text[at:])))[1:-1])
        return listed_bytes(pieces, listed, extent)
    except BadRequest:
        return 0
    except TooLarge:
        if is_counted:
            raise
        return MAX_PAIRED_BYTES


def listed_bytes(pieces: Sequence[str], listed: int, extent: Sequence[int]) -> int:
    """Return the same of the pieces of a selection, of which each list is `[]`, and has `listed` indices."""
    others = [(dim, piece) for dim, piece in enumerate(pieces) if piece != "[]"]
    if len(pieces) - len(others) < 2 or len(pieces) != len(extent):
        return 0
    try:
        sizes = [_axis(re.sub(r"\s+", "", piece), dim, extent).size for dim, piece in others]
    except BadRequest:
        return 0
    return check_paired([listed, *sizes], len(extent))


def format_select(selection: Selection, *, orthogonal: bool = False) -> str:
    """Return the `select` string of a selection; without the shape of points.

    `Unsupported` for what the syntax cannot express: unions of boxes, and products of two index lists, unless
    `orthogonal`, as `parse_select` has it.
    """
    if isinstance(selection, Points):
        if not selection.extent and selection.size == 1:
            return "[...]"
        if len(selection.extent):
            return "[" + ",".join(_list(column) for column in selection.coordinates.T) + "]"
    if isinstance(selection, Boxes) and len(selection.starts) <= 1:
        corners = selection.bounds() or ((0,) * len(selection.extent),) * 2
        selection = Orthogonal.box(selection.extent, *corners)
    if not isinstance(selection, Orthogonal):
        raise Unsupported("A union of boxes has no select string; send it as HDF5/JSON.")
    if not selection.extent:
        return "[...]"
    pieces = [_piece(axis) for axis in selection.axes]
    if not orthogonal and sum(piece.startswith("[") for piece in pieces) > 1:
        raise Unsupported("A product of two index lists has no select string; send it as HDF5/JSON.")
    return f"[{','.join(pieces)}]"


def _piece(axis: Axis) -> str:
    span = ax.as_span(axis)
    cut = span.as_slice() if span is not None else None
    if cut is None:
        return _list(ax.indices(axis))
    return f"{cut.start}:{cut.stop}" + (f":{cut.step}" if cut.step else "")


def _list(indices: NDArray[np.uint64]) -> str:
    return f"[{','.join(map(str, indices.tolist()))}]"


REGULAR = ("start", "stride", "count", "block")


def selection_json(selection: Selection, *, arrays: bool = False) -> dict[str, Any]:
    """Return a selection as HDF5/JSON: its class, and what the class needs.

    Points have `coordinates`, one list each; regular hyperslabs `start`, `stride`, `count` and `block`;
    irregular ones `coordinates`, a pair of corners a box, both inclusive. Index lists that are no
    regular hyperslab become points. The shape of points is lost. With `arrays` the coordinates of points are
    an array, which orjson writes many times faster than lists.
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
    """Return the selection of an HDF5/JSON object; `BadRequest` names the field that is wrong.

    `select_type` is read as `class`, and `selection` as `coordinates`: the keys of region references.
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
        raise BadRequest("A scalar has no hyperslabs; select all.")
    if kind == "H5S_SEL_HYPERSLABS" and coordinates is not None:
        return _boxes(extent, _numbers(coordinates, (2, len(extent)), "coordinates of the hyperslabs"))
    if kind == "H5S_SEL_HYPERSLABS":
        return _regular(extent, value)
    raise BadRequest(
        f"The selection's class is {short_repr(kind)}; it must be H5S_SEL_ALL, H5S_SEL_NONE, H5S_SEL_POINTS "
        "or H5S_SEL_HYPERSLABS."
    )


def places_json(selection: Selection, extent: tuple[int, ...], *, arrays: bool = False) -> dict[str, Any]:
    """Return a selection in an extent as HDF5/JSON, as the request counts it."""
    if isinstance(extent, SignedExtent):
        return extent.signed_json(selection_json(extent.outside(selection), arrays=arrays))
    return selection_json(selection, arrays=arrays)


def _numbers(value: Any, tail: tuple[int, ...], what: str) -> NDArray[np.uint64]:
    """Return nested lists of non-negative integers as an array of shape (n, *tail)."""
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
        raise BadRequest(f"The {what} must not be negative; {array.min()} is.")
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
    return Orthogonal(extent, tuple(map(Span, *fields)))
