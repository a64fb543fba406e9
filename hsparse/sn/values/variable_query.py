"""Queries over compounds with parts of variable length: on their fields of fixed size, page by page.

The elements are read and looked at here: their owners tell how much they are, not what they hold.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from math import prod
from typing import Any, TypeAlias

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.plan.chunk_plan import count_chunks
from hsparse.format.query import Query, bind_query, queried
from hsparse.format.selections.extent import ravel, unravel
from hsparse.format.selections.selection import Orthogonal, Points, Selection, ascending, coords_at
from hsparse.model.json_form import to_json
from hsparse.model.variable_array import VariableArray, take
from hsparse.model.variable_fields import Fields
from hsparse.sn.context import Context
from hsparse.sn.http.request import MOST_JSON
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import MANY_CHUNKS
from hsparse.sn.values.element_query import bands, check_queryable
from hsparse.sn.values.value_json import respond_shown
from hsparse.sn.values.variable_fanout import VariableFanout, aside

Found: TypeAlias = tuple[NDArray[np.uint64], VariableArray]
"""Row-major offsets in the extent, (n,), and elements, (n,)."""
PAGES_AT_ONCE = 4
"""What is held at first: a page that is looked at, and what was found in those before."""


class VariableQuery:
    """One query over one dataset; `limit` 0 is none."""

    def __init__(
        self, dataset: Dataset, chunks: VariableFanout, text: str, page_size: int, limit: int = 0
    ) -> None:
        check_queryable(dataset)
        self._dataset = dataset
        self._chunks = chunks
        self._query: Query = bind_query(text, dataset.dtype)
        self._looked_at = Fields.named(dataset.spec.datatype.element, sorted(queried(text)))
        self._takes_fill = bool(self._mask(dataset.fill.reshape((1,)))[0])
        self._page_size = page_size
        self._limit = limit

    async def find(self, selection: Selection) -> AsyncGenerator[Found, None]:
        """Yield what is found, page by page and in row-major order; at most `limit`."""
        left = self._limit
        assert isinstance(selection, Orthogonal | Points)
        async for part in self._parts(ascending(selection)):
            first = 0
            async with aclosing(self._chunks.pages(part, self._page_size)) as pieces:
                async for piece in pieces:
                    positions = np.flatnonzero(await aside(piece.size, self._mask, piece))
                    if self._limit:
                        positions = positions[:left]
                        left -= len(positions)
                    if len(positions):
                        offsets = ravel(coords_at(part, first + positions), self._dataset.extent)
                        yield offsets, await aside(piece.size, take, [piece], positions)
                    if self._limit and not left:
                        return
                    first += piece.size

    def _mask(self, array: VariableArray) -> NDArray[np.bool_]:
        return self._query.mask(self._looked_at.columns(array))

    async def _parts(self, selection: Orthogonal | Points) -> AsyncIterator[Selection]:
        """Yield the selection or, of many chunks, what lies in rows of chunks that are stored."""
        grid = self._dataset.grid
        if self._takes_fill or count_chunks(selection, grid) <= MANY_CHUNKS:
            yield selection
            return
        for part, _ in bands(selection, await self._chunks.existing(), grid, prod(grid.chunk)):
            yield part


async def answer_variable_query(
    context: Context, dataset: Dataset, selection: Selection, text: str, limit: int, fields: Sequence[str]
) -> web.Response:
    """Answer with the selected elements that answer a query, in row-major order, and their indices.

    It is JSON whatever was asked for: h5pyd cannot read counted elements whose number it does not know before.
    """
    page_size = context.service.settings.page_size
    element = dataset.spec.datatype.element
    picked = Fields.named(element, fields) if fields else None
    chunks = VariableFanout(context.service.owners, dataset)
    query = VariableQuery(dataset, chunks, text, page_size, limit)
    async with (
        context.service.answers.hold(PAGES_AT_ONCE * page_size),
        aclosing(query.find(selection)) as found,
    ):
        offsets, rows = await _collected(context, found)
        shown = rows if picked is None else await aside(rows.size, picked.pick, rows)
        value = await aside(rows.size, to_json, shown, element if picked is None else picked.element)
        index = offsets if len(dataset.extent) == 1 else unravel(offsets, dataset.extent)
        return respond_shown(context, {"status": 200, "index": index, "value": value})


async def _collected(context: Context, found: AsyncIterator[Found]) -> Found:
    """Return all that is found; `TooLarge` when it is too much for an answer in JSON."""
    most = min(context.service.settings.max_request_size, MOST_JSON)
    pieces: list[Found] = []
    size = 0
    async for piece in found:
        pieces.append(piece)
        size += piece[1].nbytes
        if size > most:
            raise TooLarge(
                f"The query finds more than an answer in JSON may have ({most} bytes, of max_request_size): "
                "select less, or give a Limit."
            )
    offsets = np.concatenate([np.zeros(0, np.uint64), *(piece[0] for piece in pieces)])
    index: Any = np.arange(len(offsets))
    return offsets, take([rows for _, rows in pieces] or [VariableArray.of([])], index)
