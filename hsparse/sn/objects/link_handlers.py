"""Handlers of links: one link by title, and changes of many links of one or many groups."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.concurrency.gathering import with_pauses
from hsparse.errors import BadRequest
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of
from hsparse.model.link import HARD, check_title, link_json, parse_link
from hsparse.model.schema import given_creation_time
from hsparse.sn.http.request import read_json_object, text_list
from hsparse.sn.http.response import hrefs
from hsparse.sn.records.listing import (
    in_creation_order,
    missing_link,
    split_names,
)
from hsparse.sn.records.multi_object_request import (
    ITEMS_AT_ONCE,
    MultiObjectRequest,
)
from hsparse.sn.records.object_path import read_each
from hsparse.sn.request import Request, respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteLinks, PutLinks

KEYS = MultiObjectRequest("grp_ids", "links", "titles", "groups")


async def put_links(request: Request) -> web.StreamResponse:
    """Set links of the group in the URL, or of each group in `grp_ids`; answer 201, or 200 if nothing changed.

    The same change removes the links in `remove` from the group in the URL, which requires the right to delete.
    """
    body = await read_json_object(request)
    removed = text_list(body, "remove") or []
    if removed:
        request.domain.require(request.principal, Right.DELETE)
        if "grp_ids" in body:
            raise BadRequest("remove applies to the group in the URL only: leave out grp_ids.")
    links = await KEYS.parsed(request, body, lambda items: _parsed(request, items))
    return await _put(request, links, tuple(map(check_title, removed)))


async def delete_links(request: Request) -> web.StreamResponse:
    """Delete the links in `titles`; missing titles are ignored."""
    id = request.object_id("groups")
    await request.service.owners.apply(DeleteLinks(id, split_names(request, "titles"), skip_missing=True))
    return respond({})


async def get_link(request: Request) -> web.StreamResponse:
    """Answer with one link."""
    record = await request.record("groups")
    title = request.params["title"]
    link = (record.get("links") or {}).get(title)
    if link is None:
        raise await missing_link(request.service.owners, record["id"], title)
    created = link.get("created", 0)
    own = f"/groups/{record['id']}"
    paths = {"self": f"{own}/links/{title}", "home": "/", "owner": own}
    if link["class"] == HARD:
        paths["target"] = f"/{collection_of(link['id'])}/{link['id']}"
    answer = {"link": link_json(title, link), "created": created, "lastModified": created}
    return respond(answer | {"hrefs": hrefs(request, **paths)})


async def put_link(request: Request) -> web.StreamResponse:
    """Set one link; answer 201, or 200 if nothing changed."""
    title = request.params["title"]
    id, body = request.object_id("groups"), await read_json_object(request)
    return await _put(request, {id: await _parsed(request, {title: body})})


async def delete_link(request: Request) -> web.StreamResponse:
    """Delete one link."""
    title = check_title(request.params["title"])
    await request.service.owners.apply(DeleteLinks(request.object_id("groups"), (title,)))
    return respond({})


async def _put(
    request: Request, links: dict[str, Record], removed: tuple[str, ...] = ()
) -> web.StreamResponse:
    """Set the links of each group id and remove the links `removed`; raise if a hard link's target does not exist."""
    changes = [PutLinks(id, some, removed) for id, some in links.items()]
    targets = {link["id"] for change in changes for link in change.links.values() if link["class"] == HARD}
    async with aclosing(read_each(request.service.owners, list(enumerate(sorted(targets))))) as found:
        async for _, outcome in found:
            outcome.unwrap()
    outcomes = await request.service.owners.change(*changes)
    for outcome in outcomes:
        outcome.unwrap()
    return respond({"hrefs": []}, status=201 if any(outcome.changed for outcome in outcomes) else 200)


async def _parsed(request: Request, bodies: Any) -> Record:
    """Return a dict that maps each title in `bodies` to the link's stored form, in order of creation times."""
    if not isinstance(bodies, dict) or not bodies:
        raise BadRequest("links must be an object, with a link for each title.")
    now = request.service.clock.now()
    links = {
        check_title(title): parse_link(body) | given_creation_time(body, now)
        async for title, body in with_pauses(in_creation_order(bodies), ITEMS_AT_ONCE)
    }
    async for link in with_pauses(links.values(), ITEMS_AT_ONCE):
        if link["class"] == HARD:
            link["id"] = request.domain.member(link["id"])
    return links
