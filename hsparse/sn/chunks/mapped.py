"""The groups and datasets of a domain by their paths, for maps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from hsparse.errors import NOT_THERE, ErrorKind
from hsparse.model.objid import collection_of
from hsparse.sn.objects.walk import READS_AT_ONCE, hard_links, join, walk
from hsparse.sn.owners import Owners
from hsparse.wire.message import Record

TOLD = (
    ErrorKind.BAD_REQUEST,
    ErrorKind.FORBIDDEN,
    ErrorKind.NOT_FOUND,
    ErrorKind.GONE,
    ErrorKind.CONFLICT,
    ErrorKind.TOO_LARGE,
    ErrorKind.UNSUPPORTED,
)
"""What is wrong with one dataset is told in its place in a domain's map."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A group or dataset at a path; `first` is the path at which it came first."""

    path: str
    record: Record
    first: str

    @property
    def is_dataset(self) -> bool:
        return collection_of(self.record["id"]) == "datasets"


async def mapped_objects(owners: Owners, root: str) -> AsyncGenerator[Mapped, None]:
    """Yield the groups that hard links lead to, each once and before its datasets, and datasets by each link.

    Soft and external links are not followed.
    """
    first: dict[str, str] = {}
    groups = walk(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            yield Mapped(path, record, path)
            datasets = linked_datasets(owners, record)
            async with aclosing(datasets):
                async for title, dataset in datasets:
                    here = join(path, title)
                    yield Mapped(here, dataset, first.setdefault(dataset["id"], here))


async def nested_groups(owners: Owners, root: str) -> AsyncGenerator[Mapped, None]:
    """Yield the groups of `mapped_objects`, each right before those inside it."""
    found: dict[tuple[str, ...], str] = {}
    groups = walk(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            found[components(path)] = record["id"]
    order = sorted(found)
    for start in range(0, len(order), READS_AT_ONCE):
        some = order[start : start + READS_AT_ONCE]
        for parts, outcome in zip(some, await owners.read(*(found[one] for one in some)), strict=True):
            if outcome.failure is None or outcome.failure.kind not in NOT_THERE:
                path = "/" + "/".join(parts)
                yield Mapped(path, outcome.unwrap(), path)


async def linked_datasets(owners: Owners, group: Record) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield titles and records of the datasets that a group's hard links lead to, as far as they are there."""
    links = [link for link in hard_links(group) if collection_of(link[1]) == "datasets"]
    for start in range(0, len(links), READS_AT_ONCE):
        some = links[start : start + READS_AT_ONCE]
        for (title, _), outcome in zip(some, await owners.read(*(id for _, id in some)), strict=True):
            if outcome.failure is None or outcome.failure.kind not in NOT_THERE:
                yield title, outcome.unwrap()


def components(path: str) -> tuple[str, ...]:
    """Return the names in a path, none of the root's."""
    return tuple(part for part in path.split("/") if part)
