"""A write whose body is larger than `max_request_size`, as stock clients send it: a part is in memory at a time."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from hsparse.compute import compute
from hsparse.errors import BadRequest
from hsparse.format.fields import parse_fields
from hsparse.format.kinds.chunk_kind import check_drop_fill
from hsparse.format.plan.grid import pages
from hsparse.format.selections.points import Selection
from hsparse.model.json_values import Values
from hsparse.sn.http.response import respond
from hsparse.sn.records.dataset import Dataset, load_dataset, until_current
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.media.binary import BINARY
from hsparse.sn.values.media.registry import body_medium
from hsparse.sn.values.request_selection import selected_in_url

WHOLE = ("append", "append_dim", "sparse", "element_count", "query")
"""Parameters of writes whose body is read as a whole."""


def is_streamed(request: Request) -> bool:
    """Say whether a write of values is too large for memory and can be applied part by part: elements as bytes."""
    length = request.http.content_length
    is_large = length is not None and length > request.limit
    return is_large and body_medium(request.http) is BINARY and not any(map(request.arg, WHOLE))


async def put_streamed(request: Request) -> web.StreamResponse:
    """Write the elements in the body as they come; durable when answered.

    All is checked before anything is written. A body that is cut short leaves what was written before.
    """
    dataset = await load_dataset(request)
    fields, drops_fill = parse_fields(request.arg("fields"), dataset.dtype), request.flag("drop_fill")
    arrays = dataset.arrays.of_fields(fields)
    if not arrays.is_exact or arrays.guessed_size > request.limit:
        request.check_length()
    if drops_fill:
        dataset.require_sparse()
        check_drop_fill(fields)
    async with selected_in_url(request, dataset.extent) as selection:
        nbytes, length = selection.size * arrays.guessed_size, request.http.content_length
        if length != nbytes:
            raise BadRequest(f"The body has {length} bytes; the {selection.size} elements have {nbytes}.")
        chunks = ChunkFanout(request.service.owners, dataset)
        await request.make_room(
            chunks.check_write(selection, nbytes, request.service.settings.max_write_size)
        )
        for page in pages(selection, dataset.grid, request.limit // arrays.guessed_size):
            await _write_page(request, page, fields, drops_fill)
    return respond({})


async def _write_page(request: Request, page: Selection, fields: Sequence[str], drops_fill: bool) -> None:
    """Receive the elements of a page and write them, in the extent that the dataset has by then."""
    dataset = await load_dataset(request)
    arrays = dataset.arrays.of_fields(fields)
    data = await request.part(page.size * arrays.guessed_size)
    values: Values = await compute(arrays.work(page.size), arrays.from_bytes, data, page.size, page.shape)

    async def write(current: Dataset) -> None:
        where = page
        if current.extent != page.extent:
            where = page.translate((0,) * len(page.extent), current.extent)
        chunks = ChunkFanout(request.service.owners, current)
        await chunks.write(where, values, drop_fill=drops_fill, fields=fields)

    await until_current(request, write)
