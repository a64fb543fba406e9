"""Values by a query: reading the elements that answer it, and changing them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import packed_type
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.selection import Points, Selection
from hsparse.model.element import Fixed
from hsparse.model.json_form import from_json
from hsparse.model.variable_array import VariableArray
from hsparse.sn.context import Context
from hsparse.sn.http.request import MOST_JSON
from hsparse.sn.http.stream import MAX_WHOLE_BODY, respond_stream
from hsparse.sn.media import Media, accepted
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import ElementQuery, Rows, joined
from hsparse.sn.values.value_json import respond_values

PAGES_AT_ONCE = 4
"""A streamed answer has one page on its way and looks for the next, with the places of what it finds."""


async def answer_query(
    context: Context,
    dataset: Dataset,
    selection: Selection,
    text: str,
    limit: int,
    fields: Sequence[str],
) -> web.StreamResponse:
    """Answer with the selected elements that answer a query, in row-major order of the dataset.

    Their indices are beside them in JSON. What finds nothing is answered in JSON whatever was asked for:
    h5pyd fails on bytes of length zero.
    """
    query = _query(context, dataset, text, limit)
    page_size = context.service.settings.page_size
    nbytes = min(selection.size * dataset.dtype.itemsize, PAGES_AT_ONCE * page_size)
    async with context.service.answers.hold(nbytes), aclosing(query.find(selection, fields)) as found:
        if accepted(context.request) is not Media.BINARY:
            return await _answer_json(context, dataset, found, fields)
        first = await anext(found, None)
        if first is None:
            return await _answer_json(context, dataset, found, fields)
        second = await anext(found, None)
        if second is None and first[1].nbytes <= MAX_WHOLE_BODY:
            return web.Response(body=_packed(first), content_type=Media.BINARY.value)
        length = first[1].nbytes if second is None else None
        return await respond_stream(context.request, Media.BINARY, _pages(first, second, found), length)


async def change_by_query(
    context: Context, dataset: Dataset, selection: Selection, body: Any
) -> web.Response:
    """Set what a body names in the selected elements that answer a query; answer which they were.

    `indices` has their coordinates, `value` the elements as they are now, each behind its index.
    """
    if dataset.is_variable:
        raise BadRequest(
            f"Elements of {dataset.id} have no fixed size, so that no query changes them: read which they are "
            "(POST or GET with the query), and write those."
        )
    fields, value = update_value(body, dataset)
    text, limit = context.arg("query") or "", context.number("Limit") or 0
    query = _query(context, dataset, text, limit)
    each = dataset.dtype.itemsize + 16 * len(dataset.extent)
    nbytes = selection.size * each
    async with context.service.answers.hold(min(nbytes, _most(context))):
        if limit or nbytes > _most(context):
            # Known before anything is changed: how much the answer has, and which the first ones are.
            places, _ = await _collected(context, dataset, query.find(selection, places_only=True), (), each)
            selection = Points.trusted(dataset.extent, unravel(places, dataset.extent))
            query = _query(context, dataset, text, 0)
        offsets, rows = await query.update(selection, value, fields)
        coords = unravel(offsets, dataset.extent)
        return respond_values(context, {"indices": coords}, _with_index(coords, rows))


def update_value(body: Any, dataset: Dataset) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return the fields that a body of new values names, and one element of these; () for the element itself."""
    names = dataset.dtype.names
    known = names or ("value",)
    if not isinstance(body, dict) or not body or not set(body) <= set(known):
        wanted = f"new values of fields: {', '.join(known)[:200]}" if names else "the new value, as value"
        raise BadRequest(f"The body of a change by a query must be a JSON object with {wanted}.")
    if names is None:
        return (), _element(body["value"], dataset.dtype)
    fields = tuple(name for name in names if name in body)
    element = np.zeros((), packed_type(dataset.dtype, fields))
    for name in fields:
        element[name] = _element(body[name], dataset.dtype[name])
    return fields, element


def _element(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return one element; of an array type one value may stand for all."""
    base, shape = dtype.subdtype or (dtype, ())
    try:
        return _fixed(value, dtype).reshape(shape)
    except BadRequest:
        if not shape:
            raise
        return np.broadcast_to(_fixed(value, base).reshape(()), shape)


def _fixed(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = from_json(value, (1,), Fixed(dtype))
    assert not isinstance(array, VariableArray)
    return array


def _query(context: Context, dataset: Dataset, text: str, limit: int) -> ElementQuery:
    chunks = ChunkFanout(context.service.owners, dataset)
    return ElementQuery(dataset, chunks, text, context.service.settings.page_size, limit)


async def _answer_json(
    context: Context, dataset: Dataset, found: AsyncIterator[Rows], fields: Sequence[str]
) -> web.Response:
    each = packed_type(dataset.dtype, fields).itemsize + 8 * len(dataset.extent)
    offsets, rows = await _collected(context, dataset, found, fields, each)
    index = offsets if len(dataset.extent) == 1 else unravel(offsets, dataset.extent)
    return respond_values(context, {"status": 200, "index": index}, rows)


async def _collected(
    context: Context, dataset: Dataset, found: AsyncIterator[Rows], fields: Sequence[str], each: int
) -> Rows:
    """Return all that is found; `TooLarge` when at `each` bytes it is too much for an answer in JSON."""
    pieces, count = [], 0
    async for piece in found:
        pieces.append(piece)
        count += len(piece[0])
        if count * each > _most(context):
            raise TooLarge(
                f"The query finds more than an answer in JSON may have ({_most(context)} bytes, of "
                "max_request_size): select less, give a Limit or, to read, ask for octet-stream."
            )
    return joined(pieces, packed_type(dataset.dtype, fields))


def _most(context: Context) -> int:
    return min(context.service.settings.max_request_size, MOST_JSON)


def _with_index(coords: NDArray[np.uint64], rows: NDArray[Any]) -> NDArray[Any]:
    """Return elements with the index before the first field: a number, or all coordinates."""
    rank = coords.shape[1]
    index = np.dtype(("<u8", (rank,)) if rank > 1 else "<u8")
    names = rows.dtype.names or ("",)
    kinds = [index, *(rows.dtype[name] if name else rows.dtype for name in names)]
    result = np.empty(len(rows), [(f"f{number}", kind) for number, kind in enumerate(kinds)])
    result["f0"] = coords if rank > 1 else coords[:, 0]
    for number, name in enumerate(names, 1):
        result[f"f{number}"] = rows[name] if name else rows
    return result


def _packed(rows: Rows) -> memoryview:
    return np.ascontiguousarray(rows[1]).view(np.uint8).data


async def _pages(
    first: Rows, second: Rows | None, rest: AsyncIterator[Rows]
) -> AsyncGenerator[memoryview, None]:
    yield _packed(first)
    if second is not None:
        yield _packed(second)
    async for rows in rest:
        yield _packed(rows)
