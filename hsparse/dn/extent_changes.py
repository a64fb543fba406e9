"""The changes of a dataset's extent: set, shrink, append.

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
one that is sent again, because its reply was lost, is not made again.
"""

from __future__ import annotations

from math import prod
from typing import Any

from hsparse.errors import BadRequest, Conflict, Moved
from hsparse.model.dataspace import MAX_EXTENT, UNLIMITED
from hsparse.wire.change_token import appended_before, key_of, part_with_key
from hsparse.wire.message import Record
from hsparse.wire.record_message import (
    AbandonAppends,
    BeginAppend,
    EndAppend,
    EndTrim,
    SetExtent,
    appended_parts,
    extents_of_change,
)

MOST_REMEMBERED = 16
"""How many changes of the extent are remembered, the last ones: one is sent again within seconds."""
MOST_KEYS = 256
"""How many changes with keys of clients are remembered."""
MOST_APPENDED, KEY_SECONDS = 1024, 3600.0
"""How many keys of appends are remembered, and for how long: clients repeat them in minutes. The last part has all."""
DROPPED_SECONDS, MOST_DROPPED = 86_400.0, 1000
"""How long the token of a dropped part is kept, and how many: longer than any request lasts, on clocks that differ."""


def set_extent(change: SetExtent, record: Record) -> Record:
    """Return the fields of a record that `change` sets, none if it was made already, or the extent is that already."""
    if extents_of_change(record, change.token) is not None:
        return {}
    shape = record["shape"]
    before = tuple(shape.get("dims") or ())
    if change.expect is not None and change.expect != before:
        raise Conflict(f"The extent of {change.id} is {list(before)}, not {list(change.expect)} any more.")
    after = _extent(change, before)
    _check_extent(change.id, after, before, shape.get("maxdims"))
    if after == before:
        return {}
    if appended_parts(record):
        raise Moved(f"{change.id} is being appended to.")
    grows = any(a > b for a, b in zip(after, before, strict=True))
    shrinks = any(a < b for a, b in zip(after, before, strict=True))
    if grows and "trim" in record:
        raise Conflict(f"{change.id} is still being shrunk; finish that before it grows.")
    fields: dict[str, Any] = {"shape": {**shape, "dims": list(after)}}
    if change.token:
        made = {"token": change.token, "before": list(before), "after": list(after)}
        fields["extents"] = _last_changes([*record.get("extents", ()), made])
    return fields | (_trim(record) if shrinks else {})


def end_trim(change: EndTrim, record: Record) -> Record | None:
    """Return the record without `trim`, None if that is no longer what `change` is about."""
    if "trim" not in record or record.get("generation", 0) != change.generation:
        return None
    rest = {key: value for key, value in record.items() if key != "trim"}
    # A service node that still works on this shrink must not erase elements that are written from now on.
    rest["generation"] = change.generation + 1
    return rest


def begin_append(change: BeginAppend, record: Record, now: float) -> Record:
    """Return the record with the part that `change` begins or, if it has begun, with a new time `until`."""
    dropped, parts = _dropped(record, now), appended_parts(record)
    if change.token in dropped:
        raise Moved(f"The append to {change.id} took too long and was dropped.")
    until = now + change.lease
    if any(part["token"] == change.token for part in parts):
        parts = [part | {"until": until} if part["token"] == change.token else part for part in parts]
        return _with_appends(record, change.dim, parts, dropped)
    for key, _, _ in change.keys:
        if appended_before(record, key) is not None or part_with_key(record, key) is not None:
            raise Moved(f"What is appended to {change.id} has the key of an append that came before.")
    shape = record["shape"]
    before = tuple(shape.get("dims") or ())
    if len(change.slab) != len(before) or not 0 <= change.dim < len(before):
        raise BadRequest(f"{change.id} has {len(before)} dimensions; the append has {len(change.slab)}.")
    others = [dim for dim in range(len(before)) if dim != change.dim]
    if "trim" in record or any(change.slab[dim] != before[dim] for dim in others):
        raise Moved(f"The extent of {change.id} has changed.")
    if parts and record["appends"]["dim"] != change.dim:
        raise Moved(f"{change.id} is being appended to along another dimension.")
    count = change.slab[change.dim]
    stop = before[change.dim] + sum(part["count"] for part in parts) + count
    after = (*before[: change.dim], stop, *before[change.dim + 1 :])
    _check_extent(change.id, after, before, shape.get("maxdims"))
    part: Record = {"token": change.token, "count": count, "until": until, "done": False}
    if change.keys:
        part["keys"] = list(map(list, change.keys))
    return _with_appends(record, change.dim, [*parts, part], dropped)


def end_append(change: EndAppend, record: Record, now: float) -> Record:
    """Return the record with the part done, and the extent grown over all parts that are done before any is not."""
    dropped, parts = _dropped(record, now), appended_parts(record)
    if change.token in dropped:
        raise Moved(f"The append to {change.id} was dropped.")
    if not any(part["token"] == change.token and not part["done"] for part in parts):
        return record
    parts = [part | {"done": True} if part["token"] == change.token else part for part in parts]
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


def abandon_appends(change: AbandonAppends, record: Record, now: float) -> Record:
    """Return the record without parts and with `trim`, if `change` is about one that is there, or out of time."""
    parts = appended_parts(record)
    if change.token:
        found = any(part["token"] == change.token for part in parts)
    else:
        found = any(not change.expired or (part["until"] < now and not part["done"]) for part in parts)
    if not found:
        return record
    dropped = _dropped(record, now) | {part["token"]: now for part in parts}
    return _with_appends(record, record["appends"]["dim"], [], dropped) | _trim(record)


def _last_changes(changes: list[Record]) -> list[Record]:
    """Return those of some changes of the extent, in their order, that are remembered."""
    left = {True: MOST_KEYS, False: MOST_REMEMBERED}
    kept = []
    for change in reversed(changes):
        has_key = bool(key_of(change["token"]))
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


def _dropped(record: Record, now: float) -> dict[str, float]:
    dropped: dict[str, float] = record.get("appends", {}).get("dropped", {})
    kept = [(token, time) for token, time in dropped.items() if time > now - DROPPED_SECONDS]
    return dict(kept[-MOST_DROPPED:])


def _with_appends(record: Record, dim: int, parts: list[Record], dropped: dict[str, float]) -> Record:
    rest = {key: value for key, value in record.items() if key != "appends"}
    if parts or dropped:
        rest["appends"] = {"dim": dim, "parts": parts, "dropped": dropped}
    return rest


def _trim(record: Record) -> Record:
    """Return the fields of a record whose dataset has elements to be erased outside its extent.

    Until all chunks outside are erased, growing would uncover what a shrink had removed.
    """
    return {"generation": record.get("generation", 0) + 1, "trim": True}


def _extent(change: SetExtent, before: tuple[int, ...]) -> tuple[int, ...]:
    if change.extend_dim < 0:
        return change.dims
    if change.extend_dim >= len(before):
        raise BadRequest(
            f"{change.id} has {len(before)} dimensions; there is no dimension {change.extend_dim}."
        )
    grown = list(before)
    grown[change.extend_dim] += change.dims[0]
    return tuple(grown)


def _check_extent(
    id: str, after: tuple[int, ...], before: tuple[int, ...], maxdims: list[Any] | None
) -> None:
    if len(after) != len(before):
        raise BadRequest(f"{id} has {len(before)} dimensions, not {len(after)}.")
    if maxdims is None:
        raise BadRequest(f"{id} is not extensible: it was created without maxdims.")
    if prod(after) > MAX_EXTENT or max(after, default=0) > MAX_EXTENT:
        raise BadRequest(f"{id} would have the extent {list(after)}; a dataset has at most 2^63-1 elements.")
    for dim, (extent, limit) in enumerate(zip(after, maxdims, strict=True)):
        if limit not in (UNLIMITED, 0) and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")
