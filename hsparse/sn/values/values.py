"""Values of a dataset: read, write, and reading by points."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import packed_type, parse_fields
from hsparse.format.plan.pages import pages
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection import Points, Selection
from hsparse.format.selections.selection_json import selection_json
from hsparse.format.structured.region import encode_region
from hsparse.model.json_form import Values
from hsparse.model.variable_array import VariableArray
from hsparse.sn.context import Context
from hsparse.sn.http.request import MOST_JSON, read_json, read_json_object
from hsparse.sn.http.response import respond
from hsparse.sn.http.stream import MAX_WHOLE_BODY, respond_stream
from hsparse.sn.media import Media, accepted, sent
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.append import appended, grow, still_there
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.query_values import answer_query, change_by_query
from hsparse.sn.values.sparse_read import SparseRead
from hsparse.sn.values.sparse_variable_read import answer_sparse_variable
from hsparse.sn.values.value_json import respond_values
from hsparse.sn.values.variable_fanout import VariableFanout, aside
from hsparse.sn.values.variable_query import answer_variable_query
from hsparse.sn.values.variable_values import answer_variable
from hsparse.sn.values.write_body import (
    points_selection,
    read_body,
    select_selection,
    selected_values,
    stepped_selection,
)

SELECTING = (frozenset({"points"}), frozenset({"select"}), frozenset({"start", "stop", "step"}))
"""The ways in which a read's body names elements."""
BESIDE = frozenset({"fields", "query", "Limit", "nonstrict", "ignore_nan", "reduce_dim", "domain", "bucket"})
"""What may be there too: h5pyd sends its parameters in the body when the selection is long."""
POST_KEYS = BESIDE.union(*SELECTING)
PAGES_AT_ONCE = 2
"""A streamed answer has one page on its way and makes the next."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a request reads: `choose` gives the selection in an extent; `query` is None without one."""

    choose: Callable[[tuple[int, ...]], Selection]
    fields: str | None
    query: str | None
    limit: int


async def get_value(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/value`: values by `select` and `query`; with `sparse=1` the defined ones."""
    select = context.arg("select")
    return await _read(context, _request(context, {}, lambda extent: parse_select(select, extent)))


async def post_value(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/value`: values by points, or by a selection too long for a URL."""
    if sent(context.request) is Media.BINARY:
        data = await context.body()
        return await _read(context, _request(context, {}, lambda extent: binary_points(data, extent)))
    body = await read_json_object(context)
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

    return await _read(context, _request(context, body, choose))


def _request(
    context: Context, body: dict[str, Any], choose: Callable[[tuple[int, ...]], Selection]
) -> ReadRequest:
    """Return what is read, by the keys of a body and else by parameters."""
    fields, query = (body.get(key, context.arg(key)) for key in ("fields", "query"))
    limit = body.get("Limit", context.number("Limit")) or 0
    for name, value in (("fields", fields), ("query", query)):
        if not (value is None or isinstance(value, str)):
            raise BadRequest(f"{name} must be a string.")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise BadRequest("Limit must be a non-negative integer.")
    if query and context.flag("sparse"):
        raise BadRequest("A query finds elements by their values; leave out sparse.")
    return ReadRequest(choose, fields, query or None, limit)


async def _read(context: Context, request: ReadRequest) -> web.StreamResponse:
    """Answer with what is selected in the dataset's extent, whichever that is by then."""

    async def read(dataset: Dataset) -> web.StreamResponse:
        selection = request.choose(dataset.extent)
        fields = parse_fields(request.fields, dataset.dtype)
        if context.flag("sparse"):
            if fields:
                raise BadRequest("Sparse values are whole elements; leave out fields.")
            return await answer_sparse(context, dataset, selection)
        if request.query is not None:
            if dataset.is_variable:
                return await answer_variable_query(
                    context, dataset, selection, request.query, request.limit, fields
                )
            return await answer_query(context, dataset, selection, request.query, request.limit, fields)
        return await answer_values(context, dataset, selection, fields)

    return await until_current(context, read)


async def put_value(context: Context) -> web.StreamResponse:
    """`PUT /datasets/{id}/value`: write by hyperslab, lists or points; durable when answered."""
    if context.arg("query"):
        return await _put_by_query(context)
    drop_fill = context.flag("drop_fill")
    body = await read_body(context)
    grown: Dataset | None = None

    async def write(dataset: Dataset) -> None:
        nonlocal grown
        if drop_fill or body.media is Media.ARROW or context.flag("sparse"):
            dataset.require_sparse()
        if body.append is not None and grown is None:
            expected = appended(dataset, body.append.count, body.append.dim)
            checked = await select(expected)
            grown = await grow(context, dataset, body.append.count, body.append.dim)
            if grown.extent == expected.extent:
                await write_into(grown, *checked)
                return
        target = dataset if grown is None else still_there(grown, dataset)
        await write_into(target, *await select(target))

    async def select(target: Dataset) -> tuple[Selection, Values]:
        # Of variable length every element's end is to be found.
        count = len(body.data) if target.is_variable else 0
        return await aside(count, selected_values, context, body, target)

    async def write_into(target: Dataset, selection: Selection, values: Values) -> None:
        fields = parse_fields(body.fields, target.dtype)
        if fields and drop_fill:
            raise BadRequest("drop_fill is about whole elements; leave out fields.")
        if isinstance(values, VariableArray):
            variable = VariableFanout(context.service.owners, target)
            await variable.write_variable(selection, values, fields, drop_fill=drop_fill)
            return
        chunks = ChunkFanout(context.service.owners, target)
        await chunks.write(selection, values, drop_fill=drop_fill, fields=fields)

    await until_current(context, write)
    return respond({})


async def _put_by_query(context: Context) -> web.StreamResponse:
    if sent(context.request) is not Media.JSON:
        raise BadRequest("A change by a query has a JSON body: the fields with their new values.")
    if any(context.arg(name) for name in ("append", "fields", "drop_fill", "sparse", "element_count")):
        raise BadRequest("A change by a query has at most select and Limit beside it.")
    body = await read_json(context)

    async def change(dataset: Dataset) -> web.StreamResponse:
        selection = parse_select(context.arg("select"), dataset.extent)
        return await change_by_query(context, dataset, selection, body)

    return await until_current(context, change)


async def answer_values(
    context: Context, dataset: Dataset, selection: Selection, fields: tuple[str, ...]
) -> web.StreamResponse:
    """Answer with every selected value, the fill value where none was written."""
    if dataset.is_variable:
        return await answer_variable(context, dataset, selection, fields)
    page_size = context.service.settings.page_size
    nbytes = selection.size * packed_type(dataset.dtype, fields).itemsize
    async with context.service.answers.hold(min(nbytes, PAGES_AT_ONCE * page_size)):
        chunks = ChunkFanout(context.service.owners, dataset)
        if accepted(context.request) is not Media.BINARY:
            return await _answer_json(context, dataset, selection, nbytes, fields)
        if nbytes <= min(page_size, MAX_WHOLE_BODY):
            values = await chunks.read(selection, fields)
            return web.Response(body=packed(values), content_type=Media.BINARY.value)
        pieces = _binary_pages(chunks, dataset, selection, page_size, fields)
        return await respond_stream(context.request, Media.BINARY, pieces, nbytes)


async def _answer_json(
    context: Context, dataset: Dataset, selection: Selection, nbytes: int, fields: tuple[str, ...]
) -> web.StreamResponse:
    settings = context.service.settings
    limit = min(settings.max_request_size, MOST_JSON)
    if nbytes > limit:
        raise TooLarge(
            f"The values take {nbytes} bytes, more than an answer in JSON may have ({limit}, of "
            "max_request_size): select less, or ask for octet-stream."
        )
    values = await ChunkFanout(context.service.owners, dataset).read(selection, fields)
    if context.flag("reduce_dim") and values.ndim > 1:
        values = values.squeeze()
    return respond_values(context, {"status": 200}, values, dataset.spec.datatype.dtype)


async def answer_sparse(context: Context, dataset: Dataset, selection: Selection) -> web.StreamResponse:
    """Answer with the defined elements of the selection: places and values."""
    dataset.require_sparse()
    if dataset.is_variable:
        return await answer_sparse_variable(context, dataset, selection)
    settings = context.service.settings
    chunks = ChunkFanout(context.service.owners, dataset)
    read = SparseRead(dataset, chunks, settings.page_size, settings.max_request_size)
    media = accepted(context.request)
    if media is Media.ARROW:
        async with context.service.answers.hold(PAGES_AT_ONCE * settings.page_size):
            return await respond_stream(context.request, media, read.arrow(selection))
    async with context.service.answers.hold(read.bound(selection)):
        points, values = await read.whole(selection)
        if media is Media.BINARY:
            return web.Response(body=encode_region(points, values), content_type=media.value)
        answer = {"selection": selection_json(points)}
        return respond_values(context, answer, values, dataset.spec.datatype.dtype)


async def _binary_pages(
    chunks: ChunkFanout, dataset: Dataset, selection: Selection, page_size: int, fields: tuple[str, ...]
) -> AsyncGenerator[memoryview, None]:
    for page in pages(selection, dataset.grid, max(1, page_size // dataset.dtype.itemsize)):
        yield packed(await chunks.read(page, fields))


def packed(values: NDArray[Any]) -> memoryview:
    """Return an array's elements as bytes in C order, not copied where they already are."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def binary_points(data: bytes | bytearray, extent: tuple[int, ...]) -> Points:
    """Return the points of a binary body: `rank` little-endian u64 coordinates each."""
    rank = len(extent)
    if not rank or len(data) % (8 * rank):
        raise BadRequest(f"A point is {rank} little-endian u8 coordinates; the body has {len(data)} bytes.")
    return Points(extent, np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, rank))
