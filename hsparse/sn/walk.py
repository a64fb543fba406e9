"""Walking a domain's groups by their hard links: breadth first, one read a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hsparse.errors import ErrorKind
from hsparse.model.link import HARD
from hsparse.model.objid import collection_of
from hsparse.sn.owners import Owners
from hsparse.wire.message import Outcome, Record

READS_AT_ONCE = 500
"""Records asked for in one message, so that neither it nor its reply grows with the domain."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object that was met: a path it has, and its record if it was read."""

    id: str
    path: str
    record: Record | None


async def walk(owners: Owners, start: str) -> list[Found]:
    """Return the objects reachable from group `start`, itself first, each once, in breadth-first order.

    Groups are read. Links to groups that are gone are passed over.
    """
    found: list[Found] = []
    paths = {start: "/"}
    level = [start]
    while level:
        following: list[str] = []
        records = await _read(owners, [id for id in level if collection_of(id) == "groups"])
        for id in level:
            record = records.get(id)
            if record is None and collection_of(id) == "groups":
                continue
            found.append(Found(id, paths[id], record))
            for title, target in hard_links(record or {}):
                if target not in paths:
                    paths[target] = join(paths[id], title)
                    following.append(target)
        level = following
    return found


async def paths_to(owners: Owners, start: str, target: str) -> list[str]:
    """Return the paths from group `start` to `target`, one for each hard link to it, shortest first."""
    if target == start:
        return ["/"]
    return [
        join(found.path, title)
        for found in await walk(owners, start)
        for title, id in hard_links(found.record or {})
        if id == target
    ]


def hard_links(record: Record) -> list[tuple[str, str]]:
    """Return a group's hard links as (title, id), ordered by title."""
    links = record.get("links") or {}
    return [(title, links[title]["id"]) for title in sorted(links) if links[title].get("class") == HARD]


def join(path: str, title: str) -> str:
    """Return the path of a group's member."""
    return path + title if path.endswith("/") else f"{path}/{title}"


async def read_many(owners: Owners, ids: Sequence[str]) -> list[Outcome]:
    """Read any number of records, in messages of a bounded size; one outcome an id, in order."""
    outcomes: list[Outcome] = []
    for first in range(0, len(ids), READS_AT_ONCE):
        outcomes += await owners.read(*ids[first : first + READS_AT_ONCE])
    return outcomes


async def _read(owners: Owners, ids: list[str]) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for id, outcome in zip(ids, await read_many(owners, ids), strict=True):
        if outcome.failure is not None and outcome.failure.kind in (ErrorKind.NOT_FOUND, ErrorKind.GONE):
            continue
        records[id] = outcome.unwrap()
    return records
