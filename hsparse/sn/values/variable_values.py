"""Values of a dataset of a variable-length type: answers of bounded memory, and bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from aiohttp import web

from hsparse.errors import TooLarge
from hsparse.format.selections.selection import Selection
from hsparse.model.counted import split
from hsparse.model.datatype import Datatype
from hsparse.model.element import Element
from hsparse.model.json_form import to_json
from hsparse.model.variable_array import VariableArray
from hsparse.model.variable_fields import Fields
from hsparse.sn.context import Context
from hsparse.sn.http.request import MOST_JSON
from hsparse.sn.http.stream import MAX_WHOLE_BODY, respond_stream
from hsparse.sn.media import Media, accepted
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.value_json import respond_shown
from hsparse.sn.values.variable_fanout import VariableFanout, aside

SMALL = 16 * 1024
"""Bytes that the least answer is expected to take."""
PAGES_AT_ONCE = 2
"""A streamed answer has one page on its way and makes the next."""


async def answer_variable(
    context: Context, dataset: Dataset, selection: Selection, fields: Sequence[str]
) -> web.StreamResponse:
    """Answer with every selected value, the fill value where none was written."""
    datatype = dataset.spec.datatype
    chunks = VariableFanout(context.service.owners, dataset)
    picked = Fields.named(datatype.element, fields) if fields else None
    if accepted(context.request) is not Media.BINARY:
        return await _answer_json(context, chunks, selection, datatype, picked)
    page_size = context.service.settings.page_size
    expected = min(MAX_WHOLE_BODY, page_size, _expected(selection, datatype))
    if selection.size * datatype.guessed_size <= expected:
        async with context.service.answers.hold(expected):
            found = await chunks.read_within(selection, expected)
            if isinstance(found, VariableArray):
                shown = found if picked is None else picked.pick(found)
                return web.Response(body=shown.heap.data, content_type=Media.BINARY.value)
    async with context.service.answers.hold(PAGES_AT_ONCE * page_size):
        pieces = _binary(chunks, selection, page_size, picked)
        return await respond_stream(context.request, Media.BINARY, pieces)


def _expected(selection: Selection, datatype: Datatype) -> int:
    """Return the bytes that an answer is first taken to have: more than elements of the guessed size."""
    return max(SMALL, 4 * selection.size * datatype.guessed_size)


async def _binary(
    chunks: VariableFanout, selection: Selection, page_size: int, picked: Fields | None
) -> AsyncGenerator[memoryview, None]:
    async for piece in chunks.pages(selection, page_size):
        shown = piece
        if picked is not None:
            shown = await aside(piece.size, picked.pick, piece)
        yield shown.heap.data


async def _answer_json(
    context: Context, chunks: VariableFanout, selection: Selection, datatype: Datatype, picked: Fields | None
) -> web.StreamResponse:
    limit = min(context.service.settings.max_request_size, MOST_JSON)
    element = datatype.element
    rooms = sorted({min(limit, _expected(selection, datatype)), limit})
    for room in rooms if selection.size * element.least <= limit else ():
        async with context.service.answers.hold(room):
            found = await chunks.read_within(selection, room)
            if isinstance(found, VariableArray):
                value = await aside(found.size, _shown, found, element, picked, context.flag("reduce_dim"))
                return respond_shown(context, {"status": 200, "value": value})
    raise TooLarge(
        f"The values take more than the {limit} bytes that an answer in JSON may have (of max_request_size): "
        "select less, or ask for octet-stream."
    )


def _shown(values: VariableArray, element: Element, picked: Fields | None, reduced: bool) -> Any:
    if reduced and len(values.shape) > 1:
        values = values.reshape(tuple(dim for dim in values.shape if dim != 1))
    if picked is None:
        return to_json(values, element)
    return to_json(picked.pick(values), picked.element)


def variable_bytes(
    data: bytes | bytearray, dataset: Dataset, selection: Selection, wanted: int, fields: Sequence[str] = ()
) -> VariableArray:
    """Return `wanted` counted elements of a body, one for all or each its own; `BadRequest` if they are not.

    With `fields` the elements have those alone.
    """
    element = dataset.spec.datatype.element
    if fields:
        element = Fields.named(element, fields).element
    return split(data, element, selection.shape if wanted == selection.size else (1,))
