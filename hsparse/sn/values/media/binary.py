"""Values as bytes: `application/octet-stream`.

The values of a selection are sent as the bytes of its elements in C order. Defined elements, and bodies with
`sparse=1`, have the form of a structured chunk that covers the extent (`hsparse.format.structured.region`). A selection
is sent in the form of H5Sencode.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from aiohttp import web

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.points import Selection
from hsparse.format.selections.signed_extent import SignedExtent, encodable_of
from hsparse.format.value_arrays import ValueArrays, repeat_values
from hsparse.model.json_values import Values
from hsparse.sn.http.request import BINARY_TYPE
from hsparse.sn.http.response import respond_computed
from hsparse.sn.http.stream import MAX_WHOLE_BODY, respond_stream
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.append import Append, parse_append
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.media.json import JSON, answer_whole
from hsparse.sn.values.media.medium import STREAM_PAGES, CoordinatesBody, FoundRead, ValueRead
from hsparse.sn.values.reduction.dataset_reduction import Reduced
from hsparse.sn.values.request_selection import ReadRequest, WriteSelection, binary_points, body_shape


async def answer_values(read: ValueRead) -> web.StreamResponse:
    """Answer with all selected values; undefined elements have the fill value. A large answer is streamed."""
    request, arrays, count = read.request, read.arrays, read.selection.size
    page_size = request.service.settings.page_size
    expected = min(MAX_WHOLE_BODY, page_size, arrays.expected(count))
    if count * arrays.guessed_size <= expected:
        async with request.service.answers.hold(expected):
            values = await read.chunks.read_within(read.selection, read.fields, expected)
            if not isinstance(values, int):
                return web.Response(body=arrays.to_bytes(values), content_type=BINARY_TYPE)
    length = count * arrays.guessed_size if arrays.is_exact else None
    async with request.service.answers.hold(STREAM_PAGES * page_size):
        return await respond_stream(request, BINARY_TYPE, _value_pages(read, arrays, page_size), length)


async def _value_pages(
    read: ValueRead, arrays: ValueArrays, page_size: int
) -> AsyncGenerator[memoryview, None]:
    async for values in read.chunks.pages(read.selection, read.fields, page_size):
        yield arrays.to_bytes(values)


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """Answer with the defined elements as the bytes of a structured chunk."""

    async def answer(points: Selection, values: Values) -> web.Response:
        return await respond_computed(
            values.size,
            lambda: web.Response(
                body=read.arrays.to_region(encodable_of(read.dataset.extent, points), values),
                content_type=BINARY_TYPE,
            ),
        )

    return await answer_whole(read, read.request.service.settings.max_request_size, answer)


def answer_places(read: ValueRead) -> web.Response:
    """Answer with the encoded selection; its coordinates are unsigned, because they count from the first element."""
    selection = encodable_of(read.dataset.extent, read.selection)
    return web.Response(body=encode_selection(selection), content_type=BINARY_TYPE)


async def answer_found(read: FoundRead) -> web.StreamResponse:
    """Answer with the elements that a query has found.

    The answer is JSON if no element was found, because h5pyd fails on a body of length zero. It is also JSON for vlen
    elements, because h5pyd can read length-prefixed elements only if it knows their number in advance.
    """
    first = await anext(read.found, None) if read.arrays.is_exact else None
    if first is None:
        return await JSON.answer_found(read)
    second = await anext(read.found, None)
    head = read.arrays.to_bytes(first[1])
    if second is None and len(head) <= MAX_WHOLE_BODY:
        return web.Response(body=head, content_type=BINARY_TYPE)
    pieces = _found_pages(first, second, read.found, read.arrays)
    length = len(head) if second is None else None
    return await respond_stream(read.request, BINARY_TYPE, pieces, length)


async def answer_reduced(request: Request, reduced: Reduced) -> web.StreamResponse:
    """Answer with the little-endian arrays of all operations, concatenated in the order of the request."""
    arrays = [
        np.ascontiguousarray(values, values.dtype.newbyteorder("<")) for values in reduced.values.values()
    ]
    return web.Response(body=b"".join(array.tobytes() for array in arrays), content_type=BINARY_TYPE)


async def _found_pages(
    first: Rows, second: Rows | None, rest: AsyncIterator[Rows], arrays: ValueArrays
) -> AsyncGenerator[memoryview, None]:
    yield arrays.to_bytes(first[1])
    if second is not None:
        yield arrays.to_bytes(second[1])
    async for _, values in rest:
        yield arrays.to_bytes(values)


@dataclass(frozen=True, slots=True)
class BytesBody:
    """A `WriteBody` with the elements' bytes in the order of the selection; URL parameters name the selection."""

    data: bytes | bytearray
    selection: WriteSelection
    append: Append | None
    fields: str | None
    sparse: bool = False

    @property
    def named(self) -> Mapping[str, Any]:
        return self.selection.named

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        arrays = dataset.arrays.of_fields(fields)
        selection = self.selection.resolve(dataset.extent)
        shape = body_shape(self.selection.count, selection)
        values = arrays.from_bytes(self.data, prod(shape), shape)
        return selection, repeat_values(arrays, values, selection.shape)


@dataclass(frozen=True, slots=True)
class RegionBody(CoordinatesBody):
    """A `WriteBody` that has the form of a structured chunk: an encoded selection and the values.

    The selection's coordinates count from the dataset's first element. Its extent may be an earlier one of the dataset.
    """

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        refuse_fields(fields)
        try:
            selection, values = dataset.arrays.from_region(self.data)
        except Corrupt as error:
            raise BadRequest(f"The body is not a structured chunk's bytes: {error.message}") from error
        if len(selection.extent) != len(dataset.extent):
            raise BadRequest(
                f"The body selects in {len(selection.extent)} dimensions, but the dataset has {len(dataset.extent)}."
            )
        if isinstance(dataset.extent, SignedExtent):
            selection = dataset.extent.decoded(selection)
        elif selection.extent != dataset.extent:
            selection = selection.translate((0,) * len(dataset.extent), dataset.extent)
        return selection, values.reshape(selection.shape)


def refuse_fields(fields: tuple[str, ...]) -> None:
    """Raise `BadRequest` if a sparse write names fields."""
    if fields:
        raise BadRequest("Sparse values are whole elements; leave out fields.")


async def read_body(request: Request) -> BytesBody | RegionBody:
    """Read the body of a write."""
    append = parse_append(request.number("append"), request.number("append_dim"), request.arg("append_side"))
    fields = request.arg("fields")
    if request.flag("sparse"):
        return RegionBody(await request.body(), append, fields)
    selection = WriteSelection.of(request, {})
    return BytesBody(await request.body(), selection, append, fields)


async def read_request(request: Request) -> ReadRequest:
    """Read the body of a read by points: little-endian u64 coordinates."""
    data = await request.body()
    return ReadRequest.of(request, {}, lambda extent: binary_points(data, extent))


BINARY = replace(
    JSON,
    name=BINARY_TYPE,
    read_body=read_body,
    read_request=read_request,
    answer_values=answer_values,
    answer_defined=answer_defined,
    answer_places=answer_places,
    answer_found=answer_found,
    answer_reduced=answer_reduced,
)
