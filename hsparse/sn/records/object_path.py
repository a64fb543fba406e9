"""Objects by id and by path: checked ids, paths resolved link by link, and the paths of all groups of a domain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from hsparse.errors import MISSING_KINDS, BadRequest, Gone, LeftOut, NotFound, TooLarge
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of
from hsparse.model.link import HARD, SOFT, external_domain, external_file, left_out_reason
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.request import Domain, Request
from hsparse.wire.message import Record
from hsparse.wire.record_message import Outcome

T = TypeVar("T")
MAX_HOPS = 64
"""The most soft and external links followed for one path; more are considered a cycle."""
MAX_PATH = 32 * 1024
MAX_STEPS = 256
"""The maximum number of links followed to find the target of one soft link in a listing."""
STEPS_AT_ONCE = 64
"""Links followed without a pause for other requests, which is needed because reads of cached records never suspend."""
READS_AT_ONCE = 500
"""The maximum number of records in one message, so that messages and replies do not grow with the domain."""
MAX_GROUPS = 100_000
"""The most groups that `walk_groups` visits; objects that are reached only from further groups get no path."""


class PathSteps:
    """Counts the links that all paths of a request follow, and lets other requests run in between."""

    def __init__(self, request: Request) -> None:
        self._most = request.service.settings.max_path_steps
        self._count = 0
        self._awaited = 0

    async def take(self, count: int) -> None:
        """Count `count` links; raise `TooLarge` if the total exceeds `max_path_steps`."""
        self._count += count
        if self._count > self._most:
            raise TooLarge(
                f"The paths lead through more than {self._most} links, the limit (max_path_steps); ask for fewer paths."
            )
        if self._count - self._awaited >= STEPS_AT_ONCE:
            self._awaited = self._count
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The object at a path, and its domain; `away` is its path in that domain if an external link led to the domain."""

    domain: Domain
    id: str
    away: str | None = None


async def resolve_object(
    request: Request, domain: Domain, h5path: str, start: str | None = None
) -> tuple[ResolvedPath, Record]:
    """Resolve `h5path` with the request's parameters; return a pair: the resolved path, and the object's record.

    A relative path starts at the group `start`, else `parent_id` or `grpid`, else the root group. Soft and external
    links are followed only with `follow_soft_links` and `follow_external_links`; otherwise such a link raises
    `BadRequest`. `NotFound` names the missing title, or the domain that an external link leads to.
    """
    place = await resolve_path(request, domain, h5path, start)
    return place, await request.current(await request.service.owners.record(place.id))


async def resolve_path(
    request: Request,
    domain: Domain,
    h5path: str,
    start: str | None = None,
    steps: PathSteps | None = None,
) -> ResolvedPath:
    """Resolve `h5path` as `resolve_object` does, without reading the object, which may not exist.

    Callers that resolve several paths pass a common `steps`.
    """
    start = start or request.arg("parent_id") or request.arg("grpid")
    place = ResolvedPath(domain, domain.member(start, "groups") if start else domain.root_group)
    return await _Path(request, steps or PathSteps(request)).follow(place, h5path)


class _Path:
    """The resolution of one path; it counts the soft and external links that it follows."""

    def __init__(self, request: Request, steps: PathSteps) -> None:
        self._request = request
        self._steps = steps
        self._soft = request.flag("follow_soft_links")
        self._external = request.flag("follow_external_links")
        self._hops = 0

    async def follow(self, place: ResolvedPath, h5path: str) -> ResolvedPath:
        if len(h5path) > MAX_PATH:
            raise BadRequest(f"The path has {len(h5path)} characters; the limit is {MAX_PATH}.")
        if h5path.startswith("/"):
            place = replace(place, id=place.domain.root_group, away=None if place.away is None else "/")
        titles = h5path.split("/")
        await self._steps.take(len(titles))
        for title in titles:
            if title not in ("", "."):
                place = await self._step(place, title, h5path)
        return place

    async def _step(self, place: ResolvedPath, title: str, h5path: str) -> ResolvedPath:
        if collection_of(place.id) != "groups":
            raise NotFound(f"There is no {title!r} on the path {h5path!r}: {place.id} is not a group.")
        record = await self._request.service.owners.record(place.id)
        link = (record.get("links") or {}).get(title)
        if link is None:
            raise NotFound(f"There is no link {title!r} on the path {h5path!r}.")
        if link["class"] == HARD:
            away = None if place.away is None else join_path(place.away, title)
            return ResolvedPath(place.domain, link["id"], away)
        if why := left_out_reason(link):
            raise LeftOut(f"{title!r} is left out of {place.domain.path}: {why}")
        self._hops += 1
        if self._hops > MAX_HOPS:
            raise NotFound(
                f"The path {h5path!r} needs more than {MAX_HOPS} links: check whether its links form a cycle."
            )
        if link["class"] == SOFT:
            if not self._soft:
                raise BadRequest(
                    f"{title!r} on the path {h5path!r} is a soft link; follow it by follow_soft_links=1."
                )
            return await self.follow(place, link["h5path"])
        if not self._external:
            raise BadRequest(f"{title!r} is an external link; follow it by follow_external_links=1.")
        return await self._enter(place.domain, link)

    async def _enter(self, linking: Domain, link: Record) -> ResolvedPath:
        """Continue in the domain that an external link leads to; the principal must have the right to read it."""
        service = self._request.service
        text = external_domain(external_file(link), linking.path, service.settings.bucket)
        try:
            path = normal_path(service, text)
            domain = await self._request.find(path, Right.READ, service=service)
            root = domain.root_group
        except (BadRequest, NotFound, Gone) as error:
            raise NotFound(f"An external link in {linking.path} leads to {text}: {error.message}") from error
        return await self.follow(ResolvedPath(domain, root, "/"), link["h5path"])


async def walk_groups(owners: Owners, start: str) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield the path and record of each group reachable by hard links from the group `start`, breadth first.

    Each group is yielded once, `start` first, at most `MAX_GROUPS` in total. Links to deleted groups are skipped.
    """
    met = {start}
    level = [("/", start)]
    while level:
        following: list[tuple[str, str]] = []
        async with aclosing(read_each(owners, level)) as found:
            async for path, outcome in found:
                if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
                    continue
                record = outcome.unwrap()
                yield path, record
                for title, target in hard_links(record):
                    if collection_of(target) == "groups" and target not in met and len(met) < MAX_GROUPS:
                        met.add(target)
                        following.append((join_path(path, title), target))
        level = following


async def paths_to(owners: Owners, start: str, target: str) -> list[str]:
    """Return the paths from group `start` to `target`, one for each hard link to `target`, shortest first."""
    if target == start:
        return ["/"]
    groups = walk_groups(owners, start)
    async with aclosing(groups):
        return [
            join_path(path, title)
            async for path, record in groups
            for title, id in hard_links(record)
            if id == target
        ]


def hard_links(record: Record) -> list[tuple[str, str]]:
    """Return a group's hard links as (title, id), ordered by title."""
    links = record.get("links") or {}
    return [(title, links[title]["id"]) for title in sorted(links) if links[title].get("class") == HARD]


def left_out_links(record: Record) -> dict[str, str]:
    """Return a dict that maps the title of each link to an object that was not imported to the reason."""
    links = record.get("links") or {}
    return {title: why for title in sorted(links) if (why := left_out_reason(links[title]))}


async def object_links(owners: Owners, group: Record) -> list[tuple[str, str]]:
    """Return a group's hard links, and its soft links to objects of the domain, as (title, id), ordered by title."""
    found, links = hard_links(group), group.get("links") or {}
    for title, link in links.items():
        if link.get("class") == SOFT:
            id = await _soft_target(owners, group, link["h5path"])
            found += [] if id is None else [(title, id)]
    return sorted(found)


async def _soft_target(owners: Owners, group: Record, h5path: str) -> str | None:
    """Return the id at a path from a group, or None if it is not in the domain or takes more than `MAX_STEPS` links."""
    at: str = group["root"] if h5path.startswith("/") else group["id"]
    titles = [title for title in h5path.split("/")[::-1] if title not in ("", ".")]
    for step in range(MAX_STEPS):
        if step % STEPS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if not titles or collection_of(at) != "groups":
            return None if titles else at
        outcome = (await owners.read(at))[0]
        if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            return None
        link = (outcome.unwrap().get("links") or {}).get(titles.pop(), {})
        if link.get("class") == HARD:
            at = link["id"]
        elif link.get("class") == SOFT:
            at = group["root"] if link["h5path"].startswith("/") else at
            titles += [title for title in link["h5path"].split("/")[::-1] if title not in ("", ".")]
        else:
            return None
    return None


def join_path(path: str, title: str) -> str:
    """Return the path of a group's member."""
    return path + title if path.endswith("/") else f"{path}/{title}"


async def read_each(
    owners: Owners, named: Sequence[tuple[T, str]]
) -> AsyncGenerator[tuple[T, Outcome], None]:
    """Read any number of records, a bounded number and size at a time.

    `named` has pairs of a caller's value and an id. Yields each value with the outcome of its id, in order.
    """
    for start in range(0, len(named), READS_AT_ONCE):
        some = named[start : start + READS_AT_ONCE]
        async with aclosing(owners.read_parts([id for _, id in some])) as parts:
            async for first, outcomes in parts:
                for (meant, _), outcome in zip(some[first:], outcomes, strict=False):
                    yield meant, outcome


async def read_records(owners: Owners, ids: Sequence[str]) -> list[Outcome]:
    """Read any number of records, in messages of a bounded size; return an outcome for each id, in order."""
    outcomes: list[Outcome] = []
    for first in range(0, len(ids), READS_AT_ONCE):
        outcomes += await owners.read(*ids[first : first + READS_AT_ONCE])
    return outcomes
