"""The elements that a value request names: by select string, points or hyperslab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.format.selections.signed_extent import SignedExtent, points_of
from hsparse.model.json_values import ELEMENTS_AT_ONCE
from hsparse.sn.request import Request

T = TypeVar("T")
NUMBER_BYTES = 2
"""The approximate minimum of bytes of a number in a body, used to estimate the work of parsing for `compute`."""
SELECTION_WORK = 100
"""The work of resolving a short selection, in units of the work on a number."""

Resolve: TypeAlias = Callable[[tuple[int, ...]], Selection]
"""A function of a dataset's extent that returns the request's selection in that extent."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The parameters of a read. A `limit` of 0 means no limit; `sparse` asks for the defined elements only."""

    resolve: Resolve
    fields: str | None
    query: str | None
    limit: int
    order_by: str = ""
    sparse: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    """The selection as the request gave it, from which `resolved` computes the memory to reserve."""

    @classmethod
    def of(cls, request: Request, body: dict[str, Any], resolve: Resolve) -> ReadRequest:
        """Take each parameter from the keys of `body`, or else from the URL; raise `BadRequest` if one is invalid."""
        names = ("fields", "query", "order_by")
        fields, query, order_by = map(body.get, names, map(request.arg, names))
        limit = body.get("Limit", request.number("Limit")) or 0
        for name, value in (("fields", fields), ("query", query), ("order_by", order_by)):
            if not (value is None or isinstance(value, str)):
                raise BadRequest(f"{name} must be a string.")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise BadRequest("Limit must be a non-negative integer (0: no limit).")
        sparse = request.flag("sparse")
        if query and sparse:
            raise BadRequest("A query finds elements by their values; leave out sparse.")
        if order_by and not query:
            raise BadRequest("order_by orders the elements that a query finds: add a query.")
        return cls(resolve, fields, query or None, limit, order_by or "", sparse, body)


@dataclass(frozen=True, slots=True)
class WriteSelection:
    """The elements that a write names, in its body or by URL parameters."""

    select: Any
    points: Any
    hyperslab: dict[str, Any]
    count: Any
    """The number of values in the body (`element_count`), see `body_shape`; None means one for each element."""

    @classmethod
    def of(cls, request: Request, body: dict[str, Any]) -> WriteSelection:
        """Take the selection from the keys of `body`, or else from the URL's parameters."""
        hyperslab: dict[str, Any] = {key: body[key] for key in ("start", "stop", "step") if key in body}
        select = body.get("select", request.arg("select"))
        count = body.get("element_count", request.number("element_count"))
        return cls(select, body.get("points"), hyperslab, count)

    @property
    def named(self) -> dict[str, Any]:
        """The `select` of the write, which may have paired lists, as in the body of a read."""
        return {"select": self.select}

    def resolve(self, extent: tuple[int, ...]) -> Selection:
        """Return the selection in an extent (default: all); raise `BadRequest` if elements are named in two ways."""
        given = {"select": self.select, "points": self.points, "start/stop/step": self.hyperslab or None}
        named = [key for key, value in given.items() if value is not None]
        if len(named) > 1:
            raise BadRequest(f"Name the elements once: {' and '.join(named)} are given.")
        if named == ["points"]:
            return points_selection(self.points, extent)
        if named == ["start/stop/step"]:
            return stepped_selection(self.hyperslab, extent)
        return select_selection(self.select, extent)


def body_shape(count: Any, selection: Selection) -> tuple[int, ...]:
    """Return the shape of the values in the body of a write; raise `BadRequest` if their number `count` is invalid.

    `count` may be None (one value for each element) or that number, 1 (one value for all elements), or the product of
    the last dimensions of the selection's shape, if the values are repeated over its first dimensions.
    """
    shape = selection.shape
    if count is None or (count == selection.size and type(count) is int):
        return shape
    tails = [(1,), *(shape[dim:] for dim in range(1, len(shape)))]
    for tail in tails:
        if type(count) is int and prod(tail) == count:
            return tail
    raise BadRequest(
        f"element_count is {count!r:.40}; it must be 1, the {selection.size} elements selected, or the product of "
        f"the last dimensions of {list(shape)}."
    )


def select_selection(select: Any, extent: tuple[int, ...], orthogonal: Any = False) -> Selection:
    """Return the selection of `select`: a select string, a list with an item for each dimension, or None for all.

    An item is an index, a list of indices, or text as in a select string. Several lists of indices are paired to
    points; with `orthogonal` they select their outer product. Raises `BadRequest` if `select` is malformed.
    """
    if not isinstance(orthogonal, bool):
        raise BadRequest("orthogonal must be true or false.")
    if isinstance(select, list):
        select = _select_text(select)
    if select is not None and not isinstance(select, str):
        raise BadRequest("select must be a string like '[0:10,5]', or a list like ['0:10', 5].")
    return parse_select(select, extent, orthogonal=orthogonal)


def ascending_selection(select: Any, extent: tuple[int, ...]) -> Orthogonal:
    """Return the orthogonal selection of `select`; raise `BadRequest` unless each list of indices ascends strictly."""
    selection = select_selection(select, extent, orthogonal=True)
    assert isinstance(selection, Orthogonal)
    for dim, axis in enumerate(selection.axes):
        if not isinstance(axis, StridedSpan) and not bool(np.all(axis[1:] > axis[:-1])):
            raise BadRequest(f"The indices of dimension {dim} must ascend without repeats in a reduction.")
    return selection


def body_resolve(body: dict[str, Any]) -> Resolve:
    """Return the `Resolve` of a body's `points`, `select` or `selection`; raise `BadRequest` unless it has one key."""
    if len(set(body) - {"orthogonal"}) != 1 or not set(body) <= {
        "points",
        "select",
        "selection",
        "orthogonal",
    }:
        raise BadRequest(
            "The body must have one of points, select and selection; with select also orthogonal."
        )
    if "orthogonal" in body and "select" not in body:
        raise BadRequest("orthogonal applies to the lists of select only; leave it out.")

    def resolve(extent: tuple[int, ...]) -> Selection:
        if "points" in body:
            return points_selection(body["points"], extent)
        if "select" in body:
            return select_selection(body["select"], extent, body.get("orthogonal", False))
        return parse_selection_json(body["selection"], extent)

    return resolve


def _select_text(items: list[Any]) -> str:
    return f"[{','.join(map(_select_item, items))}]"


def _select_item(item: Any) -> str:
    if isinstance(item, str) and item.strip() and "," not in item and "[" not in item:
        return item
    if isinstance(item, list) and all(map(_is_index, item)):
        return f"[{','.join(map(str, item))}]"
    if not _is_index(item):
        raise BadRequest(
            f"{item!r:.40} in select is neither an index, a list of indices nor a slice like '0:10'."
        )
    return str(item)


def _is_index(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def points_selection(points: Any, extent: tuple[int, ...]) -> Points:
    """Return a body's points: lists of `rank` numbers, or numbers for rank 1; raise `BadRequest` for other values."""
    if (
        isinstance(points, list) and len(points) > ELEMENTS_AT_ONCE
    ):  # `pack_points` packs all valid lists of this length
        raise BadRequest(f"points must be a list of coordinates, {len(extent)} each.")
    try:
        coords = np.array(points)
    except ValueError as error:
        raise BadRequest(f"points must be a list of coordinates, {len(extent)} each.") from error
    if coords.ndim < 2 and len(extent) != 1 and (coords.size or not extent):
        raise BadRequest(f"points must be a list of coordinates, {len(extent)} each.")
    coords = coords.reshape(-1, len(extent)) if coords.ndim < 2 else coords
    return extent.points(coords) if isinstance(extent, SignedExtent) else Points(extent, coords)


def pack_points(body: Any) -> None:
    """Replace the `points` of a body by an array if they are integers in lists of equal length; others stay."""
    points = body.get("points") if isinstance(body, dict) else None
    if isinstance(points, list) and points:
        packed = _packed(points)
        if packed is not None:
            body["points"] = packed


def _packed(points: list[Any]) -> NDArray[Any] | None:
    """Return integers as an array, or None for other items. Items are converted in blocks so that other threads run."""
    blocks: list[NDArray[Any]] = []
    for first in range(0, len(points), ELEMENTS_AT_ONCE):
        try:
            block = np.array(points[first : first + ELEMENTS_AT_ONCE])
        except ValueError:
            return None
        if block.dtype.kind not in "iu" or (blocks and block.shape[1:] != blocks[0].shape[1:]):
            return None
        blocks.append(block)
    packed = np.concatenate(blocks)
    # numpy converts a mix of numbers beyond 2^63 and negative ones to floats.
    return packed if packed.dtype.kind in "iu" else None


def binary_points(data: bytes | bytearray, extent: tuple[int, ...]) -> Points:
    """Return the points of a binary body: `rank` little-endian u64 each, or i64 if the request has `places`."""
    rank = len(extent)
    if not rank or len(data) % (8 * rank):
        raise BadRequest(f"A point has {rank} 64-bit little-endian numbers; the body has {len(data)} bytes.")
    kind = np.int64 if isinstance(extent, SignedExtent) and extent.in_places else np.uint64
    return points_of(extent, np.frombuffer(data, "<u8").astype(np.uint64).view(kind).reshape(-1, rank))


def stepped_selection(body: dict[str, Any], extent: tuple[int, ...]) -> Selection:
    """Return the hyperslab of `start`, `stop` and `step`: lists with a number for each dimension, or missing keys."""
    rank = len(extent)
    first, last, signed = (0,) * rank, extent, False
    if isinstance(extent, SignedExtent):
        first, signed = extent.start, extent.in_places
        last = tuple(map(int.__add__, first, extent.lengths))
    start, stop, step = (
        _numbers(body.get(key), default, key, signed=signed and key != "step")
        for key, default in (("start", first), ("stop", last), ("step", (1,) * rank))
    )
    if not len(start) == len(stop) == len(step) == rank:
        raise BadRequest(f"start, stop and step need {rank} numbers each, one for each dimension.")
    axes = ",".join(f"{begin}:{end}:{by}" for begin, end, by in zip(start, stop, step, strict=True))
    return parse_select(f"[{axes}]", extent)


def _numbers(value: Any, default: tuple[int, ...], key: str, *, signed: bool = False) -> tuple[int, ...]:
    if value is None:
        return default
    items = value if isinstance(value, list) else [value]
    if not all(_is_index(item) and (signed or item >= 0) for item in items):
        raise BadRequest(f"{key} must be a list of non-negative integers, one for each dimension.")
    return tuple(items)
