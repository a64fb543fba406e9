"""Bytes of values: `application/octet-stream`.

All values of a selection are the elements in C order; defined elements, and bodies with `sparse=1`, are a structured
chunk's bytes over the dataset's extent (`hsparse.format.structured.region`); a selection is an H5Sencode image.

Tests: tests/sn/values/test_values.py, tests/sn/values/test_sparse.py, tests/sn/values/test_vlen_values.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

from aiohttp import web

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, Corrupt
from hsparse.format.fields import parse_fields
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.selection import Selection
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.context import Context
from hsparse.sn.http.request import BINARY_TYPE
from hsparse.sn.http.stream import MAX_WHOLE_BODY, respond_stream
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.element_query import Rows
from hsparse.sn.values.media.json import answer_found as answer_found_json
from hsparse.sn.values.media.json import whole_defined
from hsparse.sn.values.media.medium import STREAM_PAGES, Append, FoundRead, Medium, ValueRead
from hsparse.sn.values.request_selection import BodySelection, binary_points, parse_append, wanted_count

# --- answers ----------------------------------------------------------------------------------------


async def answer_values(read: ValueRead) -> web.StreamResponse:
    """Answer with every selected value, the fill value where none was written; a large answer is streamed."""
    context, arrays, count = read.context, read.arrays, read.selection.size
    page_size = context.service.settings.page_size
    expected = min(MAX_WHOLE_BODY, page_size, arrays.expected(count))
    if count * arrays.guessed_size <= expected:
        async with context.service.answers.hold(expected):
            values = await read.chunks.read_within(read.selection, read.fields, expected)
            if not isinstance(values, int):
                return web.Response(body=arrays.to_bytes(values), content_type=BINARY_TYPE)
    length = count * arrays.guessed_size if arrays.is_exact else None
    async with context.service.answers.hold(STREAM_PAGES * page_size):
        return await respond_stream(context.request, BINARY_TYPE, _pages(read, arrays, page_size), length)


async def _pages(read: ValueRead, arrays: ValueArrays, page_size: int) -> AsyncGenerator[memoryview, None]:
    async for values in read.chunks.pages(read.selection, read.fields, page_size):
        yield arrays.to_bytes(values)


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """Answer with the defined elements as structured-chunk bytes."""

    async def answer(points: Selection, values: Values) -> web.Response:
        work = read.arrays.work(values.size)
        body = await offload(work, read.arrays.to_region, points, values)
        return web.Response(body=body, content_type=BINARY_TYPE)

    return await whole_defined(read, read.context.service.settings.max_request_size, answer)


def answer_places(context: Context, selection: Selection) -> web.Response:
    """Answer with an encoded selection."""
    return web.Response(body=encode_selection(selection), content_type=BINARY_TYPE)


async def answer_found(read: FoundRead) -> web.StreamResponse:
    """Answer with the elements that a query finds.

    In JSON where it finds nothing (h5pyd fails on bytes of length zero), and of variable length: h5pyd cannot read
    length-prefixed elements whose number it does not know before.
    """
    first = await anext(read.found, None) if read.arrays.is_exact else None
    if first is None:
        return await answer_found_json(read)
    second = await anext(read.found, None)
    head = read.arrays.to_bytes(first[1])
    if second is None and len(head) <= MAX_WHOLE_BODY:
        return web.Response(body=head, content_type=BINARY_TYPE)
    pieces = _found(first, second, read.found, read.arrays)
    length = len(head) if second is None else None
    return await respond_stream(read.context.request, BINARY_TYPE, pieces, length)


async def _found(
    first: Rows, second: Rows | None, rest: AsyncIterator[Rows], arrays: ValueArrays
) -> AsyncGenerator[memoryview, None]:
    yield arrays.to_bytes(first[1])
    if second is not None:
        yield arrays.to_bytes(second[1])
    async for _, values in rest:
        yield arrays.to_bytes(values)


# --- bodies -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BytesBody:
    """`WriteBody` of the elements' bytes, in the order of what the parameters select."""

    data: bytes | bytearray
    elements: BodySelection
    append: Append | None
    fields: str | None
    sparse: bool = False

    def resolve(self, dataset: Dataset) -> tuple[Selection, Values]:
        arrays = dataset.arrays.of_fields(parse_fields(self.fields, dataset.dtype))
        selection = self.elements.resolve(dataset.extent)
        count = wanted_count(self.elements.count, selection)
        return selection, arrays.from_bytes(self.data, count, selection.shape)

    def work(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class RegionBody:
    """`WriteBody` of structured-chunk bytes: an encoded selection of the extent, and the values."""

    data: bytes | bytearray
    append: Append | None
    fields: str | None
    sparse: bool = True

    def resolve(self, dataset: Dataset) -> tuple[Selection, Values]:
        refuse_fields(self.fields, dataset)
        try:
            selection, values = dataset.arrays.from_region(self.data)
        except Corrupt as error:
            raise BadRequest(f"The body is not a structured chunk's bytes: {error.message}") from error
        if selection.extent != dataset.extent:
            raise BadRequest(
                f"The body selects in {list(selection.extent)}; the extent is {list(dataset.extent)}."
            )
        return selection, values.reshape(selection.shape)

    def work(self) -> int:
        return len(self.data)


def refuse_fields(fields: str | None, dataset: Dataset) -> None:
    """Raise `BadRequest` for fields of what has its places with it."""
    if parse_fields(fields, dataset.dtype):
        raise BadRequest("Sparse values are whole elements; leave out fields.")


async def read_body(context: Context) -> BytesBody | RegionBody:
    """Read a write's body whole: one cut short applies nothing."""
    append = parse_append(context.number("append"), context.number("append_dim"))
    fields = context.arg("fields")
    if context.flag("sparse"):
        return RegionBody(await context.body(), append, fields)
    elements = BodySelection.of(context, append, {})
    return BytesBody(await context.body(), elements, append, fields)


async def read_points(context: Context) -> Callable[[tuple[int, ...]], Selection]:
    """Read the body of a read by points: little-endian u64 coordinates."""
    data = await context.body()
    return lambda extent: binary_points(data, extent)


BINARY = Medium(
    BINARY_TYPE, read_body, answer_values, answer_defined, answer_places, answer_found, read_points
)
