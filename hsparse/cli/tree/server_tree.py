"""The tree of a server: folders, domains in folders, and objects in domains, which paths and patterns name.

A path continues inside a domain: `/home/ann/run.h5/frames` is the object `/frames` of the domain `/home/ann/run.h5`.
This module also formats sizes, times, types and shapes as text for users.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar

from hsparse.client.connection import Connection, Json
from hsparse.client.http.address import check_domain
from hsparse.client.http.retry import Retry
from hsparse.client.http.retrying_client import BUSY_SECONDS, MAX_TRIES, RetryingClient
from hsparse.errors import BadRequest, Forbidden, HsparseError, NotFound

PROTOCOL = "hdf5:/"
PATTERN = re.compile(r"[*?[]")
PAGE_MEMBERS = 1000
"""The maximum number of members of a folder in one answer of the server."""
LINKS_PAGE = 5000
"""The maximum number of links of a group in one answer of the server."""
CONCURRENCY = 16
"""The maximum number of domains that a command changes at the same time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Kind(StrEnum):
    """The kind of the entry at a path; the two kinds of links lead to another path."""

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
"""Maps the first letter of the id of an object to the kind of the object."""
LINKS = {"H5L_TYPE_SOFT": Kind.SOFT_LINK, "H5L_TYPE_EXTERNAL": Kind.EXTERNAL_LINK}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """The entry at a path. `record` is the JSON of the entry; in listings, and for links, it is the JSON of the link.

    `domain` is the path of the domain that contains the entry or is the entry, or None if the entry is a folder. `id`
    is the id of an object, or None if the entry is no object.
    """

    path: str
    kind: Kind
    record: Json
    domain: str | None = None
    id: str | None = None

    @property
    def name(self) -> str:
        """The last component of the path; for a snapshot, the domain's name without the number."""
        name = self.path.rpartition("/")[2]
        return name.rpartition("@")[0] if "snapshot" in self.record else name

    @property
    def display_path(self) -> str:
        """The path; the path of a folder ends with a slash."""
        return f"{self.path.rstrip('/')}/" if self.kind is Kind.FOLDER else self.path


class ServerTree:
    """The tree that one user sees; `connect(domain)` opens a connection, to no domain if its argument is None."""

    def __init__(self, connect: Callable[..., Connection]) -> None:
        self.connect = connect
        self._server = RetryingClient(lambda: connect(None))
        self._threads = ThreadPoolExecutor(CONCURRENCY, "tree")

    def close(self) -> None:
        """End all requests, and close all connections."""
        self._server.stop()
        self._threads.shutdown(cancel_futures=True)
        self._server.close()

    def each(self, items: Iterable[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield `work(item)` for each item, in order; up to `CONCURRENCY` calls of `work` run at a time, in threads.

        An error is raised after the results of all started calls were yielded. `work` must not call this method.
        """
        begun: deque[Future[Result]] = deque()
        failure: BaseException | None = None
        rest = iter(items)
        while True:
            if failure is None:
                more = islice(rest, CONCURRENCY - len(begun))
                begun.extend(self._threads.submit(work, item) for item in more)
            if not begun:
                break
            done = begun.popleft()
            error = done.exception()
            if error is None:
                yield done.result()
            failure = failure or error
        if failure is not None:
            raise failure

    def patient(self, domain: str) -> Connection:
        """Open a connection to a domain or folder; the connection retries failed requests that are safe to repeat."""
        return self.connect(domain, retry=Retry(MAX_TRIES, BUSY_SECONDS))

    def json(self, method: str, path: str, domain: str | None = None, **params: Any) -> Json:
        """Send a request about a domain or the server, and return the JSON answer; repeat it if the answer is lost."""
        return self._server.json(method, path, domain=domain, **params)

    def create(self, domain: str, body: Json) -> Json:
        """Create a domain or folder. If the answer is lost, raise an error: a second request would fail."""
        return self._server.ask(lambda one: one.json("PUT", "/", body, domain=domain), idempotent=False)

    def delete_name(self, domain: str, other: str) -> None:
        """Delete a domain but keep its objects, which also belong to the domain `other`.

        The request is never repeated, so `NotFound` means that another client deleted the domain.
        """
        self._server.ask(
            lambda one: one.json("DELETE", "/", domain=domain, keep_root=True, linked_domain=other),
            idempotent=False,
        )

    def put(self, path: str, body: Json, domain: str) -> Json:
        """Send a PUT request and return the JSON answer; the request is repeated if the answer is lost."""
        return self._server.json("PUT", path, body, domain=domain)

    def post(self, path: str, body: Json, domain: str, *, repeated: bool = False) -> Json:
        """Send a POST request and return the JSON answer; with `repeated`, repeat the request if the answer is lost."""
        return self._server.ask(lambda one: one.json("POST", path, body, domain=domain), idempotent=repeated)

    def find(self, text: str) -> TreeEntry:
        """Return the folder, domain or object at a path; raise `NotFound` if the path does not exist."""
        path = normal_path(text)
        if path == "/":
            return TreeEntry(path, Kind.FOLDER, {"class": Kind.FOLDER.value})
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

    def find_place(self, text: str) -> TreeEntry:
        """Return the folder or domain at a path; raise `NotFound` for a missing path, `BadRequest` for an object."""
        return require_place(self.find(text))

    def exists(self, text: str) -> TreeEntry | None:
        """Return the folder or domain at a path, or None if the path does not exist."""
        try:
            return self.find_place(text)
        except NotFound:
            return None

    def expand(self, text: str) -> Iterator[TreeEntry]:
        """Yield the entry at a path or, if a component of the path has `*`, `?` or `[a-z]`, all entries that match.

        Raises `NotFound` if nothing matches.
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
            raise NotFound(f"No folder, domain or object matches {path}.")
        yield entry
        yield from matches

    def members(
        self, entry: TreeEntry, pattern: str | None = None, *, verbose: bool = False, size_only: bool = False
    ) -> Iterator[TreeEntry]:
        """Yield the members of a folder, domain or group in the order of names, or the members that match `pattern`.

        `verbose` adds statistics to the JSON of domains; with `size_only`, files of `--files` get only their size.
        """
        if entry.kind is Kind.FOLDER:
            return self._places(entry, pattern, verbose, size_only)
        return self._objects(entry, pattern) if entry.kind in CONTAINERS else iter(())

    def below(self, entries: Iterable[TreeEntry]) -> tuple[list[TreeEntry], list[TreeEntry]]:
        """Return a pair of lists of the entries and all levels below: the domains, and the folders, deepest first."""
        domains, folders = [], []
        waiting = list(entries)
        while waiting:
            entry = waiting.pop()
            if entry.kind is Kind.FOLDER:
                folders.append(entry)
                waiting += self.members(entry)
            else:
                domains.append(entry)
        folders.sort(key=lambda entry: (-entry.path.count("/"), entry.path))
        return sorted(domains, key=lambda entry: entry.path), folders

    def root(self, domain: TreeEntry) -> str:
        """Return the id of the root group of a domain; raise `Forbidden` if the user may not read the domain."""
        found = domain.record if "root" in domain.record else self.json("GET", "/", domain.path)
        return str(found["root"])

    def record(self, entry: TreeEntry, **params: Any) -> Json:
        """Ask the server for an object and return its JSON; raise `NotFound` if the object was deleted."""
        return self.json("GET", f"/{COLLECTIONS[entry.kind]}/{entry.id}", entry.domain, **params)

    def _object(self, path: str, place: str, inside: str) -> TreeEntry:
        try:
            found = self.json(
                "GET", "/", place, h5path=inside, follow_soft_links=True, follow_external_links=True
            )
        except NotFound as error:
            raise _missing(path) from error
        home = str(found.get("domain") or place)
        return TreeEntry(path, KINDS[found["id"][0]], found, home, found["id"])

    def _matches(self, entry: TreeEntry, components: list[str]) -> Iterator[TreeEntry]:
        first, *rest = components
        found = self.members(entry, first) if PATTERN.search(first) else self._child(entry, first)
        for member in found:
            if rest:
                yield from self._matches(self._behind(member), rest)
            else:
                yield member

    def _behind(self, entry: TreeEntry) -> TreeEntry:
        """Return the target of a link, with the path of the link, or the link if its target is missing or forbidden."""
        if entry.kind not in LINKS.values():
            return entry
        with suppress(NotFound, Forbidden):
            return self.find(entry.path)
        return entry

    def _child(self, entry: TreeEntry, name: str) -> Iterator[TreeEntry]:
        try:
            yield self.find(f"{entry.path}/{name}")
        except NotFound:
            return

    def _places(
        self, folder: TreeEntry, pattern: str | None, verbose: bool, size_only: bool
    ) -> Iterator[TreeEntry]:
        marker = None
        while True:
            page = self.json(
                "GET",
                "/domains",
                folder.path,
                Limit=PAGE_MEMBERS,
                Marker=marker,
                pattern=pattern,
                verbose=verbose or None,
                size_only=(verbose and size_only) or None,
            )["domains"]
            for record in page:
                yield _place(record["name"], record)
            if len(page) < PAGE_MEMBERS:
                return
            marker = page[-1]["name"]

    def _objects(self, entry: TreeEntry, pattern: str | None) -> Iterator[TreeEntry]:
        group = self.root(entry) if entry.kind is Kind.DOMAIN else entry.id
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
                yield TreeEntry(path, kind, link, entry.domain, link.get("id"))
            if len(page) < LINKS_PAGE:
                return
            marker = page[-1]["title"]


def normal_path(text: str) -> str:
    """Return a path without a leading `hdf5:/` and trailing slashes; raise `BadRequest` if the path is not absolute."""
    if text.startswith(PROTOCOL):
        text = "/" + text.removeprefix(PROTOCOL).lstrip("/")
    check_domain(text)
    return "/" + "/".join(one for one in text.split("/") if one)


def require_place(entry: TreeEntry) -> TreeEntry:
    """Return `entry` if the entry is a folder or a domain; raise `BadRequest` if the entry is an object."""
    if entry.kind not in (Kind.FOLDER, Kind.DOMAIN):
        raise BadRequest(
            f"{entry.path} is a {entry.kind.value} in the domain {entry.domain}: name a folder or a domain."
        )
    return entry


def _place(path: str, record: Json) -> TreeEntry:
    # Listings leave out the root of a domain that the user may not read.
    if "root" in record or record.get("class") == Kind.DOMAIN:
        return TreeEntry(path, Kind.DOMAIN, record, path)
    return TreeEntry(path, Kind.FOLDER, record)


def _missing(path: str) -> HsparseError:
    return NotFound(f"There is no folder, domain or object {path}.")


UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TEXT_TYPE = "H5T_STRING"
ANY_LENGTH = "H5T_VARIABLE"


def size_text(nbytes: int, *, human: bool) -> str:
    """Return a number of bytes as text; with `human`, in the largest unit that gives a value of at least one."""
    if not human:
        return str(nbytes)
    value, unit = float(nbytes), 0
    while value >= 1024 and unit + 1 < len(UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{nbytes} B"


def time_text(seconds: float) -> str:
    """Return a time, given in seconds since the Unix epoch, as a text of the date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shape_text(shape: Json) -> str:
    """Return a dataspace as text in the format of h5ls: in `{3, 10/Inf}` the second dimension is unlimited."""
    dims, limits = shape.get("dims"), shape.get("maxdims")
    if shape["class"] != "H5S_SIMPLE" or dims is None:
        return "{null}" if shape["class"] == "H5S_NULL" else "{scalar}"
    extents = [
        str(size) if limit == size else f"{size}/{'Inf' if limit in (0, 'H5S_UNLIMITED') else limit}"
        for size, limit in zip(dims, limits or dims, strict=True)
    ]
    return f"{{{', '.join(extents)}}}"


def type_text(item: Any) -> str:
    """Return a short text for a type: the name of a predefined type, or a class with the components of the type."""
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
    """Return filters as text, in pipeline order; each has its level and the section of a chunk that it encodes."""
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
