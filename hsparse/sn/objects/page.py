"""Parts of listings: `Marker` is the last name a client has, `Limit` how many more it wants."""

from __future__ import annotations

from typing import Any

from hsparse.errors import BadRequest, NotFound
from hsparse.sn.context import Context
from hsparse.sn.objects.pattern import matcher


def page_of(context: Context, names: list[str], what: str) -> list[str]:
    """Return the names after `Marker` that match `pattern`, at most `Limit`.

    `NotFound` when the marker is none of the names; `what` names them in the sentence.
    """
    marker = context.arg("Marker")
    if marker:
        if marker not in names:
            raise NotFound(f"There is no {what} {marker!r} to continue after (Marker).")
        names = names[names.index(marker) + 1 :]
    return matching(context, names)


def matching(context: Context, names: list[str]) -> list[str]:
    """Return the names that match `pattern`, at most `Limit`: of each of several objects."""
    matches = matcher(context.arg("pattern"))
    names = [name for name in names if matches(name)]
    limit = context.number("Limit")
    return names if not limit else names[:limit]


def ordered(context: Context, items: dict[str, Any]) -> list[str]:
    """Return the names of links or attributes: by name or, with `CreateOrder`, as they were created."""
    if context.flag("CreateOrder"):
        return sorted(items, key=lambda name: items[name].get("created", 0))
    return sorted(items)


def split_names(context: Context, parameter: str) -> tuple[str, ...]:
    """Return the names in a query parameter, joined by `separator` ("/" without one)."""
    text = context.arg(parameter)
    if not text:
        raise BadRequest(f"The parameter {parameter} must name what is meant, joined by the separator.")
    return tuple(dict.fromkeys(text.split(context.arg("separator") or "/")))
