"""Handlers of attributes: one attribute by name, or many attributes of one or many objects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from typing import Any

from aiohttp import hdrs, web

from hsparse.concurrency.gathering import with_pauses
from hsparse.errors import BadRequest, ErrorKind
from hsparse.model.acl import Right
from hsparse.model.attribute import (
    answer_work,
    attribute_bytes,
    attribute_values,
    check_name,
    parse_attribute,
)
from hsparse.model.attribute_json import attribute_value_json
from hsparse.model.datatype import parse_type
from hsparse.model.schema import given_creation_time
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.requested_type import parsed_value, read_type
from hsparse.sn.http.response import Encoded, Href, href, hrefs, respond_computed, respond_floats
from hsparse.sn.records.crawl import Crawl, RecordReader, require_records
from hsparse.sn.records.listing import (
    ReplyLimit,
    encode_listing,
    in_creation_order,
    listing_work,
    matching_names,
    missing_attribute,
    ordered_names,
    page_of,
    split_names,
)
from hsparse.sn.records.multi_object_request import (
    ITEMS_AT_ONCE,
    MultiObjectRequest,
    NamePlaces,
    stored_names,
)
from hsparse.sn.records.object_json import attribute_json
from hsparse.sn.records.streamed_records import respond_records
from hsparse.sn.request import Request, respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteAttributes, PutAttributes

BINARY = "application/octet-stream"
KEYS = MultiObjectRequest("obj_ids", "attributes", "attr_names")


async def get_attributes(request: Request) -> web.StreamResponse:
    """List an object's attributes (only `attr_names` if given); `follow_links` adds attributes of all objects below."""
    own = own_path(request)
    id = request.object_id()
    links = {"hrefs": hrefs(request, self=f"{own}/attributes", home="/", owner=own)}
    if request.flag("follow_links"):
        await request.service.owners.record(request.domain.member(id, "groups"))
        return await _reachable(request, [id], {}, links)
    record = await request.service.owners.record(id)
    stored = record.get("attributes") or {}

    def answer() -> Record:
        if request.arg("attr_names"):
            names = [name for name in split_names(request, "attr_names") if name in stored]
        else:
            names = ordered_names(request, stored)
        names = page_of(request, names, "attribute")
        attributes = [_attribute_answer(request, name, stored[name]) for name in names]
        for attribute in attributes:
            attribute["href"] = href(request, f"{own}/attributes/{attribute['name']}")
        return {"attributes": attributes} | links

    return await _respond(request, stored.values(), answer)


async def post_attributes(request: Request) -> web.StreamResponse:
    """Answer with attributes (`attr_names`, or all) of the object in the URL, or of each object in `obj_ids`.

    `follow_links` adds all attributes of objects below. With it, or with several ids, missing names are ignored.
    """
    body = await read_json_object(request)
    wanted = await KEYS.wanted(request, body)
    ids = list(wanted)
    owners = request.service.owners
    if request.flag("follow_links"):
        await require_records(owners, ids)
        return await _reachable(request, ids, wanted, {})
    if len(ids) > 1:
        if isinstance(body.get("obj_ids"), dict):
            await _check_all_there(request, wanted)
        reading = RecordReader(owners, {id: id for id in ids})
        return await respond_records(request, "attributes", reading, _of_object(request, wanted), {})
    id = ids[0]
    stored = (await owners.record(id)).get("attributes") or {}
    places = wanted[id]
    await _check_there(request, id, stored, places or {})

    def answer() -> Record:
        names = ordered_names(request, stored) if places is None else list(places)
        names = matching_names(request, names)
        return {"attributes": [_attribute_answer(request, name, stored[name]) for name in names]}

    return await _respond(
        request, stored.values() if places is None else [stored[name] for name in places], answer
    )


async def put_attributes(request: Request) -> web.StreamResponse:
    """Set attributes of the object in the URL or of each object in `obj_ids`; answer 201, or 200 if nothing changed."""
    body = await read_json_object(request)
    return await _put(request, await KEYS.parsed(request, body, lambda items: _parsed(request, items)))


async def delete_attributes(request: Request) -> web.StreamResponse:
    """Delete the attributes in `attr_names`: names joined by the separator, in base64 if `encoding=base64` is given.

    Missing names are ignored, because h5pyd 1.0.0 repeats the request at every flush of a session.
    """
    id = request.object_id()
    names = _decoded_names(request) if _base64(request) else split_names(request, "attr_names")
    await request.service.owners.apply(DeleteAttributes(id, names, skip_missing=True))
    return respond({"hrefs": []})


async def get_attribute(request: Request) -> web.StreamResponse:
    """Answer with one attribute; if the request has `IncludeData=0`, the answer has no value."""
    name, stored = await _requested(request)
    data = request.arg("IncludeData") is None or request.flag("IncludeData")

    def answer() -> Record:
        found = _attribute_answer(request, name, stored, data=data)
        return found | {
            "lastModified": stored.get("lastModified", found["created"]),
            "hrefs": _hrefs(request, name),
        }

    return await _respond(request, [stored] if data else [], answer)


async def put_attribute(request: Request) -> web.StreamResponse:
    """Set one attribute; answer 201, or 200 if nothing changed."""
    name = check_name(request.params["name"])
    id, body = request.object_id(), await read_json_object(request)
    return await _put(request, {id: {name: await _parsed_one(request, body)}})


async def delete_attribute(request: Request) -> web.StreamResponse:
    """Delete one attribute."""
    name = check_name(request.params["name"])
    await request.service.owners.apply(DeleteAttributes(request.object_id(), (name,)))
    return respond({})


async def get_attribute_value(request: Request) -> web.StreamResponse:
    """Answer with an attribute's value in JSON or, if `Accept` names octet-stream, in bytes (vlen: length-prefixed)."""
    name, stored = await _requested(request)
    links = {"hrefs": _hrefs(request, name)}
    is_binary = BINARY in request.http.headers.get(hdrs.ACCEPT, "")
    is_base64 = not is_binary and ("encoding" in stored or _base64(request))
    work = answer_work([stored])

    def make() -> web.Response:
        if is_binary:
            return web.Response(body=attribute_bytes(stored), content_type=BINARY)
        if is_base64:
            text = base64.b64encode(attribute_bytes(stored)).decode()
            return respond({"value": text, "encoding": "base64"} | links)
        attribute_values(stored)  # raises for a null dataspace
        value = attribute_value_json(stored, ignore_nan=request.flag("ignore_nan"))
        return respond_floats({"value": value} | links, items=work)

    return await respond_computed(work, make)


async def put_attribute_value(request: Request) -> web.StreamResponse:
    """Replace one attribute's value by the body (JSON or bytes); type and dataspace stay unchanged."""
    name, stored = await _requested(request)
    if stored["shape"]["class"] == "H5S_NULL":
        raise BadRequest("An attribute with a null dataspace has no value: create it with another shape.")
    datatype = parse_type(stored["type"])
    if BINARY in request.http.headers.get(hdrs.CONTENT_TYPE, ""):
        body: Record = {"value": await request.body()}
    else:
        body = await read_json_object(request)
        if "value" not in body:
            raise BadRequest("The body must have a value.")
    given = {"shape": stored["shape"], "value": body["value"], "encoding": body.get("encoding")}
    attribute = await parsed_value(given, datatype, parse_attribute)
    change = PutAttributes(request.object_id(), {name: attribute}, replace=True)
    await request.service.owners.apply(change)
    return respond({})


def own_path(request: Request) -> str:
    """Return the URL path of the object in the request's URL, such as `/groups/g-...`."""
    return f"/{request.collection}/{request.params['id']}"


def _hrefs(request: Request, name: str) -> list[Href]:
    own = own_path(request)
    return hrefs(request, self=f"{own}/attributes/{name}", home="/", owner=own)


async def _requested(request: Request) -> tuple[str, Record]:
    """Return a pair: the name of the attribute in the request's path, and its stored form."""
    name = request.params["name"]
    record = await request.record()
    stored = (record.get("attributes") or {}).get(name)
    if stored is None:
        raise await missing_attribute(request.service.owners, record["id"], name)
    return name, stored


def _of_object(
    request: Request, wanted: dict[str, NamePlaces | None], limit: ReplyLimit | None = None
) -> Callable[[str, Record], Encoded]:
    """Return a function that returns the JSON of an object's attributes: all, or those in `wanted` that exist.

    The request's `Limit` applies to each object or, with `limit`, to all objects together.
    """

    data = request.flag("IncludeData")

    def to_json(id: str, record: Record) -> Encoded:
        stored, places = record.get("attributes") or {}, wanted.get(id)
        count = len(stored if places is None else places)

        def listed() -> list[Record]:
            names = ordered_names(request, stored) if places is None else stored_names(places, stored)
            names = matching_names(request, names) if limit is None else limit.take(names)
            return [_attribute_answer(request, name, stored[name], data=data) for name in names]

        work = answer_work(stored.values()) if data else 0
        return encode_listing(request, max(count, work), listed)

    return to_json


async def _reachable(
    request: Request, ids: list[str], wanted: dict[str, NamePlaces | None], around: Record
) -> web.StreamResponse:
    """Answer with the attributes of objects and of all objects below; `wanted` may limit an object's attributes."""
    limit = ReplyLimit(request)
    crawl = Crawl(request.service.owners, *ids, leaves=True, ended=limit.reached)
    return await respond_records(request, "attributes", crawl, _of_object(request, wanted, limit), around)


async def _check_all_there(request: Request, wanted: dict[str, NamePlaces | None]) -> None:
    async for batch in RecordReader(request.service.owners, {id: id for id in wanted}).batches():
        for id, record in batch:
            await _check_there(request, id, record.get("attributes") or {}, wanted[id] or {})


async def _check_there(request: Request, id: str, stored: Record, names: NamePlaces) -> None:
    for name in names:
        if name not in stored:
            raise await missing_attribute(request.service.owners, id, name)


def _attribute_answer(request: Request, name: str, stored: Record, *, data: bool | None = None) -> Record:
    data = request.flag("IncludeData") if data is None else data
    max_size = request.number("max_data_size") or 0
    found = attribute_json(name, stored, data=data, max_size=max_size, ignore_nan=request.flag("ignore_nan"))
    wanted = "value" in found and "encoding" not in found and _base64(request)
    if wanted and stored.get("value") is not None:
        return found | {"value": base64.b64encode(attribute_bytes(stored)).decode(), "encoding": "base64"}
    return found


async def _respond(request: Request, some: Collection[Record], answer: Callable[[], Record]) -> web.Response:
    """Answer with the JSON of `answer()`; a worker thread makes it if its attributes, `some`, are many or large."""
    work = max(answer_work(some), listing_work(request, len(some)))
    return await respond_computed(work, lambda: respond_floats(answer(), items=work))


def _base64(request: Request) -> bool:
    encoding = request.arg("encoding")
    if encoding not in (None, "", "base64"):
        raise BadRequest(f"The encoding must be base64, not {encoding!r}.")
    return encoding == "base64"


async def _put(request: Request, attributes: dict[str, Record]) -> web.StreamResponse:
    """Set the attributes of each object id; with `replace=1` and the right to update, replace existing attributes."""
    asked = request.flag("replace")
    replace = asked and request.domain.allows(request.principal, Right.UPDATE)
    changes = [PutAttributes(id, some, replace) for id, some in attributes.items()]
    outcomes = await request.service.owners.change(*changes)
    for outcome in outcomes:
        if outcome.failure is not None:
            if asked and outcome.failure.kind == ErrorKind.CONFLICT:
                request.domain.require(request.principal, Right.UPDATE)
            raise outcome.failure.error()
    return respond({}, status=201 if any(outcome.changed for outcome in outcomes) else 200)


async def _parsed(request: Request, bodies: Any) -> Record:
    """Return a dict that maps each name in `bodies` to the attribute's stored form, in order of creation times."""
    if not isinstance(bodies, dict) or not bodies:
        raise BadRequest("attributes must be an object, with an attribute for each name.")
    if not all(isinstance(body, dict) for body in bodies.values()):
        raise BadRequest("An attribute must be an object, with type, shape and value.")
    return {
        check_name(name): await _parsed_one(request, body)
        async for name, body in with_pauses(in_creation_order(bodies), ITEMS_AT_ONCE)
    }


async def _parsed_one(request: Request, body: Record) -> Record:
    """Return the stored form of an attribute."""
    stored = await parsed_value(body, await read_type(request, body), parse_attribute)
    if "created" in body:
        stored |= given_creation_time(body, request.service.clock.now())
    return stored


def _decoded_names(request: Request) -> tuple[str, ...]:
    try:
        text = base64.b64decode(request.arg("attr_names") or "", validate=True).decode()
    except ValueError as error:  # invalid base64, or bytes that are not UTF-8
        raise BadRequest(f"attr_names is not valid base64: {error}.") from error
    if not text:
        raise BadRequest("The parameter attr_names names no attribute.")
    return tuple(dict.fromkeys(text.split(request.arg("separator") or "/")))
