"""What only sparse datasets have: the defined elements, and erasing them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.axis import as_span
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection import Orthogonal, Selection
from hsparse.format.selections.selection_json import parse_selection_json, selection_json
from hsparse.sn.context import Context
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import respond
from hsparse.sn.media import Media, accepted
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.sparse_read import SparseRead
from hsparse.sn.values.write_body import points_selection, select_selection


async def get_defined(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/defined`: which of the selected elements are defined, or how many.

    Of a dense dataset all are, as H5Dget_defined has it.
    """

    async def read(dataset: Dataset) -> web.StreamResponse:
        selection = parse_select(context.arg("select"), dataset.extent)
        chunks = ChunkFanout(context.service.owners, dataset)
        if context.flag("count_only"):
            count = await chunks.count(selection) if dataset.spec.sparse else selection.size
            return respond({"count": count})
        settings = context.service.settings
        if dataset.spec.sparse:
            places = SparseRead(dataset, chunks, settings.page_size, settings.max_request_size)
            async with context.service.answers.hold(places.bound(selection, places_only=True)):
                selection, _ = await places.whole(selection, places_only=True)
        elif (
            not _is_regular(selection)
            and selection.size * 8 * len(dataset.extent) > settings.max_request_size
        ):
            raise TooLarge(
                f"The selection has {selection.size} points, more than an answer of "
                f"{settings.max_request_size} bytes (max_request_size) can list; select less."
            )
        if accepted(context.request) is Media.BINARY:
            return web.Response(body=encode_selection(selection), content_type=Media.BINARY.value)
        return respond({"selection": selection_json(selection)})

    return await until_current(context, read)


def _is_regular(selection: Selection) -> bool:
    """Whether an answer tells the selection without listing its elements."""
    return isinstance(selection, Orthogonal) and all(as_span(axis) is not None for axis in selection.axes)


async def delete_value(context: Context) -> web.StreamResponse:
    """`DELETE /datasets/{id}/value`: make the selected elements undefined; durable when answered."""
    if context.arg("select") is None:
        raise BadRequest("Name what to erase by ?select=; [...] with every dimension's ':' erases all.")
    return await _erase(context, lambda dataset: parse_select(context.arg("select"), dataset.extent))


async def post_erase(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/erase`: the same, by points, a select string or an HDF5/JSON selection."""
    body = await read_json_object(context)
    if len(body) != 1 or not set(body) <= {"points", "select", "selection"}:
        raise BadRequest("The body must have one of points, select and selection.")

    def selection(dataset: Dataset) -> Selection:
        if "points" in body:
            return points_selection(body["points"], dataset.extent)
        if "select" in body:
            return select_selection(body["select"], dataset.extent)
        return parse_selection_json(body["selection"], dataset.extent)

    return await _erase(context, selection)


async def _erase(context: Context, selection: Any) -> web.StreamResponse:
    async def erase(dataset: Dataset) -> None:
        dataset.require_sparse()
        await ChunkFanout(context.service.owners, dataset).erase(selection(dataset))

    await until_current(context, erase)
    return respond({})
