"""The type in a request: spelled out, by a predefined name, or by the id of a committed type."""

from __future__ import annotations

from hsparse.errors import BadRequest
from hsparse.model.datatype import Datatype, parse_type
from hsparse.sn.context import Context
from hsparse.sn.object_path import check_member
from hsparse.wire.message import Record


async def read_type(context: Context, body: Record) -> Datatype:
    """Return the `type` of a body; a committed type's item has the type's `id`."""
    item = body.get("type")
    if item is None:
        raise BadRequest("A type is needed, and none is given.")
    if isinstance(item, str) and item.startswith("datatypes/"):
        item = item.removeprefix("datatypes/")
    if not isinstance(item, str) or not item.startswith("t-"):
        return parse_type(item)
    record = await context.service.owners.record(check_member(item, context.domain, "datatypes"))
    return parse_type({**record["type"], "id": item})
