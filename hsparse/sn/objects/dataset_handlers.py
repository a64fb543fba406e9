"""Handlers of a dataset's type and of changes of its extent.

A change of an extent has a token, made from its idempotency key or at random. The dataset's record keeps the extents of
the last changes by token, so that a repeated change gets the same answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiohttp import web

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import BadRequest, Busy, Conflict, Moved
from hsparse.model.dataset_state import (
    extents_of_change,
    is_trimmed,
    keyed_token,
    lowers_of_change,
    minlower_of_change,
)
from hsparse.model.dataspace import (
    MAX_PLACE,
    is_extensible,
    lower_of,
    max_dims_of,
    parse_extent,
    parse_lower,
    parse_minlower,
)
from hsparse.model.datatype import type_json
from hsparse.model.layout import VIRTUAL, class_elsewhere
from hsparse.model.short_text import short_repr
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.challenge import idempotency_key
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import hrefs
from hsparse.sn.records.dataset import change_extent, finish_trim
from hsparse.sn.request import OBJECT_BYTES, Request, respond
from hsparse.sn.values.append import parse_side
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, SetExtent


async def get_dataset_type(request: Request) -> web.StreamResponse:
    """Answer with a dataset's type."""
    record = await request.record("datasets")
    own = f"/datasets/{record['id']}"
    links = hrefs(request, self=f"{own}/type", owner=own, root=f"/groups/{record['root']}")
    return respond({"type": type_json(record["type"]), "hrefs": links})


async def put_shape(request: Request) -> web.StreamResponse:
    """Set a dataset's extent. If it grew in one dimension only, at one end, the answer selects the new elements.

    If the extent shrinks, the elements outside of it are erased before the answer.
    """
    record = await request.record("datasets")
    key = idempotency_key(request.http, request.principal.name)
    token = keyed_token(key, "" if key else request.service.clock.token(8).hex())
    body = await read_json_object(request)
    extents = extents_of_change(record, token)
    if extents is None:  # a repeated change is not checked against the limits again
        change = replace(_extent_change(record, body), token=token)
        if _grows(record, change):
            await request.make_room(OBJECT_BYTES)
        record = await _set_extent(request.service.owners, record, change)
        extents = extents_of_change(record, token)
    lowers = lowers_of_change(record, token)
    if extents is not None and key:
        _require_same(body, minlower_of_change(record, token), *extents, *lowers)
    in_places = request.arg("places") is not None
    selection = growth_selection(*extents, *lowers, in_places=in_places) if extents else None
    return respond({"selection": selection} if selection else {}, status=201)


def _grows(record: Record, change: SetExtent) -> bool:
    """Return whether a change of an extent adds elements in any dimension."""
    shape = record["shape"]
    if change.extend_dim >= 0 or any(map(int.__lt__, change.lower, lower_of(shape))):
        return True
    return any(map(int.__gt__, change.dims, shape["dims"]))


def _require_same(
    body: Record,
    minlower: tuple[int | str, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    old: tuple[int, ...] = (),
    lower: tuple[int, ...] = (),
) -> None:
    """Raise `BadRequest` unless the body asks for the change that its idempotency key was first used for."""
    if "extend" in body:
        dim = body.get("extend_dim", body.get("dim", 0))
        same = [new - old for old, new in zip(before, after, strict=True)] == [
            body["extend"] if place == dim else 0 for place in range(len(before))
        ]
        same &= (old != lower) == (body.get("side") == "lower")
    else:
        same = "shape" not in body or parse_extent(body["shape"]) == after
        same &= lower == (parse_lower(body["lower"], len(lower)) if "lower" in body else old)
    same &= minlower == _minlower(body, len(before))
    if not same:
        raise BadRequest(
            f"The Idempotency-Key was used to change the extent from {list(before)} to {list(after)}: give each "
            "request a key of its own."
        )


async def _set_extent(owners: Owners, record: Record, change: SetExtent) -> Record:
    """Change the extent and return the changed record; raise `Busy` if appends interrupt the change too often."""
    for _ in range(MAX_READ_ATTEMPTS):
        if is_trimmed(record):
            await finish_trim(owners, record)  # after an interrupted shrink
        try:
            return await change_extent(owners, change)
        except Moved:
            await change_extent(owners, AbandonAppends(change.id))  # retried at the end of the new extent
            record = await owners.record(change.id)
    raise Busy(f"Appends to {change.id} kept interrupting the change of its extent; try again.")


def growth_selection(
    before: tuple[int, ...],
    after: tuple[int, ...],
    old: tuple[int, ...] = (),
    lower: tuple[int, ...] = (),
    *,
    in_places: bool = False,
) -> str | None:
    """Return the select string of the new elements, or None unless one dimension alone changed and grew at one end."""
    changed = [dim for dim, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    moved = [dim for dim, (was, now) in enumerate(zip(old, lower, strict=True)) if was != now]
    if len(changed) != 1 or after[changed[0]] < before[changed[0]] or moved not in ([], changed):
        return None
    (dim,) = changed
    count = after[dim] - before[dim]
    if moved and old[dim] - lower[dim] != count:
        return None
    first = 0 if moved else before[dim]
    first += lower[dim] if lower and in_places else 0
    axes = [":"] * len(after)
    axes[dim] = f"{first}:{first + count}"
    return f"[{','.join(axes)}]"


def _extent_change(record: Record, body: Record) -> SetExtent:
    """Parse a change; raise `BadRequest` if it is invalid for the dataset, `Conflict` if it exceeds `maxdims`."""
    shape, id, elsewhere = record["shape"], record["id"], class_elsewhere(record)
    if elsewhere == VIRTUAL:
        raise BadRequest(
            f"{id} is virtual: its extent follows from its mappings and their sources; extend the sources."
        )
    if not is_extensible(shape):
        raise BadRequest(f"{id} is not extensible, because it was created without maxdims.")
    has_bounds, has_extend = "shape" in body or "lower" in body, "extend" in body
    if (has_bounds and has_extend) or not (has_bounds or has_extend or "minlower" in body):
        raise BadRequest(
            "The body must have shape or extend, not both; a dataset with a lower bound also takes lower and minlower."
        )
    limits = max_dims_of(shape)
    expect = parse_extent(body["expect"]) if "expect" in body else None
    lower, known = (
        parse_lower(body[key], len(limits), key) if key in body else () for key in ("lower", "expect_lower")
    )
    least = _minlower(body, len(limits))
    if has_extend:
        return replace(_extension(id, body, len(limits), expect), expect_lower=known, minlower=least)
    if "shape" not in body:
        return SetExtent(id, (), expect=expect, lower=lower, expect_lower=known, minlower=least)
    dims = parse_extent(body["shape"])
    if len(dims) != len(limits):
        raise BadRequest(f"{id} has {len(limits)} dimensions, not {len(dims)}.")
    for dim, (extent, limit) in enumerate(zip(dims, limits, strict=True)):
        if limit is not None and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")
    if elsewhere and any(new < old for new, old in zip(dims, shape["dims"], strict=True)):
        raise BadRequest(f"{id} cannot shrink: its data stays in a file, from which nothing is erased.")
    return SetExtent(id, dims, expect=expect, lower=lower, expect_lower=known, minlower=least)


def _minlower(body: Record, rank: int) -> tuple[int | str, ...]:
    return parse_minlower(body["minlower"], (MAX_PLACE,) * rank) if "minlower" in body else ()


def _extension(id: str, body: Record, rank: int, expect: tuple[int, ...] | None) -> SetExtent:
    by: Any = body["extend"]
    dim: Any = body.get("extend_dim", body.get("dim", 0))
    if not _is_int(by) or by <= 0:
        raise BadRequest(f"extend must be a positive integer, not {short_repr(by)}.")
    if not _is_int(dim) or not 0 <= dim < rank:
        raise BadRequest(f"extend_dim must be a dimension of {id}, 0 to {rank - 1}, not {short_repr(dim)}.")
    return SetExtent(id, (by,), dim, expect, below=parse_side(body.get("side"), "side"))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
