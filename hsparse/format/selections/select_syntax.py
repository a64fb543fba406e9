"""The REST API's `select` strings, such as `[0:100:2,5,[1,3,7]]` with one item per dimension."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import check_extent
from hsparse.format.selections.orthogonal import EMPTY_SPAN, Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.signed_extent import SignedExtent
from hsparse.model.short_text import short_repr

NUMBER = r"[0-9]{1,19}"
INDEX = re.compile(NUMBER)
SLICE = re.compile(rf"({NUMBER})?:({NUMBER})?(?::({NUMBER})?)?")
LIST = re.compile(rf"\[(?:{NUMBER}(?:,{NUMBER})*)?\]")
MAX_PAIRED_BYTES = 1 << 27
"""The most bytes of coordinates that a selection with paired lists may need; slices multiply the points."""
COORDINATE_BYTES = 8
MAX_SCANNED = 1 << 18
"""The most characters of a `select` string whose indices are counted before it is parsed; counting takes 1 ms."""


def parse_select(text: str | None, extent: Sequence[int], *, orthogonal: bool = False) -> Selection:
    """Return the selection of a `select` string; None, an empty string and `[...]` select all elements.

    An item is an index (the dimension stays, with length 1), a slice `start:stop:step` whose numbers are optional, or a
    list of indices in any order. Two or more lists must have equal lengths and are paired, as in HSDS: they form one
    dimension of the result, at the first list's position. If `orthogonal`, each list selects in its own dimension
    instead. Raises `BadRequest` for an item that is malformed, negative or beyond the extent, and `TooLarge` if the
    coordinates of paired lists take more than `MAX_PAIRED_BYTES` bytes.
    """
    axes, extent = parse_axes(text, extent), check_extent(extent)
    lists = [dim for dim, axis in enumerate(axes) if not isinstance(axis, StridedSpan)]
    if orthogonal or len(lists) < 2:
        return Orthogonal.trusted(extent, tuple(axes))
    return _paired(extent, axes, lists)


def parse_axes(text: str | None, extent: Sequence[int]) -> list[Axis]:
    """Return the axis for each item of a `select` string, one per dimension; see `parse_select`."""
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
            f"The selection {short_repr(body)} has {len(pieces)} dimensions; the dataset has {len(extent)}."
        )
    return [_axis(piece, dim, extent) for dim, piece in enumerate(pieces)]


def _pieces(body: str) -> list[str]:
    """Return the items of a `select` string without its brackets, split at the commas outside lists."""
    result = []
    place = 0
    while True:
        end = body.find("]", place) + 1 if body.startswith("[", place) else body.find(",", place)
        if end == 0 and body.startswith("[", place):
            raise BadRequest(f"The list {short_repr(body[place:])} of the selection is not closed: add ].")
        if end == -1:
            end = len(body)
        result.append(body[place:end])
        if end == len(body):
            return result
        if body[end] != ",":
            raise BadRequest(
                f"The selection has {short_repr(body[end:])} after the list {short_repr(result[-1])}, but no comma."
            )
        place = end + 1


def _axis(piece: str, dim: int, extent: Sequence[int]) -> Axis:
    if isinstance(extent, SignedExtent):
        return ax.translate(_axis(extent.unsigned(piece, dim), dim, extent.lengths), extent.first[dim])
    length = extent[dim]
    if INDEX.fullmatch(piece):
        if int(piece) >= length:
            raise _refused(piece, dim, f"is not below the extent {length}.")
        return StridedSpan(int(piece))
    if match := SLICE.fullmatch(piece):
        start, stop, step = int(match[1] or 0), int(match[2] or length), int(match[3] or 1)
        if step < 1:
            raise _refused(piece, dim, f"has step {step}; it must be at least 1.")
        if stop > length:
            raise _refused(piece, dim, f"stops beyond the extent {length}.")
        if start > stop:
            raise _refused(piece, dim, f"starts at {start}, after its stop {stop}.")
        if step == 1 or stop - start <= 1:
            return StridedSpan(start, 1, 1, stop - start) if stop > start else EMPTY_SPAN
        return StridedSpan(start, step, -(-(stop - start) // step))
    if LIST.fullmatch(piece):
        values = [int(value) for value in piece[1:-1].split(",")] if len(piece) > 2 else []
        if values and max(values) >= length:
            raise _refused(piece, dim, f"has index {max(values)}, not below the extent {length}.")
        return np.array(values, np.uint64)
    if "-" in piece:
        raise _refused(piece, dim, "is negative: count indices from the start of the dimension.")
    raise _refused(piece, dim, "is neither an index, a slice start:stop:step nor a list [i,j,...].")


def _refused(piece: str, dim: int, why: str) -> BadRequest:
    return BadRequest(f"Item {short_repr(piece)} of the selection (dimension {dim}) {why}")


def _paired(extent: tuple[int, ...], axes: Sequence[Axis], lists: Sequence[int]) -> Points:
    """Return the points of paired lists, combined with all indices of all other axes, in row-major order."""
    lengths = [axes[dim].size for dim in lists]
    if len(set(lengths)) > 1:
        raise BadRequest(
            f"The lists of the selection have {lengths} indices; lists are paired and need equal lengths."
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
    """Return the most elements that paired lists, combined with slices, may select in `rank` dimensions."""
    return MAX_PAIRED_BYTES // (rank * COORDINATE_BYTES)


def check_paired(shape: Sequence[int], rank: int) -> int:
    """Return the bytes of the coordinates of a selection of paired lists with this result shape.

    Raises `TooLarge` beyond `MAX_PAIRED_BYTES`. For this limit a dimension of length 0 counts as 1, because the indices
    of the other dimensions are listed nevertheless.
    """
    places = math.prod(max(1, length) for length in shape)
    if places > most_paired(rank):
        raise TooLarge(
            f"Lists paired with slices can select {most_paired(rank)} elements in {rank} dimensions, not {places}: "
            "select less at a time."
        )
    return math.prod(shape) * rank * COORDINATE_BYTES


def paired_bytes(text: str, extent: Sequence[int]) -> int:
    """Return the bytes of coordinates that `parse_select` lists for paired lists, or 0 if it lists none or raises.

    Lists are not parsed, so that 32 MB of text take 2 ms. Raises `TooLarge` as `parse_select`. For more than
    `MAX_SCANNED` characters the result is an upper bound, at most `MAX_PAIRED_BYTES`.
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
    """Return the same as `paired_bytes` for items of a `select` string; each `[]` is a list of `listed` indices."""
    others = [(dim, piece) for dim, piece in enumerate(pieces) if piece != "[]"]
    if len(pieces) - len(others) < 2 or len(pieces) != len(extent):
        return 0
    try:
        sizes = [_axis(re.sub(r"\s+", "", piece), dim, extent).size for dim, piece in others]
    except BadRequest:
        return 0
    return check_paired([listed, *sizes], len(extent))


def format_select(selection: Selection, *, orthogonal: bool = False) -> str:
    """Return the `select` string of a selection; the string does not contain the shape of points.

    Raises `Unsupported` for selections that the syntax cannot express: unions of boxes and, unless `orthogonal` (see
    `parse_select`), products of two index lists.
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
