"""The groups and datasets of a domain by their paths, for maps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from hsparse.errors import ErrorKind
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
            links = [link for link in hard_links(record) if collection_of(link[1]) == "datasets"]
            for start in range(0, len(links), READS_AT_ONCE):
                some = links[start : start + READS_AT_ONCE]
                outcomes = await owners.read(*(id for _, id in some))
                for (title, id), outcome in zip(some, outcomes, strict=True):
                    if outcome.failure is not None and outcome.failure.kind in (
                        ErrorKind.NOT_FOUND,
                        ErrorKind.GONE,
                    ):
                        continue
                    here = join(path, title)
                    yield Mapped(here, outcome.unwrap(), first.setdefault(id, here))
