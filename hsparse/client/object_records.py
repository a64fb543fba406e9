"""The records of all objects below a group, by path: through hard links, then through soft and external ones.

A tree of records as text to print, and as HTML for notebooks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from hsparse.client.connection import Connection, Json
from hsparse.client.sparse_dataset import is_sparse
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import Forbidden, HsparseError, NotFound
from hsparse.model.ids import domain_hex
from hsparse.model.link import EXTERNAL, HARD
from hsparse.optional_module import OptionalModule

UNREACHABLE = (NotFound, Forbidden)
"""What a link raises that leads to nothing, or to a domain that the user may not read."""
MOST = 200
"""The most objects of a tree in HTML."""
HTML = OptionalModule("hsparse.client.html_repr")
MAX_HOPS = 64
"""The most links followed for one path; more are taken for a cycle."""
MAX_ENTERED = 100_000
"""Paths found through soft and external links after which no more groups are entered through them: groups that link to
each other have paths of every length."""


def home_of(connection: Connection, record: Json) -> Connection:
    """Return the connection about an object's domain, another one where an external link led to the object."""
    return connection.for_domain(record["domain"]) if "h5path" in record else connection


@dataclass(frozen=True)
class _Domain:
    """The records of a domain by id; `name` is None for the domain where the walk begins."""

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
        """Return an object's record; one of another domain says where it is, as the server does."""
        record = self.objects[id]
        return record if self.name is None else record | {"domain": self.name, "h5path": place}

    def target(self, group: str, path: str) -> str | None:
        """Return the id at a path from a group: None without one, empty if the path leads through an external link."""
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
    """A group to enter: its path below the start, its path in its domain, and the ids of the groups above it."""

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
    """The records below the group `id` at the path `name` of a connection's domain, by path from there.

    An object is there once for each path, those of hard links first. Links that lead to nothing, or where the user may
    not read, are left out, and no group is entered below itself. With `hard_only` soft and external links are left out.
    """

    connection: Connection
    id: str
    name: str
    hard_only: bool = False
    found: dict[str, Json] = field(default_factory=dict)

    def read(self) -> dict[str, Json]:
        """Return the records: by one request, one more for an external link, and for another domain's group."""
        own = _Domain.read(self.connection)
        self._domains: dict[str, _Domain] = {}
        self._groups = [_Group(own, self.id, "", self.name, frozenset({self.id}))]
        self._links: deque[tuple[_Group, str, Json]] = deque()
        self._enter()
        if self.hard_only:
            return self.found
        most = len(self.found) + MAX_ENTERED
        certain = len(self._links)  # of groups that hard links reach
        while self._links and (certain > 0 or len(self.found) <= most):
            certain -= 1
            self._follow(*self._links.popleft())
            if len(self.found) > most:
                self._groups.clear()
            self._enter()
        return self.found

    def _enter(self) -> None:
        """Take the hard links of the groups to enter, and note the others."""
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

    def _leave(self, group: _Group, title: str) -> None:
        """Take the object that an external link leads to, and enter it if it is a group."""
        member = group.member(title, "")
        try:
            record = group.domain.connection.json(
                "GET", "/", h5path=member.place, include_attrs=1, follow_soft_links=1, follow_external_links=1
            )
            id = record["id"]
            if domain_hex(id) == domain_hex(group.domain.root):
                self._take(group, title, id)
                return
            if "h5path" not in record:  # of a server that does not say where the object is
                return
            self.found[member.path[:-1]] = record
            if id.startswith("g-") and id not in group.above:
                domain = self._domain(group.domain.connection, record["domain"])
                above = group.above | {id}
                self._groups.append(_Group(domain, id, member.path, record["h5path"], above))
        except UNREACHABLE:
            return

    def _domain(self, connection: Connection, name: str) -> _Domain:
        if name not in self._domains:
            self._domains[name] = _Domain.read(connection.for_domain(name), name)
        return self._domains[name]


def tree_text(name: str, records: Mapping[str, Json]) -> str:
    """Return the objects below `name`, by path, a line each: groups, and datasets with shape and dtype."""
    lines = [name]
    for path, record in sorted(records.items(), key=lambda one: one[0].split("/")):
        above, _, title = path.rpartition("/")
        indent = "  " * (above.count("/") + bool(above) + 1)
        lines.append(f"{indent}{title}{description(record)}")
    return "\n".join(lines)


def description(record: Json) -> str:
    """Return what is behind a name in a tree: shape and dtype of a dataset."""
    if record["id"][0] != "d":
        return "/" if record["id"][0] == "g" else "  a type"
    try:
        dtype = str(Hdf5Type.parse(record["type"]).dtype)
    except HsparseError:  # numpy has no form for it
        dtype = "of a type that only h5pyd reads"
    kind = ", sparse" if is_sparse(record) else ""
    shape = shape_of(record["shape"])
    return f"  {'null' if shape is None else shape} {dtype}{kind}"


def tree_html(connection: Connection, id: str, name: str, title: str) -> str:
    """Return the tree below a group as HTML, `MOST` objects of it, by two requests; hard links are followed."""
    found = connection.json("GET", f"/groups/{id}/links", follow_links=1, Limit=MOST + 1)["links"]
    links = found if isinstance(found, dict) else {id: found}  # of HSDS one group
    rows = list(islice(_rows(links, id, "", frozenset()), MOST + 1))
    start = name.rstrip("/")
    paths = [f"{start}/{at}" for at, link in rows if link.get("id", "").startswith("d-")]
    records: Json = {}
    with suppress(HsparseError):  # one was deleted by now, or the server answers for no lists
        records = connection.json("POST", "/", {"h5paths": paths})["h5paths"] if paths else {}
    html = HTML.load()
    lines = [html.LINE.format(0, f"<b>{html.html_text(title)}</b>")]
    for at, link in rows[:MOST]:
        about = _about(link, records.get(f"{start}/{at}"))
        text = f"{html.html_text(link['title'])}{html.html_text(about)}"
        lines.append(html.LINE.format(1 + 2 * at.count("/"), text))
    if len(rows) > MOST:
        lines.append(html.LINE.format(1, f"... only {MOST} are shown"))
    return "".join(lines)


def _rows(links: Json, id: str, path: str, above: frozenset[str]) -> Iterator[tuple[str, Json]]:
    for link in links.get(id, ()):
        at = f"{path}{link['title']}"
        yield at, link
        below = link.get("id", "")
        if below in links and below not in above | {id}:
            yield from _rows(links, below, f"{at}/", above | {id})


def _about(link: Json, record: Json | None) -> str:
    if record is not None:
        return description(record)
    if "id" not in link:
        return f" -> {link.get('h5domain', '')}{link.get('h5path', '')}"
    return {"g": "/", "t": "  a type"}.get(link["id"][0], "")
