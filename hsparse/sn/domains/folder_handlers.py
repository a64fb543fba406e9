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
from hsparse.sn.context import Context, Domain
from hsparse.sn.domains.attribute_query import AttributeQuery, parse_attribute_query
from hsparse.sn.http.response import Href, encode_json, href, hrefs
from hsparse.sn.http.stream import NO_HEADERS
from hsparse.sn.records.access import find_allowed
from hsparse.sn.records.bulk_listing import respond_parts, wrap_items
from hsparse.sn.records.listing import name_matcher, offload_listing
from hsparse.sn.records.object_path import read_each, read_records
from hsparse.sn.records.second_names import with_first_names
from hsparse.sn.statistics import Statistics, summary_json
from hsparse.wire.message import Record
from hsparse.wire.record_message import ListKeys

KEYS_AT_ONCE = 1000
MATCHED_AT_ONCE = 50
"""Domains that a query is compared with before other requests run."""
OBJECTS = "db/"
"""The prefix of object keys in the store, which is no folder."""


async def get_domains(context: Context) -> web.StreamResponse:
    """List the domains and folders in a folder that the principal may read."""
    path = context.path or "/"
    await find_allowed(context.service, path, context.principal, Right.READ)
    return await respond_folder(context, path, hrefs(context, self="/domains"))


async def respond_folder(
    context: Context, path: str, links: list[Href], headers: Mapping[str, str] = NO_HEADERS
) -> web.StreamResponse:
    """Answer with the content of a folder of any size."""

    async def items() -> AsyncGenerator[bytes, None]:
        pages = _pages(context, path)
        async with aclosing(pages):
            async for page in pages:
                for entry in page:
                    yield encode_json(entry)

    parts = wrap_items("domains", items(), {"hrefs": links}, b"[]")
    return await respond_parts(context, parts, headers=headers)


async def _pages(context: Context, path: str) -> AsyncGenerator[list[Record], None]:
    """Yield pages of the direct members of folder `path`, by name, as `Marker`, `Limit`, `pattern` and `query` select.

    `Marker` is a path, or a name in the folder; the listing continues after it, whether it exists or not.
    """
    query = parse_attribute_query(text) if (text := context.arg("query")) is not None else None
    matches = name_matcher(context.arg("pattern"))
    limit = context.number("Limit")
    folder = path.rstrip("/") + "/"
    marker = context.arg("Marker") or ""
    if marker and not marker.startswith("/"):
        marker = folder + marker
    count = 0
    after = f"{marker[1:]}/" if marker else ""
    while True:
        listing = await context.service.owners.ask_any(
            ListKeys(folder[1:], delimiter=True, start_after=after, limit=KEYS_AT_ONCE)
        )
        paths = [f"/{prefix[:-1]}" for prefix in listing.prefixes if prefix != OBJECTS and prefix > after]
        chosen = filter(lambda one: matches(one.rpartition("/")[2]), paths)
        paths = await offload_listing(context, len(paths), partial(list, chosen))
        page = await _matching_domains(context, paths, query, limit - count if limit else None)
        count += len(page)
        yield page
        after = max((*listing.prefixes, *listing.keys), default="")
        if (limit and count >= limit) or not listing.more or not after:
            return


async def _matching_domains(
    context: Context, paths: list[str], query: AttributeQuery | None, limit: int | None
) -> list[Record]:
    """Return the domains at `paths` that exist and match the query, at most `limit`.

    What cannot be read is shown without a query, by its name alone.
    """
    domains: list[Domain] = []
    unreadable: dict[str, str] = {}
    for path, outcome in zip(paths, await read_records(context.service.owners, paths), strict=True):
        if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            continue  # a key below, without a domain record
        if outcome.failure is not None and outcome.failure.kind in UNREADABLE_KINDS:
            unreadable[path] = outcome.failure.kind
            domains.append(Domain(path, {}))
        else:
            domains.append(Domain(path, outcome.unwrap()))
    domains = await with_first_names(context.service.owners, domains, (*MISSING_KINDS, *UNREADABLE_KINDS))
    if query is not None:
        domains = await _matching(context, domains, query)
    shown = domains[:limit]
    entries = await gather_all([_entry(context, domain) for domain in shown])
    for domain, entry in zip(shown, entries, strict=True):
        if domain.path in unreadable:
            # Clients of HSDS need an owner and a time.
            entry |= {"class": "domain", "owner": "", "lastModified": 0.0, "error": unreadable[domain.path]}
    return entries


async def _matching(context: Context, domains: list[Domain], query: AttributeQuery) -> list[Domain]:
    """Return the domains with a root group whose attributes match the query; folders have no attributes.

    Domains that the principal may not read never match, as this would disclose their attributes one by one.
    """
    readable = [(domain, domain.root) for domain in domains if domain.root and _may_read(context, domain)]
    found: list[Domain] = []
    async with aclosing(read_each(context.service.owners, readable)) as roots:
        matched = 0
        async for domain, root in roots:
            if root.failure is None and query.matches(root.unwrap().get("attributes") or {}):
                found.append(domain)
            matched += 1
            if matched % MATCHED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


def _may_read(context: Context, domain: Domain) -> bool:
    return domain.allows(context.principal, Right.READ)


async def _entry(context: Context, domain: Domain) -> Record:
    record = domain.record
    # Whoever knows a root could name it as the root of another domain.
    entry: Record = {"root": domain.root} if domain.root is not None and _may_read(context, domain) else {}
    entry["class"] = "folder" if domain.root is None else "domain"
    entry |= {key: record[key] for key in ("owner", "created", "lastModified") if key in record}
    if domain.root is not None and context.flag("verbose") and _may_read(context, domain):
        summary = await context.service.component(Statistics).of_domain(domain.root, lasting=False)
        entry |= summary_json(summary, entry.get("lastModified", 0))
    entry["name"] = domain.path
    entry["hrefs"] = [{"rel": "domain", "href": href(context, "/", domain=domain.path)}]
    return entry
