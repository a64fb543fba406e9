"""The groups and datasets of a domain by path, as chunk maps of domains list them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from hsparse.errors import MISSING_KINDS
from hsparse.model.ids import collection_of
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.object_path import join_path, object_links, read_each, walk_groups
from hsparse.wire.message import Record


@dataclass(frozen=True, slots=True)
class MappedObject:
    """A group or dataset at a path; `first` is the first path at which the object was found."""

    path: str
    record: Record
    first: str

    @property
    def is_dataset(self) -> bool:
        return collection_of(self.record["id"]) == "datasets"


async def mapped_objects(owners: Owners, root: str) -> AsyncGenerator[MappedObject, None]:
    """Yield the groups reached by hard links, each once and before its datasets, and each link's dataset.

    Soft links to datasets of the domain are followed, external links are not.
    """
    first: dict[str, str] = {}
    groups = walk_groups(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            yield MappedObject(path, record, path)
            datasets = datasets_of_group(owners, record)
            async with aclosing(datasets):
                async for title, dataset in datasets:
                    here = join_path(path, title)
                    yield MappedObject(here, dataset, first.setdefault(dataset["id"], here))


async def nested_groups(owners: Owners, root: str) -> AsyncGenerator[MappedObject, None]:
    """Yield the groups of `mapped_objects` sorted by path, so that each group precedes the groups inside of it."""
    found: dict[tuple[str, ...], str] = {}
    groups = walk_groups(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            found[path_components(path)] = record["id"]
    places = [("/" + "/".join(parts), found[parts]) for parts in sorted(found)]
    async with aclosing(read_each(owners, places)) as read:
        async for path, outcome in read:
            if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS:
                yield MappedObject(path, outcome.unwrap(), path)


async def datasets_of_group(owners: Owners, group: Record) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield titles and records of the datasets that a group's hard and soft links lead to."""
    links = [link for link in await object_links(owners, group) if collection_of(link[1]) == "datasets"]
    async with aclosing(read_each(owners, links)) as read:
        async for title, outcome in read:
            if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS:
                yield title, outcome.unwrap()


def path_components(path: str) -> tuple[str, ...]:
    """Return the names in a path, () for the root."""
    return tuple(part for part in path.split("/") if part)
