"""Handlers of `/datasets/{id}/value`, `/defined` and `/erase`: values read, written and erased.

Tests: tests/sn/values/test_values.py, tests/sn/values/test_sparse.py, tests/sn/values/test_query_values.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import parse_fields
from hsparse.format.selections.axis import as_span
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection import Orthogonal, Selection
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.model.json_values import Values
from hsparse.sn.context import Context
from hsparse.sn.http.request import read_json, read_json_object
from hsparse.sn.http.response import respond
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.append import appended, grow, still_there
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.defined_read import DefinedRead
from hsparse.sn.values.media.json import JSON, parse_points
from hsparse.sn.values.media.medium import ValueRead
from hsparse.sn.values.media.registry import answering, sent
from hsparse.sn.values.query_values import answer_query, change_by_query
from hsparse.sn.values.request_selection import points_selection, select_selection


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
    read_points = sent(context.request).read_points
    if read_points is not None:
        return await _read(context, _request(context, {}, await read_points(context)))
    body = await read_json_object(context)
    return await _read(context, _request(context, body, parse_points(body)))


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
        wanted = ValueRead(context, dataset, selection, fields)
        answer: web.StreamResponse
        if context.flag("sparse"):
            if fields:
                raise BadRequest("Sparse values are whole elements; leave out fields.")
            dataset.require_sparse()
            answer = await answering(context.request, "answer_defined")(wanted)
        elif request.query is not None:
            answer = await answer_query(context, dataset, selection, request.query, request.limit, fields)
        else:
            answer = await answering(context.request, "answer_values")(wanted)
        return answer

    return await until_current(context, read)


async def put_value(context: Context) -> web.StreamResponse:
    """`PUT /datasets/{id}/value`: write by hyperslab, lists or points; durable when answered."""
    if context.arg("query"):
        return await _put_by_query(context)
    drop_fill = context.flag("drop_fill")
    body = await sent(context.request).read_body(context)
    grown: Dataset | None = None

    async def write(dataset: Dataset) -> None:
        nonlocal grown
        if drop_fill or body.sparse or context.flag("sparse"):
            dataset.require_sparse()
        if body.append is not None and grown is None:
            expected = appended(dataset, body.append.count, body.append.dim)
            checked = await resolve(expected)
            grown = await grow(context, dataset, body.append.count, body.append.dim)
            if grown.extent == expected.extent:
                await write_into(grown, *checked)
                return
        target = dataset if grown is None else still_there(grown, dataset)
        await write_into(target, *await resolve(target))

    async def resolve(target: Dataset) -> tuple[Selection, Values]:
        # Of variable length every element's end is to be found.
        return await offload(target.arrays.work(body.work()), body.resolve, target)

    async def write_into(target: Dataset, selection: Selection, values: Values) -> None:
        fields = parse_fields(body.fields, target.dtype)
        if fields and drop_fill:
            raise BadRequest("drop_fill is about whole elements; leave out fields.")
        chunks = ChunkFanout(context.service.owners, target)
        await chunks.write(selection, values, drop_fill=drop_fill, fields=fields)

    await until_current(context, write)
    return respond({})


async def _put_by_query(context: Context) -> web.StreamResponse:
    if sent(context.request) is not JSON:
        raise BadRequest("A change by a query has a JSON body: the fields with their new values.")
    if any(context.arg(name) for name in ("append", "fields", "drop_fill", "sparse", "element_count")):
        raise BadRequest("A change by a query has at most select and Limit beside it.")
    body = await read_json(context)

    async def change(dataset: Dataset) -> web.StreamResponse:
        selection = parse_select(context.arg("select"), dataset.extent)
        return await change_by_query(context, dataset, selection, body)

    return await until_current(context, change)


# --- defined elements ---------------------------------------------------------------------------------


async def get_defined(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/defined`: which of the selected elements are defined, or how many.

    Of a dense dataset all are, as H5Dget_defined has it.
    """

    async def read(dataset: Dataset) -> web.StreamResponse:
        selection = parse_select(context.arg("select"), dataset.extent)
        sparse = dataset.spec.sparse
        if context.flag("count_only"):
            chunks = ChunkFanout(context.service.owners, dataset)
            return respond({"count": await chunks.count(selection) if sparse else selection.size})
        found = await _defined_places(context, dataset, selection) if sparse else selection
        if not sparse:
            _check_listable(context, dataset, selection)
        answer: web.StreamResponse = answering(context.request, "answer_places")(context, found)
        return answer

    return await until_current(context, read)


async def _defined_places(context: Context, dataset: Dataset, selection: Selection) -> Selection:
    settings = context.service.settings
    chunks = ChunkFanout(context.service.owners, dataset)
    places = DefinedRead(dataset, chunks, settings.page_size, places_only=True)
    async with context.service.answers.hold(places.bound(selection, settings.max_request_size)):
        found = await places.whole(selection, settings.max_request_size)
    if found is None:
        raise TooLarge(
            f"The answer has more than {settings.max_request_size} bytes (max_request_size): select less, or ask "
            "for application/vnd.apache.arrow.stream, which is not limited."
        )
    return found[0]


def _check_listable(context: Context, dataset: Dataset, selection: Selection) -> None:
    """Raise `TooLarge` for a selection that an answer can only tell by listing its many elements."""
    limit = context.service.settings.max_request_size
    if not _is_regular(selection) and selection.size * 8 * len(dataset.extent) > limit:
        raise TooLarge(
            f"The selection has {selection.size} points, more than an answer of {limit} bytes "
            "(max_request_size) can list; select less."
        )


def _is_regular(selection: Selection) -> bool:
    """Whether an answer tells the selection without listing its elements."""
    return isinstance(selection, Orthogonal) and all(as_span(axis) is not None for axis in selection.axes)


async def delete_value(context: Context) -> web.StreamResponse:
    """`DELETE /datasets/{id}/value`: make the selected elements undefined; durable when answered."""
    if context.arg("select") is None:
        raise BadRequest("Name what to erase by ?select=; [...] with every dimension's ':' erases all.")
    return await _erase(context, lambda extent: parse_select(context.arg("select"), extent))


async def post_erase(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/erase`: the same, by points, a select string or an HDF5/JSON selection."""
    body = await read_json_object(context)
    if len(body) != 1 or not set(body) <= {"points", "select", "selection"}:
        raise BadRequest("The body must have one of points, select and selection.")

    def choose(extent: tuple[int, ...]) -> Selection:
        if "points" in body:
            return points_selection(body["points"], extent)
        if "select" in body:
            return select_selection(body["select"], extent)
        return parse_selection_json(body["selection"], extent)

    return await _erase(context, choose)


async def _erase(context: Context, choose: Callable[[tuple[int, ...]], Selection]) -> web.StreamResponse:
    async def erase(dataset: Dataset) -> None:
        dataset.require_sparse()
        await ChunkFanout(context.service.owners, dataset).erase(choose(dataset.extent))

    await until_current(context, erase)
    return respond({})
