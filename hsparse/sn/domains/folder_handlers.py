"""Handler of `/domains`, and the listing of folders: their domains and folders, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial

from aiohttp import web

from hsparse.concurrency.gather import gather_all
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS
from hsparse.model.acl import Right
from hsparse.sn.domains.attribute_query import AttributeQuery, parse_attribute_query
from hsparse.sn.http.response import Href, encode_json, href, hrefs
from hsparse.sn.http.stream import NO_HEADERS
from hsparse.sn.records.access import find_allowed
from hsparse.sn.records.bulk_listing import respond_parts, wrap_items
from hsparse.sn.records.listing import name_matcher, offload_listing
from hsparse.sn.records.object_path import read_each, read_records
from hsparse.sn.records.second_names import with_first_names
from hsparse.sn.request import Domain, Request
from hsparse.sn.statistics import Statistics, summary_json
from hsparse.wire.message import Record
from hsparse.wire.record_message import ListKeys

KEYS_AT_ONCE = 1000
MATCHED_AT_ONCE = 50
"""Domains that a query is compared with before other requests run."""
OBJECTS = "db/"
"""The prefix of object keys in the store, which is no folder."""


async def get_domains(request: Request) -> web.StreamResponse:
    """List the domains and folders in a folder that the principal may read."""
    path = request.domain_path or "/"
    await find_allowed(request.service, path, request.principal, Right.READ)
    return await respond_folder(request, path, hrefs(request, self="/domains"))


async def respond_folder(
    request: Request, path: str, links: list[Href], headers: Mapping[str, str] = NO_HEADERS
) -> web.StreamResponse:
    """Answer with the content of a folder of any size."""

    async def items() -> AsyncGenerator[bytes, None]:
        pages = _pages(request, path)
        async with aclosing(pages):
            async for page in pages:
                for entry in page:
                    yield encode_json(entry)

    parts = wrap_items("domains", items(), {"hrefs": links}, b"[]")
    return await respond_parts(request, parts, headers=headers)


async def _pages(request: Request, path: str) -> AsyncGenerator[list[Record], None]:
    """Yield pages of the direct members of folder `path`, by name, as `Marker`, `Limit`, `pattern` and `query` select.

    `Marker` is a path, or a name in the folder; the listing continues after it, whether it exists or not.
    """
    query = parse_attribute_query(text) if (text := request.arg("query")) is not None else None
    matches = name_matcher(request.arg("pattern"))
    limit = request.number("Limit")
    folder = path.rstrip("/") + "/"
    marker = request.arg("Marker") or ""
    if marker and not marker.startswith("/"):
        marker = folder + marker
    count = 0
    after = f"{marker[1:]}/" if marker else ""
    while True:
        listing = await request.service.owners.ask_any(
            ListKeys(folder[1:], delimiter=True, start_after=after, limit=KEYS_AT_ONCE)
        )
        paths = [f"/{prefix[:-1]}" for prefix in listing.prefixes if prefix != OBJECTS and prefix > after]
        chosen = filter(lambda one: matches(one.rpartition("/")[2]), paths)
        paths = await offload_listing(request, len(paths), partial(list, chosen))
        page = await _matching_domains(request, paths, query, limit - count if limit else None)
        count += len(page)
        yield page
        after = max((*listing.prefixes, *listing.keys), default="")
        if (limit and count >= limit) or not listing.more or not after:
            return


async def _matching_domains(
    request: Request, paths: list[str], query: AttributeQuery | None, limit: int | None
) -> list[Record]:
    """Return the domains at `paths` that exist and match the query, at most `limit`.

    What cannot be read is shown without a query, by its name alone.
    """
    domains: list[Domain] = []
    unreadable: dict[str, str] = {}
    for path, outcome in zip(paths, await read_records(request.service.owners, paths), strict=True):
        if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            continue  # a key below, without a domain record
        if outcome.failure is not None and outcome.failure.kind in UNREADABLE_KINDS:
            unreadable[path] = outcome.failure.kind
            domains.append(Domain(path, {}))
        else:
            domains.append(Domain(path, outcome.unwrap()))
    domains = await with_first_names(request.service.owners, domains, (*MISSING_KINDS, *UNREADABLE_KINDS))
    if query is not None:
        domains = await _matching(request, domains, query)
    shown = domains[:limit]
    entries = await gather_all([_entry(request, domain) for domain in shown])
    for domain, entry in zip(shown, entries, strict=True):
        if domain.path in unreadable:
            # Clients of HSDS need an owner and a time.
            entry |= {"class": "domain", "owner": "", "lastModified": 0.0, "error": unreadable[domain.path]}
    return entries


async def _matching(request: Request, domains: list[Domain], query: AttributeQuery) -> list[Domain]:
    """Return the domains with a root group whose attributes match the query; folders have no attributes.

    Domains that the principal may not read never match, as this would disclose their attributes one by one.
    """
    readable = [(domain, domain.root) for domain in domains if domain.root and _may_read(request, domain)]
    found: list[Domain] = []
    async with aclosing(read_each(request.service.owners, readable)) as roots:
        matched = 0
        async for domain, root in roots:
            if root.failure is None and query.matches(root.unwrap().get("attributes") or {}):
                found.append(domain)
            matched += 1
            if matched % MATCHED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


def _may_read(request: Request, domain: Domain) -> bool:
    return domain.allows(request.principal, Right.READ)


async def _entry(request: Request, domain: Domain) -> Record:
    record = domain.record
    # Whoever knows a root could name it as the root of another domain.
    entry: Record = {"root": domain.root} if domain.root is not None and _may_read(request, domain) else {}
    entry["class"] = "folder" if domain.root is None else "domain"
    entry |= {key: record[key] for key in ("owner", "created", "lastModified") if key in record}
    if domain.root is not None and request.flag("verbose") and _may_read(request, domain):
        summary = await request.service.component(Statistics).of_domain(domain.root, lasting=False)
        entry |= summary_json(summary, entry.get("lastModified", 0))
    entry["name"] = domain.path
    entry["hrefs"] = [{"rel": "domain", "href": href(request, "/", domain=domain.path)}]
    return entry
