"""What sources have of planned chunks of a virtual dataset: a selection is cut by the mappings that it meets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.plan.virtual_plan import Ordered, ordered
from hsparse.format.selections.points import Orthogonal, Selection, ascending
from hsparse.hdf5.virtual.cut import Cut, cut
from hsparse.hdf5.virtual.layouts import Mapped, Name, mapped
from hsparse.hdf5.virtual.mappings import FILL
from hsparse.hdf5.virtual.sources import Source, Sources
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.chunk_fanout import PLAN_WORK, ChunkFanout
from hsparse.sn.values.element_source import ElementSource

T = TypeVar("T")

MAX_CELLS = 1 << 20
"""The most chunks of the grid of a virtual dataset that are listed at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What one mapping has of a planned chunk, the one at `chunk` of the plan."""

    chunk: int
    number: int
    cut: Cut
    source: Ordered


@dataclass(frozen=True, slots=True)
class OfSource:
    """The pieces of planned chunks that one source has."""

    name: Name
    source: Source
    pieces: list[Piece]


class Pieces:
    """Cuts selections of one virtual dataset; it looks for sources only where they are needed."""

    def __init__(self, owners: Owners, dataset: Dataset) -> None:
        self._dataset = dataset
        self.sources = Sources(owners, dataset.record, dataset.rights)
        self._fills = dataset.record["creationProperties"]["layout"]["missing"] == FILL

    async def of(
        self, layout: Mapped, planned: Sequence[PlannedChunk], *, once: bool = False
    ) -> list[OfSource]:
        """Return what mappings have of planned chunks, by their sources; with `once` no element is selected twice."""
        dims = self._dataset.spec.dims
        selections: list[Selection] = []
        for chunk in planned:
            selection = chunk.selection
            if selection.extent != self._dataset.extent or any(chunk.scaled):
                origin = tuple(at * dim for at, dim in zip(chunk.scaled, dims, strict=True))
                selection = selection.translate(origin, self._dataset.extent)
            selections.append(ascending(selection) if once else selection)
        near = layout.near_each([one.bounds() for one in selections])
        names = {number: layout.name(number) for number in dict.fromkeys(n for some in near for n in some)}
        sources = await self.sources.find_all(names.values())
        listed = sum(0 if isinstance(one, Orthogonal) else one.size for one in selections)

        def cut_all() -> list[OfSource]:
            found: dict[Name, OfSource] = {}
            for place, (selection, some) in enumerate(zip(selections, near, strict=True)):
                for number in some:
                    name = names[number]
                    source = sources[name]
                    piece = self._piece(layout, source, selection, number, place)
                    if piece is not None and source is not None:
                        found.setdefault(name, OfSource(name, source, [])).pieces.append(piece)
            return list(found.values())

        return await compute(listed + PLAN_WORK * sum(map(len, near)), cut_all)

    async def mapped(self) -> Mapped:
        return await mapped(self._dataset.record, self.sources.dims)

    def _piece(
        self, layout: Mapped, source: Source | None, selection: Selection, number: int, place: int
    ) -> Piece | None:
        """Return what a mapping has of a selection, None for nothing; raise if its source is away or does not fit."""
        virtual, name = layout.virtual(number), layout.name(number)
        if source is None:
            # Whether the mapping has any element does not depend on the source.
            if self._fills or cut(selection, virtual, virtual, layout.dims) is None:
                return None
            raise self.sources.away(name)
        try:
            chosen = ordered(layout.source(number).source, source.dataset.extent)
        except Corrupt as error:
            raise self.sources.unfit(name, error.message) from error
        if chosen.size != virtual.size:
            raise self.sources.unfit(name, f"{virtual.size} elements are mapped to {chosen.size}.")
        found = cut(selection, virtual, chosen, source.dataset.extent)
        return None if found is None else Piece(place, number, found, chosen)

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks of the grid that may have elements, (k, rank) uint64."""
        layout = await self.mapped()
        grid = self._dataset.grid
        high = np.minimum(layout.high, np.array(grid.extent))
        kept = (layout.low < high).all(axis=1)
        first, last = layout.low[kept] // grid.chunk, (high[kept] - 1) // grid.chunk + 1
        if int((last - first).prod(axis=1).sum()) > MAX_CELLS:
            raise TooLarge(
                f"The mappings have more than {MAX_CELLS} chunks of {list(grid.chunk)}: give the layout larger dims."
            )
        boxes = np.unique(np.concatenate((first, last), axis=1), axis=0)
        rank = len(grid.chunk)
        cells = [
            np.stack([one.ravel() for one in _grid(box[:rank], box[rank:])], 1) for box in boxes.tolist()
        ]
        found = np.concatenate([np.zeros((0, rank), np.int64), *cells])
        return np.unique(found, axis=0).astype(np.uint64)


def _grid(first: Sequence[int], last: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    return np.meshgrid(*(np.arange(a, b) for a, b in zip(first, last, strict=True)), indexing="ij")


async def by_piece(
    wanted: OfSource,
    select: Callable[[Piece], Selection],
    read: Callable[[ElementSource, list[PlannedChunk]], Awaitable[Sequence[Any]]],
    make: Callable[[Piece, Sequence[PlannedChunk], Sequence[Any]], T],
) -> list[tuple[Piece, T | int]]:
    """Read what is selected of a source for all of its pieces at once; return what `make` makes of each one's answers.

    If some were left out, it is how many bytes the piece has.
    """
    source = wanted.source.dataset
    fan, nbytes = ChunkFanout(wanted.source.owners, source), source.arrays.nbytes
    plans = [await fan.planned(select(piece)) for piece in wanted.pieces]
    found = iter(await read(fan.source, [chunk for plan in plans for chunk in plan]))
    result: list[tuple[Piece, T | int]] = []
    for piece, plan in zip(wanted.pieces, plans, strict=True):
        some = [next(found) for _ in plan]
        if any(isinstance(one, int) for one in some):
            values = [one.values if isinstance(one, DefinedElements) else one for one in some]
            sizes = [one if isinstance(one, int) else nbytes(one) for one in values if one is not None]
            result.append((piece, sum(sizes)))
        else:
            result.append((piece, make(piece, plan, some)))
    return result


def by_chunk(
    planned: Sequence[PlannedChunk], read: Sequence[Sequence[tuple[Piece, T]]]
) -> list[list[tuple[Piece, T]] | None]:
    """Return what was read of pieces by the planned chunks that they are of, None where there are none."""
    parts: dict[int, list[tuple[Piece, T]]] = {}
    for piece, values in chain.from_iterable(read):
        parts.setdefault(piece.chunk, []).append((piece, values))
    return [parts.get(place) for place in range(len(planned))]
