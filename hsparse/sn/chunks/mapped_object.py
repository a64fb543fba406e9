"""The groups and datasets of a domain by path, as maps list them, and a check that references can describe them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from hsparse.errors import MISSING_KINDS, ErrorKind, Unsupported
from hsparse.format.hdf5.messages.file_type import file_type, is_written_as_stored
from hsparse.model.ids import collection_of
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import join_path, object_links, read_each, walk_groups
from hsparse.wire.message import Record

REPORTED_KINDS = (
    ErrorKind.BAD_REQUEST,
    ErrorKind.FORBIDDEN,
    ErrorKind.NOT_FOUND,
    ErrorKind.GONE,
    ErrorKind.CONFLICT,
    ErrorKind.TOO_LARGE,
    ErrorKind.UNSUPPORTED,
)
"""Errors of a dataset that a domain's map reports in its place."""


@dataclass(frozen=True, slots=True)
class MappedObject:
    """A group or dataset at a path; `first` is the first path of the object."""

    path: str
    record: Record
    first: str

    @property
    def is_dataset(self) -> bool:
        return collection_of(self.record["id"]) == "datasets"


async def mapped_objects(owners: Owners, root: str) -> AsyncGenerator[MappedObject, None]:
    """Yield the groups reached by hard links, each once and before its datasets, and the datasets of each link.

    Soft links to datasets of the domain count, too; external ones are not followed.
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
    """Yield the groups of `mapped_objects`, each before the groups inside it."""
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
    """Return the names in a path, none for the root."""
    return tuple(part for part in path.split("/") if part)


def check_referable(dataset: Dataset, reader: str, *, transcoded: bool) -> None:
    """Raise `Unsupported` for data that references of `reader` cannot describe, and name an alternative.

    `transcoded`: the references are to chunks that are converted for the file of the domain, to dense ones.
    """
    if dataset.spec.sparse and not transcoded:
        raise Unsupported(
            f"{dataset.id} is sparse, which {reader} is not: read the map in JSON, or take that of the stock file "
            "(addresses=file)."
        )
    if not dataset.arrays.is_exact:
        raise Unsupported(f"{dataset.id} has elements of variable length, which {reader} does not refer to.")
    if transcoded and not is_written_as_stored(file_type(dataset.spec.datatype.item)):
        raise Unsupported(
            f"{dataset.id} has references, which a file has as addresses, or gaps or blanks: read values."
        )
    if dataset.spec.arange:
        raise Unsupported(f"{dataset.id} has an initializer: what was not written is no one fill value.")
