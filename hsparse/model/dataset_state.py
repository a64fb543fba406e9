"""The state of a dataset that changes its extent: extent, generation, trim and appends, in one state machine.

The state is fields of the dataset's record. Each transition is a function from a record to the record after it, the
same object if it changes nothing; it modifies none, and raises the error of what is refused. A dataset is in one of
three states:

- *at rest*: it can grow, shrink, and be appended to.
- *trimmed*, `trim` is in the record: elements outside the extent are being erased. Until all are, it does not grow:
  that would uncover them.
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

from math import prod
from typing import Any, TypeAlias

from hsparse.errors import BadRequest, Conflict, Moved
from hsparse.model.dataspace import MAX_EXTENT, UNLIMITED

Record: TypeAlias = dict[str, Any]
Extent: TypeAlias = tuple[int, ...]

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
    start = record["shape"]["dims"][record["appends"]["dim"]] if parts else 0
    for part in parts:
        starts[part["token"]] = start
        start += part["count"]
    return starts


def part_with_key(record: Record, key: str) -> Record | None:
    """Return the `token` of the part that is being appended with a key, and the `count` of that; None without one."""
    for part in appended_parts(record):
        for found, _, count in part.get("keys", ()):
            if found == key:
                return {"token": part["token"], "count": count}
    return None


def appended_before(record: Record, key: str) -> Record | None:
    """Return `dim`, `start` and `count` of what was appended with a key; None if it is not remembered."""
    for one in record.get("appended", ()):
        for found, offset, count in one.get("keys", ()):
            if found == key:
                return {"dim": one["dim"], "start": one["start"] + offset, "count": count}
    return None


def extents_of_change(record: Record, token: str) -> tuple[Extent, Extent] | None:
    """Return the extents before and after a change of the extent with this token; None if it is not remembered."""
    for change in record.get("extents", ()):
        if token and change["token"] == token:
            return tuple(change["before"]), tuple(change["after"])
    return None


def keyed_token(key: str, rest: str) -> str:
    """Return the token of a change of the extent with a key; without one only the rest."""
    return f"{key}.{rest}" if key else rest


# --- the extent ---------------------------------------------------------------------------------------------


def set_extent(
    record: Record, dims: Extent, extend_dim: int = -1, expect: Extent | None = None, token: str = ""
) -> Record:
    """Set the extent, unless that was done with this token; see `hsparse.wire.record_message.SetExtent`."""
    if extents_of_change(record, token) is not None:
        return record
    id, shape = record["id"], record["shape"]
    before = tuple(shape.get("dims") or ())
    if expect is not None and expect != before:
        raise Conflict(f"The extent of {id} is {list(before)}, not {list(expect)} any more.")
    after = dims if extend_dim < 0 else _extended(id, before, extend_dim, dims[0])
    _check_extent(id, after, before, shape.get("maxdims"))
    if after == before:
        return record
    if appended_parts(record):
        raise Moved(f"{id} is being appended to.")
    grows = any(a > b for a, b in zip(after, before, strict=True))
    shrinks = any(a < b for a, b in zip(after, before, strict=True))
    if grows and is_trimmed(record):
        raise Conflict(f"{id} is still being shrunk; finish that before it grows.")
    changed = {**record, "shape": {**shape, "dims": list(after)}}
    if token:
        made = {"token": token, "before": list(before), "after": list(after)}
        changed["extents"] = _last_changes([*record.get("extents", ()), made])
    return _trimmed(changed) if shrinks else changed


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
    before = _extent_to_append_to(record, slab, dim)
    count = slab[dim]
    stop = before[dim] + sum(part["count"] for part in parts) + count
    _check_extent(id, (*before[:dim], stop, *before[dim + 1 :]), before, record["shape"].get("maxdims"))
    part: Record = {"token": token, "count": count, "until": until, "done": False}
    if keys:
        part["keys"] = list(map(list, keys))
    return _with_appends(record, dim, [*parts, part], dropped)


def _extent_to_append_to(record: Record, slab: Extent, dim: int) -> Extent:
    """Return the extent; raise `Moved` or `BadRequest` unless a slab can be appended along a dimension now."""
    id, before = record["id"], tuple(record["shape"].get("dims") or ())
    if len(slab) != len(before) or not 0 <= dim < len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions; the append has {len(slab)}.")
    others = [other for other in range(len(before)) if other != dim]
    if is_trimmed(record) or any(slab[other] != before[other] for other in others):
        raise Moved(f"The extent of {id} has changed.")
    if appended_parts(record) and record["appends"]["dim"] != dim:
        raise Moved(f"{id} is being appended to along another dimension.")
    return before


def end_append(record: Record, token: str, now: float) -> Record:
    """Note that a part is written, and let the extent grow over all parts that are done before any is not."""
    dropped, parts = _dropped(record, now), appended_parts(record)
    if token in dropped:
        raise Moved(f"The append to {record['id']} was dropped.")
    if not any(part["token"] == token and not part["done"] for part in parts):
        return record
    parts = [part | {"done": True} if part["token"] == token else part for part in parts]
    dim, shape = record["appends"]["dim"], record["shape"]
    dims, keyed = list(shape["dims"]), []
    while parts and parts[0]["done"]:
        part = parts.pop(0)
        if "keys" in part:
            keyed.append({"dim": dim, "start": dims[dim], "time": now, "keys": part["keys"]})
        dims[dim] += part["count"]
    grown = {**record, "shape": {**shape, "dims": dims}} if dims != shape["dims"] else record
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
    return _trimmed(_with_appends(record, record["appends"]["dim"], [], dropped))


# --- what both need -----------------------------------------------------------------------------------------


def _trimmed(record: Record) -> Record:
    """Return the record of a dataset that has elements to be erased outside its extent."""
    return record | {"generation": generation(record) + 1, "trim": True}


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


def _check_extent(id: str, after: Extent, before: Extent, maxdims: list[Any] | None) -> None:
    if len(after) != len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions, not {len(after)}.")
    if maxdims is None:
        raise BadRequest(f"{id} is not extensible: it was created without maxdims.")
    if prod(after) > MAX_EXTENT or max(after, default=0) > MAX_EXTENT:
        raise BadRequest(f"{id} would have the extent {list(after)}; a dataset has at most 2^63-1 elements.")
    for dim, (extent, limit) in enumerate(zip(after, maxdims, strict=True)):
        if limit not in (UNLIMITED, 0) and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")
