"""Reading and changing the elements that a query finds."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import packed_type
from hsparse.format.fixed_arrays import FixedArrays
from hsparse.format.plan.chunk_plan import count_chunks
from hsparse.format.query import bind_query
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.selection import Points, Selection
from hsparse.model.element import Fixed
from hsparse.model.json_size import LIST_BYTES, json_size
from hsparse.model.json_values import from_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import DatasetQuery, dataset_query, unchangeable
from hsparse.sn.values.media.json import collect_found, json_limit, respond_values, value_hrefs
from hsparse.sn.values.media.medium import FoundRead
from hsparse.sn.values.media.registry import accepted_medium
from hsparse.sn.values.ordered_query import OrderedQuery
from hsparse.sn.values.write_size import check_written, chunk_bytes

QUERY_PAGES = 4
"""Pages in memory of a streamed answer: one is sent while the next is found, each of values and places."""


async def answer_query(
    request: Request,
    dataset: Dataset,
    selection: Selection,
    text: str,
    limit: int,
    fields: tuple[str, ...],
    order_by: str = "",
) -> web.StreamResponse:
    """Answer with the selected elements that a query finds, in row-major order of the dataset, or ordered by value."""
    query = _query(request, dataset, text, limit, order_by)
    every = isinstance(query, OrderedQuery) and query.fits_fill
    _check_computed(request, dataset, selection, every=every)
    page_size = request.service.settings.page_size
    medium = accepted_medium(request.http)
    nbytes = min(dataset.arrays.expected(selection.size), QUERY_PAGES * page_size)
    async with request.service.answers.hold(nbytes), aclosing(query.find(selection, fields)) as found:
        return await medium.answer_found(FoundRead(request, dataset, found, fields))


async def change_by_query(
    request: Request, dataset: Dataset, selection: Selection, body: Any
) -> web.Response:
    """Set the fields that a body names in the selected elements that a query finds; answer with these elements.

    `indices` has their coordinates, `value` the changed elements, each preceded by its index.
    """
    if not dataset.arrays.is_exact:
        raise unchangeable(dataset)
    _check_computed(request, dataset, selection)
    fields, value = update_value(body, dataset)
    text, limit = request.arg("query") or "", request.number("Limit") or 0
    if bind_query(text, dataset.dtype).takes(dataset.fill):  # chunks that do not exist are written, too
        written = chunk_bytes(dataset, selection)
        check_written(written, request.service.settings.max_write_size)
        await request.make_room(written)
    query = _query(request, dataset, text, limit)
    lists = json_size((), Fixed(dataset.dtype)).lists
    each = dataset.dtype.itemsize + 16 * len(dataset.extent) + LIST_BYTES * lists
    nbytes = selection.size * each
    async with request.service.answers.hold(min(nbytes, json_limit(request))):
        if limit or nbytes > json_limit(request):
            # The size of the answer, and which elements are the first, must be known before anything is changed.
            found = query.find(selection, places_only=True)
            places, _ = await collect_found(request, dataset, found, dataset.arrays, each)
            selection = Points.trusted(dataset.extent, unravel(places, dataset.extent))
            query = _query(request, dataset, text, 0)
        offsets, rows = await query.update(selection, value, fields)
        coords = unravel(offsets, dataset.extent)
        indexed = _with_index(coords, rows)
        arrays = FixedArrays(indexed.dtype, indexed[:0], Fixed(indexed.dtype))
        links = value_hrefs(request, dataset)
        return await respond_values(request, {"indices": coords}, indexed, arrays, links)


def _check_computed(request: Request, dataset: Dataset, selection: Selection, *, every: bool = False) -> None:
    """Raise `TooLarge` for a query over too many chunks that nothing stored bounds the number of.

    These are computed ones or, if the query looks at `every` element, those of the fill value, too.
    """
    most = request.service.settings.max_query_chunks
    if not (every or dataset.spec.arange) or selection.size <= most:
        return
    if count_chunks(selection, dataset.grid) > most:
        raise TooLarge(
            f"The query looks through more than {most} chunks that are computed or have the fill value, the limit "
            "(max_query_chunks); select less."
        )


def update_value(body: Any, dataset: Dataset) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return the fields that a body of new values names, () for whole elements, and one element of these."""
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
    """Return one element; for an array type, one value may stand for all its members."""
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


def _query(request: Request, dataset: Dataset, text: str, limit: int, order_by: str = "") -> DatasetQuery:
    chunks, page_size = ChunkFanout(request.service.owners, dataset), request.service.settings.page_size
    if not order_by:
        return dataset_query(dataset, chunks, text, page_size, limit)
    if not dataset.arrays.is_exact:
        raise BadRequest(f"Elements of {dataset.id} have no fixed size: they are not ordered by value.")
    return OrderedQuery(dataset, chunks, text, page_size, limit, order_by)


def _with_index(coords: NDArray[np.uint64], rows: NDArray[Any]) -> NDArray[Any]:
    """Return elements with their index as a first field: a number, or all coordinates."""
    rank = coords.shape[1]
    index = np.dtype(("<u8", (rank,)) if rank > 1 else "<u8")
    names = rows.dtype.names or ("",)
    kinds = [index, *(rows.dtype[name] if name else rows.dtype for name in names)]
    result = np.empty(len(rows), [(f"f{number}", kind) for number, kind in enumerate(kinds)])
    result["f0"] = coords if rank > 1 else coords[:, 0]
    for number, name in enumerate(names, 1):
        result[f"f{number}"] = rows[name] if name else rows
    return result
