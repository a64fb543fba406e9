"""Datasets: everything but their values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
from aiohttp import web

from hsparse.errors import BadRequest
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.model.dataspace import parse_shape
from hsparse.model.fill_value import parse_fill_value
from hsparse.model.filter_spelling import spelled_filters
from hsparse.model.initial_value import parse_initial_bytes, parse_initial_value
from hsparse.model.layout import chunk_spec, parse_layout
from hsparse.model.shown_type import shown_type
from hsparse.model.variable_array import VariableArray
from hsparse.sn.context import Context
from hsparse.sn.href import hrefs
from hsparse.sn.linked.link_file import link_file, refuse_locator, refuse_values
from hsparse.sn.objects.create import post_objects
from hsparse.sn.objects.dataset import Dataset
from hsparse.sn.objects.objects import delete_object, get_object, get_object_by_path, list_objects, requested
from hsparse.sn.objects.type_reference import read_type
from hsparse.sn.respond import respond
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.variable_fanout import INLINE, VariableFanout, aside
from hsparse.wire.message import Record


async def get_datasets(context: Context) -> web.StreamResponse:
    """List the datasets that can be reached."""
    return await list_objects(context, "datasets")


async def get_dataset(context: Context) -> web.StreamResponse:
    """Answer with one dataset; with `verbose` also its number of chunks and their bytes.

    These are of the last count of the domain, if there is one, where counting takes too long.
    """
    extra: Record = {}
    if context.flag("verbose"):
        record = await requested(context, "datasets")
        counted = await context.service.statistics.of_dataset(record["root"], record["id"])
        extra = {} if counted is None else {"num_chunks": counted[0], "allocated_size": counted[1]}
    return await get_object(context, "datasets", **extra)


async def get_dataset_by_path(context: Context) -> web.StreamResponse:
    """Answer with the dataset at `h5path`."""
    return await get_object_by_path(context, "datasets")


async def get_dataset_type(context: Context) -> web.StreamResponse:
    """Answer with a dataset's type."""
    record = await requested(context, "datasets")
    own = f"/datasets/{record['id']}"
    links = hrefs(context, self=f"{own}/type", owner=own, root=f"/groups/{record['root']}")
    return respond({"type": shown_type(record["type"]), "hrefs": links})


async def post_datasets(context: Context) -> web.StreamResponse:
    """Create one dataset, or several; a `value`, or `value_base64`, is written before the dataset is linked."""
    return await post_objects(context, "datasets", _fill)


async def delete_dataset(context: Context) -> web.StreamResponse:
    """Delete a dataset."""
    return await delete_object(context, "datasets")


async def _fill(context: Context, record: Record, body: Record) -> Callable[[], Awaitable[None]] | None:
    datatype = await read_type(context, body)
    shape = parse_shape(body)
    properties = record["creationProperties"]
    filters = properties.get("filters") or []
    if not isinstance(filters, list):
        raise BadRequest("filters must be a list.")
    if filters:
        properties["filters"] = spelled_filters(filters)
    # HDF5 clients of the 0.9 dialect send the layout beside the creation properties.
    asked = properties.pop("layout", None) or body.get("layout")
    refuse_locator(properties)
    settings = context.service.settings
    layout = parse_layout(
        asked,
        shape,
        datatype,
        filtered=bool(filters),
        min_bytes=settings.min_chunk_size,
        max_bytes=settings.max_chunk_size,
    )
    fill = parse_fill_value(properties, datatype)
    rest = {key: value for key, value in properties.items() if key not in ("fillValue", "fillValue_encoding")}
    record |= {"type": datatype.item, "shape": shape} | layout.fields(rest | fill)
    if layout.grid:
        chunk_spec(record)  # refuses filters and initializers that are not known
    await link_file(context, record)
    value, text = body.get("value"), body.get("value_base64")
    if value is None and text is None:
        return None
    refuse_values(record)
    if value is not None and text is not None:
        raise BadRequest("Give value or value_base64, not both.")
    parse = parse_initial_value if text is None else parse_initial_bytes
    # Of a list its length tells not how many elements it has.
    count = len(text) if isinstance(text, str) else INLINE + 1
    array = await aside(count, parse, value if text is None else text, shape, datatype)
    dataset = Dataset.of(record)

    async def write() -> None:
        if isinstance(array, VariableArray):
            variable = VariableFanout(context.service.owners, dataset)
            await variable.write_variable(Orthogonal.all(dataset.extent), array)
            return
        typed = np.ndarray(dataset.extent, dataset.dtype, np.ascontiguousarray(array))
        await ChunkFanout(context.service.owners, dataset).write(Orthogonal.all(dataset.extent), typed)

    return write if array.size else None
