"""Reading values and places of a variable-length type at once: as `sparse_read`, with pieces cut by bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.plan.grid import Grid
from hsparse.format.plan.pages import pages
from hsparse.format.selections.selection import Boxes, Points, Selection, ascending
from hsparse.format.selections.selection_json import selection_json
from hsparse.format.structured.region import encode_vlen_region
from hsparse.model.json_form import to_json
from hsparse.model.variable_array import VariableArray, join
from hsparse.sn.context import Context
from hsparse.sn.http.request import MOST_JSON
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.media import Media, accepted
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.arrow import ArrowWriter
from hsparse.sn.values.sparse_read import coordinates, coords_of, run_of
from hsparse.sn.values.value_json import respond_shown
from hsparse.sn.values.variable_fanout import VariableFanout, aside

Piece: TypeAlias = tuple[list[NDArray[Any]], VariableArray]
"""Coordinates, one (n,) array a dimension, and values (n,)."""
SMALL = 16 * 1024
"""Bytes that the least answer is expected to take."""
PAGES_AT_ONCE = 2
"""A streamed answer has one page on its way and makes the next."""


class SparseVariableRead:
    """The defined elements of a selection, piece by piece: chunk after chunk, row-major inside each."""

    def __init__(self, dataset: Dataset, chunks: VariableFanout, page_size: int) -> None:
        self._dataset = dataset
        self._chunks = chunks
        self._page_size = page_size

    async def pieces(self, selection: Selection) -> AsyncIterator[Piece]:
        """Yield the defined elements, about a page of bytes at a time; one larger element comes alone."""
        async for shares in self._chunks.batches(selection):
            async for piece in self._pieces(shares):
                yield piece

    async def _pieces(self, shares: Sequence[PlannedChunk]) -> AsyncIterator[Piece]:
        room = elements = max(1, self._page_size // self._dataset.spec.datatype.guessed_size)
        first = 0
        while first < len(shares):
            until = run_of(shares, first, room)
            found = await self._chunks.read_sparse_variable(shares[first:until], self._page_size)
            # What comes behind a part that was too much would be out of order: it is asked for again.
            good = next((n for n, item in enumerate(found) if isinstance(item, int)), len(found))
            there = [
                (share, item)
                for share, item in zip(shares[first : first + good], found, strict=False)
                if isinstance(item, DefinedElements)
            ]
            if there:
                yield self._piece(there)
            first += good
            if good == len(found):
                room = min(room * 4, elements << 20)  # most may be undefined
                continue
            room = elements
            if not good:
                told = found[0]
                assert isinstance(told, int)
                async for piece in self._split(shares[first], told):
                    yield piece
                first += 1

    async def _split(self, share: PlannedChunk, nbytes: int) -> AsyncIterator[Piece]:
        """Yield the elements of a share whose chunk has `nbytes` of them, more than a page."""
        dims = self._dataset.spec.dims
        # Once each and in order: what a list names twice must not come twice, in two pages.
        selection = share.selection if isinstance(share.selection, Boxes) else ascending(share.selection)
        size = selection.size
        few = max(1, min(size // 2, size * self._page_size * 3 // (4 * max(1, nbytes))))
        for part in pages(selection, Grid(dims, dims), few):
            async for piece in self._pieces([replace(share, selection=part)]):
                yield piece

    def _piece(self, there: Sequence[tuple[PlannedChunk, DefinedElements]]) -> Piece:
        places = coordinates(self._dataset, [(share, item.offsets) for share, item in there])
        return places, join([item.values for _, item in there])

    async def arrow(self, selection: Selection) -> AsyncGenerator[bytes, None]:
        """Yield an Arrow IPC stream."""
        dataset = self._dataset
        writer = ArrowWriter(dataset.extent, dataset.dtype, dataset.spec.datatype.element)
        async for places, values in self.pieces(selection):
            yield await aside(values.size, writer.batch, places, values)
        yield writer.end()

    async def whole(self, selection: Selection, limit: int) -> tuple[Points, VariableArray] | None:
        """Return all of it: points over the extent, and values; None where they have more than `limit` bytes."""
        extent = self._dataset.extent
        places, values = [np.zeros((0, len(extent)), np.uint64)], [VariableArray.of([])]
        total = 0
        async for columns, some in self.pieces(selection):
            total += len(some.heap) + 8 * len(extent) * some.size
            if total > limit:
                return None
            places.append(coords_of(columns))
            values.append(some)
        return Points(extent, np.concatenate(places)), join(values)


async def answer_sparse_variable(
    context: Context, dataset: Dataset, selection: Selection
) -> web.StreamResponse:
    """Answer with the defined elements of the selection: places and values."""
    settings = context.service.settings
    media = accepted(context.request)
    chunks = VariableFanout(context.service.owners, dataset)
    datatype = dataset.spec.datatype
    limit = settings.max_request_size if media is Media.BINARY else min(settings.max_request_size, MOST_JSON)
    if media is Media.ARROW:
        read = SparseVariableRead(dataset, chunks, settings.page_size)
        async with context.service.answers.hold(PAGES_AT_ONCE * settings.page_size):
            return await respond_stream(context.request, media, read.arrow(selection))
    expected = max(SMALL, 4 * selection.size * datatype.guessed_size)
    for room in sorted({min(limit, expected), limit}):
        read = SparseVariableRead(dataset, chunks, min(settings.page_size, room))
        async with context.service.answers.hold(room):
            found = await read.whole(selection, room)
            if found is None:
                continue
            points, values = found
            if media is Media.BINARY:
                body = await aside(values.size, encode_vlen_region, points, values, datatype.element)
                return web.Response(body=body, content_type=media.value)
            value = await aside(values.size, to_json, values, datatype.element)
            return respond_shown(context, {"selection": selection_json(points), "value": value})
    raise TooLarge(
        f"The answer has more than {limit} bytes (max_request_size): select less, or ask for "
        f"{Media.ARROW.value}, which is not limited."
    )
