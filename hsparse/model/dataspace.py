"""Dataspaces in HDF5/JSON (simple, scalar and null), and the choice of chunk dimensions.

A simple dataspace is `{"class": "H5S_SIMPLE", "dims": [...], "maxdims": [...]}`. A signed dataspace also has `lower`,
the coordinates of its first element (which may be negative), and `minlower`, the limits down to which `lower` may move.
`dims` and `maxdims` still count elements. Chunk dimensions are chosen so that chunks are neither too many nor too
large.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hsparse.errors import BadRequest
from hsparse.model.short_text import short_repr

UNLIMITED = "H5S_UNLIMITED"
MAX_RANK = 32
MAX_EXTENT = 2**63 - 1
MAX_PLACE = 2**62
"""The largest absolute coordinate of a signed dataspace; sums and differences of coordinates then fit 64 bits."""
Shape = dict[str, Any]


def parse_shape(body: dict[str, Any]) -> Shape:
    """Return the stored form of the dataspace that a request's `shape` and `maxdims` describe.

    `shape` may be absent or `[]` (scalar), `"H5S_NULL"`, `"H5S_SCALAR"`, one extent, a list of extents, or the stored
    form itself. In `maxdims`, 0, null and `"H5S_UNLIMITED"` mean unlimited. Raises `BadRequest` for anything else.
    """
    shape = body.get("shape", [])
    maxdims = body.get("maxdims")
    if isinstance(shape, dict):
        maxdims = shape.get("maxdims") if maxdims is None else maxdims
        shape = _spelled_out(shape)
    if shape in ("H5S_NULL", "H5S_SCALAR") or shape == []:
        if maxdims is not None:
            raise BadRequest("Only a simple dataspace can have maxdims: leave maxdims out.")
        return {"class": "H5S_NULL" if shape == "H5S_NULL" else "H5S_SCALAR"}
    dims = _extents(shape, "shape")
    if maxdims is None:
        return {"class": "H5S_SIMPLE", "dims": dims}
    return {"class": "H5S_SIMPLE", "dims": dims, "maxdims": _limits(maxdims, dims)}


def parse_bounds(body: dict[str, Any], shape: Shape) -> Shape:
    """Return `shape`, with `lower` and `minlower` added if the request, or the dataspace in it, has either key.

    `lower` defaults to 0 in each dimension, `minlower` to `lower`. Raises `BadRequest` for invalid bounds.
    """
    around = body["shape"] if isinstance(body.get("shape"), dict) else {}
    lower, least = (around.get(key) if body.get(key) is None else body[key] for key in ("lower", "minlower"))
    if lower is None and least is None:
        return shape
    dims = shape.get("dims")
    if dims is None:
        raise BadRequest("Only a simple dataspace can have lower and minlower: leave them out.")
    first = parse_lower([0] * len(dims) if lower is None else lower, len(dims))
    limits = first if least is None else parse_minlower(least, first)
    if least is not None and "maxdims" not in shape:
        raise BadRequest("A dataset with minlower can grow: give maxdims, too.")
    if any(place + length > MAX_PLACE for place, length in zip(first, dims, strict=True)):
        raise BadRequest("The upper bound (lower plus shape) must be at most 2^62 in every dimension.")
    return {**shape, "lower": list(first), "minlower": list(limits)}


def parse_extent(value: Any) -> tuple[int, ...]:
    """Return the extent in a resize request, which is one integer or a list; raise `BadRequest` otherwise."""
    return tuple(_extents(value, "shape"))


def dims_of(shape: Shape) -> tuple[int, ...] | None:
    """Return the extent, which is `()` for a scalar, or None for a null dataspace."""
    if shape["class"] == "H5S_NULL":
        return None
    return tuple(shape.get("dims") or ())


def max_dims_of(shape: Shape) -> tuple[int | None, ...]:
    """Return the largest length of each dimension, with None for unlimited; without `maxdims`, return `dims`."""
    limits = shape.get("maxdims") or shape.get("dims") or ()
    if "maxdims" not in shape:
        return tuple(limits)
    return tuple(None if limit in (0, UNLIMITED) else limit for limit in limits)


def lower_of(shape: Shape) -> tuple[int, ...]:
    """Return the coordinates of a signed dataspace's first element; `()` for any other dataspace."""
    return tuple(shape.get("lower") or ())


def parse_lower(value: Any, rank: int, name: str = "lower") -> tuple[int, ...]:
    """Return the lower bounds in a request, one per dimension; `value` is an integer or a list of integers."""
    places = [value] if _is_int(value) else value
    if not isinstance(places, list | tuple) or len(places) != rank or not all(map(_is_int, places)):
        raise BadRequest(
            f"{name} must have an integer for each of the {rank} dimensions, not {short_repr(value)}."
        )
    if any(abs(place) > MAX_PLACE for place in places):
        raise BadRequest(f"{name} is {short_repr(value)}; coordinates must be between -2^62 and 2^62.")
    return tuple(places)


def parse_minlower(value: Any, most: Sequence[int]) -> tuple[int | str, ...]:
    """Return the `minlower` of a request, one limit per dimension; no limit may exceed the lower bounds `most`."""
    limits = [value] if _is_int(value) or value == UNLIMITED else value
    if not isinstance(limits, list | tuple) or len(limits) != len(most):
        raise BadRequest(
            f"minlower must have a limit for each of the {len(most)} dimensions, not {short_repr(value)}."
        )
    for dim, (limit, place) in enumerate(zip(limits, most, strict=True)):
        if limit != UNLIMITED and not (_is_int(limit) and -MAX_PLACE <= limit <= place):
            raise BadRequest(
                f"Dimension {dim} of minlower is {short_repr(limit)}; it must be {UNLIMITED} or at most {place}."
            )
    return tuple(limits)


def is_extensible(shape: Shape) -> bool:
    """Return whether the dataspace was created with maxdims."""
    return shape["class"] == "H5S_SIMPLE" and "maxdims" in shape


def num_elements(shape: Shape) -> int:
    """Return the number of elements: 0 for a null dataspace, 1 for a scalar."""
    dims = dims_of(shape)
    return 0 if dims is None else prod(dims)


def shape_json(shape: Shape) -> Shape:
    """Return the dataspace for a response: unlimited dimensions are `H5S_UNLIMITED`, which older records store as 0."""
    if "maxdims" not in shape:
        return shape
    return {**shape, "maxdims": [UNLIMITED if limit is None else limit for limit in max_dims_of(shape)]}


def _spelled_out(shape: Shape) -> Any:
    kind = shape.get("class")
    if kind in ("H5S_NULL", "H5S_SCALAR"):
        if shape.get("dims"):
            raise BadRequest(f"A dataspace of class {kind} has no dims.")
        return kind
    if kind != "H5S_SIMPLE":
        raise BadRequest(f"The dataspace class {short_repr(kind)} is not H5S_SIMPLE, H5S_SCALAR or H5S_NULL.")
    return shape.get("dims")


def _extents(value: Any, name: str) -> list[int]:
    extents = [value] if _is_int(value) else value
    if not isinstance(extents, list | tuple) or not all(_is_int(extent) for extent in extents):
        raise BadRequest(f"{name} must be an integer or a list of integers, not {short_repr(value)}.")
    if len(extents) > MAX_RANK:
        raise BadRequest(f"{name} has {len(extents)} dimensions; the limit is {MAX_RANK}.")
    for dim, extent in enumerate(extents):
        if not 0 <= extent <= MAX_EXTENT:
            raise BadRequest(f"Dimension {dim} of {name} is {extent}; it must be 0 to {MAX_EXTENT}.")
    if prod(extents) > MAX_EXTENT:
        raise BadRequest(f"{name} has {prod(extents)} elements; the limit is {MAX_EXTENT}.")
    return list(extents)


def _limits(value: Any, dims: list[int]) -> list[Any]:
    limits = [value] if _is_int(value) or value == UNLIMITED else value
    if not isinstance(limits, list | tuple) or len(limits) != len(dims):
        raise BadRequest(
            f"maxdims must have one limit for each of the {len(dims)} dimensions, not {short_repr(value)}."
        )
    result: list[Any] = []
    for dim, (limit, extent) in enumerate(zip(limits, dims, strict=True)):
        if limit is None or limit == UNLIMITED or (_is_int(limit) and limit == 0):
            result.append(UNLIMITED)
        elif not _is_int(limit) or not extent <= limit <= MAX_EXTENT:
            raise BadRequest(
                f"Dimension {dim} of maxdims is {short_repr(limit)}; it must be H5S_UNLIMITED or at least {extent}."
            )
        else:
            result.append(limit)
    return result


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


UNLIMITED_GUESS = 1024
"""The assumed length of an unlimited dimension when chunk dimensions are chosen, as in HSDS and h5py."""


def auto_chunk(
    limits: tuple[int | None, ...], item_size: int, min_bytes: int, max_bytes: int
) -> tuple[int, ...]:
    """Return chunk dimensions of `min_bytes` to `max_bytes` for a dataset whose dimensions end at `limits`.

    A limit of None is unlimited. Each chunk dimension is between 1 and its limit, so the chunk of a small dataset may
    have fewer bytes than `min_bytes`.
    """
    start = tuple(max(1, UNLIMITED_GUESS if limit is None else limit) for limit in limits)
    return enlarge(shrink(start, item_size, max_bytes), limits, item_size, min_bytes)


def enlarge(
    dims: tuple[int, ...], limits: tuple[int | None, ...], item_size: int, min_bytes: int
) -> tuple[int, ...]:
    """Double the dimensions `dims` in turn, beginning with the last, up to `limits`, until a chunk has `min_bytes`."""
    chunk = list(dims)
    while True:
        before = tuple(chunk)
        for dim in reversed(range(len(chunk))):
            if prod(chunk) * item_size >= min_bytes:
                return tuple(chunk)
            limit = limits[dim]
            chunk[dim] = chunk[dim] * 2 if limit is None else max(chunk[dim], min(chunk[dim] * 2, limit))
        if tuple(chunk) == before:
            return before


def shrink(dims: tuple[int, ...], item_size: int, max_bytes: int) -> tuple[int, ...]:
    """Halve the dimensions `dims` in turn, beginning with the first, until a chunk has at most `max_bytes`."""
    chunk = list(dims)
    while True:
        before = tuple(chunk)
        for dim in range(len(chunk)):
            if prod(chunk) * item_size <= max_bytes:
                return tuple(chunk)
            chunk[dim] = (chunk[dim] + 1) // 2
        if tuple(chunk) == before:
            return before
