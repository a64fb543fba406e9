"""The handler that creates datasets, with their initial values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec, statistic_columns
from hsparse.format.filters.filters_json import filters_to_json
from hsparse.format.selections.select_syntax import parse_select
from hsparse.model.dataspace import (
    Shape,
    lower_of,
    parse_bounds,
    parse_shape,
)
from hsparse.model.datatype import Datatype
from hsparse.model.initial_values import (
    AS_TEXT,
    check_initial_size,
    is_named_float,
    parse_fill_value,
    parse_initial_bytes,
    parse_initial_value,
)
from hsparse.model.json_values import Values
from hsparse.model.layout import STATISTICS, class_elsewhere, parse_layout
from hsparse.sn.http.requested_type import parsed_value, read_type
from hsparse.sn.objects.create import post_objects
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.file_data import file_data, other_data
from hsparse.wire.message import Record


async def post_datasets(request: Request) -> web.StreamResponse:
    """Create one dataset or many. Values in `value` or `value_base64` are written before the dataset is linked."""
    return await post_objects(request, "datasets", _fill_dataset)


async def _fill_dataset(
    request: Request, record: Record, body: Record
) -> Callable[[], Awaitable[None]] | None:
    datatype = await read_type(request, body)
    shape = parse_bounds(body, parse_shape(body))
    properties = record["creationProperties"]
    filters = properties.get("filters") or []
    if not isinstance(filters, list):
        raise BadRequest("filters must be a list.")
    if filters:
        properties["filters"] = filters_to_json(filters)
    # Clients of the 0.9 dialect send the layout outside the creation properties.
    asked = properties.pop("layout", None) or body.get("layout")
    files = file_data()
    locator = files.take_locator(properties, request.service.buckets) if files else None
    settings = request.service.settings
    layout = parse_layout(
        asked,
        shape,
        datatype,
        filtered=bool(filters),
        min_bytes=settings.min_chunk_size,
        max_bytes=settings.max_chunk_size,
    )
    layout.check_places(request.service.buckets)
    fill = parse_fill_value(properties, datatype)
    rest = {key: value for key, value in properties.items() if key not in ("fillValue", "fillValue_encoding")}
    record |= {"type": datatype.item, "shape": shape} | layout.fields(rest | fill, settings.bucket)
    record |= {AS_TEXT: True} if is_named_float(properties.get("fillValue")) else {}
    elsewhere = class_elsewhere(record)
    if layout.grid:
        spec = chunk_spec(record)  # raises for unknown filters and initializers
        record |= {STATISTICS: True} if _wants_statistics(spec, properties) and not elsewhere else {}
        if spec.arange and lower_of(shape):
            raise Unsupported("A dataset with an initializer counts from 0: leave out lower and minlower.")
    if elsewhere:
        await other_data(elsewhere).check(request, record)
    array = await _initial_values(request, body, shape, datatype, locator)
    if array is None:
        return None
    if elsewhere:
        raise BadRequest(
            "A dataset whose data is in a file or in other datasets takes no values: leave out value."
        )
    dataset = StoredDataset.of(record)

    async def write() -> None:
        selection = parse_select(None, dataset.extent)
        values = dataset.arrays.stored(array, selection.shape)
        await ChunkFanout(request.service.owners, dataset).write(selection, values)

    return write if array.size else None


def _wants_statistics(spec: ChunkSpec, properties: Record) -> bool:
    """Return whether chunks get statistics: only for sparse datasets of numbers, unless the request declines them."""
    wanted = properties.get(STATISTICS, True)
    if not isinstance(wanted, bool):
        raise BadRequest(f"{STATISTICS} must be true or false.")
    is_fixed = spec.sparse and not spec.datatype.is_vlen
    return wanted and is_fixed and bool(statistic_columns(spec.dtype))


async def _initial_values(
    request: Request, body: Record, shape: Shape, datatype: Datatype, locator: Any
) -> Values | None:
    """Return a new dataset's values from the body or from the file of `locator`, or None if no values are given."""
    value, text = body.get("value"), body.get("value_base64")
    if (value is not None) + (text is not None) + (locator is not None) > 1:
        raise BadRequest("Give only one of value, value_base64 and the initializer of a chunk table.")
    if locator is not None:
        check_initial_size(shape, datatype)
        files = file_data()
        assert files is not None  # a locator exists only if it was taken
        return await files.located(request, locator, shape, datatype)
    if value is None and text is None:
        return None
    parse = parse_initial_value if text is None else parse_initial_bytes
    given = {"value": value if text is None else text}
    return await parsed_value(given, datatype, lambda given, kind: parse(given["value"], shape, kind))
