"""Reading and changing the elements that a query finds.

Ordered queries (`order_by`) return the first `limit` matches by value. Each owner sends at most `limit` elements of a
chunk. Chunks whose statistics are known are read in waves, in the order of the best value that they can have, until no
further chunk can have a better value than the matches found.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import extremes_of, is_known
from hsparse.format.fields import packed_type, pick_fields
from hsparse.format.kinds.chunk_kind import FoundElements, QueryRequest
from hsparse.format.ordering import Ordering
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan
from hsparse.format.query import ELEMENT, bind_query
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.points import Points, Selection, ascending
from hsparse.format.selections.signed_extent import places_of
from hsparse.format.value_arrays import FixedArrays
from hsparse.model.element import Fixed
from hsparse.model.json_values import LIST_BYTES, from_json, json_size
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.stored_chunks import Scaled
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import (
    DatasetQuery,
    FixedQuery,
    Rows,
    dataset_query,
    join_rows,
    unchangeable,
)
from hsparse.sn.values.media.json import collect_found, json_limit, respond_values, value_hrefs
from hsparse.sn.values.media.medium import FoundRead, Medium

FIRST_CHUNKS = 16
"""The number of chunks in the first wave of an ordered query; it doubles with each wave."""


class OrderedQuery(FixedQuery):
    """A `DatasetQuery` that yields the first `limit` matches in the order of their values."""

    def __init__(
        self,
        dataset: StoredDataset,
        chunks: ChunkFanout,
        text: str,
        page_size: int,
        limit: int,
        order_by: str,
    ) -> None:
        super().__init__(dataset, chunks, text, page_size, limit)
        self._ordering = Ordering.parse(order_by, dataset.dtype)
        self._named |= {self._ordering.field or ELEMENT}
        if not limit:
            raise BadRequest("order_by needs the parameter Limit, the number of elements to return: add it.")
        if limit > self._room:
            raise TooLarge(f"With order_by, Limit is at most {self._room} for such elements, not {limit}.")
        self._most = max(1, self._room // limit)

    async def find(
        self, selection: Selection, fields: Sequence[str] = (), *, places_only: bool = False
    ) -> AsyncGenerator[Rows, None]:
        best: Rows = join_rows([], self._dataset.dtype)
        described = await self._candidates(selection)
        stored = await self._stored(selection)
        waves = self._waves(selection) if described is None else self._promising(selection, described)
        async with aclosing(waves):
            async for planned, bound in waves:
                if bound is not None and self._is_settled(best, bound):
                    break
                best = await self._with(best, planned, stored)
        if len(best[0]):
            yield best[0], pick_fields(best[1], fields)

    async def _with(self, best: Rows, planned: Sequence[PlannedChunk], stored: set[Scaled] | None) -> Rows:
        """Ask the owners of planned chunks; return the first matches, in order, among `best` and the replies."""
        asked = [chunk for chunk in planned if stored is None or chunk.scaled in stored]
        wanted = QueryRequest(self._query.text, self._limit, order_by=self._ordering.text)
        replies = await self._chunks.source.find(asked, wanted)
        found = dict(zip((chunk.scaled for chunk in asked), replies, strict=True))
        answers = [found.get(chunk.scaled) for chunk in planned]
        return await self._made(planned, answers, partial(self._best, best, planned))

    def _is_settled(self, best: Rows, bound: Any) -> bool:
        """Return whether `best` is final if no further chunk has a better key than `bound`."""
        keys = self._ordering.keys(best[1])
        return len(keys) == self._limit and self._ordering.is_after(bound, keys[-1])

    def _best(
        self, best: Rows, planned: Sequence[PlannedChunk], found: Sequence[FoundElements | None]
    ) -> Rows:
        """Return the first matches among `best` and `found`, in order; matches with equal keys are row-major."""
        pieces = [best, *self._located(planned, found, self._limit, ())]
        offsets, rows = join_rows(pieces, self._dataset.dtype)
        by_place = np.argsort(offsets, kind="stable")
        chosen = by_place[self._ordering.first(rows[by_place], self._limit)]
        return offsets[chosen], rows[chosen]

    async def _waves(self, selection: Selection) -> AsyncGenerator[tuple[Sequence[PlannedChunk], Any], None]:
        """Yield pairs of a wave of planned chunks, whose replies fit into a page, and None for its unknown best key."""
        async for planned in self._pages(selection):
            for first in range(0, len(planned), self._most):
                yield planned[first : first + self._most], None

    async def _promising(
        self, selection: Selection, rows: ChunkRows
    ) -> AsyncGenerator[tuple[Sequence[PlannedChunk], Any], None]:
        """Plan the chunks `rows`; yield pairs of a wave of chunks and the best key that they can have, best first.

        Chunks without statistics come first, with None as their key.
        """
        selection, spec = ascending(selection), self._dataset.spec
        known = np.flatnonzero(is_known(rows.statistics))
        column = self._column()
        if column is None:
            known = known[:0]
        other = np.setdiff1d(np.arange(len(rows)), known)
        for first in range(0, len(other), self._most):
            yield plan(selection, self._dataset.grid, rows.scaled[other[first : first + self._most]]), None
        if column is None:
            return
        dtype = (
            self._dataset.dtype[spec.statistic_columns[column]]
            if self._ordering.field
            else self._dataset.dtype
        )
        least, greatest = extremes_of(rows.statistics[known, column], dtype)
        bounds: NDArray[Any] = greatest if self._ordering.descending else least
        order = np.argsort(bounds, kind="stable")
        order = order[::-1] if self._ordering.descending else order
        first, wave = 0, min(FIRST_CHUNKS, self._most)
        while first < len(order):
            some = order[first : first + wave]
            yield plan(selection, self._dataset.grid, rows.scaled[known[some]]), bounds[some[0]]
            first, wave = first + wave, min(2 * wave, self._most)

    def _column(self) -> int | None:
        """Return the index of the ordering's field in the statistics' columns, or None if there is none."""
        columns = self._dataset.spec.statistic_columns
        return columns.index(self._ordering.field) if self._ordering.field in columns else None


QUERY_PAGES = 4
"""The number of a streamed answer's pages in memory: one is sent while the next is read, each with coordinates."""


async def answer_query(
    request: Request,
    dataset: StoredDataset,
    selection: Selection,
    text: str,
    limit: int,
    fields: tuple[str, ...],
    order_by: str,
    medium: Medium,
) -> web.StreamResponse:
    """Answer with the selected elements that a query finds, in row-major order or, with `order_by`, by value."""
    query = _query(request, dataset, text, limit, order_by)
    every = isinstance(query, OrderedQuery) and query.fits_fill
    _check_computed(request, dataset, selection, every=every)
    page_size = request.service.settings.page_size
    nbytes = min(dataset.arrays.expected(selection.size), QUERY_PAGES * page_size)
    async with request.service.answers.hold(nbytes), aclosing(query.find(selection, fields)) as found:
        return await medium.answer_found(FoundRead(request, dataset, found, fields))


async def change_by_query(
    request: Request, dataset: StoredDataset, selection: Selection, body: Any
) -> web.Response:
    """Set the fields that a body names in the selected elements that match the query; answer with these elements.

    In the answer, `indices` has their coordinates, and `value` the changed elements, each preceded by its coordinates.
    """
    if not dataset.arrays.is_exact:
        raise unchangeable(dataset)
    _check_computed(request, dataset, selection)
    fields, value = update_value(body, dataset)
    text, limit = request.arg("query") or "", request.number("Limit") or 0
    if bind_query(text, dataset.dtype).takes(dataset.fill):  # chunks that do not exist are written
        chunks = ChunkFanout(request.service.owners, dataset)
        await request.make_room(chunks.check_size(selection, 0, request.service.settings.max_write_size))
    query = _query(request, dataset, text, limit)
    lists = json_size((), Fixed(dataset.dtype)).lists
    each = dataset.dtype.itemsize + 16 * len(dataset.extent) + LIST_BYTES * lists
    nbytes = selection.size * each
    async with request.service.answers.hold(min(nbytes, json_limit(request))):
        if limit or nbytes > json_limit(request):
            # Before any change, find the first `limit` elements, and whether the answer would be too large.
            found = query.find(selection, places_only=True)
            places, _ = await collect_found(request, dataset, found, dataset.arrays, each)
            selection = Points.trusted(dataset.extent, unravel(places, dataset.extent))
            query = _query(request, dataset, text, 0)
        offsets, rows = await query.update(selection, value, fields)
        coords = places_of(dataset.extent, unravel(offsets, dataset.extent))
        indexed = _with_index(coords, rows)
        arrays = FixedArrays(indexed.dtype, indexed[:0], Fixed(indexed.dtype))
        links = value_hrefs(request, dataset)
        return await respond_values(request, {"indices": coords}, indexed, arrays, links)


def _check_computed(
    request: Request, dataset: StoredDataset, selection: Selection, *, every: bool = False
) -> None:
    """Raise `TooLarge` for a query that must scan more than `max_query_chunks` chunks, even if they are not stored.

    A query over computed values (`arange`) scans all chunks, and so does any query with `every`.
    """
    most = request.service.settings.max_query_chunks
    if not (every or dataset.spec.arange) or selection.size <= most:
        return
    if count_chunks(selection, dataset.grid) > most:
        raise TooLarge(
            f"The query must scan more than {most} chunks that are computed or have the fill value, the limit "
            "(max_query_chunks); select less."
        )


def update_value(body: Any, dataset: StoredDataset) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return a pair: the body's fields, or () for whole elements, and an element of them; raise `BadRequest`."""
    names = dataset.dtype.names
    known = names or ("value",)
    if not isinstance(body, dict) or not body or not set(body) <= set(known):
        wanted = f"new values of fields: {', '.join(known)[:200]}" if names else "the new value, as value"
        raise BadRequest(f"The body of a change by a query must be a JSON object with {wanted}.")
    if names is None:
        return (), _element(body["value"], dataset.dtype)
    fields = tuple(name for name in names if name in body)
    element = np.zeros((), packed_type(dataset.dtype, fields))
    for name in fields:
        element[name] = _element(body[name], dataset.dtype[name])
    return fields, element


def _element(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a JSON value as one element; for an array type, a single value is repeated for all its members."""
    base, shape = dtype.subdtype or (dtype, ())
    try:
        return _fixed(value, dtype).reshape(shape)
    except BadRequest:
        if not shape:
            raise
        return np.broadcast_to(_fixed(value, base).reshape(()), shape)


def _fixed(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = from_json(value, (1,), Fixed(dtype))
    assert not isinstance(array, VlenArray)
    return array


def _query(
    request: Request, dataset: StoredDataset, text: str, limit: int, order_by: str = ""
) -> DatasetQuery:
    chunks, page_size = ChunkFanout(request.service.owners, dataset), request.service.settings.page_size
    if not order_by:
        return dataset_query(dataset, chunks, text, page_size, limit)
    if not dataset.arrays.is_exact:
        raise BadRequest(f"Elements of {dataset.id} have no fixed size: leave out order_by.")
    return OrderedQuery(dataset, chunks, text, page_size, limit, order_by)


def _with_index(coords: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Return elements with their index as the first field: a number for rank 1, else an array of coordinates."""
    rank = coords.shape[1]
    index = np.dtype((coords.dtype, (rank,)) if rank > 1 else coords.dtype)
    names = rows.dtype.names or ("",)
    kinds = [index, *(rows.dtype[name] if name else rows.dtype for name in names)]
    result = np.empty(len(rows), [(f"f{number}", kind) for number, kind in enumerate(kinds)])
    result["f0"] = coords if rank > 1 else coords[:, 0]
    for number, name in enumerate(names, 1):
        result[f"f{number}"] = rows[name] if name else rows
    return result
