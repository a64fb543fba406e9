"""Queries whose answer is ordered by value: the first elements, wherever they are.

Each owner sends at most as many elements of a chunk as are wanted. Where chunks have statistics, the most promising
ones are asked first, until no other one can have anything better.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_statistics import extremes_of, is_known
from hsparse.format.fields import pick_fields
from hsparse.format.ordering import Ordering
from hsparse.format.plan.chunk_plan import PlannedChunk, plan
from hsparse.format.query import ELEMENT
from hsparse.format.selections.selection import Selection, ascending
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import Scaled
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.element_query import FixedQuery, Rows, join_rows

FIRST_CHUNKS = 16
"""How many of the most promising chunks are asked first; then twice as many, and so on."""


class OrderedQuery(FixedQuery):
    """`DatasetQuery` that finds the first `limit` elements by an order, and yields them in that order."""

    def __init__(
        self, dataset: Dataset, chunks: ChunkFanout, text: str, page_size: int, limit: int, order_by: str
    ) -> None:
        super().__init__(dataset, chunks, text, page_size, limit)
        self._ordering = Ordering.parse(order_by, dataset.dtype)
        self._named |= {self._ordering.field or ELEMENT}
        if not limit:
            raise BadRequest("order_by needs a Limit: how many elements to answer with.")
        if limit > self._room:
            raise TooLarge(f"order_by can have a Limit of {self._room} for such elements, not {limit}.")
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
                pieces = await self._pieces(planned, stored)
                count = sum(len(offsets) for offsets, _ in pieces)
                best = await offload(count, self._best, [best, *pieces])
        if len(best[0]):
            yield best[0], pick_fields(best[1], fields)

    async def _pieces(self, planned: Sequence[PlannedChunk], stored: set[Scaled] | None) -> list[Rows]:
        """Return the first elements of each chunk."""
        asked = [chunk for chunk in planned if stored is None or chunk.scaled in stored]
        replies = await self._chunks.find(
            asked, self._query.text, limit=self._limit, order_by=self._ordering.text
        )
        found = dict(zip((chunk.scaled for chunk in asked), replies, strict=True))
        return await self._located(planned, [found.get(chunk.scaled) for chunk in planned], self._limit, ())

    def _is_settled(self, best: Rows, bound: Any) -> bool:
        """Say whether no element whose key is at best `bound` belongs to the answer."""
        keys = self._ordering.keys(best[1])
        return len(keys) == self._limit and self._ordering.is_after(bound, keys[-1])

    def _best(self, pieces: Sequence[Rows]) -> Rows:
        """Return the first elements of all pieces, in order; equal ones by their places."""
        offsets, rows = join_rows(pieces, self._dataset.dtype)
        by_place = np.argsort(offsets, kind="stable")
        chosen = by_place[self._ordering.first(rows[by_place], self._limit)]
        return offsets[chosen], rows[chosen]

    async def _waves(self, selection: Selection) -> AsyncGenerator[tuple[Sequence[PlannedChunk], Any], None]:
        """Yield all planned chunks, as many at a time as replies fit into a page."""
        async for planned in self._pages(selection):
            for first in range(0, len(planned), self._most):
                yield planned[first : first + self._most], None

    async def _promising(
        self, selection: Selection, rows: ChunkRows
    ) -> AsyncGenerator[tuple[Sequence[PlannedChunk], Any], None]:
        """Yield planned chunks by their best possible keys, the best first, with the best key of each wave.

        Chunks whose keys are not known come first.
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
        """Return the column of the statistics that has what is ordered by."""
        columns = self._dataset.spec.statistic_columns
        return columns.index(self._ordering.field) if self._ordering.field in columns else None
