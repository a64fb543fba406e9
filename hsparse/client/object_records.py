"""Reads the records of all objects below a group, first through hard links, then through soft and external links."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from hsparse.client.connection import Connection, Json
from hsparse.errors import Forbidden, LeftOut, NotFound
from hsparse.model.ids import domain_hex
from hsparse.model.link import EXTERNAL, HARD

UNREACHABLE = (NotFound, Forbidden, LeftOut)
"""Errors of a link whose target is missing, cannot be served, or is in a domain that the user may not read."""
MAX_HOPS = 64
"""The maximum number of soft links that are followed for one path; a longer chain is treated as a cycle."""
MAX_ENTERED = 100_000
"""The number of paths found through soft and external links after which such links enter no more groups. Groups that
link to each other have infinitely many paths."""


def home_of(connection: Connection, record: Json) -> Connection:
    """Return a connection to the domain of an object; for the target of an external link, this is another domain."""
    return connection.for_domain(record["domain"]) if "h5path" in record else connection


@dataclass(frozen=True)
class _Domain:
    """A domain; `objects` maps ids to records, and `name` is its path, or None for the domain where the walk begins."""

    connection: Connection
    root: str
    objects: dict[str, Json]
    name: str | None = None

    @classmethod
    def read(cls, connection: Connection, name: str | None = None) -> _Domain:
        answer = connection.json("GET", "/", getobjs=1, include_attrs=1, include_links=1)
        return cls(connection, answer["root"], answer["domain_objs"], name)

    def links(self, id: str) -> dict[str, Json]:
        links: dict[str, Json] = self.objects.get(id, {}).get("links", {})
        return links

    def record(self, id: str, place: str) -> Json:
        """Return the record of an object; for an object in another domain, add its domain and its path `place`."""
        record = self.objects[id]
        return record if self.name is None else record | {"domain": self.name, "h5path": place}

    def target(self, group: str, path: str) -> str | None:
        """Return the id of the object at a path relative to the group with the id `group`.

        Return None if the object does not exist, or "" if the path leads through an external link.
        """
        at, titles, hops = group, [path], 0
        while titles:
            title, _, rest = titles.pop().partition("/")
            if rest:
                titles.append(rest)
            if title in ("", "."):
                continue
            link = self.links(at).get(title)
            if link is None or hops > MAX_HOPS:
                return None
            if link["class"] == EXTERNAL:
                return ""
            if link["class"] == HARD:
                at = link["id"]
                continue
            hops += 1
            at = self.root if link["h5path"].startswith("/") else at
            titles.append(link["h5path"])
        return at if at in self.objects else None


@dataclass(frozen=True)
class _Group:
    """A group whose links will be read.

    `path` is its path relative to the group where the walk began; `place` is its path in its domain. `above` has the
    ids of the group and its ancestors.
    """

    domain: _Domain
    id: str
    path: str
    place: str
    above: frozenset[str]

    def member(self, title: str, id: str) -> _Group:
        place = f"{self.place.rstrip('/')}/{title}"
        return replace(self, id=id, path=f"{self.path}{title}/", place=place, above=self.above | {id})


@dataclass
class ObjectRecords:
    """Maps the paths of all objects below the group `id`, relative to its path `name`, to their records.

    An object is listed once for each path, hard links first. Dangling links and links to objects that the user may not
    read are omitted, and no group is entered below itself. `hard_only` omits soft and external links.
    """

    connection: Connection
    id: str
    name: str
    hard_only: bool = False
    found: dict[str, Json] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """The paths of links that were followed but whose target is missing, or may not be read by the user."""

    def read(self) -> dict[str, Json]:
        """Return the records. Sends one request, one for each external link, and one for each further domain."""
        own = _Domain.read(self.connection)
        self._domains: dict[str, _Domain] = {}
        self._groups = [_Group(own, self.id, "", self.name, frozenset({self.id}))]
        self._links: deque[tuple[_Group, str, Json]] = deque()
        self._enter()
        if self.hard_only:
            return self.found
        most = len(self.found) + MAX_ENTERED
        certain = len(self._links)  # links of groups that hard links reach
        while self._links and (certain > 0 or len(self.found) <= most):
            certain -= 1
            self._follow(*self._links.popleft())
            if len(self.found) > most:
                self._groups.clear()
            self._enter()
        return self.found

    def _enter(self) -> None:
        """Record the targets of the hard links of all groups to enter, and queue their soft and external links."""
        while self._groups:
            group = self._groups.pop()
            for title, link in group.domain.links(group.id).items():
                if link["class"] == HARD:
                    self._take(group, title, link["id"])
                else:
                    self._links.append((group, title, link))

    def _take(self, group: _Group, title: str, id: str) -> None:
        if id not in group.domain.objects:
            return
        member = group.member(title, id)
        self.found[member.path[:-1]] = group.domain.record(id, member.place)
        if id.startswith("g-") and id not in group.above:
            self._groups.append(member)

    def _follow(self, group: _Group, title: str, link: Json) -> None:
        id: str | None = ""
        if link["class"] != EXTERNAL:
            start = group.domain.root if link["h5path"].startswith("/") else group.id
            id = group.domain.target(start, link["h5path"])
        if id:
            self._take(group, title, id)
        elif id is not None:
            self._leave(group, title)
        else:
            self.lost.add(f"{group.path}{title}")

    def _leave(self, group: _Group, title: str) -> None:
        """Record the target of an external link, and queue the target if it is a group."""
        member = group.member(title, "")
        try:
            record = group.domain.connection.json(
                "GET", "/", h5path=member.place, include_attrs=1, follow_soft_links=1, follow_external_links=1
            )
            id = record["id"]
            if domain_hex(id) == domain_hex(group.domain.root):
                self._take(group, title, id)
                return
            if "h5path" not in record:  # the server does not say where the object is
                return
            self.found[member.path[:-1]] = record
            if id.startswith("g-") and id not in group.above:
                domain = self._domain(group.domain.connection, record["domain"])
                above = group.above | {id}
                self._groups.append(_Group(domain, id, member.path, record["h5path"], above))
        except UNREACHABLE:
            self.lost.add(member.path[:-1])

    def _domain(self, connection: Connection, name: str) -> _Domain:
        if name not in self._domains:
            self._domains[name] = _Domain.read(connection.for_domain(name), name)
        return self._domains[name]
