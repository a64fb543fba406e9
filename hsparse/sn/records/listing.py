"""Listings of links and attributes: pages, patterns, and errors about missing names.

The parameter `Marker` is the last name that the client has, and `Limit` the number of names that the client wants. The
parameter `pattern` may have `*`, `?` and `[a-z]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hsparse.errors import BadRequest, ErrorKind, HsparseError, NotFound
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.response import Encoded, encode_unless_long
from hsparse.sn.records.name_pattern import NamePattern
from hsparse.sn.request import Request
from hsparse.wire.record_message import DeleteAttributes, DeleteLinks

MAX_PATTERN = 256
IMPOSSIBLE_TITLE = "/"
"""A title that no link can have."""
IMPOSSIBLE_NAME = ""
"""A name that no attribute can have."""


def page_of(request: Request, names: list[str], what: str) -> list[str]:
    """Return at most `Limit` names after `Marker` that match `pattern`.

    Raises `NotFound` if the marker is not among the names; `what` is the word for a name in the error.
    """
    marker = request.arg("Marker")
    if marker:
        if marker not in names:
            raise NotFound(f"There is no {what} {marker!r}; Marker must be a page's last name.")
        names = names[names.index(marker) + 1 :]
    return matching_names(request, names)


def matching_names(request: Request, names: list[str]) -> list[str]:
    """Return at most `Limit` names that match `pattern`; in multi-object requests the limit is for each object."""
    matches = name_matcher(request.arg("pattern"))
    names = [name for name in names if matches(name)]
    limit = request.number("Limit")
    return names if not limit else names[:limit]


class ReplyLimit:
    """The `Limit` of an answer with names of many objects, counted over all objects; 0 means no limit."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._left = request.number("Limit") or None

    def take(self, names: list[str]) -> list[str]:
        """Return the names that match `pattern`, up to the rest of the limit; subtract their number from the limit."""
        matches = name_matcher(self._request.arg("pattern"))
        taken = [name for name in names if matches(name)][: self._left]
        if self._left is not None:
            self._left -= len(taken)
        return taken

    def reached(self) -> bool:
        """Return whether the limit is used up."""
        return self._left == 0


def ordered_names(request: Request, items: dict[str, Any]) -> list[str]:
    """Return the names of links or attributes, sorted by name or, if `CreateOrder` is set, by creation time."""
    if request.flag("CreateOrder"):
        return sorted(items, key=lambda name: items[name].get("created", 0))
    return sorted(items)


def split_names(request: Request, parameter: str) -> tuple[str, ...]:
    """Split the names in a query parameter at `separator` (default "/"); raise `BadRequest` if there are none."""
    text = request.arg(parameter)
    if not text:
        raise BadRequest(f"The parameter {parameter} must have names, joined by / or by separator.")
    return tuple(dict.fromkeys(text.split(request.arg("separator") or "/")))


def name_matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a test for names (all pass without a pattern); raise `BadRequest` if the pattern is invalid."""
    if not pattern:
        return lambda name: True
    if len(pattern) > MAX_PATTERN:
        raise BadRequest(f"The pattern has {len(pattern)} characters; the limit is {MAX_PATTERN}.")
    if pattern.count("[") != pattern.count("]"):
        raise BadRequest(f"The pattern {pattern!r} has an unmatched bracket: close or remove it.")
    try:
        return NamePattern(pattern).matches
    except re.error as error:
        raise BadRequest(f"The pattern {pattern!r} is not valid: {error}.") from error


def encode_listing(request: Request, count: int, make: Callable[[], Any]) -> Encoded:
    """Return the JSON of `make()`, a listing of `count` names, or a function that returns the JSON if it takes long."""
    return encode_unless_long(listing_work(request, count), make)


def listing_work(request: Request, count: int) -> int:
    """Return the approximate work of listing `count` names with the request's pattern, to pass to `compute`."""
    return count * (1 + len(request.arg("pattern") or ""))


def in_creation_order(bodies: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the items of `bodies` sorted by their bodies' `created` times; bodies without a time come first."""

    def created(item: tuple[str, Any]) -> float:
        time = item[1].get("created") if isinstance(item[1], dict) else None
        return time if isinstance(time, int | float) else 0.0

    return sorted(bodies.items(), key=created)


async def missing_link(owners: Owners, id: str, title: str) -> HsparseError:
    """Return the error for a link that a group's record does not have."""
    return await _why_missing(
        owners, DeleteLinks(id, (title, IMPOSSIBLE_TITLE)), f"The group {id} has no link {title!r}."
    )


async def missing_attribute(owners: Owners, id: str, name: str) -> HsparseError:
    """Return the error for an attribute that an object's record does not have."""
    return await _why_missing(
        owners, DeleteAttributes(id, (name, IMPOSSIBLE_NAME)), f"{id} has no attribute {name!r}."
    )


async def _why_missing(owners: Owners, change: DeleteLinks | DeleteAttributes, sentence: str) -> HsparseError:
    """Return the owner's error for a missing name, which is `Gone` if the name was deleted.

    The error is found by a deletion that always fails: deletions are atomic, and this one also has a name that cannot
    exist, so it changes nothing. If the object is read-only, no name was deleted and the error is `NotFound`.
    """
    failure = (await owners.change(change))[0].failure
    if failure is None or failure.kind == ErrorKind.FORBIDDEN:
        return NotFound(sentence)
    return failure.error()
