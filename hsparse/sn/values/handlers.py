"""Handlers of values: `/datasets/{id}/value`, `/defined`, `/erase` and `/reduce`, and the table of media types.

A binary write larger than `max_request_size`, which clients of HSDS may send, is applied part by part.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import parse_fields
from hsparse.format.kinds.chunk_kind import check_drop_fill
from hsparse.format.plan.grid import pages
from hsparse.format.selections.orthogonal import as_span
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.format.selections.signed_extent import corner_of
from hsparse.model.acl import Right
from hsparse.model.json_values import Values
from hsparse.sn.http.challenge import idempotency_key
from hsparse.sn.http.request import BINARY_TYPE, named_types, read_json, read_json_object
from hsparse.sn.http.response import respond_computed
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.records.dataset import StoredDataset, load_dataset, until_current
from hsparse.sn.request import Request, respond
from hsparse.sn.values.append import AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout, DefinedRead
from hsparse.sn.values.defined_read import count_defined, places_too_large, read_whole, whole_bound
from hsparse.sn.values.media.arrow import ARROW
from hsparse.sn.values.media.binary import BINARY
from hsparse.sn.values.media.json import JSON
from hsparse.sn.values.media.medium import Medium, ValueRead, WriteBody
from hsparse.sn.values.multi_object_read import MultiObjectRead, parse_reads
from hsparse.sn.values.query_values import answer_query, change_by_query
from hsparse.sn.values.reduction.dataset_reduction import DatasetReduction, ReduceRequest
from hsparse.sn.values.request_selection import ReadRequest, Resolve, body_resolve, pack_points
from hsparse.sn.values.url_selection import select_parameter, selected, selected_in_url

MEDIA: dict[str, Medium] = {medium.name: medium for medium in (JSON, BINARY, ARROW)}
"""The media types of values by name. To add one, add a module to `media/` and an entry here."""


def accepted_medium(request: web.BaseRequest) -> Medium:
    """Return the medium of the answer: the first type named in `Accept` that is in `MEDIA`, else JSON."""
    return _first_named(request.headers.get(hdrs.ACCEPT, ""))


def body_medium(request: web.BaseRequest) -> Medium:
    """Return the medium that `Content-Type` names, else JSON, because clients of HSDS omit the header."""
    return _first_named(request.headers.get(hdrs.CONTENT_TYPE, ""))


def _first_named(header: str) -> Medium:
    found = MEDIA.get(header)  # most headers are one name
    return found or next((MEDIA[name] for name in named_types(header) if name in MEDIA), JSON)


WHOLE = ("append", "append_dim", "append_side", "sparse", "element_count", "query")
"""Parameters with which a write cannot be streamed, because they need the whole body."""


def is_streamed(request: Request) -> bool:
    """Return whether the body of a write exceeds `request.limit`, but can be applied part by part."""
    length = request.http.content_length
    is_large = length is not None and length > request.limit
    return is_large and body_medium(request.http) is BINARY and not any(map(request.arg, WHOLE))


async def put_streamed(request: Request) -> web.StreamResponse:
    """Write the elements of a body page by page as they arrive; durable when answered.

    Every check is made before the first write. If the body is cut short, the pages that arrived before stay written.
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
            await _write_page(request, page, corner_of(dataset.extent), fields, drops_fill)
    return respond({})


async def _write_page(
    request: Request, page: Selection, corner: tuple[int, ...], fields: Sequence[str], drops_fill: bool
) -> None:
    """Receive the elements of a page and write them in the dataset's current extent.

    `corner` has the signed coordinates of the page's origin, which moves if the dataset's lower bounds change.
    """
    dataset = await load_dataset(request)
    arrays = dataset.arrays.of_fields(fields)
    data = await request.part(page.size * arrays.guessed_size)
    values: Values = arrays.from_bytes(data, page.size, page.shape)

    async def write(current: StoredDataset) -> None:
        where = page
        moves = list(map(int.__sub__, corner, corner_of(current.extent)))
        if current.extent != page.extent or any(moves):
            where = page.translate(moves, current.extent)
        chunks = ChunkFanout(request.service.owners, current)
        await chunks.write(where, values, drop_fill=drops_fill, fields=fields)

    await until_current(request, write)


async def get_value(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/value`: read elements by `select` and `query`; with `sparse=1`, only the defined elements."""
    return await _read(request, ReadRequest.of(request, *select_parameter(request)))


async def post_value(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/value`: read values by points, or by a selection too long for a URL."""
    return await _read(request, await body_medium(request.http).read_request(request))


async def post_values(request: Request) -> web.StreamResponse:
    """`POST /datasets/values`: the values of many datasets as one stream of bytes."""
    reads = parse_reads(await read_json_object(request))
    async with (
        MultiObjectRead.planned(request, reads) as read,
        request.service.answers.hold(read.memory),
    ):
        return await respond_stream(request, BINARY_TYPE, read.parts())


async def _read(request: Request, asked: ReadRequest) -> web.StreamResponse:
    """Answer with the values of a selection that is resolved in the dataset's current extent."""
    medium = accepted_medium(request.http)

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        async with selected(request, dataset.extent, asked.body, asked.resolve) as selection:
            fields = parse_fields(asked.fields, dataset.dtype) if asked.fields else ()
            if asked.sparse:
                if fields:
                    raise BadRequest("Sparse values are whole elements; leave out fields.")
                dataset.require_sparse()
                return await medium.answer_defined(ValueRead(request, dataset, selection))
            if asked.query is not None:
                return await answer_query(
                    request, dataset, selection, asked.query, asked.limit, fields, asked.order_by, medium
                )
            return await medium.answer_values(ValueRead(request, dataset, selection, fields))

    return await until_current(request, read)


async def put_value(request: Request) -> web.StreamResponse:
    """`PUT /datasets/{id}/value`: write by hyperslab, lists or points, or append; durable when answered."""
    if is_streamed(request):
        return await put_streamed(request)
    if request.arg("query"):
        return await _put_by_query(request)
    write = ValueWrite(request, await body_medium(request.http).read_body(request))
    if write.body.append is None:
        await until_current(request, write.apply)
        return respond({})
    if request.arg("flush") is not None and not request.flag("flush"):
        raise BadRequest("An append is visible when it is answered: leave out flush=0.")
    key = idempotency_key(request.http, request.principal.name)
    groups = request.service.component(AppendGroups)
    selection = await groups.apply(
        write.body.append, lambda: load_dataset(request), write.resolve, write.write, key, write.how
    )
    return respond({"selection": selection})


class ValueWrite:
    """One write of values, from its decoded body to the chunk writes."""

    def __init__(self, request: Request, body: WriteBody) -> None:
        self.body = body
        self._request = request
        self._drop_fill = request.flag("drop_fill")
        self._sparse = self._drop_fill or body.sparse or request.flag("sparse")
        self._fields: tuple[str, ...] = ()

    @property
    def how(self) -> Hashable:
        """The options on which `write` depends; appends with equal options can share one write."""
        return self._drop_fill, self.body.fields

    async def apply(self, dataset: StoredDataset) -> None:
        """Write to the dataset; raise `Moved` if its extent was shrunk meanwhile."""
        async with self.resolve(dataset) as (selection, values):
            await self.write(dataset, selection, values)

    @asynccontextmanager
    async def resolve(self, dataset: StoredDataset) -> AsyncIterator[tuple[Selection, Values]]:
        """Yield the selection and the values while memory is held; raise `BadRequest` if they do not fit."""
        if self._sparse:
            dataset.require_sparse()
        if self.body.fields:
            self._fields = parse_fields(self.body.fields, dataset.dtype)
            if self._drop_fill:
                check_drop_fill(self._fields)
        resolve = partial(self._resolve, dataset)
        async with selected(self._request, dataset.extent, self.body.named, resolve) as found:
            await self._request.make_room(found[2])
            yield found[:2]

    def _resolve(self, dataset: StoredDataset, extent: tuple[int, ...]) -> tuple[Selection, Values, int]:
        selection, values = self.body.resolve(dataset, self._fields)
        nbytes = dataset.arrays.nbytes(values) * (selection.size if values.size == 1 else 1)
        most = self._request.service.settings.max_write_size
        return (
            selection,
            values,
            ChunkFanout(self._request.service.owners, dataset).check_write(selection, nbytes, most),
        )

    async def write(self, dataset: StoredDataset, selection: Selection, values: Values) -> None:
        """Write the values; durable on return."""
        chunks = ChunkFanout(self._request.service.owners, dataset)
        await chunks.write(selection, values, drop_fill=self._drop_fill, fields=self._fields)


async def _put_by_query(request: Request) -> web.StreamResponse:
    """Change the elements that match a query. This also needs the right to read: the answer has the elements."""
    if body_medium(request.http) is not JSON:
        raise BadRequest("A change by a query has a JSON body: the fields with their new values.")
    if any(
        request.arg(name) for name in ("append", "fields", "drop_fill", "sparse", "element_count", "order_by")
    ):
        raise BadRequest("A change by a query takes no parameters but select and Limit.")
    body = await read_json(request)
    request.domain.require(request.principal, Right.READ)

    async def change(dataset: StoredDataset) -> web.StreamResponse:
        async with selected_in_url(request, dataset.extent) as selection:
            return await change_by_query(request, dataset, selection, body)

    return await until_current(request, change)


# --- defined elements ---------------------------------------------------------------------------------


async def get_defined(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/defined`: a selection of the defined elements or, if `count_only` is set, their number.

    All elements of a dense dataset are defined, as for H5Dget_defined.
    """
    return await _defined(request, *select_parameter(request))


async def post_defined(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/defined`: like GET, but the body has points, `select` or an HDF5/JSON selection."""
    body = await read_json_object(request, pack_points)
    return await _defined(request, body, body_resolve(body))


async def _defined(request: Request, body: dict[str, Any], resolve: Resolve) -> web.StreamResponse:
    async def read(dataset: StoredDataset) -> web.StreamResponse:
        async with selected(request, dataset.extent, body, resolve) as selection:
            return await answer(dataset, selection)

    async def answer(dataset: StoredDataset, selection: Selection) -> web.StreamResponse:
        sparse = dataset.spec.sparse
        if request.flag("count_only"):
            owners = request.service.owners
            count = await count_defined(owners, dataset, selection) if sparse else selection.size
            return respond({"count": count})
        if sparse:
            selection = await _defined_places(request, dataset, selection)
        else:
            _check_listable(request, dataset, selection)
        medium = accepted_medium(request.http)
        read = ValueRead(request, dataset, selection)
        return await respond_computed(selection.size, lambda: medium.answer_places(read))

    return await until_current(request, read)


async def _defined_places(request: Request, dataset: StoredDataset, selection: Selection) -> Selection:
    settings = request.service.settings
    chunks = ChunkFanout(request.service.owners, dataset)
    places = DefinedRead(chunks, settings.page_size, places_only=True)
    most = settings.max_request_size
    async with request.service.answers.hold(whole_bound(dataset, selection, most, places_only=True)):
        found = await read_whole(places, selection, most)
    if found is None:
        raise places_too_large(settings.max_request_size)
    return found[0]


def _check_listable(request: Request, dataset: StoredDataset, selection: Selection) -> None:
    """Raise `TooLarge` if the answer must list the selection's points and they exceed `max_request_size`."""
    limit = request.service.settings.max_request_size
    if not _is_regular(selection) and selection.size * 8 * len(dataset.extent) > limit:
        raise TooLarge(
            f"The selection has {selection.size} points, more than an answer of {limit} bytes "
            "(max_request_size) can list; select less."
        )


def _is_regular(selection: Selection) -> bool:
    """Return whether an answer can describe the selection without listing its points."""
    return isinstance(selection, Orthogonal) and all(as_span(axis) is not None for axis in selection.axes)


async def delete_value(request: Request) -> web.StreamResponse:
    """`DELETE /datasets/{id}/value`: make the selected elements undefined; durable when answered."""
    if request.arg("select") is None:
        raise BadRequest("Name the elements to erase by ?select=; a selection like [:,:] erases all.")
    return await _erase(request, *select_parameter(request))


async def post_erase(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/erase`: like DELETE of values, but the body has points, `select` or a selection."""
    body = await read_json_object(request, pack_points)
    return await _erase(request, body, body_resolve(body))


async def _erase(request: Request, body: dict[str, Any], resolve: Resolve) -> web.StreamResponse:
    async def erase(dataset: StoredDataset) -> None:
        dataset.require_sparse()
        dataset.require_writable()
        async with selected(request, dataset.extent, body, resolve) as selection:
            await ChunkFanout(request.service.owners, dataset).erase(selection)

    await until_current(request, erase)
    return respond({})


async def get_reduce(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/reduce`: sums, means and other reductions of the selected elements, by axes and groups."""
    return await _reduce(request, ReduceRequest.of(request, {}))


async def post_reduce(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/reduce`: like GET, but the body may have parameters that are too long for a URL."""
    return await _reduce(request, ReduceRequest.of(request, await read_json_object(request)))


async def _reduce(request: Request, asked: ReduceRequest) -> web.StreamResponse:
    medium = accepted_medium(request.http)

    async def reduce(dataset: StoredDataset) -> web.StreamResponse:
        named = {"select": asked.select, "orthogonal": True}
        async with selected(request, dataset.extent, named, asked.resolve) as selection:
            reduction = DatasetReduction(request, dataset, asked, selection)
            return await medium.answer_reduced(request, await reduction.run())

    return await until_current(request, reduce)
