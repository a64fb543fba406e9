"""Walking a domain's groups by their hard links, with the paths that lead to them: breadth first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from hsparse.errors import NOT_THERE
from hsparse.model.link import HARD
from hsparse.model.objid import collection_of
from hsparse.sn.owners import Owners
from hsparse.wire.message import Record
from hsparse.wire.record_message import Outcome

READS_AT_ONCE = 500
"""Records asked for in one message, so that neither it nor its reply grows with the domain."""
MAX_GROUPS = 100_000
"""Groups whose paths are remembered; what can only be reached by others has no path."""


async def walk(owners: Owners, start: str) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield the groups reachable from group `start`, itself first, each once: a path it has, and its record.

    Links to groups that are gone are passed over. After `MAX_GROUPS` it ends.
    """
    paths = {start: "/"}
    level = [start]
    while level:
        following: list[str] = []
        for first in range(0, len(level), READS_AT_ONCE):
            some = level[first : first + READS_AT_ONCE]
            for id, outcome in zip(some, await owners.read(*some), strict=True):
                if outcome.failure is not None and outcome.failure.kind in NOT_THERE:
                    continue
                record = outcome.unwrap()
                yield paths[id], record
                for title, target in hard_links(record):
                    if collection_of(target) == "groups" and target not in paths and len(paths) < MAX_GROUPS:
                        paths[target] = join(paths[id], title)
                        following.append(target)
        level = following


async def paths_to(owners: Owners, start: str, target: str) -> list[str]:
    """Return the paths from group `start` to `target`, one for each hard link to it, shortest first."""
    if target == start:
        return ["/"]
    groups = walk(owners, start)
    async with aclosing(groups):
        return [
            join(path, title)
            async for path, record in groups
            for title, id in hard_links(record)
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
