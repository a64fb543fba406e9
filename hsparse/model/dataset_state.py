"""State machine of a dataset's extent: extent, generation (fencing token), trim, and appends.

The state consists of fields of the dataset's record. Each transition is a function that takes a record and returns the
record after the transition, the same object if nothing changes. It never modifies its argument, and raises an error if
the transition is not allowed. A dataset is in one of three states:

- *at rest*: it can grow, shrink, and be appended to.
- *trimmed*: elements outside the extent are being erased. The dataset cannot grow until all are erased, because growing
  would expose them. The record's field `trim` has bounds around these elements, `[lower, upper]` per dimension; if the
  field is true, the elements may be anywhere.
- *appended to*: elements beyond the extent are being written, as listed in the parts of `appends`.

| transition | from | to |
| --- | --- | --- |
| `set_extent`: a dimension grows | at rest | at rest |
| `set_extent`: a dimension shrinks | at rest, trimmed | trimmed |
| `end_trim` | trimmed | at rest |
| `begin_append` | at rest, appended to | appended to |
| `end_append` | appended to | appended to or, after the last part, at rest |
| `abandon_appends` | appended to | trimmed |

`generation` is the fencing token. It increases by one whenever a dataset enters the state *trimmed*, shrinks again in
it, or leaves it. Data nodes refuse operations planned in an earlier generation.

An append first writes elements beyond the extent and then grows the extent, so that readers never see unwritten
elements. Until it ends, the append is a part in `record["appends"]`:

    {"dim": 0, "parts": [{"token": "5f...", "count": 10, "until": 1700000000.0, "done": false}, ...],
     "dropped": {"a1...": 1700000000.0}}

Parts follow each other along `dim`; the first one begins at the end of the extent. The extent grows over a part once
that part and all parts before it are done. A part whose service node failed would block later parts for ever, so all
parts may be dropped after the time `until`, and their requests start over. `dropped` remembers the tokens of dropped
parts for a while. A token in neither list therefore belongs to a part that is already inside the extent.

A part with `"side": "lower"` lies below the lower bound of a signed dataset. Each such part lies below the previous
such part, and the lower bound moves down over done parts. A resize shrinks a dataset if either bound moves inwards.

`record["appended"]` remembers the latest finished parts that had idempotency keys, so that an append retried with the
same `Idempotency-Key` is not applied twice. Each key comes with the offset and count of its elements in the part:

    [{"dim": 0, "start": 120, "time": 1700000000.0, "keys": [["7c...", 0, 10], ...]}, ...]

`record["extents"]` remembers the latest changes of the extent by token, with the extents before and after, so that a
change retried after a lost reply is not applied twice. The service node chooses the token. If the request has an
`Idempotency-Key`, which the client may repeat through another service node, the token is `KEY.REST`: `KEY` is a digest
of the user and the idempotency key, and tokens with equal `KEY` name the same change. Other tokens contain no dot.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from hsparse.errors import BadRequest, Conflict, Moved
from hsparse.model.dataspace import MAX_EXTENT, MAX_PLACE, UNLIMITED, lower_of

Record: TypeAlias = dict[str, Any]
Extent: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = list[list[int]]

MOST_REMEMBERED = 16
"""How many changes of the extent without an idempotency key are remembered; retries arrive within seconds."""
MOST_KEYS = 256
"""How many changes of the extent with an idempotency key are remembered."""
MOST_APPENDED, KEY_SECONDS = 1024, 3600.0
"""How many keys of appends are remembered, and for how many seconds. The last part always keeps all of its keys."""
DROPPED_SECONDS, MOST_DROPPED = 86_400.0, 1000
"""For how many seconds tokens of dropped parts are kept (longer than any request, despite clock skew), and how many."""

# --- the state ----------------------------------------------------------------------------------------------


def is_trimmed(record: Record) -> bool:
    """Return whether elements outside the extent must be erased before the dataset can grow."""
    return "trim" in record


def trimmed_bounds(record: Record) -> Bounds:
    """Return `[lower, upper]` per dimension around the elements to erase outside a trimmed dataset's extent."""
    bounds: Bounds | bool = record["trim"]
    everywhere = [[-MAX_EXTENT, MAX_EXTENT]] * len(record["shape"]["dims"])
    return everywhere if isinstance(bounds, bool) else bounds


def generation(record: Record) -> int:
    """Return the dataset's generation: the fencing token of operations planned for its extent."""
    found = record.get("generation", 0)
    return found if isinstance(found, int) else 0


def appended_parts(record: Record) -> list[Record]:
    """Return the parts that are being appended, in the order in which they began."""
    parts: list[Record] = list(record.get("appends", {}).get("parts", ()))
    return parts


def part_starts(record: Record) -> dict[str, int]:
    """Return a dict that maps each part's token to the part's first coordinate along the dimension that grows."""
    parts, starts = appended_parts(record), dict[str, int]()
    low, high = _ends(record["shape"])[record["appends"]["dim"]] if parts else (0, 0)
    for part in parts:
        low -= part["count"] if _is_below(part) else 0
        starts[part["token"]] = low if _is_below(part) else high
        high += 0 if _is_below(part) else part["count"]
    return starts


def part_with_key(record: Record, key: str) -> Record | None:
    """Return `token`, `count` and any `side` of the unfinished append with the idempotency key `key`, or None."""
    for part in appended_parts(record):
        for found, _, count in part.get("keys", ()):
            if found == key:
                return {"token": part["token"], "count": count} | _side(part)
    return None


def appended_before(record: Record, key: str) -> Record | None:
    """Return `dim`, `start`, `count` and any `side` of the finished append with the idempotency key `key`, or None."""
    for one in record.get("appended", ()):
        for found, offset, count in one.get("keys", ()):
            if found == key:
                return {"dim": one["dim"], "start": one["start"] + offset, "count": count} | _side(one)
    return None


def extents_of_change(record: Record, token: str) -> tuple[Extent, Extent] | None:
    """Return a pair: the extents before and after the change with this token; None if the change is not remembered."""
    for change in record.get("extents", ()):
        if token and change["token"] == token:
            return tuple(change["before"]), tuple(change["after"])
    return None


def lowers_of_change(record: Record, token: str) -> tuple[Extent, Extent]:
    """Return a pair: the lower bounds before and after the change with this token, both `()` if not remembered."""
    for change in record.get("extents", ()):
        if token and change["token"] == token and "lower" in change:
            return tuple(change["lower"][0]), tuple(change["lower"][1])
    return (), ()


def minlower_of_change(record: Record, token: str) -> tuple[int | str, ...]:
    """Return the limits of lower bounds (`minlower`) that the change with this token set, or `()` if it set none."""
    changes = record.get("extents", ())
    return next((tuple(change.get("minlower", ())) for change in changes if change["token"] == token), ())


def keyed_token(key: str, rest: str) -> str:
    """Return the token of a change of the extent: `key.rest`, or `rest` alone if `key` is empty."""
    return f"{key}.{rest}" if key else rest


# --- the extent ---------------------------------------------------------------------------------------------


def set_extent(
    record: Record,
    dims: Extent,
    extend_dim: int = -1,
    expect: Extent | None = None,
    token: str = "",
    *,
    below: bool = False,
    lower: Extent = (),
    expect_lower: Extent = (),
    minlower: tuple[int | str, ...] = (),
) -> Record:
    """Set the extent, unless a change with this token was applied; see `hsparse.wire.record_message.SetExtent`."""
    if extents_of_change(record, token) is not None:
        return record
    id, shape = record["id"], record["shape"]
    before = tuple(shape.get("dims") or ())
    if expect is not None and expect != before:
        raise Conflict(f"The extent of {id} is {list(before)}, not {list(expect)} any more: read it again.")
    old = lower_of(shape)
    if expect_lower and expect_lower != old:
        raise Conflict(f"The lower bounds of {id} are {list(old)}, not {list(expect_lower)} any more.")
    after = (
        (dims or (before if minlower else ()))
        if extend_dim < 0
        else _extended(id, before, extend_dim, dims[0])
    )
    if (below or lower or minlower) and not old:
        raise BadRequest(f"{id} has no lower bound: it was created without lower and minlower.")
    new = lower or (_extended(id, old, extend_dim, -dims[0]) if below else old)
    if lower and not dims and len(lower) == len(old):
        after = tuple(upper - place for (_, upper), place in zip(_ends(shape), lower, strict=True))
    limited = _with_minlower(record, minlower, new)
    _check_extent(limited, after, new)
    if (after, new) != (before, old) and appended_parts(record):
        raise Moved(f"{id} is being appended to: its extent can change after the append.")
    bounds = {"dims": list(after)} | ({"lower": list(new)} if old else {})
    changed = {**record, "shape": {**limited["shape"], **bounds}}
    if changed["shape"] == shape:
        return record
    ends = list(zip(_ends(changed["shape"]), _ends(shape), strict=True))
    grows = any(now[0] < was[0] or now[1] > was[1] for now, was in ends)
    shrinks = any(now[0] > was[0] or now[1] < was[1] for now, was in ends)
    if grows and is_trimmed(record):
        raise Conflict(f"{id} is still being shrunk: repeat the shrink before the dataset grows.")
    if token:
        made: Record = {"token": token, "before": list(before), "after": list(after)}
        made |= {"lower": [list(old), list(new)]} if old else {}
        made |= {"minlower": list(minlower)} if minlower else {}
        changed["extents"] = _last_changes([*record.get("extents", ()), made])
    return trimmed(changed, _ends(shape)) if shrinks else changed


def _with_minlower(record: Record, limits: tuple[int | str, ...], lower: Extent) -> Record:
    """Return the record with `minlower` set to `limits`, or the same record if `limits` is empty.

    Raises `Conflict` if a limit is above its bound in `lower`, or above a part being appended below that bound.
    """
    if not limits:
        return record
    below = sum(part["count"] for part in appended_parts(record) if _is_below(part))
    for dim, (limit, place) in enumerate(zip(limits, lower, strict=True)):
        least = place - below if below and dim == record["appends"]["dim"] else place
        if limit != UNLIMITED and int(limit) > least:
            raise Conflict(f"Dimension {dim} of minlower is {limit}; {record['id']} needs at most {least}.")
    return {**record, "shape": {**record["shape"], "minlower": list(limits)}}


def trimmed(record: Record, within: Sequence[tuple[int, int]] | None = None) -> Record:
    """Return the record in the state *trimmed*: elements may exist outside the extent and must be erased.

    `within` has `(lower, upper)` of each dimension around these elements, or is None if the elements may be anywhere.
    """
    bounds: Bounds | bool = True
    if within is not None:
        known = trimmed_bounds(record) if is_trimmed(record) else within
        ends = zip(_ends(record["shape"]), within, known, strict=True)
        bounds = [[min(lows), max(highs)] for lows, highs in (zip(*some, strict=True) for some in ends)]
    return record | {"generation": generation(record) + 1, "trim": bounds}


def end_trim(record: Record, of_generation: int) -> Record:
    """End the state *trimmed* after all outside elements were erased, unless the generation has changed since."""
    if not is_trimmed(record) or generation(record) != of_generation:
        return record
    rest = {key: value for key, value in record.items() if key != "trim"}
    # The new generation stops a service node that still erases for this shrink from erasing newly written elements.
    return rest | {"generation": of_generation + 1}


# --- appends ------------------------------------------------------------------------------------------------


def begin_append(
    record: Record,
    token: str,
    slab: Extent,
    dim: int,
    lease: float,
    now: float,
    keys: tuple[tuple[str, int, int], ...] = (),
    *,
    below: bool = False,
    lower: Extent = (),
) -> Record:
    """Add the part `token` after all other parts, or extend its lease if it exists; see `BeginAppend`."""
    id, dropped, parts = record["id"], _dropped(record, now), appended_parts(record)
    if token in dropped:
        raise Moved(f"The append to {id} took too long and was dropped.")
    until = now + lease
    if any(part["token"] == token for part in parts):
        parts = [part | {"until": until} if part["token"] == token else part for part in parts]
        return _with_appends(record, dim, parts, dropped)
    for key, _, _ in keys:
        if appended_before(record, key) is not None or part_with_key(record, key) is not None:
            raise Moved(f"An earlier append to {id} has the same idempotency key.")
    before = _extent_to_append_to(record, slab, dim, lower)
    part: Record = {"token": token, "count": slab[dim], "until": until, "done": False}
    if below:
        part["side"] = "lower"
    if keys:
        part["keys"] = list(map(list, keys))
    parts = [*parts, part]
    up, down = (sum(one["count"] for one in parts if _is_below(one) == side) for side in (False, True))
    after, old = _extended(id, before, dim, up + down), lower_of(record["shape"])
    _check_extent(record, after, _extended(id, old, dim, -down) if old else old)
    return _with_appends(record, dim, parts, dropped)


def _extent_to_append_to(record: Record, slab: Extent, dim: int, lower: Extent) -> Extent:
    """Return the extent; raise `Moved` or `BadRequest` if `slab` cannot be appended along `dim` now."""
    id, before = record["id"], tuple(record["shape"].get("dims") or ())
    if len(slab) != len(before) or not 0 <= dim < len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions, not {len(slab)}, or no dimension {dim}.")
    others = [other for other in range(len(before)) if other != dim]
    moved = lower and any(lower[other] != record["shape"]["lower"][other] for other in others)
    if is_trimmed(record) or moved or any(slab[other] != before[other] for other in others):
        raise Moved(f"The extent of {id} has changed.")
    if appended_parts(record) and record["appends"]["dim"] != dim:
        raise Moved(f"{id} is being appended to along another dimension.")
    return before


def end_append(record: Record, token: str, now: float) -> Record:
    """Mark a part as written, and grow the extent over every done part that has only done parts before it."""
    dropped, parts = _dropped(record, now), appended_parts(record)
    if token in dropped:
        raise Moved(f"The append to {record['id']} was dropped.")
    if not any(part["token"] == token and not part["done"] for part in parts):
        return record
    parts = [part | {"done": True} if part["token"] == token else part for part in parts]
    dim, shape, starts = record["appends"]["dim"], record["shape"], part_starts(record)
    dims, lower, keyed = list(shape["dims"]), list(lower_of(shape)), list[Record]()
    left: list[Record] = []
    for part in parts:
        if not part["done"] or any(_is_below(one) == _is_below(part) for one in left):
            left.append(part)
            continue
        if "keys" in part:
            seen = {"dim": dim, "start": starts[part["token"]], "time": now, "keys": part["keys"]}
            keyed.append(seen | _side(part))
        dims[dim] += part["count"]
        if _is_below(part):
            lower[dim] -= part["count"]
    parts, bounds = left, {"lower": lower} if lower else {}
    grown = {**record, "shape": {**shape, "dims": dims} | bounds} if dims != shape["dims"] else record
    if keyed:
        kept = [one for one in record.get("appended", ()) if one["time"] > now - KEY_SECONDS]
        grown = {**grown, "appended": _last_appended([*kept, *keyed])}
    return _with_appends(grown, dim, parts, dropped)


def abandon_appends(record: Record, now: float, token: str = "", *, expired: bool = False) -> Record:
    """Drop all parts if one of them has `token` or, without a token, if one has expired or `expired` is false."""
    parts = appended_parts(record)
    if token:
        found = any(part["token"] == token for part in parts)
    else:
        found = any(not expired or (part["until"] < now and not part["done"]) for part in parts)
    if not found:
        return record
    dropped = _dropped(record, now) | {part["token"]: now for part in parts}
    starts, dim, within = part_starts(record), record["appends"]["dim"], _ends(record["shape"])
    low, high = within[dim]
    stops = [starts[part["token"]] + part["count"] for part in parts]
    within[dim] = min([low, *starts.values()]), max([high, *stops])
    return trimmed(_with_appends(record, dim, [], dropped), within)


# --- helpers ----------------------------------------------------------------------------------------


def _is_below(part: Record) -> bool:
    return part.get("side") == "lower"


def _side(part: Record) -> Record:
    return {"side": "lower"} if _is_below(part) else {}


def _ends(shape: Record) -> list[tuple[int, int]]:
    """Return `(lower, upper)` of each dimension."""
    dims = shape.get("dims") or ()
    return [(low, low + count) for low, count in zip(lower_of(shape) or (0,) * len(dims), dims, strict=True)]


def _with_appends(record: Record, dim: int, parts: list[Record], dropped: dict[str, float]) -> Record:
    rest = {key: value for key, value in record.items() if key != "appends"}
    if parts or dropped:
        rest["appends"] = {"dim": dim, "parts": parts, "dropped": dropped}
    return rest


def _dropped(record: Record, now: float) -> dict[str, float]:
    dropped: dict[str, float] = record.get("appends", {}).get("dropped", {})
    kept = [(token, time) for token, time in dropped.items() if time > now - DROPPED_SECONDS]
    return dict(kept[-MOST_DROPPED:])


def _last_changes(changes: list[Record]) -> list[Record]:
    """Return the latest changes: at most `MOST_KEYS` with an idempotency key and `MOST_REMEMBERED` without a key."""
    left = {True: MOST_KEYS, False: MOST_REMEMBERED}
    kept = []
    for change in reversed(changes):
        has_key = "." in change["token"]
        if left[has_key]:
            left[has_key] -= 1
            kept.append(change)
    return kept[::-1]


def _last_appended(parts: list[Record]) -> list[Record]:
    """Return the latest parts with at most `MOST_APPENDED` keys in total; the last part is always included."""
    left = MOST_APPENDED
    for place in reversed(range(len(parts))):
        left -= len(parts[place].get("keys", ()))
        if left < 0:
            return parts[min(place + 1, len(parts) - 1) :]
    return parts


def _extended(id: str, before: Extent, dim: int, count: int) -> Extent:
    if dim >= len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions, counted from 0; there is no dimension {dim}.")
    return (*before[:dim], before[dim] + count, *before[dim + 1 :])


def _check_extent(record: Record, after: Extent, lower: Extent) -> None:
    id, shape = record["id"], record["shape"]
    before, maxdims = shape.get("dims") or (), shape.get("maxdims")
    if len(after) != len(before):
        raise BadRequest(f"The extent of {id} must have {len(before)} dimensions, not {len(after)}.")
    if lower:
        _check_bounds(record, after, lower)
    if maxdims is None:
        raise BadRequest(f"{id} is not extensible: it was created without maxdims.")
    if prod(after) > MAX_EXTENT or max(after, default=0) > MAX_EXTENT:
        raise BadRequest(f"{id} would have the extent {list(after)}; a dataset has at most 2^63-1 elements.")
    for dim, (extent, limit) in enumerate(zip(after, maxdims, strict=True)):
        if limit not in (UNLIMITED, 0) and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")


def _check_bounds(record: Record, after: Extent, lower: Extent) -> None:
    """Raise `BadRequest` or `Conflict` if a signed dataset cannot have the bounds `lower` with the extent `after`."""
    id, least = record["id"], record["shape"]["minlower"]
    if len(lower) != len(least):
        raise BadRequest(f"The lower bounds of {id} must have {len(least)} dimensions, not {len(lower)}.")
    for dim, (place, length, limit) in enumerate(zip(lower, after, least, strict=True)):
        if length < 0:
            raise BadRequest(
                f"The lower bound of dimension {dim} of {id} would be above the upper bound, {place + length}."
            )
        if place < (-MAX_PLACE if limit == UNLIMITED else limit):
            raise Conflict(f"The lower bound of dimension {dim} of {id} is at least {limit}, not {place}.")
        if max(abs(place), place + length) > MAX_PLACE:
            raise BadRequest(
                f"Dimension {dim} of {id} would be {place} to {place + length}; the limits are -2^62 and 2^62."
            )
