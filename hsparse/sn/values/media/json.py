"""JSON bodies and answers of values: `application/json`, the form that every HDF REST client speaks.

Tests: tests/sn/values/test_values.py, tests/sn/values/test_query_values.py, tests/sn/values/media/test_typed_json.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import parse_fields
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.selection import Selection
from hsparse.format.selections.selection_json import selection_json
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.context import Context
from hsparse.sn.http.request import ARROW_TYPE, JSON_TYPE, MOST_JSON, read_json_object
from hsparse.sn.http.response import respond, respond_floats
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.defined_read import DefinedRead
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.media.medium import Append, FoundRead, Medium, ValueRead
from hsparse.sn.values.request_selection import (
    BodySelection,
    parse_append,
    points_selection,
    select_selection,
    stepped_selection,
    wanted_count,
)

JSON_KEYS = frozenset(
    {
        "value",
        "value_base64",
        "start",
        "stop",
        "step",
        "points",
        "append",
        "append_dim",
        "element_count",
        "select",
        "fields",
    }
)
SELECTING = (frozenset({"points"}), frozenset({"select"}), frozenset({"start", "stop", "step"}))
"""The ways in which a read's body names elements."""
BESIDE = frozenset({"fields", "query", "Limit", "nonstrict", "ignore_nan", "reduce_dim", "domain", "bucket"})
"""What may be there too: h5pyd sends its parameters in the body when the selection is long."""
POST_KEYS = BESIDE.union(*SELECTING)


# --- answers ----------------------------------------------------------------------------------------


def limit_of(context: Context) -> int:
    """Return how many bytes of values an answer in JSON may have."""
    return min(context.service.settings.max_request_size, MOST_JSON)


async def answer_values(read: ValueRead) -> web.StreamResponse:
    """Answer with every selected value, the fill value where none was written."""
    context, arrays, count = read.context, read.arrays, read.selection.size
    limit = limit_of(context)
    rooms = sorted({min(limit, arrays.expected(count)), limit})
    for room in rooms if arrays.least(count) <= limit else ():
        async with context.service.answers.hold(room):
            values = await read.chunks.read_within(read.selection, read.fields, room)
            if isinstance(values, int):
                continue
            if context.flag("reduce_dim") and len(values.shape) > 1:
                values = arrays.squeeze(values)
            return await respond_values(context, {"status": 200}, values, arrays)
    raise TooLarge(
        f"The values take more than the {limit} bytes that an answer in JSON may have (of max_request_size): "
        "select less, or ask for octet-stream."
    )


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """Answer with the defined elements: a selection, and the values in its order."""
    context, arrays = read.context, read.arrays
    limit = context.service.settings.max_request_size if arrays.is_exact else limit_of(context)
    return await whole_defined(
        read,
        limit,
        lambda points, values: respond_values(context, {"selection": selection_json(points)}, values, arrays),
    )


async def whole_defined(
    read: ValueRead, limit: int, answer: Callable[[Selection, Values], Any]
) -> web.StreamResponse:
    """Answer with all defined elements at once; `TooLarge` where they have more than `limit` bytes."""
    context, settings = read.context, read.context.service.settings
    room = DefinedRead(read.dataset, read.chunks, settings.page_size).bound(read.selection, limit)
    for nbytes in sorted({room, limit}):
        defined = DefinedRead(read.dataset, read.chunks, min(settings.page_size, max(1, nbytes)))
        async with context.service.answers.hold(nbytes):
            found = await defined.whole(read.selection, nbytes)
            if found is not None:
                response: web.StreamResponse = await answer(*found)
                return response
    raise TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or ask for {ARROW_TYPE}, which "
        "is not limited."
    )


def answer_places(context: Context, selection: Selection) -> web.StreamResponse:
    """Answer with a selection in HDF5/JSON's form."""
    return respond({"selection": selection_json(selection)})


async def answer_found(read: FoundRead) -> web.StreamResponse:
    """Answer with what a query finds: indices, and the elements."""
    offsets, values = await collected(read.context, read.dataset, read.found, read.arrays)
    extent = read.dataset.extent
    index = offsets if len(extent) == 1 else unravel(offsets, extent)
    return await respond_values(read.context, {"status": 200, "index": index}, values, read.arrays)


async def collected(
    context: Context, dataset: Dataset, found: AsyncIterator[Rows], arrays: ValueArrays, each: int = 0
) -> Rows:
    """Return all that a query finds; `TooLarge` when it is too much for an answer in JSON.

    `each` are the bytes of an element in the answer, where they are known.
    """
    limit, rank = limit_of(context), len(dataset.extent)
    offsets: list[Any] = []
    values: list[Values] = []
    nbytes = 0
    async for places, some in found:
        offsets.append(places)
        values.append(some)
        nbytes += len(places) * each if each else len(places) * 8 * rank + arrays.nbytes(some)
        if nbytes > limit:
            raise TooLarge(
                f"The query finds more than an answer in JSON may have ({limit} bytes, of max_request_size): "
                "select less, give a Limit or, to read, ask for octet-stream."
            )
    none = np.zeros(0, np.uint64)
    return np.concatenate([none, *offsets]), await offload(
        nbytes if not arrays.is_exact else 0, arrays.join, values
    )


async def respond_values(
    context: Context, answer: dict[str, Any], values: Values, arrays: ValueArrays
) -> web.Response:
    """Answer with `answer` and, under `value`, the values.

    Floats that are not finite are `NaN` and `Infinity`, as Python writes and reads them; with `ignore_nan` in the
    request they are null, as JSON has it.
    """
    shown, has_floats = await offload(arrays.work(values.size), arrays.to_json, values)
    answer = answer | {"value": shown}
    return respond_floats(answer) if has_floats and not context.flag("ignore_nan") else respond(answer)


# --- bodies -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonBody:
    """`WriteBody` of JSON: the elements that it names, and their values or bytes in base64."""

    body: dict[str, Any]
    elements: BodySelection
    append: Append | None
    fields: str | None
    sparse: bool = False

    def resolve(self, dataset: Dataset) -> tuple[Selection, Values]:
        arrays = dataset.arrays.of_fields(parse_fields(self.fields, dataset.dtype))
        selection = self.elements.resolve(dataset.extent)
        if "value_base64" in self.body:
            try:
                data = base64.b64decode(self.body["value_base64"], validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise BadRequest("value_base64 is not base64 text.") from error
            count = wanted_count(self.elements.count, selection)
            return selection, arrays.from_bytes(data, count, selection.shape)
        if "value" not in self.body:
            raise BadRequest("The body has neither value nor value_base64.")
        return selection, arrays.from_json(self.body["value"], selection.shape)

    def work(self) -> int:
        return 0


async def read_body(context: Context) -> JsonBody:
    """Read a write's body whole: one cut short applies nothing."""
    body = await read_json_object(context)
    unknown = set(body) - JSON_KEYS
    if unknown:
        known = ", ".join(sorted(JSON_KEYS))
        raise BadRequest(f"Unknown key {min(unknown)!r} in the body; known are {known}.")
    count, dim = (body.get(key, context.number(key)) for key in ("append", "append_dim"))
    fields = body.get("fields", context.arg("fields"))
    if not (fields is None or isinstance(fields, str)):
        raise BadRequest("fields must be a string like 'a:b'.")
    append = parse_append(count, dim)
    return JsonBody(body, BodySelection.of(context, append, body), append, fields)


def parse_points(body: dict[str, Any]) -> Callable[[tuple[int, ...]], Selection]:
    """Return what the body of a read selects in an extent: by points, select string or hyperslab."""
    ways = [keys for keys in SELECTING if keys & set(body)]
    if set(body) - POST_KEYS or len(ways) != 1:
        raise BadRequest(
            "The body must have one of points, select, and start with stop, and beside it at most step, fields, "
            "query and Limit."
        )

    def choose(extent: tuple[int, ...]) -> Selection:
        if "points" in body:
            return points_selection(body["points"], extent)
        if "select" in body:
            return select_selection(body["select"], extent)
        return stepped_selection(body, extent)

    return choose


JSON = Medium(JSON_TYPE, read_body, answer_values, answer_defined, answer_places, answer_found)
