"""Values by a query: reading the elements that answer it, and changing them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.fields import packed_type
from hsparse.format.fixed_arrays import FixedArrays
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.selection import Points, Selection
from hsparse.model.element import Fixed
from hsparse.model.json_values import from_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.context import Context
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import DatasetQuery, query_of, unchangeable
from hsparse.sn.values.media.json import collected, limit_of, respond_values
from hsparse.sn.values.media.medium import FoundRead
from hsparse.sn.values.media.registry import answering

PAGES_AT_ONCE = 4
"""A streamed answer has one page on its way and looks for the next, with the places of what it finds."""


async def answer_query(
    context: Context, dataset: Dataset, selection: Selection, text: str, limit: int, fields: tuple[str, ...]
) -> web.StreamResponse:
    """Answer with the selected elements that answer a query, in row-major order of the dataset."""
    query = _query(context, dataset, text, limit)
    page_size = context.service.settings.page_size
    medium = answering(context.request, "answer_found")
    nbytes = min(dataset.arrays.expected(selection.size), PAGES_AT_ONCE * page_size)
    async with context.service.answers.hold(nbytes), aclosing(query.find(selection, fields)) as found:
        response: web.StreamResponse = await medium(FoundRead(context, dataset, found, fields))
        return response


async def change_by_query(
    context: Context, dataset: Dataset, selection: Selection, body: Any
) -> web.Response:
    """Set what a body names in the selected elements that answer a query; answer which they were.

    `indices` has their coordinates, `value` the elements as they are now, each behind its index.
    """
    if not dataset.arrays.is_exact:
        raise unchangeable(dataset)
    fields, value = update_value(body, dataset)
    text, limit = context.arg("query") or "", context.number("Limit") or 0
    query = _query(context, dataset, text, limit)
    each = dataset.dtype.itemsize + 16 * len(dataset.extent)
    nbytes = selection.size * each
    async with context.service.answers.hold(min(nbytes, limit_of(context))):
        if limit or nbytes > limit_of(context):
            # Known before anything is changed: how much the answer has, and which the first ones are.
            found = query.find(selection, places_only=True)
            places, _ = await collected(context, dataset, found, dataset.arrays, each)
            selection = Points.trusted(dataset.extent, unravel(places, dataset.extent))
            query = _query(context, dataset, text, 0)
        offsets, rows = await query.update(selection, value, fields)
        coords = unravel(offsets, dataset.extent)
        shown = _with_index(coords, rows)
        arrays = FixedArrays(shown.dtype, shown[:0], Fixed(shown.dtype))
        return await respond_values(context, {"indices": coords}, shown, arrays)


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
    assert not isinstance(array, VlenArray)
    return array


def _query(context: Context, dataset: Dataset, text: str, limit: int) -> DatasetQuery:
    chunks = ChunkFanout(context.service.owners, dataset)
    return query_of(dataset, chunks, text, context.service.settings.page_size, limit)


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
