"""Cut planned chunks of a virtual dataset into pieces, one per mapping that they intersect, grouped by source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.kinds.chunk_kind import DefinedElements
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.plan.virtual_plan import Ordered, ordered
from hsparse.format.selections.points import Orthogonal, Selection, ascending
from hsparse.hdf5.virtual_dataset.cut import Cut, cut
from hsparse.hdf5.virtual_dataset.layouts import Mapped, Name, mapped
from hsparse.hdf5.virtual_dataset.mappings import FILL
from hsparse.hdf5.virtual_dataset.sources import SourceDataset, Sources
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import PLAN_WORK, ChunkFanout
from hsparse.sn.values.element_source import ElementSource

T = TypeVar("T")

SOURCES_AT_ONCE = 128
"""Most sources that a read holds in memory at a time."""
CUT_AT_ONCE = 1024
"""Pieces that are cut before other work may run, because cutting holds Python's GIL most of the time."""
MAX_CELLS = 1 << 20
"""Most grid chunks of a virtual dataset that one listing may have."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The part of planned chunk `chunk` that mapping `number` covers; `source` is the mapping's source selection."""

    chunk: int
    number: int
    cut: Cut
    source: Ordered


PlacedPiece: TypeAlias = tuple[int, tuple[Any, ...], tuple[int, ...], bool, Any]
"""Values of a piece and their place, see `placed`; a tuple, which the garbage collector need not track."""


def placed(piece: Piece, values: Any) -> PlacedPiece:
    """Return (mapping's number, place in the planned chunk, shape there, whether it may be the whole chunk, values).

    The place has a tuple (start, stop, step) instead of each slice. The piece is the whole chunk if the flag is set
    and the planned chunk has the same shape.
    """
    one = piece.cut
    place = [(at.start, at.stop, at.step) if isinstance(at, slice) else at for at in one.place]
    return piece.number, tuple(place), one.shape, one.is_whole(one.shape), values


def index_of(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the numpy index that a place of a `PlacedPiece` stands for."""
    return tuple([slice(*at) if isinstance(at, tuple) else at for at in place])


@dataclass(frozen=True, slots=True)
class OfSource:
    """The pieces of planned chunks that are read from one source."""

    name: Name
    source: SourceDataset
    pieces: list[Piece]


class Pieces:
    """Cuts selections of one virtual dataset into pieces, and looks up only the sources that they need."""

    def __init__(self, owners: Owners, dataset: StoredDataset) -> None:
        self._dataset = dataset
        self.sources = Sources(owners, dataset.record, dataset.rights)
        self._fills = dataset.record["creationProperties"]["layout"]["missing"] == FILL

    async def of(
        self, layout: Mapped, planned: Sequence[PlannedChunk], *, once: bool = False
    ) -> list[OfSource]:
        """Return the pieces of planned chunks, grouped by source; `once` removes duplicates from the selections."""
        return [one async for some in self.in_parts(layout, planned, once=once) for one in some]

    async def in_parts(
        self, layout: Mapped, planned: Sequence[PlannedChunk], *, once: bool = False, keep: bool = True
    ) -> AsyncIterator[list[OfSource]]:
        """Yield the pieces of planned chunks, `SOURCES_AT_ONCE` sources at a time; with `keep`, sources stay cached.

        A source and its pieces are about a hundred objects. Ten thousand sources in each of eight readers would stop
        the process for a second during each garbage collection.
        """
        dims = self._dataset.spec.dims
        selections: list[Selection] = []
        for chunk in planned:
            selection = chunk.selection
            if selection.extent != self._dataset.extent or any(chunk.scaled):
                origin = tuple(at * dim for at, dim in zip(chunk.scaled, dims, strict=True))
                selection = selection.translate(origin, self._dataset.extent)
            selections.append(ascending(selection) if once else selection)

        near = layout.near_each([one.bounds() for one in selections])
        listed = sum(0 if isinstance(one, Orthogonal) else one.size for one in selections)
        for part in _by_source(layout, near):
            pairs = [(layout.name(number), place, number) for place, number in part]
            sources = await self.sources.find_all([name for name, *_ in pairs])
            found: dict[Name, OfSource] = {}

            def cut_some(
                some: Sequence[tuple[Name, int, int]],
                sources: Mapping[Name, SourceDataset | None] = sources,
                found: dict[Name, OfSource] = found,
            ) -> None:
                for name, place, number in some:
                    source = sources[name]
                    piece = self._piece(layout, source, selections[place], number, place)
                    if piece is not None and source is not None:
                        found.setdefault(name, OfSource(name, source, [])).pieces.append(piece)

            for first in range(0, len(pairs), CUT_AT_ONCE):
                some = pairs[first : first + CUT_AT_ONCE]
                await compute(listed + PLAN_WORK * len(some), cut_some, some)
            yield list(found.values())
            if not keep:
                self.sources.forget(sources)

    async def mapped(self) -> Mapped:
        return await mapped(self._dataset.record, self.sources.dims)

    def _piece(
        self, layout: Mapped, source: SourceDataset | None, selection: Selection, number: int, place: int
    ) -> Piece | None:
        """Return the piece of a selection that a mapping covers, or None; raise `NotFound` or `Conflict`."""
        virtual, name = layout.virtual(number), layout.name(number)
        if source is None:
            # Whether the mapping covers any element does not depend on the source.
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


def _by_source(layout: Mapped, near: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs (planned chunk, mapping) that may intersect, in lists of at most `SOURCES_AT_ONCE` sources."""
    places = np.repeat(np.arange(len(near)), [len(some) for some in near])
    numbers = np.fromiter(chain.from_iterable(near), np.intp, len(places))
    of = layout.source_numbers[numbers]
    order = np.argsort(of, kind="stable")
    firsts = np.flatnonzero(np.diff(of[order], prepend=-1))[::SOURCES_AT_ONCE]
    for some in np.split(order, firsts[1:]) if len(order) else ():
        yield list(zip(places[some].tolist(), numbers[some].tolist(), strict=True))


def _grid(first: Sequence[int], last: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    return np.meshgrid(*(np.arange(a, b) for a, b in zip(first, last, strict=True)), indexing="ij")


async def by_piece(
    wanted: OfSource,
    select: Callable[[Piece], Selection],
    read: Callable[[ElementSource, list[PlannedChunk]], Awaitable[Sequence[Any]]],
    make: Callable[[Piece, Sequence[PlannedChunk], Sequence[Any]], T],
) -> list[tuple[Piece, T | int]]:
    """Read the selection `select(piece)` of all pieces of a source by one call of `read`; return pairs (piece, result).

    The result is `make(piece, planned chunks of the source, their values)`.
    If the source returned no values because of a limit, the result is the piece's byte count instead.
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


def by_chunk(planned: Sequence[PlannedChunk], read: Iterable[tuple[int, T]]) -> list[list[T] | None]:
    """Return, for each planned chunk, the values of its (chunk number, value) pairs, or None if it has no pairs."""
    parts: dict[int, list[T]] = {}
    for chunk, one in read:
        parts.setdefault(chunk, []).append(one)
    return [parts.get(place) for place in range(len(planned))]
