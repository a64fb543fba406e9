"""JSON bodies and answers of values: `application/json`, the form that every HDF REST client speaks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from aiohttp import web

from hsparse.concurrency.collector import PAUSING_LISTS, paused_collector
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.points import Selection
from hsparse.format.selections.selection_json import places_json
from hsparse.format.selections.signed_extent import places_of
from hsparse.format.value_arrays import ValueArrays, number_json, repeat_values
from hsparse.model.json_values import LIST_BYTES, Values, json_size, list_count
from hsparse.model.vlen_array import rows_of
from hsparse.sn.http.request import JSON_TYPE, MAX_JSON, read_json_object
from hsparse.sn.http.response import (
    Encode,
    Href,
    encode_json,
    encode_nulls,
    encode_pieces,
    encode_rows,
    hrefs,
    items_of,
    respond_pieces,
)
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import JSON_HEADER, Request
from hsparse.sn.values.append import Append, parse_append
from hsparse.sn.values.chunk_fanout import DefinedRead
from hsparse.sn.values.defined_read import defined_too_large, read_whole, whole_bound
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.media.medium import FoundRead, Medium, ValueRead
from hsparse.sn.values.reduction.dataset_reduction import Reduced
from hsparse.sn.values.request_selection import (
    ReadRequest,
    WriteSelection,
    body_resolve,
    body_shape,
    pack_points,
    stepped_selection,
)

TEXT_BYTES = 4
"""The approximate maximum of bytes of JSON for each byte of values."""
VLEN_ITEM_BYTES = 8
"""The approximate bytes of an item of a vlen sequence, used to estimate the number of items."""
WRITE_KEYS = frozenset(
    {
        "value",
        "value_base64",
        "start",
        "stop",
        "step",
        "points",
        "append",
        "append_dim",
        "append_side",
        "element_count",
        "select",
        "fields",
    }
)
STEPPED_KEYS = frozenset({"start", "stop", "step"})
SELECTION_KEYS = (*(frozenset({key}) for key in ("points", "select", "selection")), STEPPED_KEYS)
"""The ways to name elements in the body of a read, each as the set of its keys."""
PARAMETER_KEYS = frozenset(
    {"fields", "query", "order_by", "Limit", "nonstrict", "ignore_nan", "reduce_dim", "domain", "bucket"}
)
"""Parameters that may be in the body of a read, where h5pyd sends them if the selection is long."""
READ_KEYS = PARAMETER_KEYS.union(*SELECTION_KEYS)


def json_limit(request: Request) -> int:
    """Return the maximum number of bytes of values that a JSON answer may have."""
    return min(request.service.settings.max_request_size, MAX_JSON)


async def answer_values(read: ValueRead) -> web.StreamResponse:
    """Answer with all selected values; undefined elements have the fill value."""
    request, arrays, count = read.request, read.arrays, read.selection.size
    limit = json_limit(request)
    rooms = sorted({min(limit, arrays.expected(count)), limit})
    lists = LIST_BYTES * json_size(read.selection.shape, arrays.element).lists
    for room in rooms if arrays.least(count) + lists <= limit else ():
        async with request.service.answers.hold((1 + TEXT_BYTES) * room + lists):
            values = await read.chunks.read_within(read.selection, read.fields, room)
            if isinstance(values, int):
                continue
            if request.flag("reduce_dim") and len(values.shape) > 1:
                values = arrays.squeeze(values)
            links = value_hrefs(request, read.dataset)
            return await respond_values(request, {"status": 200}, values, arrays, links)
    raise TooLarge(
        f"The values take more than {limit} bytes, the limit of an answer in JSON (by max_request_size), counting "
        f"{LIST_BYTES} bytes for each list: select less, or ask for octet-stream."
    )


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """Answer with the defined elements: a selection of them, and their values in the order of the selection."""
    request, arrays = read.request, read.arrays
    limit = request.service.settings.max_request_size if arrays.is_exact else json_limit(request)

    async def answer(points: Selection, values: Values) -> web.Response:
        if LIST_BYTES * json_size(values.shape, arrays.element).lists > limit:
            raise defined_too_large(limit)
        selection = selection_pieces(points, read.dataset)
        return await respond_values(request, {"selection": selection}, values, arrays)

    return await answer_whole(read, limit, answer, 1 + TEXT_BYTES)


async def answer_whole(
    read: ValueRead, limit: int, answer: Callable[[Selection, Values], Any], times: int = 1
) -> web.StreamResponse:
    """Answer with `answer(points, values)` of all defined elements; raise `TooLarge` if they exceed `limit` bytes.

    Memory is held for `times` the bytes of the elements, because the encoded answer takes memory too.
    """
    request, settings = read.request, read.request.service.settings
    chunks = read.chunks
    room = whole_bound(read.dataset, read.selection, limit)
    for nbytes in sorted({room, limit}):
        defined = DefinedRead(chunks, min(settings.page_size, max(1, nbytes)))
        async with request.service.answers.hold(times * nbytes):
            found = await read_whole(defined, read.selection, nbytes)
            if found is not None:
                response: web.StreamResponse = await answer(*found)
                return response
    raise defined_too_large(limit)


def answer_places(read: ValueRead) -> web.StreamResponse:
    """Answer with a selection in HDF5/JSON form."""
    pieces = encode_pieces({"selection": selection_pieces(read.selection, read.dataset)})
    return web.Response(body=b"".join(pieces), headers={"Content-Type": JSON_HEADER})


def selection_pieces(selection: Selection, dataset: StoredDataset) -> Iterator[bytes]:
    """Yield a selection in HDF5/JSON form, encoded when the first piece is requested."""
    yield from encode_pieces(places_json(selection, dataset.extent, arrays=True))


async def answer_found(read: FoundRead) -> web.StreamResponse:
    """Answer with the matches of a query: their coordinates under `index`, and the elements."""
    offsets, values = await collect_found(read.request, read.dataset, read.found, read.arrays)
    extent = read.dataset.extent
    index = places_of(extent, offsets if len(extent) == 1 else unravel(offsets, extent))
    links = value_hrefs(read.request, read.dataset)
    return await respond_values(read.request, {"status": 200, "index": index}, values, read.arrays, links)


async def answer_reduced(request: Request, reduced: Reduced) -> web.StreamResponse:
    """Answer with an array for each operation, and the labels of groups."""
    limit, shape = json_limit(request), reduced.reduction.result_shape
    nbytes = sum(values.nbytes + LIST_BYTES * list_count(shape) for values in reduced.values.values())
    if nbytes > limit:
        raise TooLarge(
            f"The result has more bytes than an answer in JSON may have ({limit}): ask for octet-stream or Arrow."
        )
    groups: dict[str, Any] = {} if reduced.labels is None else {"groups": reduced.labels}
    values = {name: number_json(found) for name, found in reduced.values.items()}
    answer = {"shape": shape, "value": values, **groups, "hrefs": value_hrefs(request, reduced.dataset)}
    count = len(values) * items_of(shape)
    async with request.service.answers.hold(TEXT_BYTES * nbytes):
        return await respond_pieces(count, answer, _encode(request))


async def collect_found(
    request: Request, dataset: StoredDataset, found: AsyncIterator[Rows], arrays: ValueArrays, each: int = 0
) -> Rows:
    """Return all matches of a query; raise `TooLarge` if they are too many for a JSON answer.

    `each` is the number of bytes that a match takes in the answer, or 0 to compute it from the values.
    """
    limit, rank = json_limit(request), len(dataset.extent)
    lists = json_size((), arrays.element).lists
    offsets: list[Any] = []
    values: list[Values] = []
    nbytes = 0
    async for places, some in found:
        offsets.append(places)
        values.append(some)
        nbytes += (
            len(places) * each
            if each
            else len(places) * (8 * rank + LIST_BYTES * lists) + arrays.nbytes(some)
        )
        if nbytes > limit:
            raise TooLarge(
                f"The matches of the query exceed the limit of an answer in JSON ({limit} bytes, max_request_size): "
                "select less, give a Limit or, to read, ask for octet-stream."
            )
    none = np.zeros(0, np.uint64)
    return np.concatenate([none, *offsets]), arrays.join(values)


async def respond_values(
    request: Request,
    answer: dict[str, Any],
    values: Values,
    arrays: ValueArrays,
    links: list[Href] | None = None,
) -> web.Response:
    """Answer with the keys of `answer`, the values under `value` and, if given, the links under `hrefs`.

    Floats that are not finite are written as `NaN` and `Infinity`, as Python does. With the parameter `ignore_nan`
    they are written as null, which is valid JSON.
    """
    rest: dict[str, Any] = {"hrefs": links} if links else {}
    items = json_items(values, arrays)
    pieces = value_pieces(values, arrays, _encode(request))
    with paused_collector() if items >= PAUSING_LISTS else nullcontext():
        return await respond_pieces(items, answer | {"value": pieces} | rest, _encode(request))


def json_items(values: Values, arrays: ValueArrays) -> int:
    """Return the approximate number of numbers, texts and lists in the JSON of the values."""
    items = json_size(values.shape, arrays.element).items
    return items if arrays.is_exact else items + arrays.nbytes(values) // VLEN_ITEM_BYTES


def value_pieces(values: Values, arrays: ValueArrays, encode: Encode) -> Iterator[bytes]:
    """Yield the JSON of `values` in pieces, as `encode_rows` does."""

    def encoded(part: Values) -> bytes:
        listed, has_floats = arrays.to_json(part)
        return encode(listed) if has_floats else encode_nulls(listed)

    return encode_rows(values, json_items(values, arrays), rows_of, encoded)


def _encode(request: Request) -> Encode:
    """Return the request's JSON encoder; if `ignore_nan` is set, it encodes floats that are not finite as null."""
    return encode_nulls if request.flag("ignore_nan") else encode_json


def value_hrefs(request: Request, dataset: StoredDataset) -> list[Href]:
    """Return the `hrefs` of an answer with a dataset's values."""
    own = f"/datasets/{dataset.id}"
    root = f"/groups/{dataset.record['root']}"
    return hrefs(request, self=f"{own}/value", root=root, home="/", owner=own)


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A `WriteBody` in JSON: a selection, and the values as JSON or as bytes in base64."""

    body: dict[str, Any]
    selection: WriteSelection
    append: Append | None
    fields: str | None
    sparse: bool = False

    @property
    def named(self) -> Mapping[str, Any]:
        return self.selection.named

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        arrays = dataset.arrays.of_fields(fields) if fields else dataset.arrays
        selection = self.selection.resolve(dataset.extent)
        if "value_base64" in self.body:
            try:
                data = base64.b64decode(self.body["value_base64"], validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise BadRequest("value_base64 is not base64 text.") from error
            shape = body_shape(self.selection.count, selection)
            values = arrays.from_bytes(data, prod(shape), shape)
            return selection, repeat_values(arrays, values, selection.shape)
        if "value" not in self.body:
            raise BadRequest("The body has neither value nor value_base64.")
        with paused_collector() if selection.size >= PAUSING_LISTS else nullcontext():
            if self.selection.count is None:
                return selection, arrays.from_json(self.body["value"], selection.shape)
            values = self._counted(arrays, body_shape(self.selection.count, selection))
        return selection, repeat_values(arrays, values, selection.shape)

    def _counted(self, arrays: ValueArrays, shape: tuple[int, ...]) -> Values:
        """Return the body's `value` as an array of this shape; lists of one item around the value are removed."""
        value = self.body["value"]
        while True:
            try:
                values = arrays.from_json(value, shape)
                break
            except BadRequest:
                if not (isinstance(value, list) and len(value) == 1):
                    raise
                (value,) = value
        if values.size != prod(shape):
            raise BadRequest(f"The value has {values.size} elements; element_count is {prod(shape)}.")
        return values


async def read_body(request: Request) -> JsonBody:
    """Read the body of a write."""
    body = await read_json_object(request, pack_points)
    if unknown := set(body) - WRITE_KEYS:
        known = ", ".join(sorted(WRITE_KEYS))
        raise BadRequest(f"Unknown key {min(unknown)!r} in the body; known are {known}.")
    names = ("append", "append_dim")
    count, dim = map(body.get, names, map(request.number, names))
    fields = body.get("fields", request.arg("fields"))
    if not (fields is None or isinstance(fields, str)):
        raise BadRequest("fields must be a string like 'a:b'.")
    side = body.get("append_side", request.arg("append_side"))
    append = None if count is None else parse_append(count, dim, side)
    return JsonBody(body, WriteSelection.of(request, body), append, fields)


async def read_request(request: Request) -> ReadRequest:
    """Read the body of a read: points, a select string or a hyperslab, with parameters."""
    body = await read_json_object(request, pack_points)
    ways = [keys for keys in SELECTION_KEYS if keys & set(body)]
    known = READ_KEYS | {"orthogonal"} if "select" in body else READ_KEYS
    if set(body) - known or len(ways) != 1:
        raise BadRequest(
            "The body must have one of points, select (with orthogonal), selection, and start with stop. It may also "
            "have step, fields, query and Limit."
        )
    if ways == [STEPPED_KEYS]:
        return ReadRequest.of(request, body, lambda extent: stepped_selection(body, extent))
    resolve = body_resolve({key: value for key, value in body.items() if key not in PARAMETER_KEYS})
    return ReadRequest.of(request, body, resolve)


JSON = Medium(
    JSON_TYPE,
    read_body,
    read_request,
    answer_values,
    answer_defined,
    answer_places,
    answer_found,
    answer_reduced,
)
