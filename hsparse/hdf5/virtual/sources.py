"""The datasets that a virtual dataset is made of: found by name for the reader of a request, with the reader's rights.

A name leads as an external link does. A source that is virtual itself has sources beside its own domain; how they led
to each other is the trail, by which loops are refused.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hsparse.compute import gather_each
from hsparse.errors import BadRequest, Conflict, Gone, NotFound
from hsparse.hdf5.format.parse.virtual_mapping import THIS_FILE
from hsparse.hdf5.virtual.layouts import mapped
from hsparse.model.ids import collection_of
from hsparse.model.layout import is_signed
from hsparse.model.link import EXTERNAL, HARD, external_file
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import Domain, FileRights
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import Outcome

MAX_NESTED = 16
"""Virtual datasets that are sources of each other."""
MAX_LINKS = 64
"""Soft and external links on the way to a source."""
AT_ONCE = 32
IN_STEP = 256
"""Sources that are looked for step by step together."""
PARTS_AT_ONCE = 4
Name = tuple[str, str]
"""The names of a domain and of a dataset in it."""


@dataclass(frozen=True, slots=True)
class NestedRights:
    """The rights of a reader, for a virtual dataset in the domain at `beside`, to which `trail` has led."""

    rights: FileRights
    beside: str
    trail: tuple[tuple[str, str], ...] = ()
    """The id of each, and how it is named."""

    @property
    def owners(self) -> Owners:
        return self.rights.owners

    def owners_of(self, uri: str) -> tuple[Owners, str, str]:
        return self.rights.owners_of(uri)

    async def require(self, *uris: str) -> None:
        await self.rights.require(*uris)

    async def domain(self, name: str, beside: str) -> tuple[Service, Domain]:
        return await self.rights.domain(name, beside)


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset, and who owns what is in its domain."""

    owners: Owners
    dataset: Dataset


@dataclass(frozen=True, slots=True)
class _Place:
    """A group or another object of a domain at `path`; `owners` are those of its bucket."""

    owners: Owners
    path: str
    root: str
    id: str


_Asked: TypeAlias = _Place | tuple[str, str]
"""What a walk to a source needs next: the record of a place, or the domain of that name beside another one."""
_Found: TypeAlias = tuple[_Place, Outcome] | None
Walk: TypeAlias = Generator[_Asked, Any, _Found]


class Sources:
    """The sources of one virtual dataset, each looked for once."""

    def __init__(self, owners: Owners, record: Record, rights: FileRights | None) -> None:
        if rights is None:
            raise BadRequest(f"{record['id']} is virtual: it can be read by requests for its values only.")
        self.id = record["id"]
        self._owners = owners
        self._root = record["root"]
        self._rights = rights if isinstance(rights, NestedRights) else NestedRights(rights, rights.beside)
        self._known: dict[Name, Source | None] = {}
        self._domains: dict[str, _Place | None] = {}
        if len(self._rights.trail) > MAX_NESTED:
            raise BadRequest(
                f"More than {MAX_NESTED} virtual datasets are sources of each other: "
                f"{_shown_trail(self._rights.trail)}."
            )

    async def find_all(self, names: Iterable[Name]) -> dict[Name, Source | None]:
        """Return the source of each name, None for one that is missing; `Forbidden` without the right to read it."""
        wanted = list(dict.fromkeys(names))
        files = [file for file in dict.fromkeys(file for file, _ in wanted) if file not in self._domains]
        domains = await gather_each(self._domain, files, AT_ONCE)
        self._domains |= zip(files, domains, strict=True)
        unknown = [name for name in wanted if name not in self._known]
        parts = [unknown[first : first + IN_STEP] for first in range(0, len(unknown), IN_STEP)]
        await gather_each(self._find_some, parts, PARTS_AT_ONCE)
        return {name: self._known[name] for name in wanted}

    def has(self, name: Name) -> bool:
        """Say whether a source that was looked for is there."""
        return self._known.get(name) is not None

    async def dims(self, name: Name) -> tuple[int, ...] | None:
        """Return the extent of a source, None if it is missing."""
        source = (await self.find_all([name]))[name]
        return None if source is None else source.dataset.extent

    def away(self, name: Name) -> NotFound:
        """Return the error for a source that is missing."""
        return NotFound(
            f"The source {name[1]} in {self._shown(name[0])} of the virtual dataset {self.id} is not there: bring it "
            "back, or make the dataset with missing=fill."
        )

    def unfit(self, name: Name, why: str) -> Conflict:
        """Return the error for a source that is not what the mapping needs."""
        return Conflict(
            f"The source {name[1]} in {self._shown(name[0])} of the virtual dataset {self.id}: {why}"
        )

    def _shown(self, file: str) -> str:
        return self._rights.beside if file == THIS_FILE else file

    async def _domain(self, file: str) -> _Place | None:
        """Return the root group of the domain that a name leads to, None without one."""
        if file == THIS_FILE:
            return _Place(self._owners, self._rights.beside, self._root, self._root)
        return await self._entered(file, self._rights.beside)

    async def _entered(self, file: str, beside: str) -> _Place | None:
        try:
            service, domain = await self._rights.domain(file, beside)
        except (NotFound, Gone):
            return None
        if domain.root is None:
            return None
        return _Place(service.owners, domain.path, domain.root, domain.root)

    async def _find_some(self, names: Sequence[Name]) -> None:
        walks = [self._walk(name) for name in names]
        found = await gather_each(self._source, zip(names, await self._in_step(walks), strict=True), AT_ONCE)
        self._known |= zip(names, found, strict=True)

    async def _in_step(self, walks: Sequence[Walk]) -> list[_Found]:
        """Return what walks end with; what they all need next is read by one message to each owner."""
        found: list[_Found] = [None] * len(walks)
        answers: dict[int, Any] = dict.fromkeys(range(len(walks)))
        while answers:
            asked: dict[int, _Asked] = {}
            for number, answer in answers.items():
                try:
                    asked[number] = walks[number].send(answer)
                except StopIteration as end:
                    found[number] = end.value
            answers = await self._answers(asked)
        return found

    async def _answers(self, asked: Mapping[int, _Asked]) -> dict[int, Any]:
        """Return the domain or the record that each walk asks for."""
        names, ids = dict[tuple[str, str], None](), dict[Owners, dict[str, None]]()
        for one in asked.values():
            if isinstance(one, _Place):
                ids.setdefault(one.owners, {})[one.id] = None
            else:
                names[one] = None
        entered = await gather_each(lambda name: self._entered(*name), names, AT_ONCE)
        found: dict[Any, Any] = dict(zip(names, entered, strict=True))
        for owners, some in ids.items():
            found |= zip([(owners, id) for id in some], await owners.read(*some), strict=True)
        return {
            number: found[(one.owners, one.id) if isinstance(one, _Place) else one]
            for number, one in asked.items()
        }

    def _walk(self, name: Name) -> Walk:
        """Lead to a source; return where it is and its record, None without one."""
        place = self._domains[name[0]]
        found = None if place is None else (yield from self._followed(place, name[1], []))
        if found is None:
            return None
        if collection_of(found.id) != "datasets":
            raise self.unfit(name, "it is no dataset.")
        return found, (yield found)

    async def _source(self, item: tuple[Name, _Found]) -> Source | None:
        """Return what a walk has led to as a source."""
        name, walked = item
        if walked is None:
            return None
        found, outcome = walked
        if outcome.failure is not None:
            error = outcome.failure.error()
            if isinstance(error, NotFound | Gone):
                return None
            raise error
        own = (self.id, f"{self.id} in {self._rights.beside}")
        trail = (*self._rights.trail, own) if not self._rights.trail else self._rights.trail
        rights = NestedRights(
            self._rights.rights, found.path, (*trail, (found.id, f"{name[1]} in {found.path}"))
        )
        if found.id in dict(trail):
            raise BadRequest(f"A virtual dataset is a source of itself: {_shown_trail(rights.trail)}.")
        record = await current_record(found.owners, outcome.unwrap(), rights)
        if is_signed(record):
            raise self.unfit(
                name, "it has a lower bound, and mappings count from 0; write a copy without one."
            )
        try:
            return Source(found.owners, Dataset.of(record, rights))
        except BadRequest as error:
            raise self.unfit(name, error.message) from error

    def _followed(self, place: _Place, path: str, links: list[str]) -> Generator[_Asked, Any, _Place | None]:
        """Return what is at a path, whose links are followed, None if it leads to nothing."""
        if path.startswith("/"):
            place = replace(place, id=place.root)
        for title in path.split("/"):
            if title in ("", "."):
                continue
            if collection_of(place.id) != "groups":
                return None
            outcome = yield place
            link = (outcome.unwrap().get("links") or {}).get(title) if outcome.failure is None else None
            if link is None:
                return None
            if link["class"] == HARD:
                place = replace(place, id=link["id"])
                continue
            links.append(title)
            if len(links) > MAX_LINKS:
                return None
            into: _Place | None = place
            if link["class"] == EXTERNAL:
                into = yield external_file(link), place.path
            found = None if into is None else (yield from self._followed(into, link["h5path"], links))
            if found is None:
                return None
            place = found
        return place


def _shown_trail(trail: tuple[tuple[str, str], ...]) -> str:
    return " -> ".join(shown for _, shown in trail)


async def current_record(owners: Owners, record: Record, rights: FileRights) -> Record:
    """Return the record of a dataset with the extent that its sources, if it has any, give it now."""
    if not record.get(VIRTUAL_DATA, {}).get("grows"):
        return record
    found = await mapped(record, Sources(owners, record, rights).dims)
    return record | {"shape": record["shape"] | {"dims": list(found.dims)}}
