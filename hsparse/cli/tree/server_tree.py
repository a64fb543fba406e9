"""The tree of a server: folders, the domains in them, and the objects in domains, found by paths and patterns.

A path goes on inside a domain: `/home/ann/run.h5/frames` is the object `/frames` of the domain `/home/ann/run.h5`.

How sizes, times, types and shapes are printed for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hsparse.client.connection import Connection, Json
from hsparse.client.http.address import check_domain
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest, Forbidden, HsparseError, NotFound

PROTOCOL = "hdf5:/"
PATTERN = re.compile(r"[*?[]")
PAGE = 1000
"""The most members of a folder in an answer."""
LINKS_PAGE = 5000
"""The most links of a group in an answer."""


class Kind(StrEnum):
    """What a path names. Links are those that lead to another path."""

    FOLDER = "folder"
    DOMAIN = "domain"
    GROUP = "group"
    DATASET = "dataset"
    DATATYPE = "datatype"
    SOFT_LINK = "soft link"
    EXTERNAL_LINK = "external link"


CONTAINERS = frozenset({Kind.FOLDER, Kind.DOMAIN, Kind.GROUP})
COLLECTIONS = {Kind.GROUP: "groups", Kind.DATASET: "datasets", Kind.DATATYPE: "datatypes"}
KINDS = {"g": Kind.GROUP, "d": Kind.DATASET, "t": Kind.DATATYPE}
"""The kind of an object, by the first letter of its id."""
LINKS = {"H5L_TYPE_SOFT": Kind.SOFT_LINK, "H5L_TYPE_EXTERNAL": Kind.EXTERNAL_LINK}


@dataclass(frozen=True, slots=True)
class Entry:
    """What is at a path: its kind, and the server's JSON of it, for a link and for an object in a listing the link's.

    `domain` is the path of the domain that it is or is in, None for a folder; `id` that of an object.
    """

    path: str
    kind: Kind
    record: Json
    domain: str | None = None
    id: str | None = None

    @property
    def name(self) -> str:
        """The last component of the path, of a snapshot that of its domain's."""
        name = self.path.rpartition("/")[2]
        return name.rpartition("@")[0] if "snapshot" in self.record else name

    @property
    def display_path(self) -> str:
        """The path, with a slash behind that of a folder."""
        return f"{self.path.rstrip('/')}/" if self.kind is Kind.FOLDER else self.path


class ServerTree:
    """The tree of a server, with the rights of a credential; `connect` opens a connection for a domain or none."""

    def __init__(self, connect: Callable[[str | None], Connection]) -> None:
        self.connect = connect
        self._server = RetryingClient(lambda: connect(None))

    def close(self) -> None:
        """Close all connections."""
        self._server.close()

    def json(self, method: str, path: str, domain: str | None = None, **params: Any) -> Json:
        """Send a request that may be repeated after a lost answer, about a domain or folder."""
        return self._server.json(method, path, domain=domain, **params)

    def create(self, domain: str, body: Json) -> Json:
        """Create a domain or folder. It is not repeated after a lost answer, or it would be refused then."""
        return self._server.ask(lambda one: one.json("PUT", "/", body, domain=domain), idempotent=False)

    def delete_name(self, domain: str, other: str) -> None:
        """Delete a domain, not its objects, which also the domain `other` has.

        Not repeated, so that `NotFound` says that others did it.
        """
        self._server.ask(
            lambda one: one.json("DELETE", "/", domain=domain, keep_root=True, linked_domain=other),
            idempotent=False,
        )

    def put(self, path: str, body: Json, domain: str) -> Json:
        """Send a PUT that may be repeated."""
        return self._server.json("PUT", path, body, domain=domain)

    def post(self, path: str, body: Json, domain: str, *, repeated: bool = False) -> Json:
        """Send a POST about a domain; it is `repeated` after a lost answer if that changes nothing more."""
        return self._server.ask(lambda one: one.json("POST", path, body, domain=domain), idempotent=repeated)

    def find(self, text: str) -> Entry:
        """Return what is at a path; `NotFound` without anything."""
        path = normal_path(text)
        if path == "/":
            return Entry(path, Kind.FOLDER, {"class": Kind.FOLDER.value})
        place, inside, failure = path, "", None
        while place:
            try:
                record = self.json("GET", "/", place)
            except (NotFound, BadRequest) as error:
                failure = failure or error
            else:
                if not inside:
                    return _place(path, record)
                if "root" in record:
                    return self._object(path, place, inside)
                break
            place, _, title = place.rpartition("/")
            inside = f"/{title}{inside}"
        raise failure if isinstance(failure, BadRequest) else _missing(path) from failure

    def find_place(self, text: str) -> Entry:
        """Return the folder or domain at a path; `NotFound` without one, `BadRequest` for an object."""
        return require_place(self.find(text))

    def exists(self, text: str) -> Entry | None:
        """Return what `find_place` does, None without anything."""
        try:
            return self.find_place(text)
        except NotFound:
            return None

    def expand(self, text: str) -> Iterator[Entry]:
        """Yield what is at a path, or all that matches a pattern: `*`, `?` and `[a-z]` in any component.

        `NotFound` if nothing does.
        """
        path = normal_path(text)
        if not PATTERN.search(path):
            yield self.find(path)
            return
        components = path[1:].split("/")
        first = next(place for place, one in enumerate(components) if PATTERN.search(one))
        matches = self._matches(self.find("/" + "/".join(components[:first])), components[first:])
        entry = next(matches, None)
        if entry is None:
            raise NotFound(f"Nothing matches {path}.")
        yield entry
        yield from matches

    def members(self, entry: Entry, pattern: str | None = None, *, verbose: bool = False) -> Iterator[Entry]:
        """Yield the members of a folder, domain or group by name, those that match a pattern.

        `verbose` adds statistics to the JSON of domains.
        """
        if entry.kind is Kind.FOLDER:
            return self._places(entry, pattern, verbose)
        return self._objects(entry, pattern) if entry.kind in CONTAINERS else iter(())

    def record(self, entry: Entry, **params: Any) -> Json:
        """Return the server's JSON of an object; `NotFound` if a link leads to none."""
        return self.json("GET", f"/{COLLECTIONS[entry.kind]}/{entry.id}", entry.domain, **params)

    def _object(self, path: str, place: str, inside: str) -> Entry:
        try:
            found = self.json(
                "GET", "/", place, h5path=inside, follow_soft_links=True, follow_external_links=True
            )
        except NotFound as error:
            raise _missing(path) from error
        home = str(found.get("domain") or place)
        return Entry(path, KINDS[found["id"][0]], found, home, found["id"])

    def _matches(self, entry: Entry, components: list[str]) -> Iterator[Entry]:
        first, *rest = components
        found = self.members(entry, first) if PATTERN.search(first) else self._child(entry, first)
        for member in found:
            if rest:
                yield from self._matches(self._behind(member), rest)
            else:
                yield member

    def _behind(self, entry: Entry) -> Entry:
        """Return what a link leads to, at the link's path; a link that leads to nothing itself."""
        if entry.kind not in LINKS.values():
            return entry
        with suppress(NotFound, Forbidden):
            return self.find(entry.path)
        return entry

    def _child(self, entry: Entry, name: str) -> Iterator[Entry]:
        try:
            yield self.find(f"{entry.path}/{name}")
        except NotFound:
            return

    def _places(self, folder: Entry, pattern: str | None, verbose: bool) -> Iterator[Entry]:
        marker = None
        while True:
            page = self.json(
                "GET",
                "/domains",
                folder.path,
                Limit=PAGE,
                Marker=marker,
                pattern=pattern,
                verbose=verbose or None,
            )["domains"]
            for record in page:
                yield _place(record["name"], record)
            if len(page) < PAGE:
                return
            marker = page[-1]["name"]

    def _objects(self, entry: Entry, pattern: str | None) -> Iterator[Entry]:
        group = entry.record["root"] if entry.kind is Kind.DOMAIN else entry.id
        marker = None
        while True:
            page = self.json(
                "GET",
                f"/groups/{group}/links",
                entry.domain,
                Limit=LINKS_PAGE,
                Marker=marker,
                pattern=pattern,
            )["links"]
            for link in page:
                path = f"{entry.path}/{link['title']}"
                kind = LINKS.get(link["class"]) or KINDS[link["id"][0]]
                yield Entry(path, kind, link, entry.domain, link.get("id"))
            if len(page) < LINKS_PAGE:
                return
            marker = page[-1]["title"]


def normal_path(text: str) -> str:
    """Return an absolute path without `hdf5:/` in front and slashes at the end; `BadRequest` for other text."""
    if text.startswith(PROTOCOL):
        text = "/" + text.removeprefix(PROTOCOL).lstrip("/")
    check_domain(text)
    return "/" + "/".join(one for one in text.split("/") if one)


def require_place(entry: Entry) -> Entry:
    """Return an entry that is a folder or a domain; `BadRequest` for an object."""
    if entry.kind not in (Kind.FOLDER, Kind.DOMAIN):
        raise BadRequest(
            f"{entry.path} is a {entry.kind.value} in the domain {entry.domain}; name a folder or a domain."
        )
    return entry


def _place(path: str, record: Json) -> Entry:
    if "root" in record:
        return Entry(path, Kind.DOMAIN, record, path)
    return Entry(path, Kind.FOLDER, record)


def _missing(path: str) -> HsparseError:
    return NotFound(f"There is no folder, domain or object {path}.")


UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TEXT_TYPE = "H5T_STRING"
ANY_LENGTH = "H5T_VARIABLE"


def size_text(nbytes: int, *, human: bool) -> str:
    """Return a number of bytes, with `human` in the largest unit of which there is at least one."""
    if not human:
        return str(nbytes)
    value, unit = float(nbytes), 0
    while value >= 1024 and unit + 1 < len(UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{nbytes} B"


def time_text(seconds: float) -> str:
    """Return a time, given in seconds since the Unix epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shape_text(shape: Json) -> str:
    """Return a dataspace as h5ls shows it: `{3, 10/Inf}` may grow without bound in its second dimension."""
    dims, limits = shape.get("dims"), shape.get("maxdims")
    if shape["class"] != "H5S_SIMPLE" or dims is None:
        return "{null}" if shape["class"] == "H5S_NULL" else "{scalar}"
    extents = [
        str(size) if limit == size else f"{size}/{'Inf' if limit in (0, 'H5S_UNLIMITED') else limit}"
        for size, limit in zip(dims, limits or dims, strict=True)
    ]
    return f"{{{', '.join(extents)}}}"


def type_text(item: Any) -> str:
    """Return a type in short: a predefined name, or a class with what it is made of."""
    if not isinstance(item, dict):
        return str(item)
    kind, base = item["class"], item.get("base")
    if kind == "H5T_COMPOUND":
        fields = [f"{one['name']}: {type_text(one['type'])}" for one in item["fields"]]
        return f"{{{', '.join(fields)}}}"
    if kind == TEXT_TYPE:
        length = item.get("length")
        return "string" if length == ANY_LENGTH else f"string({length})"
    if kind == "H5T_ARRAY":
        return f"{type_text(base)}{item.get('dims')}"
    if kind == "H5T_OPAQUE":
        return f"opaque({item.get('size')})"
    word = {"H5T_VLEN": "vlen", "H5T_ENUM": "enum", "H5T_REFERENCE": "reference"}.get(kind)
    if word is not None:
        return f"{word}({type_text(base)})"
    return type_text(base) if base is not None else str(kind)


def filters_text(filters: list[Any]) -> str:
    """Return filters in the order of the pipeline, with their level, and the section of a chunk that one is for."""
    return ", ".join(map(_filter_text, filters))


def _filter_text(one: Any) -> str:
    if not isinstance(one, dict):
        return str(one)
    name = one.get("name") or str(one.get("class", one.get("id"))).removeprefix("H5Z_FILTER_").lower()
    level = one.get("level")
    section = one.get("section")
    return (
        name
        + (f"={level}" if level is not None else "")
        + (f" ({section.removeprefix('H5_SECTION_').lower()})" if isinstance(section, str) else "")
    )
