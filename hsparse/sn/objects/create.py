"""Creation of objects: the record is stored before the link to it, so that no link dangles.

A body may have the object's `id`, `attributes`, and `links` (for groups). The link to the new object is given by
`link`, with a group's id and a name, or by `h5path`. With `implicit=1`, the missing groups of `h5path` are created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from hsparse.concurrency.gathering import gather_all, with_pauses
from hsparse.errors import BadRequest, Conflict, HsparseError, NotFound, TooLarge
from hsparse.model.attribute import check_name, parse_attribute
from hsparse.model.ids import collection_of, is_root, new_id
from hsparse.model.link import HARD, SOFT, check_title, parse_link
from hsparse.model.schema import check_changeable, given_creation_time
from hsparse.model.short_text import short_repr
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.request import read_json
from hsparse.sn.http.requested_type import parsed_value, read_type
from hsparse.sn.http.response import respond_floats
from hsparse.sn.records.multi_object_request import ITEMS_AT_ONCE
from hsparse.sn.records.object_json import object_json
from hsparse.sn.records.object_path import MAX_PATH, PathSteps, resolve_path
from hsparse.sn.request import OBJECT_BYTES, Request
from hsparse.wire.chunk_message import FenceDeleted
from hsparse.wire.message import Record
from hsparse.wire.record_message import (
    BeginDeletion,
    CreateObject,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    PutLinks,
)

MAX_OBJECTS = 10_000
MAX_IMPLICIT = 256
"""The maximum of missing groups that one request creates, because each group takes two puts to the store."""
DRAFTED_AT_ONCE = 64
"""The number of bodies that are checked without a pause for other requests."""
DraftMaker = Callable[[Request, Record, Record], Awaitable[Callable[[], Awaitable[None]] | None]]
"""A function of (request, new record, body) that adds the body's content to the record.

It returns a function to call after the object was created, or None.
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """An object to create and link at the path `titles` below `parent` (None: the root group); () means no link."""

    record: Record
    parent: str | None
    titles: tuple[str, ...]
    after: Callable[[], Awaitable[None]] | None = None


async def post_objects(request: Request, collection: str, fill: DraftMaker) -> web.StreamResponse:
    """Answer a POST that creates one or many objects. All bodies are checked first; if one creation fails, all fail."""
    body = await read_json(request)
    bodies = body if isinstance(body, list) else [{} if body is None else body]
    if not bodies or len(bodies) > MAX_OBJECTS:
        raise BadRequest(f"A list must have 1 to {MAX_OBJECTS} objects to create, not {len(bodies)}.")
    await request.make_room(OBJECT_BYTES * len(bodies))
    drafts: list[Draft] = []
    async for first in with_pauses(range(0, len(bodies), DRAFTED_AT_ONCE), 1):
        some = bodies[first : first + DRAFTED_AT_ONCE]
        drafts += await gather_all([draft(request, collection, one, fill) for one in some])
    await create(request, drafts)
    found = [object_json(one.record) for one in drafts]
    if collection == "groups":
        for one in found:
            del one["creationProperties"]  # as in HSDS's answer to a creation
    return respond_floats(found[0] if len(found) == 1 else {"objects": found}, status=201)


async def draft(request: Request, collection: str, body: Any, fill: DraftMaker) -> Draft:
    """Check a body and return the `Draft` of the object that it describes."""
    if not isinstance(body, dict):
        raise BadRequest("Each object to create must be described by a JSON object.")
    record = new_record(request, collection, body)
    if "attributes" in body:
        record["attributes"] = await _attributes(request, body["attributes"], record["created"])
    if body.get("links"):
        if collection != "groups":
            raise BadRequest("Only a group can have links: leave out links.")
        record["links"] = await _links(request, body["links"], record["created"])
    after = await fill(request, record, body)
    parent, titles = _place(request, body)
    return Draft(record, parent, titles, after)


def new_record(request: Request, collection: str, body: Record) -> Record:
    """Return a new object's record with the keys that all objects have; raise `BadRequest` if its id is invalid."""
    root = request.domain.root_group
    id = body.get("id")
    if id is None:
        id = new_id(collection, root, request.service.clock)
    elif not isinstance(id, str) or is_root(id := request.domain.member(id, collection)):
        raise BadRequest(f"{short_repr(id)} cannot be the id of a new object.")
    properties = body.get("creationProperties")
    if properties is not None and not isinstance(properties, dict):
        raise BadRequest("creationProperties must be an object.")
    now = request.service.clock.now()
    record: Record = {"id": id, "root": root, "created": now, "lastModified": now, "attributes": {}}
    if collection == "groups":
        record["links"] = {}
    return record | {"creationProperties": dict(properties or {})}


async def create(request: Request, drafts: list[Draft]) -> None:
    """Create the objects, then link them; after a failure, delete the objects that were created."""
    await PathSteps(request).take(sum(len(one.titles) for one in drafts))
    owners = request.service.owners
    records = [one.record for one in drafts]
    outcomes = await owners.change(*(CreateObject(record["id"], record) for record in records))
    pairs = zip(records, outcomes, strict=True)
    made = [record["id"] for record, outcome in pairs if outcome.failure is None]
    try:
        for outcome in outcomes:
            outcome.unwrap()
        await gather_all([one.after() for one in drafts if one.after is not None])
        await _link(request, drafts)
    except HsparseError:
        await gather_all([remove(owners, id) for id in made])
        raise


async def remove(owners: Owners, id: str) -> None:
    """Delete an object and, if it is a dataset, its chunks; raise `NotFound` or `Gone` if it does not exist."""
    if collection_of(id) != "datasets":
        await owners.apply(DeleteObject(id))
        return
    check_changeable(id, await owners.record(id))  # before the note: a refused deletion must leave none
    await owners.ask_any(BeginDeletion(id))
    await owners.apply(DeleteObject(id))
    await owners.ask_all(FenceDeleted(id))
    await owners.ask_any(DeleteTree(id))


async def _link(request: Request, drafts: list[Draft]) -> None:
    links: dict[str, Record] = {}
    parents = _Parents(request, len(drafts))
    for one in drafts:
        if not one.titles:
            continue
        group = await parents.find(one.parent or request.domain.root_group, one.titles[:-1])
        title = one.titles[-1]
        if title in links.setdefault(group, {}):
            raise Conflict(f"Two of the new objects have the same link {title!r} in {group}.")
        links[group][title] = {"class": HARD, "id": one.record["id"]}
    owners = request.service.owners
    outcomes = await owners.change(*(PutLinks(id, some) for id, some in links.items()))
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    if failures:
        linked = [id for id, outcome in zip(links, outcomes, strict=True) if outcome.failure is None]
        await owners.change(*(DeleteLinks(id, tuple(links[id])) for id in linked))
        raise failures[0].error()


class _Parents:
    """Finds the groups that get the links to `objects` new objects; with `implicit=1`, creates missing groups."""

    def __init__(self, request: Request, objects: int) -> None:
        self._request = request
        self._objects = objects
        self._owners = request.service.owners
        self._steps = PathSteps(request)
        self._implicit = request.flag("implicit")
        self._follows = request.flag("follow_soft_links")
        self._count = 0

    async def find(self, group: str, titles: tuple[str, ...]) -> str:
        """Return the id of the group at the path `titles` from the group with the id `group`."""
        for title in titles:
            await self._steps.take(1)
            record = await self._owners.record(group)
            link = (record.get("links") or {}).get(title)
            if link is None:
                group = await self._make(group, title)
                continue
            target = link.get("id", "")
            if link["class"] == SOFT and self._follows:
                place = await resolve_path(
                    self._request, self._request.domain, link["h5path"], group, self._steps
                )
                target = "" if place.away else place.id
            if not target or collection_of(target) != "groups":
                raise BadRequest(
                    f"{title!r} of {group} is not a link to a group of the domain: nothing can be created there."
                )
            group = target
        return group

    async def _make(self, parent: str, title: str) -> str:
        if not self._implicit:
            raise NotFound(
                f"There is no group {title!r} in {parent}: create it, or create missing groups by implicit=1."
            )
        self._count += 1
        if self._count > MAX_IMPLICIT:
            raise TooLarge(
                f"A request creates at most {MAX_IMPLICIT} missing groups. These were created: send the request again "
                "to create the rest."
            )
        await self._request.make_room(OBJECT_BYTES * (self._objects + self._count))
        record = new_record(self._request, "groups", {})
        await self._owners.apply(CreateObject(record["id"], record))
        link = {title: {"class": HARD, "id": record["id"]}}
        outcome = (await self._owners.change(PutLinks(parent, link)))[0]
        if outcome.failure is None:
            return str(record["id"])
        # A concurrent request created this link: use its group.
        await self._owners.apply(DeleteObject(record["id"]))
        there = ((await self._owners.record(parent)).get("links") or {}).get(title)
        if there is None or there["class"] != HARD or collection_of(there["id"]) != "groups":
            raise outcome.failure.error()
        return str(there["id"])


def _place(request: Request, body: Record) -> tuple[str | None, tuple[str, ...]]:
    """Return a pair: the `parent` and the `titles` of the `Draft` of a new object."""
    link, h5path = body.get("link"), body.get("h5path")
    if link is not None and h5path is not None:
        raise BadRequest("The body has both link and h5path: leave out one of them.")
    if isinstance(link, dict) and "id" in link and "name" in link:
        return request.domain.member(str(link["id"]), "groups"), (check_title(link["name"]),)
    if link is not None:
        raise BadRequest("A link needs the id of a group and a name.")
    if h5path is None:
        return None, ()
    if not isinstance(h5path, str):
        raise BadRequest("h5path must be a string.")
    if len(h5path) > MAX_PATH:
        raise BadRequest(f"The path has {len(h5path)} characters; the limit is {MAX_PATH}: shorten it.")
    parent = body.get("parent_id")
    if parent is not None and h5path.startswith("/"):
        raise BadRequest("With parent_id, h5path must be relative to that group.")
    titles = tuple(check_title(title) for title in h5path.split("/") if title)
    if not titles:
        raise BadRequest(f"The path {h5path!r} does not name a new object.")
    return (request.domain.member(str(parent), "groups") if parent else None), titles


async def _attributes(request: Request, bodies: Any, now: float) -> Record:
    if not isinstance(bodies, dict):
        raise BadRequest("attributes must be an object, with an attribute for each name.")
    stored: Record = {}
    async for name, body in with_pauses(bodies.items(), ITEMS_AT_ONCE):
        if not isinstance(body, dict):
            raise BadRequest(f"The attribute {short_repr(name)} must be an object.")
        parsed = await parsed_value(body, await read_type(request, body), parse_attribute)
        stored[check_name(name)] = parsed | {"created": now} | given_creation_time(body, now)
    return stored


async def _links(request: Request, bodies: Any, now: float) -> Record:
    if not isinstance(bodies, dict):
        raise BadRequest("links must be an object, with a link for each title.")
    stored = {
        check_title(title): parse_link(body) | {"created": now} | given_creation_time(body, now)
        async for title, body in with_pauses(bodies.items(), ITEMS_AT_ONCE)
    }
    for link in stored.values():
        if link["class"] == HARD:
            link["id"] = request.domain.member(link["id"])
    return stored
