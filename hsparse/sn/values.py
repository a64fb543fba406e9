"""Values of a dataset: read, write, and reading by points."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.pages import pages
from hsparse.format.select_syntax import parse_select
from hsparse.format.selection import Points, Selection
from hsparse.format.selection_json import selection_json
from hsparse.format.structured_region import encode_region
from hsparse.model.json_form import Values, array_json
from hsparse.model.variable_array import VariableArray
from hsparse.sn.append import appended, grow, still_there
from hsparse.sn.chunk_fanout import ChunkFanout
from hsparse.sn.context import Context
from hsparse.sn.dataset import Dataset, until_current
from hsparse.sn.fields import pick_fields
from hsparse.sn.json_body import MOST_JSON, read_object
from hsparse.sn.media import Media, accepted, sent
from hsparse.sn.respond import respond
from hsparse.sn.sparse_read import SparseRead
from hsparse.sn.stream import respond_stream
from hsparse.sn.variable_fanout import VariableFanout, aside
from hsparse.sn.variable_values import answer_variable
from hsparse.sn.write_body import names_of, points_selection, read_body, select_selection, selected_values

PAGES_AT_ONCE = 2
"""A streamed answer has one page on its way and makes the next."""
AT_ONCE = 1024 * 1024
"""Bytes up to which aiohttp takes a body in one piece; a larger one it warns of, as it blocks the event loop."""


async def get_value(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/value`: values by `select`; with `sparse=1` the defined ones."""
    context.refuse("query")
    return await _read(
        context, lambda extent: parse_select(context.arg("select"), extent), context.arg("fields")
    )


async def post_value(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/value`: values by points, or by a selection too long for a URL."""
    context.refuse("query")
    if sent(context.request) is Media.BINARY:
        data = await context.body()
        return await _read(context, lambda extent: _binary_points(data, extent), context.arg("fields"))
    body = await read_object(context)
    fields = body.pop("fields", context.arg("fields"))
    if set(body) not in ({"points"}, {"select"}) or not (fields is None or isinstance(fields, str)):
        raise BadRequest(
            "The body must have either points or select, and beside it at most fields, a string."
        )
    if "points" in body:
        return await _read(context, lambda extent: points_selection(body["points"], extent), fields)
    return await _read(context, lambda extent: select_selection(body["select"], extent), fields)


async def _read(
    context: Context, choose: Callable[[tuple[int, ...]], Selection], fields: str | None
) -> web.StreamResponse:
    """Answer with what `choose` selects in the dataset's extent, whichever that is by then."""

    async def read(dataset: Dataset) -> web.StreamResponse:
        selection = choose(dataset.extent)
        if context.flag("sparse"):
            return await answer_sparse(context, dataset, selection)
        return await answer_values(context, dataset, selection, fields)

    return await until_current(context, read)


async def put_value(context: Context) -> web.StreamResponse:
    """`PUT /datasets/{id}/value`: write by hyperslab, lists or points; durable when answered."""
    context.refuse("query")
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
        if isinstance(values, VariableArray):
            chunks = VariableFanout(context.service.owners, target)
            await chunks.write_variable(selection, values, names_of(context.arg("fields")))
            return
        context.refuse("fields")
        await ChunkFanout(context.service.owners, target).write(selection, values, drop_fill=drop_fill)

    await until_current(context, write)
    return respond({})


async def answer_values(
    context: Context, dataset: Dataset, selection: Selection, fields: str | None
) -> web.StreamResponse:
    """Answer with every selected value, the fill value where none was written."""
    if dataset.is_variable:
        return await answer_variable(context, dataset, selection, names_of(fields))
    page_size = context.service.settings.page_size
    nbytes = selection.size * dataset.dtype.itemsize
    async with context.service.answers.hold(min(nbytes, PAGES_AT_ONCE * page_size)):
        chunks = ChunkFanout(context.service.owners, dataset)
        if accepted(context.request) is not Media.BINARY:
            return await _answer_json(context, dataset, selection, nbytes, fields)
        if nbytes <= min(page_size, AT_ONCE):
            values = pick_fields(await chunks.read(selection), fields)
            return web.Response(body=packed(values), content_type=Media.BINARY.value)
        length = selection.size * pick_fields(np.empty(0, dataset.dtype), fields).dtype.itemsize
        pieces = _binary_pages(chunks, dataset, selection, page_size, fields)
        return await respond_stream(context.request, Media.BINARY, pieces, length)


async def _answer_json(
    context: Context, dataset: Dataset, selection: Selection, nbytes: int, fields: str | None
) -> web.StreamResponse:
    settings = context.service.settings
    limit = min(settings.max_request_size, MOST_JSON)
    if nbytes > limit:
        raise TooLarge(
            f"The values take {nbytes} bytes, more than an answer in JSON may have ({limit}, of "
            "max_request_size): select less, or ask for octet-stream."
        )
    values = pick_fields(await ChunkFanout(context.service.owners, dataset).read(selection), fields)
    if context.flag("reduce_dim"):
        values = values.squeeze()
    return respond({"status": 200, "value": json_form(values, dataset)})


async def answer_sparse(context: Context, dataset: Dataset, selection: Selection) -> web.StreamResponse:
    """Answer with the defined elements of the selection: places and values."""
    dataset.require_sparse()
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
        return respond({"selection": selection_json(points), "value": json_form(values, dataset)})


async def _binary_pages(
    chunks: ChunkFanout, dataset: Dataset, selection: Selection, page_size: int, fields: str | None
) -> AsyncGenerator[memoryview, None]:
    for page in pages(selection, dataset.grid, max(1, page_size // dataset.dtype.itemsize)):
        yield packed(pick_fields(await chunks.read(page), fields))


def packed(values: NDArray[Any]) -> memoryview:
    """Return an array's elements as bytes in C order, not copied where they already are."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def json_form(values: NDArray[Any], dataset: Dataset) -> Any:
    """Return a dataset's values as JSON has them; of an array type each is an array again."""
    dtype = dataset.spec.datatype.dtype
    if dtype.subdtype is not None:
        values = np.ndarray(values.shape, dtype, np.ascontiguousarray(values))
    return array_json(values)


def _binary_points(data: bytes | bytearray, extent: tuple[int, ...]) -> Points:
    rank = len(extent)
    if not rank or len(data) % (8 * rank):
        raise BadRequest(f"A point is {rank} little-endian u8 coordinates; the body has {len(data)} bytes.")
    return Points(extent, np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, rank))
