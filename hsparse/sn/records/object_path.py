"""Objects by id and by path: checked ids, paths resolved link by link, and the paths of all groups of a domain.

Patterns of names with `*`, `?` and `[a-z]`, as `fnmatch` has them, in a time that follows the length of the name.

A pattern is parts between its stars, each of a fixed length: the first begins the name, the last ends it, and each of
the others is looked for behind the one before, where the first place is as good as any.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import TypeVar

from hsparse.errors import MISSING_KINDS, BadRequest, Gone, NotFound, TooLarge
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of
from hsparse.model.link import HARD, SOFT, external_domain, external_file
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.domain_path import normal_path
from hsparse.sn.request import Domain, Request
from hsparse.wire.message import Record
from hsparse.wire.record_message import Outcome

T = TypeVar("T")
MAX_HOPS = 64
"""The most soft and external links followed for one path; more are taken for a cycle."""
MAX_PATH = 32 * 1024
MAX_STEPS = 256
"""The most links that the path of one soft link leads through in a listing."""
STEPS_AT_ONCE = 64
"""Links after which other requests run: reading cached records never waits."""
READS_AT_ONCE = 500
"""Records in one message, so that neither it nor its reply grows with the domain."""
MAX_GROUPS = 100_000
"""The most groups whose paths are remembered; objects below others get no path."""


class PathSteps:
    """Counts the links that the paths of a request lead through; other requests run in between."""

    def __init__(self, request: Request) -> None:
        self._most = request.service.settings.max_path_steps
        self._count = 0
        self._awaited = 0

    async def take(self, count: int) -> None:
        """Count that many; `TooLarge` if there are more than `max_path_steps` in all."""
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
    """The object at a path, and its domain; `away` is its path there if an external link led to it."""

    domain: Domain
    id: str
    away: str | None = None


async def resolve_object(
    request: Request, domain: Domain, h5path: str, start: str | None = None
) -> tuple[ResolvedPath, Record]:
    """Return the record at `h5path`, and where it is, for the request's own parameters.

    A relative path starts at group `start`, at `parent_id` or `grpid`, else at the root group. Soft and
    external links are followed with `follow_soft_links` and `follow_external_links`; otherwise one in the
    path is a `BadRequest`. `NotFound` names the missing title, or the domain that an external link leads to.
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
    """Resolve `h5path` as `resolve_object` does, without reading the object: it may not exist.

    `steps` counts for several paths.
    """
    start = start or request.arg("parent_id") or request.arg("grpid")
    place = ResolvedPath(domain, domain.member(start, "groups") if start else domain.root_group)
    return await _Path(request, steps or PathSteps(request)).follow(place, h5path)


class _Path:
    """The resolution of one path, which counts the soft and external links that it follows."""

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
        self._hops += 1
        if self._hops > MAX_HOPS:
            raise NotFound(
                f"The path {h5path!r} needs more than {MAX_HOPS} links followed; they may form a circle."
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
        """Continue in the domain that an external link leads to, where the principal must have the right to read."""
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
    """Yield path and record of each group reachable from group `start`, which comes first; each group once.

    Links to groups that are gone are passed over. After `MAX_GROUPS` it ends.
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
    """Return the paths from group `start` to `target`, one for each hard link to it, shortest first."""
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


async def object_links(owners: Owners, group: Record) -> list[tuple[str, str]]:
    """Return a group's links as (title, id), ordered by title: hard ones, and soft ones that lead to an object."""
    found, links = hard_links(group), group.get("links") or {}
    for title, link in links.items():
        if link.get("class") == SOFT:
            id = await _soft_target(owners, group, link["h5path"])
            found += [] if id is None else [(title, id)]
    return sorted(found)


async def _soft_target(owners: Owners, group: Record, h5path: str) -> str | None:
    """Return the id at a path from a group; None without one in the domain, or after `MAX_STEPS`."""
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
    """Read any number of records, a bounded number and size at a time; `named` has what each id stands for.

    Yields the outcomes with that, in order.
    """
    for start in range(0, len(named), READS_AT_ONCE):
        some = named[start : start + READS_AT_ONCE]
        async with aclosing(owners.read_parts([id for _, id in some])) as parts:
            async for first, outcomes in parts:
                for (meant, _), outcome in zip(some[first:], outcomes, strict=False):
                    yield meant, outcome


async def read_records(owners: Owners, ids: Sequence[str]) -> list[Outcome]:
    """Read any number of records, in messages of a bounded size; one outcome an id, in order."""
    outcomes: list[Outcome] = []
    for first in range(0, len(ids), READS_AT_ONCE):
        outcomes += await owners.read(*ids[first : first + READS_AT_ONCE])
    return outcomes


ELEMENT = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""A set in brackets, or one character."""
SPECIAL = re.compile(r"[?\[]")
END = re.compile(r"\\[zZ]$")
"""What `translate` ends an expression with."""
FEW = 32
"""Different elements of a part up to which places are found by bits: an expression tries each place by itself, which
takes long where a few elements come again and again."""


class NamePattern:
    """A pattern; `re.error` if a set of it is none."""

    def __init__(self, pattern: str) -> None:
        parts: list[list[str]] = [[]]
        for element in ELEMENT.findall(pattern):
            if element == "*":
                parts.append([])
            else:
                parts[-1].append(element)
        self._first, *others = [_Part(part) for part in parts]
        self._last = others.pop() if others else None
        self._middle = others
        self._shortest = sum(map(len, parts))

    def matches(self, name: str) -> bool:
        """Say whether the whole name matches."""
        if len(name) < self._shortest or not self._first.is_at(name, 0):
            return False
        if self._last is None:
            return len(name) == self._first.length
        end = len(name) - self._last.length
        if not self._last.is_at(name, end):
            return False
        at = self._first.length
        for part in self._middle:
            found = part.find(name, at, end)
            if found < 0:
                return False
            at = found + part.length
        return True


class _Part:
    """A part of a pattern without stars: text, or an expression that matches as many characters as it has elements."""

    def __init__(self, elements: list[str]) -> None:
        text = "".join(elements)
        self.length = len(elements)
        self._text = None if SPECIAL.search(text) else text
        self._expression = _expression(text)
        self._elements = [_Bits(element) for element in dict.fromkeys(elements)]
        order = {one.element: place for place, one in enumerate(self._elements)}
        self._order = [order[element] for element in elements]

    def is_at(self, name: str, at: int) -> bool:
        if self._text is not None:
            return name.startswith(self._text, at)
        return self._expression.match(name, at) is not None

    def find(self, name: str, start: int, end: int) -> int:
        """Return the first place within `start` to `end`; -1 without one."""
        if self._text is not None:
            return name.find(self._text, start, end)
        if len(self._elements) > FEW:
            found = self._expression.search(name, start, end)
            return -1 if found is None else found.start()
        return self._find_by_bits(name, start, end)

    def _find_by_bits(self, name: str, start: int, end: int) -> int:
        """Return the place for all elements at once: each has a number whose bits are the places where it matches."""
        text = name[start:end][::-1]
        if len(text) < self.length:
            return -1
        bits = [one.places(text) for one in self._elements]
        found = -1
        for place, which in enumerate(self._order):
            found &= bits[which] >> place
        return start + (found & -found).bit_length() - 1 if found else -1


class _Bits(dict[int, str]):
    """The digits that characters become: "1" where an element of a pattern matches."""

    def __init__(self, element: str) -> None:
        self.element = element
        self._expression = _expression(element)

    def __missing__(self, code: int) -> str:
        self[code] = "0" if self._expression.fullmatch(chr(code)) is None else "1"
        return self[code]

    def places(self, text: str) -> int:
        """Return a number whose bits, the lowest for the last character, say where the element matches."""
        return int(text.translate(self), 2)


def _expression(text: str) -> re.Pattern[str]:
    return re.compile(END.sub("", translate(text)))
