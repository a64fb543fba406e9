"""The type in a request's body, in HDF5/JSON: an object, a predefined name, or the id of a committed type.

Ids of committed types may also be nested in an object, as a base type or as the type of a field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hsparse.compute import compute
from hsparse.errors import BadRequest
from hsparse.model.attribute import parse_work
from hsparse.model.datatype import MAX_DEPTH as MAX_TYPE_DEPTH
from hsparse.model.datatype import MAX_PARTS, Datatype, parse_requested_type
from hsparse.sn.request import Request
from hsparse.wire.message import Record

T = TypeVar("T")

PREFIX = "datatypes/"


async def read_type(request: Request, body: Record) -> Datatype:
    """Return the `type` of a body. Ids of committed types, at any depth, are replaced by the types and their `id`."""
    item = body.get("type")
    if item is None:
        raise BadRequest("The body has no type: give an object, a predefined name, or a type's id.")
    named: dict[str, None] = {}
    _collect(item, named, 0)
    if not named:
        return parse_requested_type(item)
    ids = [request.domain.member(id, "datatypes") for id in named]
    outcomes = await request.service.owners.read(*ids)
    committed = {
        name: {**outcome.unwrap()["type"], "id": id}
        for name, id, outcome in zip(named, ids, outcomes, strict=True)
    }
    return parse_requested_type(_resolved(item, committed))


async def parsed_value(body: Record, datatype: Datatype, parse: Callable[[Record, Datatype], T]) -> T:
    """Return `parse(body, datatype)`, computed in a worker thread if the body is large."""
    return await compute(parse_work(body), parse, body, datatype)


def committed_id(item: Any) -> str | None:
    """Return the id of the committed type if `item` refers to one (`t-...` or `datatypes/t-...`), otherwise None."""
    if not isinstance(item, str):
        return None
    id = item.removeprefix(PREFIX)
    return id if id.startswith("t-") else None


def _collect(item: Any, named: dict[str, None], depth: int) -> None:
    """Add the ids of the committed types in `item` to `named`. `item` may be invalid; it is checked after this."""
    id = committed_id(item)
    if id is not None:
        named[id] = None
        if len(named) > MAX_PARTS:
            raise BadRequest(f"The type names more than {MAX_PARTS} committed types.")
    elif isinstance(item, dict) and depth <= MAX_TYPE_DEPTH:
        for part in _parts(item):
            _collect(part, named, depth + 1)


def _parts(item: Record) -> list[Any]:
    fields = item.get("fields")
    inside = (
        [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    )
    return [item.get("base"), *inside]


def _resolved(item: Any, committed: dict[str, Record]) -> Any:
    id = committed_id(item)
    if id is not None:
        return committed.get(id, item)
    if not isinstance(item, dict):
        return item
    result = dict(item)
    if "base" in item:
        result["base"] = _resolved(item["base"], committed)
    if isinstance(item.get("fields"), list):
        result["fields"] = [
            {**field, "type": _resolved(field.get("type"), committed)} if isinstance(field, dict) else field
            for field in item["fields"]
        ]
    return result
