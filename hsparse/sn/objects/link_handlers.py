"""Handlers of links: one by title, or many, of one group or many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.compute import with_pauses
from hsparse.errors import BadRequest
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of
from hsparse.model.link import HARD, check_title, link_json, listed_link_json, parse_link
from hsparse.model.schema import given_creation_time
from hsparse.sn.http.request import read_json_object, text_list
from hsparse.sn.http.response import Encoded, href, hrefs, respond_computed
from hsparse.sn.records.crawl import Crawl, RecordReader, require_records
from hsparse.sn.records.listing import (
    ITEMS_AT_ONCE,
    MultiObjectRequest,
    NamePlaces,
    ReplyLimit,
    encode_listing,
    in_creation_order,
    listing_work,
    matching_names,
    missing_link,
    ordered_names,
    page_of,
    respond_records,
    split_names,
    stored_names,
)
from hsparse.sn.records.object_path import read_each
from hsparse.sn.request import Request, respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteLinks, PutLinks

KEYS = MultiObjectRequest("grp_ids", "links", "titles", "groups")


async def get_links(request: Request) -> web.StreamResponse:
    """List a group's links, of `titles` those that exist; with `follow_links` those of all groups below, by group."""
    id = request.object_id("groups")
    own = f"/groups/{id}"
    links = {"hrefs": hrefs(request, self=f"{own}/links", home="/", owner=own)}
    record = await request.service.owners.record(id)
    if request.flag("follow_links"):
        return await _reachable(request, (id,), links)
    stored = record.get("links") or {}

    def answer() -> web.Response:
        if request.arg("titles"):
            titles = [title for title in split_names(request, "titles") if title in stored]
        else:
            titles = ordered_names(request, stored)
        titles = page_of(request, titles, "link")
        return respond({"links": [_browsable(request, id, title, stored[title]) for title in titles]} | links)

    return await respond_computed(listing_work(request, len(stored)), answer)


async def post_links(request: Request) -> web.StreamResponse:
    """Answer with links by title: of the request's group, or of each group in `grp_ids`.

    With `follow_links`, all links of the groups and of all groups below.
    """
    body = await read_json_object(request)
    wanted = await KEYS.wanted(request, body)
    groups = list(wanted)
    owners = request.service.owners
    if request.flag("follow_links"):
        if any(titles is not None for titles in wanted.values()):
            raise BadRequest("follow_links answers with all links: leave out titles.")
        await require_records(owners, groups)
        return await _reachable(request, groups, {})
    if len(groups) > 1:
        reading = RecordReader(owners, {id: id for id in groups})
        return await respond_records(request, "links", reading, _of_group(request, wanted), {})
    id = groups[0]
    stored = (await owners.record(id)).get("links") or {}
    places = wanted[id]
    for title in places or ():
        if title not in stored:
            raise await missing_link(owners, id, title)

    def answer() -> web.Response:
        titles = ordered_names(request, stored) if places is None else list(places)
        return respond({"links": _listed(stored, matching_names(request, titles))})

    return await respond_computed(listing_work(request, len(stored if places is None else places)), answer)


async def put_links(request: Request) -> web.StreamResponse:
    """Set links, of the request's group or of each in `grp_ids`; 200 if all existed already.

    Links in `remove` of the request's group are removed by the same change, for which it takes the right to delete.
    """
    body = await read_json_object(request)
    removed = text_list(body, "remove") or []
    if removed:
        request.domain.require(request.principal, Right.DELETE)
        if "grp_ids" in body:
            raise BadRequest("remove is of the request's group alone: leave out grp_ids.")
    links = await KEYS.parsed(request, body, lambda items: _parsed(request, items))
    return await _put(request, links, tuple(map(check_title, removed)))


async def delete_links(request: Request) -> web.StreamResponse:
    """Delete the links in `titles`; titles that are not there are ignored."""
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
    """Set one link; 200 if it existed already."""
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
    """Set checked links of groups, if their targets exist."""
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
    """Return links in their stored form, in their order of creation."""
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


def _of_group(request: Request, wanted: dict[str, NamePlaces | None]) -> Callable[[str, Record], Encoded]:
    """Return a function that lists a group's links: all, or those of `wanted` that exist."""

    def to_json(id: str, group: Record) -> Encoded:
        links, places = group.get("links") or {}, wanted.get(id)

        def listed() -> list[Record]:
            titles = ordered_names(request, links) if places is None else stored_names(places, links)
            return _listed(links, matching_names(request, titles))

        return encode_listing(request, len(links if places is None else places), listed)

    return to_json


async def _reachable(request: Request, ids: Sequence[str], around: Record) -> web.StreamResponse:
    """Answer with the links of groups and of all groups below them, by group; `Limit` counts all of them."""
    limit = ReplyLimit(request)

    def to_json(id: str, group: Record) -> Encoded:
        links = group.get("links") or {}
        return encode_listing(
            request, len(links), lambda: _listed(links, limit.take(ordered_names(request, links)))
        )

    crawl = Crawl(request.service.owners, *ids, leaves=False, ended=limit.reached)
    return await respond_records(request, "links", crawl, to_json, around)


def _browsable(request: Request, id: str, title: str, link: Record) -> Record:
    listed = listed_link_json(title, link)
    if link["class"] == HARD:
        collection = collection_of(link["id"])
        listed |= {"collection": collection, "target": href(request, f"/{collection}/{link['id']}")}
    return listed | {"href": href(request, f"/groups/{id}/links/{title}")}


def _listed(links: Record, titles: Sequence[str]) -> list[Record]:
    return [listed_link_json(title, links[title]) for title in titles]
