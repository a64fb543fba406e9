"""Listings of links and attributes: pages, patterns, multi-object requests, and errors about missing names.

`Marker` is the last name that a client has, `Limit` the number of names it wants; patterns have `*`, `?` and `[a-z]`.

Bulk listings: JSON answers about any number of records, in bounded memory.

Small answers are sent whole, larger ones are streamed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from hsparse.compute import LONG, compute, with_pauses
from hsparse.errors import BadRequest, ErrorKind, HsparseError, NotFound, TooLarge
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.http.request import JSON_TYPE, MAX_NAMES, text_list
from hsparse.sn.http.response import Encoded, encode_json, encode_unless_long
from hsparse.sn.http.stream import NO_HEADERS, respond_stream
from hsparse.sn.records.crawl import RecordSource
from hsparse.sn.records.object_path import NamePattern
from hsparse.sn.request import JSON_HEADER, Request
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteAttributes, DeleteLinks

MAX_PATTERN = 256
MAX_SET = 100_000
"""The most links or attributes that one request sets, for all its objects together."""
ITEMS_AT_ONCE = 256
"""Links or attributes of a request after which other requests run."""
NamePlaces: TypeAlias = dict[str, int]
"""Names, each once and in their order, with their places."""
IMPOSSIBLE_TITLE = "/"
"""A title that no link can have."""
IMPOSSIBLE_NAME = ""
"""A name that no attribute can have."""


def page_of(request: Request, names: list[str], what: str) -> list[str]:
    """Return the names after `Marker` that match `pattern`, at most `Limit`.

    `NotFound` if the marker is not among the names; `what` is the word for them in the error.
    """
    marker = request.arg("Marker")
    if marker:
        if marker not in names:
            raise NotFound(f"There is no {what} {marker!r} to continue after (Marker).")
        names = names[names.index(marker) + 1 :]
    return matching_names(request, names)


def matching_names(request: Request, names: list[str]) -> list[str]:
    """Return the names that match `pattern`, at most `Limit`; for multi-object requests, of each object."""
    matches = name_matcher(request.arg("pattern"))
    names = [name for name in names if matches(name)]
    limit = request.number("Limit")
    return names if not limit else names[:limit]


class ReplyLimit:
    """The `Limit` of a reply with the names of many objects: how many names it may have in all, 0 for any number."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._left = request.number("Limit") or None

    def take(self, names: list[str]) -> list[str]:
        """Return the names that match `pattern`, as many as may follow those taken before."""
        matches = name_matcher(self._request.arg("pattern"))
        taken = [name for name in names if matches(name)][: self._left]
        if self._left is not None:
            self._left -= len(taken)
        return taken

    def reached(self) -> bool:
        """Say whether no more names may follow."""
        return self._left == 0


def ordered_names(request: Request, items: dict[str, Any]) -> list[str]:
    """Return the names of links or attributes, in the order of names or, with `CreateOrder`, of creation."""
    if request.flag("CreateOrder"):
        return sorted(items, key=lambda name: items[name].get("created", 0))
    return sorted(items)


def split_names(request: Request, parameter: str) -> tuple[str, ...]:
    """Return the names in a query parameter, joined by `separator` ("/" without one)."""
    text = request.arg(parameter)
    if not text:
        raise BadRequest(f"The parameter {parameter} must name what is meant, joined by the separator.")
    return tuple(dict.fromkeys(text.split(request.arg("separator") or "/")))


def name_matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a function that says whether a name matches; without a pattern every name does."""
    if not pattern:
        return lambda name: True
    if len(pattern) > MAX_PATTERN:
        raise BadRequest(f"The pattern has {len(pattern)} characters; the limit is {MAX_PATTERN}.")
    if pattern.count("[") != pattern.count("]"):
        raise BadRequest(f"The pattern {pattern!r} has a bracket without its partner.")
    try:
        return NamePattern(pattern).matches
    except re.error as error:
        raise BadRequest(f"The pattern {pattern!r} is not valid: {error}.") from error


def encode_listing(request: Request, count: int, make: Callable[[], Any]) -> Encoded:
    """Return the JSON of what `make` returns, which lists `count` names; what makes the JSON if that takes long."""
    return encode_unless_long(listing_work(request, count), make)


def listing_work(request: Request, count: int) -> int:
    """Return about how many elements are looked at to list `count` names, see `respond_computed`."""
    return count * (1 + len(request.arg("pattern") or ""))


@dataclass(frozen=True, slots=True)
class MultiObjectRequest:
    """The body of a multi-object request, by its keys: ids, the items to set, and the names to return."""

    ids: str
    items: str
    names: str
    collection: str | None = None

    async def parsed(
        self, request: Request, body: Record, parse: Callable[[Any], Awaitable[Record]]
    ) -> dict[str, Record]:
        """Return what `parse` makes of the items to set, by id; it is not to be modified.

        They are for the request's object, for all ids in a list (and are parsed once), or for each id in a dict.
        `TooLarge` when all the objects in a list would have too many items, or bytes of bodies for each.
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
                f"{self.ids} must be a list of ids, with {self.items} beside it, or give them for each id."
            )
        given = {id: one.get(self.items) if isinstance(one, dict) else None for id, one in ids.items()}
        self._check_total(
            self.items, sum(len(one) for one in given.values() if isinstance(one, dict)), MAX_SET
        )
        return {self._check(request, id): await parse(one) async for id, one in with_pauses(given.items(), 1)}

    async def wanted(self, request: Request, body: Record) -> dict[str, NamePlaces | None]:
        """Return the names to return, by id; None for all. `TooLarge` for more than `MAX_NAMES` in all."""
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
        """Return the ids in a list, each once."""
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
    """Return those of `names` that are stored, in their order; the time is that of the fewer of both."""
    return sorted(names.keys() & stored.keys(), key=names.__getitem__)


def in_creation_order(bodies: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return named bodies in their order of creation, as far as they have one."""

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
    """Return the owner's error, `Gone` for a deleted name, for a deletion that always fails.

    A deletion is atomic, so one that also has a name that cannot exist changes nothing, even if the missing name was
    created in the meantime. Where nothing may be changed, nothing was deleted either.
    """
    failure = (await owners.change(change))[0].failure
    if failure is None or failure.kind == ErrorKind.FORBIDDEN:
        return NotFound(sentence)
    return failure.error()


PIECE = 1 << 20
ENCODED_AT_ONCE = 64
ENCODED_BYTES = 1 << 16
"""Records, and about the bytes of their JSON, that are encoded without letting other requests run."""


async def respond_parts(
    request: Request,
    parts: AsyncGenerator[bytes, None],
    media: str = JSON_TYPE,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Answer with the concatenation of `parts`; one of more than `PIECE` bytes is streamed."""
    async with request.service.answers.hold(4 * PIECE):
        pieces = _joined_parts(parts)
        async with aclosing(pieces):
            first = await anext(pieces, b"")
            if len(first) < PIECE:
                kind = JSON_HEADER if media == JSON_TYPE else media
                return web.Response(body=first, headers={**headers, "Content-Type": kind})
            return await respond_stream(request, media, _continued(first, pieces), headers=headers)


async def _continued(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in rest:
        yield piece


async def _joined_parts(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Join the parts to pieces of at least `PIECE` bytes, except the last."""
    piece = bytearray()
    async with aclosing(parts):
        async for part in parts:
            piece += part
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece = bytearray()
    if piece:
        yield bytes(piece)


async def wrap_items(
    name: str, items: AsyncGenerator[bytes, None], around: dict[str, Any], brackets: bytes = b"{}"
) -> AsyncGenerator[bytes, None]:
    """Yield a JSON object with the keys of `around` and, under `name`, `items` in brackets: `{}` or `[]`."""
    yield b"{" + encode_json(name) + b":" + brackets[:1]
    first = True
    async with aclosing(items):
        async for item in items:
            yield item if first else b"," + item
            first = False
    rest = encode_json(around)[1:]
    yield brackets[1:] + (rest if rest == b"}" else b"," + rest)


async def respond_records(
    request: Request,
    name: str,
    records: RecordSource,
    to_json: Callable[[str, Record], Encoded],
    around: Record,
) -> web.StreamResponse:
    """Answer with the keys of `around` and, under `name`, `to_json` of each record by its name.

    `to_json` is called in the records' order; a function that it returns is called in a thread.
    """
    return await respond_parts(
        request, wrap_items(name, _encoded_records(records, to_json, request.current), around)
    )


async def _encoded_records(
    records: RecordSource,
    to_json: Callable[[str, Record], Encoded],
    current: Callable[[Record], Awaitable[Record]],
) -> AsyncGenerator[bytes, None]:
    batches = records.batches()
    async with aclosing(batches):
        async for batch in batches:
            size, some = 0, bytearray()
            for done, (name, record) in enumerate(batch, 1):
                if VIRTUAL_DATA in record:  # one that cannot be read is listed as it is stored
                    with suppress(HsparseError):
                        record = await current(record)
                found = to_json(name, record)
                item = found if isinstance(found, bytes) else await compute(LONG, found)
                some += b"%b%b:%b" % (b"," if some else b"", encode_json(name), item)
                if len(some) >= ENCODED_BYTES or done % ENCODED_AT_ONCE == 0 or done == len(batch):
                    size += len(some)
                    yield bytes(some)
                    some = bytearray()
                    await asyncio.sleep(0)
            records.pace.weigh(size)
