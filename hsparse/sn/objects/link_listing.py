"""Handlers that list the links of one or many groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from hsparse.errors import BadRequest
from hsparse.model.ids import collection_of
from hsparse.model.link import HARD, listed_link_json
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import Encoded, href, hrefs, respond_computed
from hsparse.sn.objects.link_handlers import KEYS
from hsparse.sn.records.crawl import Crawl, RecordReader, require_records
from hsparse.sn.records.listing import (
    ReplyLimit,
    encode_listing,
    listing_work,
    matching_names,
    missing_link,
    ordered_names,
    page_of,
    split_names,
)
from hsparse.sn.records.multi_object_request import (
    NamePlaces,
    stored_names,
)
from hsparse.sn.records.streamed_records import respond_records
from hsparse.sn.request import Request, respond
from hsparse.wire.message import Record


async def get_links(request: Request) -> web.StreamResponse:
    """List a group's links (only `titles` if given); `follow_links` lists all links of it and of the groups below."""
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
    """Answer with links of a group, or of each group in `grp_ids`; `follow_links` adds links of all groups below."""
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


def _of_group(request: Request, wanted: dict[str, NamePlaces | None]) -> Callable[[str, Record], Encoded]:
    """Return a function that returns the JSON of a group's links: all, or those in `wanted` that exist."""

    def to_json(id: str, group: Record) -> Encoded:
        links, places = group.get("links") or {}, wanted.get(id)

        def listed() -> list[Record]:
            titles = ordered_names(request, links) if places is None else stored_names(places, links)
            return _listed(links, matching_names(request, titles))

        return encode_listing(request, len(links if places is None else places), listed)

    return to_json


async def _reachable(request: Request, ids: Sequence[str], around: Record) -> web.StreamResponse:
    """Answer with the links of each group in `ids` and of all groups below; `Limit` applies to all links together."""
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
