"""Chunk operations on a dataset of a variable-length type: as `ChunkFanout`, with answers of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np

from hsparse.concurrency.gather import gather_all
from hsparse.errors import TooLarge
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan
from hsparse.format.plan.pages import pages
from hsparse.format.selections.selection import Selection
from hsparse.model.variable_array import MAX_HEAP, VariableArray, take
from hsparse.sn.values.chunk_fanout import MOST_CHUNKS, ChunkFanout, parts_of
from hsparse.wire.chunk_message import ReadChunks, ReadDefined, WriteChunks

Part: TypeAlias = VariableArray | int | None
INLINE = 1 << 14
"""Elements that are worked on at once; for more the event loop is left to others."""
P = ParamSpec("P")
T = TypeVar("T")


async def aside(count: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args)`, which works on `count` elements, computed in a thread when they are many."""
    if count <= INLINE:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


class VariableFanout(ChunkFanout):
    """The chunks of one such dataset, wherever their owners are."""

    async def read_within(self, selection: Selection, limit: int) -> VariableArray | int:
        """Return the selected elements, in the selection's shape.

        Where they have more than `limit` bytes: how many of them to ask for at a time, at most half.
        """
        shares = await self.shares(selection)
        spec = self._dataset.spec
        found = await self._owners.gather(
            shares, self._key, lambda some: ReadChunks(spec, parts_of(some), limit)
        )
        whole = found[0] if len(shares) == 1 else None
        if isinstance(whole, VariableArray) and whole.size == selection.size and len(whole.heap) <= limit:
            return whole.reshape(selection.shape)
        few = self._few(selection, shares, found, limit)
        if few:
            return few
        return await aside(selection.size, self._gathered, selection, shares, found)

    async def pages(self, selection: Selection, limit: int) -> AsyncGenerator[VariableArray, None]:
        """Yield the selected elements in order, about `limit` bytes at a time; one larger element comes alone."""
        size = self._dataset.spec.datatype.guessed_size
        for page in pages(selection, self._dataset.grid, max(1, limit // size)):
            async for piece in self._page(page, limit):
                yield piece

    async def _page(self, page: Selection, limit: int) -> AsyncGenerator[VariableArray, None]:
        found = await self.read_within(page, limit if page.size > 1 else MAX_HEAP)
        if isinstance(found, VariableArray):
            yield found
            return
        for part in pages(page, self._dataset.grid, found):
            async for piece in self._page(part, limit):
                yield piece

    def _few(self, selection: Selection, shares: list[PlannedChunk], found: list[Part], limit: int) -> int:
        """Return 0 when the elements are all there and within `limit`, else how many may be at a time."""
        fill = len(self._dataset.fill.heap)
        total = fill * (selection.size - sum(share.selection.size for share in shares))
        known = selection.size
        complete = True
        for share, part in zip(shares, found, strict=True):
            if isinstance(part, int):
                complete = False
                total += part
                known -= 0 if part else share.selection.size
            else:
                total += fill * share.selection.size if part is None else len(part.heap)
        if complete and total <= limit:
            return 0
        return max(1, min(selection.size // 2, limit * max(1, known) * 3 // (4 * total)))

    async def read_sparse_variable(
        self, shares: Sequence[PlannedChunk], limit: int
    ) -> list[DefinedElements | int | None]:
        """Return the defined elements of each share, see `ReadDefined`."""
        spec = self._dataset.spec
        return await self._owners.gather(
            shares, self._key, lambda some: ReadDefined(spec, parts_of(some), limit)
        )

    async def write_variable(
        self,
        selection: Selection,
        values: VariableArray,
        fields: Sequence[str] = (),
        *,
        drop_fill: bool = False,
    ) -> None:
        """Write `values`, of the selection's shape or one element for all; durable when it returns.

        With `fields` the values have those alone, in this order, and the others stay.
        """
        if selection.size > MOST_CHUNKS and count_chunks(selection, self._dataset.grid) > MOST_CHUNKS:
            raise TooLarge(f"The selection meets more than {MOST_CHUNKS} chunks; write less at a time.")
        shares = plan(selection, self._dataset.grid)
        parts = await aside(selection.size, self._shared, selection, shares, values)
        await gather_all(
            [
                node.send(
                    WriteChunks(
                        self._dataset.spec,
                        tuple(self._write_part(shares[i]) for i in some),
                        tuple(parts[i] for i in some),
                        drop_fill,
                        tuple(fields),
                    )
                )
                for node, some in self._owners.split(shares, self._key)
            ]
        )

    def _shared(
        self, selection: Selection, shares: tuple[PlannedChunk, ...], values: VariableArray
    ) -> list[VariableArray]:
        """Return each share's own elements."""
        if values.size == 1 and selection.size != 1:
            return [values.reshape((1,))] * len(shares)
        if len(shares) == 1 and shares[0].selection.shape == selection.shape and selection.is_all:
            return [values]
        index = np.arange(values.size).reshape(values.shape)
        return [take([values], np.asarray(index[share.place])) for share in shares]

    def _gathered(self, selection: Selection, shares: list[PlannedChunk], found: list[Part]) -> VariableArray:
        """Put what came of each share into place, the fill value where nothing came."""
        parts: list[VariableArray] = [self._dataset.fill]
        index = np.zeros(selection.shape, np.intp)
        first = 1
        for share, part in zip(shares, found, strict=True):
            if isinstance(part, VariableArray):
                parts.append(part)
                index[share.place] = np.arange(first, first + part.size).reshape(share.selection.shape)
                first += part.size
        return take(parts, index)
