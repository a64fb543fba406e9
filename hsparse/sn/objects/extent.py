"""A dataset's extent: getting and setting it."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, Conflict
from hsparse.model.dataspace import is_extensible, max_dims_of, parse_extent, shown_shape
from hsparse.model.linked_layout import is_linked
from hsparse.sn.context import Context
from hsparse.sn.href import hrefs
from hsparse.sn.json_body import read_object
from hsparse.sn.objects.objects import requested
from hsparse.sn.objects.trim import finish_trim
from hsparse.sn.respond import respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import SetExtent


async def get_shape(context: Context) -> web.StreamResponse:
    """Answer with a dataset's dataspace."""
    record = await requested(context, "datasets")
    own = f"/datasets/{record['id']}"
    answer = {
        "shape": shown_shape(record["shape"]),
        "created": record["created"],
        "lastModified": record["lastModified"],
    }
    return respond(answer | {"hrefs": hrefs(context, self=own, owner=own, root=f"/groups/{record['root']}")})


async def put_shape(context: Context) -> web.StreamResponse:
    """Set a dataset's extent; where one dimension grew the answer has a selection of what is new.

    What a shrink leaves outside is erased before the answer.
    """
    record = await requested(context, "datasets")
    change = _change(record, await read_object(context))
    if "trim" in record:
        await finish_trim(context.service.owners, record)  # of a shrink that was interrupted
    outcome = await context.service.owners.apply(change)
    changed = outcome.unwrap()
    if "trim" in changed:
        await finish_trim(context.service.owners, changed)
    before = tuple(record["shape"]["dims"])
    after = tuple(changed["shape"]["dims"])
    if change.extend_dim >= 0:
        dim = change.extend_dim
        before = (*after[:dim], after[dim] - change.dims[0], *after[dim + 1 :])
    selection = grown(before, after)
    return respond({"selection": selection} if selection else {}, status=201)


def grown(before: tuple[int, ...], after: tuple[int, ...]) -> str | None:
    """Return the selection of what is new where exactly one dimension grew and none shrank, else None."""
    changed = [dim for dim, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if len(changed) != 1 or after[changed[0]] < before[changed[0]]:
        return None
    axes = [":"] * len(after)
    axes[changed[0]] = f"{before[changed[0]]}:{after[changed[0]]}"
    return f"[{','.join(axes)}]"


def _change(record: Record, body: Record) -> SetExtent:
    """Return the change a body asks for: `shape`, or `extend` and `extend_dim`; checks what never changes."""
    shape, id = record["shape"], record["id"]
    if not is_extensible(shape):
        raise BadRequest(f"{id} is not extensible: it was created without maxdims.")
    if ("shape" in body) == ("extend" in body):
        raise BadRequest("The body must have either shape or extend.")
    limits = max_dims_of(shape)
    if "extend" in body:
        return _extension(id, body, len(limits))
    dims = parse_extent(body["shape"])
    if len(dims) != len(limits):
        raise BadRequest(f"{id} has {len(limits)} dimensions, not {len(dims)}.")
    for dim, (extent, limit) in enumerate(zip(dims, limits, strict=True)):
        if limit is not None and extent > limit:
            raise Conflict(f"Dimension {dim} of {id} can have at most {limit} elements, not {extent}.")
    if is_linked(record) and any(new < old for new, old in zip(dims, shape["dims"], strict=True)):
        raise BadRequest(f"{id} cannot shrink: its data stays in a file, from which nothing is erased.")
    return SetExtent(id, dims)


def _extension(id: str, body: Record, rank: int) -> SetExtent:
    by, dim = body["extend"], body.get("extend_dim", 0)
    if not _is_int(by) or by <= 0:
        raise BadRequest(f"extend must be a positive integer, not {by!r}.")
    if not _is_int(dim) or not 0 <= dim < rank:
        raise BadRequest(f"extend_dim must be a dimension of {id}, 0 to {rank - 1}, not {dim!r}.")
    return SetExtent(id, (by,), dim)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
