"""Multi-object requests: bodies that name several objects, and the links or attributes to set or return of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hsparse.concurrency.gathering import with_pauses
from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.http.request import MAX_NAMES, text_list
from hsparse.sn.request import Request
from hsparse.wire.message import Record

MAX_SET = 100_000
"""The maximum number of links or attributes that one request sets, counted over all its objects."""
ITEMS_AT_ONCE = 256
"""Links or attributes that are processed without a pause for other requests."""
NamePlaces: TypeAlias = dict[str, int]
"""Unique names in the request's order, each with its position."""


@dataclass(frozen=True, slots=True)
class MultiObjectRequest:
    """The keys in the body of a multi-object request: for ids, for items to set, and for names to return."""

    ids: str
    items: str
    names: str
    collection: str | None = None

    async def parsed(
        self, request: Request, body: Record, parse: Callable[[Any], Awaitable[Record]]
    ) -> dict[str, Record]:
        """Return a dict that maps each object id to the items to set, as `parse` returns them. Do not modify the items.

        The body has items for the object in the URL, or items for all ids in a list, which are parsed once, or a dict
        with items for each id. Raises `TooLarge` if the objects would get too many items or bytes in total.
        """
        ids, items = body.get(self.ids), body.get(self.items)
        if ids is None:
            return {request.object_id(self.collection): await parse(items)}
        if isinstance(ids, list) and ids:
            checked = await self._checked(request, ids)
            self._check_number(len(checked), len(items) if isinstance(items, dict) else 0)
            common = await parse(items)
            if len(checked) > 1:
                self._check_bytes(request, len(checked), request.http.content.total_bytes)
            return dict.fromkeys(checked, common)
        if not isinstance(ids, dict) or not ids or items is not None:
            raise BadRequest(
                f"{self.ids} must be a list of ids, with {self.items} beside it, or have {self.items} for each id."
            )
        given = {id: one.get(self.items) if isinstance(one, dict) else None for id, one in ids.items()}
        self._check_total(
            self.items, sum(len(one) for one in given.values() if isinstance(one, dict)), MAX_SET
        )
        return {self._check(request, id): await parse(one) async for id, one in with_pauses(given.items(), 1)}

    async def wanted(self, request: Request, body: Record) -> dict[str, NamePlaces | None]:
        """Return a dict of each object id's wanted names (None: all); raise `TooLarge` beyond `MAX_NAMES` names."""
        ids, names = body.get(self.ids), _places(text_list(body, self.names))
        if ids is None:
            if names is None:
                raise BadRequest(f"The body must have {self.names} or {self.ids}.")
            return {request.object_id(self.collection): names}
        if isinstance(ids, list) and ids:
            return dict.fromkeys(await self._checked(request, ids), names)
        if not isinstance(ids, dict) or not ids or names is not None or None in ids.values():
            raise BadRequest(f"{self.ids} must be a list of ids, or have a list of {self.names} for each id.")
        self._check_total(
            self.names, sum(len(some) for some in ids.values() if isinstance(some, list)), MAX_NAMES
        )
        return {
            self._check(request, id): _places(text_list(ids, id))
            async for id in with_pauses(ids, ITEMS_AT_ONCE)
        }

    async def _checked(self, request: Request, ids: list[Any]) -> dict[str, None]:
        """Return the checked ids of a list, without duplicates."""
        self._check_total(self.ids, len(ids), MAX_NAMES)
        return {self._check(request, id): None async for id in with_pauses(ids, ITEMS_AT_ONCE)}

    def _check_total(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise TooLarge(f"The body has {count} {what}; the limit is {most}: send several requests.")

    def _check_number(self, objects: int, items: int) -> None:
        if objects * items > MAX_SET:
            raise TooLarge(
                f"{items} {self.items} for each of {objects} objects are {objects * items}; the limit is {MAX_SET}: "
                f"send several requests, each with fewer {self.ids}."
            )

    def _check_bytes(self, request: Request, objects: int, nbytes: int) -> None:
        if objects * nbytes > request.limit:
            raise TooLarge(
                f"A body of {nbytes} bytes for each of {objects} objects is {objects * nbytes}; the limit is "
                f"{request.limit} (max_request_size): send several requests, each with fewer {self.ids}."
            )

    def _check(self, request: Request, id: Any) -> str:
        return request.domain.member(str(id), self.collection)


def _places(names: list[str] | None) -> NamePlaces | None:
    if names is None:
        return None
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def stored_names(names: NamePlaces, stored: Record) -> list[str]:
    """Return the `names` that are keys of `stored`, in the order of `names`; takes time in the smaller of the two."""
    return sorted(names.keys() & stored.keys(), key=names.__getitem__)
