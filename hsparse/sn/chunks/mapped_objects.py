"""The groups and datasets of a domain, each with its path, for the chunk map of a whole domain."""

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
    """Yield each group that hard links reach once, and after each group its datasets.

    A dataset is yielded once for each hard or soft link to it. External links are not followed.
    """
    first: dict[str, str] = {}
    groups = walk_groups(owners, root)
    async with aclosing(groups):
        async for path, record in groups:
            yield MappedObject(path, record, path)
            datasets = _datasets_of_group(owners, record)
            async with aclosing(datasets):
                async for title, dataset in datasets:
                    here = join_path(path, title)
                    yield MappedObject(here, dataset, first.setdefault(dataset["id"], here))


async def _datasets_of_group(owners: Owners, group: Record) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield pairs of a link's title and the dataset's record, for a group's hard and soft links to datasets."""
    links = [link for link in await object_links(owners, group) if collection_of(link[1]) == "datasets"]
    async with aclosing(read_each(owners, links)) as read:
        async for title, outcome in read:
            if outcome.failure is None or outcome.failure.kind not in MISSING_KINDS:
                yield title, outcome.unwrap()
