"""Find the source datasets of a virtual dataset by name, with the access rights of the request's user.

Names are resolved like external links. A source may be virtual itself; its sources are resolved relative to its own
domain. The trail is the chain of virtual datasets that led to a source; a cycle in it is refused. A walk is a
generator that follows the links of one source's path and yields its next request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hsparse.concurrency.gathering import gather_each, with_pauses
from hsparse.errors import MISSING_KINDS, BadRequest, Conflict, Gone, LeftOut, NotFound
from hsparse.hdf5.format.parse.virtual_mapping import THIS_FILE
from hsparse.hdf5.virtual_dataset.layouts import mapped
from hsparse.model.ids import collection_of
from hsparse.model.layout import is_signed
from hsparse.model.link import EXTERNAL, HARD, external_file, left_out_reason
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Domain, FileRights
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import Outcome

MAX_NESTED = 16
"""Most levels of virtual datasets whose sources are virtual datasets."""
MAX_LINKS = 64
"""Most soft and external links on the path to a source."""
AT_ONCE = 32
IN_STEP = 256
"""Number of sources that are looked up in lockstep, so that each step needs one message per owner."""
WALKED_AT_ONCE = 64
"""Number of walks that advance one step before other requests may run."""
PARTS_AT_ONCE = 4
Name = tuple[str, str]
"""The name of a domain, and the path of a dataset in it."""


@dataclass(frozen=True, slots=True)
class NestedRights:
    """The rights of a reader, for a virtual dataset in the domain `beside` that was reached by `trail`."""

    rights: FileRights
    beside: str
    trail: tuple[tuple[str, str], ...] = ()
    """Id and displayed name of each virtual dataset that led to this one."""

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
class SourceDataset:
    """A source dataset, and the owners of the objects in its domain."""

    owners: Owners
    dataset: StoredDataset


@dataclass(frozen=True, slots=True)
class _SourcePlace:
    """An object in the domain `path` with root group `root`; `owners` are the owners of the domain's bucket."""

    owners: Owners
    path: str
    root: str
    id: str


_Asked: TypeAlias = _SourcePlace | tuple[str, str]
"""The next request of a walk: an object's record, or the domain of (name, domain that the name is relative to)."""
_Found: TypeAlias = tuple[_SourcePlace, Outcome] | None
Walk: TypeAlias = Generator[_Asked, Any, _Found]


class Sources:
    """The sources of one virtual dataset, each looked up once."""

    def __init__(self, owners: Owners, record: Record, rights: FileRights | None) -> None:
        if rights is None:
            raise BadRequest(f"{record['id']} is virtual and cannot be read here: request its values.")
        self.id = record["id"]
        self._owners = owners
        self._root = record["root"]
        self._rights = rights if isinstance(rights, NestedRights) else NestedRights(rights, rights.beside)
        self._known: dict[Name, SourceDataset | None] = {}
        self._domains: dict[str, _SourcePlace | None] = {}
        if len(self._rights.trail) > MAX_NESTED:
            raise BadRequest(
                f"Virtual datasets may be nested {MAX_NESTED} levels deep, not deeper: "
                f"{_shown_trail(self._rights.trail)}."
            )

    async def find_all(self, names: Iterable[Name]) -> dict[Name, SourceDataset | None]:
        """Return a dict that maps names to sources (None: missing); raise `Forbidden` if the user may not read one."""
        wanted = list(dict.fromkeys(names))
        files = [file for file in dict.fromkeys(file for file, _ in wanted) if file not in self._domains]
        domains = await gather_each(self._domain, files, AT_ONCE)
        self._domains |= zip(files, domains, strict=True)
        found = {name: self._known[name] for name in wanted if name in self._known}
        unknown = [name for name in wanted if name not in found]
        parts = [unknown[first : first + IN_STEP] for first in range(0, len(unknown), IN_STEP)]
        for some in await gather_each(self._find_some, parts, PARTS_AT_ONCE):
            found |= some
        self._known |= found
        return found

    def forget(self, names: Iterable[Name]) -> None:
        """Remove sources from the cache; they are looked up again on their next use."""
        for name in names:
            self._known.pop(name, None)

    def has(self, name: Name) -> bool:
        """Return whether a source has been looked up and exists."""
        return self._known.get(name) is not None

    async def dims(self, name: Name) -> tuple[int, ...] | None:
        """Return the extent of a source, or None if the source is missing."""
        source = (await self.find_all([name]))[name]
        return None if source is None else source.dataset.extent

    def away(self, name: Name) -> NotFound:
        """Return the error for a source that is missing."""
        return NotFound(
            f"The source {name[1]} in {self._shown(name[0])} of the virtual dataset {self.id} is missing: restore it, "
            "or create the dataset with missing=fill."
        )

    def unfit(self, name: Name, why: str) -> Conflict:
        """Return the error for a source that does not fit its mapping."""
        return Conflict(
            f"The source {name[1]} in {self._shown(name[0])} of the virtual dataset {self.id}: {why}"
        )

    def _shown(self, file: str) -> str:
        return self._rights.beside if file == THIS_FILE else file

    async def _domain(self, file: str) -> _SourcePlace | None:
        """Return the root group of the domain that a mapping's file name leads to, or None if there is none."""
        if file == THIS_FILE:
            return _SourcePlace(self._owners, self._rights.beside, self._root, self._root)
        return await self._entered(file, self._rights.beside)

    async def _entered(self, file: str, beside: str) -> _SourcePlace | None:
        try:
            service, domain = await self._rights.domain(file, beside)
        except (NotFound, Gone):
            return None
        if domain.root is None:
            return None
        return _SourcePlace(service.owners, domain.path, domain.root, domain.root)

    async def _find_some(self, names: Sequence[Name]) -> dict[Name, SourceDataset | None]:
        walks = [self._walk(name) for name in names]
        found = await gather_each(self._source, zip(names, await self._in_step(walks), strict=True), AT_ONCE)
        return dict(zip(names, found, strict=True))

    async def _in_step(self, walks: Sequence[Walk]) -> list[_Found]:
        """Run walks in lockstep; return their results. Each step reads all needed records by one message per owner."""
        found: list[_Found] = [None] * len(walks)
        answers: dict[int, Any] = dict.fromkeys(range(len(walks)))
        while answers:
            asked: dict[int, _Asked] = {}
            async for number, answer in with_pauses(answers.items(), WALKED_AT_ONCE):
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
            if isinstance(one, _SourcePlace):
                ids.setdefault(one.owners, {})[one.id] = None
            else:
                names[one] = None
        entered = await gather_each(lambda name: self._entered(*name), names, AT_ONCE)
        found: dict[Any, Any] = dict(zip(names, entered, strict=True))
        for owners, some in ids.items():
            found |= zip([(owners, id) for id in some], await owners.read(*some), strict=True)
        return {
            number: found[(one.owners, one.id) if isinstance(one, _SourcePlace) else one]
            for number, one in asked.items()
        }

    def _walk(self, name: Name) -> Walk:
        """Walk to a source; return a pair: its location and the outcome of reading its record, or None if missing."""
        place = self._domains[name[0]]
        found = None if place is None else (yield from self._followed(place, name[1], []))
        if found is None:
            return None
        if collection_of(found.id) != "datasets":
            raise self.unfit(name, "it is not a dataset.")
        return found, (yield found)

    async def _source(self, item: tuple[Name, _Found]) -> SourceDataset | None:
        """Return the source that a walk found, at its current extent; raise an error if it cannot be a source."""
        name, walked = item
        if walked is None:
            return None
        found, outcome = walked
        if outcome.failure is not None:
            if outcome.failure.kind in MISSING_KINDS:
                return None
            raise outcome.failure.error()
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
                name, "it has a lower bound, but mappings count from 0: map a copy without a lower bound."
            )
        try:
            return SourceDataset(found.owners, StoredDataset.of(record, rights))
        except BadRequest as error:
            raise self.unfit(name, error.message) from error

    def _followed(
        self, place: _SourcePlace, path: str, links: list[str]
    ) -> Generator[_Asked, Any, _SourcePlace | None]:
        """Return the object at a path after following links, or None; adds followed links' names to `links`."""
        if path.startswith("/"):
            place = replace(place, id=place.root)
        for title in path.split("/"):
            if title in ("", "."):
                continue
            if collection_of(place.id) != "groups":
                return None
            outcome = yield place
            if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
                return None
            link = (outcome.unwrap().get("links") or {}).get(title)
            if link is None:
                return None
            if link["class"] == HARD:
                place = replace(place, id=link["id"])
                continue
            links.append(title)
            if why := left_out_reason(link):
                raise LeftOut(f"A source of the virtual dataset {self.id} is left out of {place.path}: {why}")
            if len(links) > MAX_LINKS:
                return None
            into: _SourcePlace | None = place
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
    """Return a dataset's record; if the dataset is virtual with unlimited mappings, set its current extent."""
    if not record.get(VIRTUAL_DATA, {}).get("grows"):
        return record
    found = await mapped(record, Sources(owners, record, rights).dims)
    return record | {"shape": record["shape"] | {"dims": list(found.dims)}}
