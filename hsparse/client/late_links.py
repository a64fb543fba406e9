"""Objects that are created without links, and linked when they are complete; they may replace existing objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import AlreadyExists, InvalidValue
from hsparse.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    HsparseError,
    NotFound,
    OverQuota,
    TooLarge,
    Unauthenticated,
)
from hsparse.model.ids import COLLECTIONS

WITHOUT_EFFECT = (BadRequest, Conflict, Forbidden, Gone, NotFound, OverQuota, TooLarge, Unauthenticated)
"""Errors of requests that have certainly changed nothing."""


class Parent(Protocol):
    """The attributes and methods of a group that this module uses."""

    connection: Connection
    id: str
    name: str

    def __getitem__(self, path: str) -> Any: ...

    def __contains__(self, path: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def require_group(self, path: str) -> Parent:
        """Return the group at a path, or create a missing group."""
        ...

    @property
    def _old(self) -> Parent | None:
        """The old file that this file will replace at its first use, or None."""

    def _take_over(self, attributes: Collection[str]) -> None:
        """Take the connection and id of the replaced file, and delete its attributes except those in `attributes`."""


ParentT = TypeVar("ParentT", bound=Parent)


class UncertainLink(Exception):
    """A request to set a link failed with the error `cause`, but the link may exist, so its object may be visible."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True)
class UnlinkedDataset:
    """A dataset that exists but has no link yet, so that no other client sees it."""

    connection: Connection
    record: Json
    path: str
    """The absolute path at which the dataset will be linked."""


@contextmanager
def unlinked_dataset(
    group: Parent, path: str, body: Json, *, overwrite: bool = False
) -> Iterator[UnlinkedDataset]:
    """Create a dataset and yield it; at the end of the context, link the dataset at a path of a group.

    A path with a leading slash is absolute. Missing groups are created. If the path has an object, `AlreadyExists` is
    raised before the dataset is created; with `overwrite`, the existing object stays visible until the end of the
    context, and is then replaced. If the group is a file that will replace an old file, all objects of the old file are
    replaced at the end. After an error the new dataset is deleted.
    """
    old = group._old
    if old is None and path.startswith("/") and group.name != "/":
        group = cast(Parent, group["/"])
    above, _, name = path.strip("/").rpartition("/")
    base, missing = (old, above) if old is not None else nearest_group(group, above)
    taken = old is None and not missing and name in base
    if taken and not overwrite:
        raise AlreadyExists(f"There is an object at {path} already: give another path, or overwrite=True.")
    connection = base.connection
    replaced = ReplacedObjects(connection, base.id, list(old or ([name] if taken else [])))
    record = connection.json("POST", "/datasets", body)
    made = [record["id"]]
    try:
        yield UnlinkedDataset(connection, record, f"{(old or group).name.rstrip('/')}/{path.strip('/')}")
        if old is not None:
            *missing_names, name = [name, *reversed(missing.split("/"))] if missing else [name]
            for title in missing_names:
                made.append(connection.json("POST", "/groups", {"links": {title: {"id": made[-1]}}})["id"])
        elif missing:
            base = base.require_group(missing)
        link_objects(connection, base.id, {name: {"id": made[-1]}}, replaced.names)
    except UncertainLink as error:
        raise error.cause from None
    except BaseException:
        delete_objects(connection, made)
        raise
    replaced.delete()
    if old is not None:
        group._take_over(())


def nearest_group(group: ParentT, path: str) -> tuple[ParentT, str]:
    """Return a pair: the deepest group on the path that exists, and the rest of the path, which is missing."""
    parts = path.split("/") if path else []
    for count in range(len(parts), 0, -1):
        with suppress(NotFound):
            found = group["/".join(parts[:count])]
            if not found.id.startswith("g-") or found.connection.domain != group.connection.domain:
                raise InvalidValue(f"{found.name} must be a group of {group.connection.domain}.")
            return found, "/".join(parts[count:])
    return group, path


def link_objects(
    connection: Connection, group: str, links: Mapping[str, Json], removed: Collection[str] = ()
) -> None:
    """Set `links` and remove the links `removed` of the group with the id `group`, in one atomic request.

    Raises `AlreadyExists` if a name is taken, or `UncertainLink` for an error after which the links may exist.
    """
    body = {"links": dict(links)} | ({"remove": list(removed)} if removed else {})
    try:
        connection.json("PUT", f"/groups/{group}/links", body)
    except Conflict as error:
        raise AlreadyExists(f"{connection.domain} has these names already: {error.message}") from error
    except WITHOUT_EFFECT:
        raise
    except BaseException as error:
        raise UncertainLink(error) from error


class ReplacedObjects:
    """The objects of links that will be replaced; `delete` deletes the objects that then have no link any more."""

    def __init__(self, connection: Connection, group: str, names: Collection[str]) -> None:
        """`group` is the id of a group, and `names` are the names of its links that will be replaced."""
        self.names = names
        self._connection = connection
        self._ids = self._below(group) if names else set()

    def delete(self) -> None:
        """Delete the objects to which no link leads any more."""
        if not self._ids:
            return
        with suppress(HsparseError):  # ignored: the replacement has succeeded
            left = self._connection.json("GET", "/", getobjs=1, include_attrs=0, include_links=0)
            delete_objects(self._connection, self._ids - left["domain_objs"].keys())

    def _below(self, group: str) -> set[str]:
        answer = self._connection.json("GET", "/", getobjs=1, include_attrs=0, include_links=1)
        objects: dict[str, Json] = answer["domain_objs"]
        links = objects.get(group, {}).get("links", {})
        found: set[str] = set()
        waiting = [links[name].get("id") for name in self.names if name in links]
        while waiting:
            id = waiting.pop()
            if id in objects and id not in found:
                found.add(id)
                waiting += [link.get("id") for link in objects[id].get("links", {}).values()]
        return found


def delete_objects(connection: Connection, ids: Iterable[str]) -> None:
    """Delete objects without links; an error is ignored, because such an object is invisible and only uses space."""
    for id in ids:
        with suppress(HsparseError):
            connection.json("DELETE", f"/{COLLECTIONS[id[0]]}/{id}")
