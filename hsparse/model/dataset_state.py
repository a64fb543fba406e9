"""The state of a dataset that changes its extent: extent, generation, trim and appends, in one state machine.

The state is fields of the dataset's record. Each transition is a function from a record to the record after it, the
same object if it changes nothing; it modifies none, and raises the error of what is refused. A dataset is in one of
three states:

- *at rest*: it can grow, shrink, and be appended to.
- *trimmed*, `trim` is in the record: elements outside the extent are being erased. Until all are, it does not grow:
  that would uncover them. They are within `trim`, a lower and an upper bound of each dimension, or, if it is true,
  anywhere.
- *appended to*, `appends` has parts: elements beyond the extent are being written.

| transition | from | to |
| --- | --- | --- |
| `set_extent`: a dimension grows | at rest | at rest |
| `set_extent`: a dimension shrinks | at rest, trimmed | trimmed |
| `end_trim` | trimmed | at rest |
| `begin_append` | at rest, appended to | appended to |
| `end_append` | appended to | appended to or, after the last part, at rest |
| `abandon_appends` | appended to | trimmed |

`generation` is the fencing token: it grows by one whenever a dataset enters or leaves the state *trimmed*, and data
nodes refuse what was planned in an earlier generation.

An append writes beyond the extent first and grows the extent last, so that no reader sees elements that are not
written yet. While it lasts it is a part of `record["appends"]`:

    {"dim": 0, "parts": [{"token": "5f...", "count": 10, "until": 1700000000.0, "done": false}, ...],
     "dropped": {"a1...": 1700000000.0}}

Parts follow each other along `dim`, the first at the end of the extent. The extent grows over a part that is done
when all parts before it are. A part whose service node is gone would hold up the others for ever: after the time
`until` all parts may be dropped, and their requests begin again. `dropped` keeps the tokens of dropped parts for a
while: a token that is in neither list is that of a part that is visible.

A part with `"side": "lower"` is below the lower bound of a signed dataset: such parts follow each other downwards, and
the lower bound moves over them. A change of the extent moves a bound at either end, and shrinks if one moves inwards.

`record["appended"]` has the last parts that had `keys`, each key with the first place and the count of its elements in
the part, so that what a client sends again with its `Idempotency-Key` is not appended again:

    [{"dim": 0, "start": 120, "time": 1700000000.0, "keys": [["7c...", 0, 10], ...]}, ...]

`record["extents"]` has the last changes of the extent by their tokens, with the extents before and after each, so that
one that is sent again, because its reply was lost, is not made again. A service node gives each change a token. A key
is a digest of a user and of the `Idempotency-Key` of a request, which a client may send again by another service node.
The token of a change of the extent with a key is `KEY.REST`; with another REST it is the same change. Other tokens have
no dot.
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
"""How many changes of the extent are remembered, the last ones: one is sent again within seconds."""
MOST_KEYS = 256
"""How many changes with keys of clients are remembered."""
MOST_APPENDED, KEY_SECONDS = 1024, 3600.0
"""How many keys of appends are remembered, and for how long: clients repeat them in minutes. The last part has all."""
DROPPED_SECONDS, MOST_DROPPED = 86_400.0, 1000
"""How long the token of a dropped part is kept, and how many: longer than any request lasts, on clocks that differ."""

# --- the state ----------------------------------------------------------------------------------------------


def is_trimmed(record: Record) -> bool:
    """Say whether elements outside the extent are to be erased before the dataset grows."""
    return "trim" in record


def trimmed_bounds(record: Record) -> Bounds:
    """Return the bounds, in places, of what may have to be erased outside the extent of a dataset that is trimmed."""
    bounds: Bounds | bool = record["trim"]
    everywhere = [[-MAX_EXTENT, MAX_EXTENT]] * len(record["shape"]["dims"])
    return everywhere if isinstance(bounds, bool) else bounds


def generation(record: Record) -> int:
    """Return the fencing token of plans for the extent."""
    found = record.get("generation", 0)
    return found if isinstance(found, int) else 0


def appended_parts(record: Record) -> list[Record]:
    """Return the parts that are being appended, in order."""
    parts: list[Record] = list(record.get("appends", {}).get("parts", ()))
    return parts


def part_starts(record: Record) -> dict[str, int]:
    """Return the first place of each part along the dimension that is appended to, by its token."""
    parts, starts = appended_parts(record), dict[str, int]()
    low, high = _ends(record["shape"])[record["appends"]["dim"]] if parts else (0, 0)
    for part in parts:
        low -= part["count"] if _is_below(part) else 0
        starts[part["token"]] = low if _is_below(part) else high
        high += 0 if _is_below(part) else part["count"]
    return starts


def part_with_key(record: Record, key: str) -> Record | None:
    """Return `token` and `count`, and any `side`, of what is being appended with a key; None without one."""
    for part in appended_parts(record):
        for found, _, count in part.get("keys", ()):
            if found == key:
                return {"token": part["token"], "count": count} | _side(part)
    return None


def appended_before(record: Record, key: str) -> Record | None:
    """Return `dim`, `start`, `count` and any `side` of what was appended with a key; None if it is not remembered."""
    for one in record.get("appended", ()):
        for found, offset, count in one.get("keys", ()):
            if found == key:
                return {"dim": one["dim"], "start": one["start"] + offset, "count": count} | _side(one)
    return None


def extents_of_change(record: Record, token: str) -> tuple[Extent, Extent] | None:
    """Return the extents before and after a change of the extent with this token; None if it is not remembered."""
    for change in record.get("extents", ()):
        if token and change["token"] == token:
            return tuple(change["before"]), tuple(change["after"])
    return None


def lowers_of_change(record: Record, token: str) -> tuple[Extent, Extent]:
    """Return the lower bounds before and after a change of the extent of a signed dataset, empty of any other."""
    for change in record.get("extents", ()):
        if token and change["token"] == token and "lower" in change:
            return tuple(change["lower"][0]), tuple(change["lower"][1])
    return (), ()


def keyed_token(key: str, rest: str) -> str:
    """Return the token of a change of the extent with a key; without one only the rest."""
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
) -> Record:
    """Set the extent, unless that was done with this token; see `hsparse.wire.record_message.SetExtent`."""
    if extents_of_change(record, token) is not None:
        return record
    id, shape = record["id"], record["shape"]
    before = tuple(shape.get("dims") or ())
    if expect is not None and expect != before:
        raise Conflict(f"The extent of {id} is {list(before)}, not {list(expect)} any more.")
    old = lower_of(shape)
    if expect_lower and expect_lower != old:
        raise Conflict(f"The lower bounds of {id} are {list(old)}, not {list(expect_lower)} any more.")
    after = dims if extend_dim < 0 else _extended(id, before, extend_dim, dims[0])
    if (below or lower) and not old:
        raise BadRequest(f"{id} has no lower bound: it was created without lower and minlower.")
    new = lower or (_extended(id, old, extend_dim, -dims[0]) if below else old)
    if lower and not dims and len(lower) == len(old):
        after = tuple(upper - place for (_, upper), place in zip(_ends(shape), lower, strict=True))
    _check_extent(record, after, new)
    if (after, new) == (before, old):
        return record
    if appended_parts(record):
        raise Moved(f"{id} is being appended to.")
    changed = {**record, "shape": {**shape, "dims": list(after)} | ({"lower": list(new)} if old else {})}
    ends = list(zip(_ends(changed["shape"]), _ends(shape), strict=True))
    grows = any(now[0] < was[0] or now[1] > was[1] for now, was in ends)
    shrinks = any(now[0] > was[0] or now[1] < was[1] for now, was in ends)
    if grows and is_trimmed(record):
        raise Conflict(f"{id} is still being shrunk; finish that before it grows.")
    if token:
        made: Record = {"token": token, "before": list(before), "after": list(after)}
        made |= {"lower": [list(old), list(new)]} if old else {}
        changed["extents"] = _last_changes([*record.get("extents", ()), made])
    return trimmed(changed, _ends(shape)) if shrinks else changed


def trimmed(record: Record, within: Sequence[tuple[int, int]] | None = None) -> Record:
    """Return the record of a dataset that may have elements outside its extent: these are erased before it grows.

    They are within these bounds, or may be anywhere.
    """
    bounds: Bounds | bool = True
    if within is not None:
        known = trimmed_bounds(record) if is_trimmed(record) else within
        ends = zip(_ends(record["shape"]), within, known, strict=True)
        bounds = [[min(lows), max(highs)] for lows, highs in (zip(*some, strict=True) for some in ends)]
    return record | {"generation": generation(record) + 1, "trim": bounds}


def end_trim(record: Record, of_generation: int) -> Record:
    """Note that what is outside the extent of a generation was erased, unless that is another one by now."""
    if not is_trimmed(record) or generation(record) != of_generation:
        return record
    rest = {key: value for key, value in record.items() if key != "trim"}
    # A service node that still works on this shrink must not erase elements that are written from now on.
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
    """Add a part after all others or, if it has begun, give it more time; see `record_message.BeginAppend`."""
    id, dropped, parts = record["id"], _dropped(record, now), appended_parts(record)
    if token in dropped:
        raise Moved(f"The append to {id} took too long and was dropped.")
    until = now + lease
    if any(part["token"] == token for part in parts):
        parts = [part | {"until": until} if part["token"] == token else part for part in parts]
        return _with_appends(record, dim, parts, dropped)
    for key, _, _ in keys:
        if appended_before(record, key) is not None or part_with_key(record, key) is not None:
            raise Moved(f"What is appended to {id} has the key of an append that came before.")
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
    """Return the extent; raise `Moved` or `BadRequest` unless a slab can be appended along a dimension now."""
    id, before = record["id"], tuple(record["shape"].get("dims") or ())
    if len(slab) != len(before) or not 0 <= dim < len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions; the append has {len(slab)}.")
    others = [other for other in range(len(before)) if other != dim]
    moved = lower and any(lower[other] != record["shape"]["lower"][other] for other in others)
    if is_trimmed(record) or moved or any(slab[other] != before[other] for other in others):
        raise Moved(f"The extent of {id} has changed.")
    if appended_parts(record) and record["appends"]["dim"] != dim:
        raise Moved(f"{id} is being appended to along another dimension.")
    return before


def end_append(record: Record, token: str, now: float) -> Record:
    """Note that a part is written, and let the extent grow over those that are done before any of their side is not."""
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
    """Drop all parts if there is one of the token or, without a token, any or, if `expired`, one out of time."""
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


# --- what both need -----------------------------------------------------------------------------------------


def _is_below(part: Record) -> bool:
    return part.get("side") == "lower"


def _side(part: Record) -> Record:
    return {"side": "lower"} if _is_below(part) else {}


def _ends(shape: Record) -> list[tuple[int, int]]:
    """Return the lower and the upper bound of each dimension."""
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
    """Return those of some changes of the extent, in their order, that are remembered."""
    left = {True: MOST_KEYS, False: MOST_REMEMBERED}
    kept = []
    for change in reversed(changes):
        has_key = "." in change["token"]
        if left[has_key]:
            left[has_key] -= 1
            kept.append(change)
    return kept[::-1]


def _last_appended(parts: list[Record]) -> list[Record]:
    """Return the last of some parts with keys, in their order, that are remembered."""
    left = MOST_APPENDED
    for place in reversed(range(len(parts))):
        left -= len(parts[place].get("keys", ()))
        if left < 0:
            return parts[min(place + 1, len(parts) - 1) :]
    return parts


def _extended(id: str, before: Extent, dim: int, count: int) -> Extent:
    if dim >= len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions; there is no dimension {dim}.")
    return (*before[:dim], before[dim] + count, *before[dim + 1 :])


def _check_extent(record: Record, after: Extent, lower: Extent) -> None:
    id, shape = record["id"], record["shape"]
    before, maxdims = shape.get("dims") or (), shape.get("maxdims")
    if len(after) != len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions, not {len(after)}.")
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
    """Raise the error of lower bounds, with lengths `after`, that a signed dataset cannot have."""
    id, least = record["id"], record["shape"]["minlower"]
    if len(lower) != len(least):
        raise BadRequest(f"{id} has {len(least)} dimensions, not {len(lower)}.")
    for dim, (place, length, limit) in enumerate(zip(lower, after, least, strict=True)):
        if length < 0:
            raise BadRequest(
                f"The lower bound of dimension {dim} of {id} would be beyond its upper one, {place + length}."
            )
        if place < (-MAX_PLACE if limit == UNLIMITED else limit):
            raise Conflict(f"The lower bound of dimension {dim} of {id} is at least {limit}, not {place}.")
        if max(abs(place), place + length) > MAX_PLACE:
            raise BadRequest(
                f"Dimension {dim} of {id} would have the places {place} to {place + length}, beyond 2^62."
            )
