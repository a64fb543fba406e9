"""Read, query and reduce the elements of a virtual dataset.

A source is read by one message to each of its owners, the data nodes that own its chunks. A selection is cut by the
mappings that it intersects; where mappings overlap, the last one counts. Elements that no mapping covers read as the
fill value or, if the dataset is sparse, are undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.errors import Unsupported
from hsparse.format.fields import as_type, pick_fields
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements, QueryRequest, Search
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.reductions.partials import Partials, count_positions, reduce_array, reduce_positions
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.extent import coordinate_columns, ravel
from hsparse.format.selections.points import Orthogonal, Points, Selection, ascending, lookup
from hsparse.hdf5.importer.convert_elements import convert_elements
from hsparse.hdf5.virtual_dataset.cut import numbers_of, repeats, virtual_coords
from hsparse.hdf5.virtual_dataset.layouts import Mapped
from hsparse.hdf5.virtual_dataset.pieces import (
    OfSource,
    Piece,
    Pieces,
    PlacedPiece,
    by_chunk,
    by_piece,
    index_of,
    placed,
)
from hsparse.hdf5.virtual_dataset.sources import AT_ONCE, SourceDataset
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray, take_elements
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.sn.values.defined_read import count_defined
from hsparse.wire.chunk_message import NO_LIMIT

_Found: TypeAlias = tuple[NDArray[np.uint64], Values]
"""Coordinates in the virtual dataset (n, rank) uint64, and values (n,)."""
REDUCED_BYTES = 32 * 1024 * 1024
"""Most bytes of dense elements that a reduction holds in memory at a time."""


class VirtualElements:
    """The `ElementSource` implementation for a virtual dataset."""

    def __init__(self, owners: Owners, dataset: StoredDataset) -> None:
        self._owners = owners
        self._dataset = dataset
        self._pieces = Pieces(owners, dataset)

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks of the grid that may have elements, (k, rank) uint64."""
        return await self._pieces.existing()

    # --- values -------------------------------------------------------------------------------------

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...] = (), limit: int = NO_LIMIT
    ) -> list[Values | int | None]:
        """Return each planned chunk's values, None if no source covers it, or their byte count if above `limit`."""
        return await self._read(planned, fields, limit, lambda values: values)

    async def _read(
        self,
        planned: Sequence[PlannedChunk],
        fields: tuple[str, ...],
        limit: int,
        make: Callable[[Any], Any],
    ) -> list[Any]:
        """Return `make(values)` for each planned chunk's values, or None if no source covers the chunk."""
        layout, is_sparse = await self._pieces.mapped(), self._dataset.spec.sparse
        found: Sequence[Any] | None = None
        place: Callable[..., Values | int] = self._placed
        read: list[tuple[int, PlacedPiece]] = []
        async for wanted in self._pieces.in_parts(layout, planned, keep=is_sparse):
            if is_sparse and not all(map(self._has_fill_of, wanted)):
                place, found = self._filled, await self.read_defined(planned, limit=limit)
                break
            parts = await gather_each(lambda one: self._read_source(one, fields, limit), wanted, AT_ONCE)
            read += chain.from_iterable(parts)
        found = by_chunk(planned, read) if found is None else found
        size = sum(chunk.selection.size for chunk in planned)
        pairs = list(zip(planned, found, strict=True))
        return await compute(
            size, lambda: [None if one is None else make(place(chunk, one, fields)) for chunk, one in pairs]
        )

    async def _read_source(
        self, wanted: OfSource, fields: tuple[str, ...], limit: int
    ) -> list[tuple[int, PlacedPiece]]:
        """Read the pieces of one source; return each with its planned chunk, converted to this dataset's type."""
        source = wanted.source.dataset
        is_same = self._has_type_of(source)
        asked, limit = fields if is_same else (), NO_LIMIT if source.arrays.is_exact else limit
        arrays = source.arrays.of_fields(asked)

        def values_of(piece: Piece, plan: Sequence[PlannedChunk], some: Sequence[Any]) -> Values:
            values = arrays.assemble(piece.cut.source, plan, some)
            return values if is_same else self._converted(wanted, values, fields)

        found = await by_piece(
            wanted,
            lambda piece: piece.cut.source,
            lambda elements, chunks: elements.read(chunks, asked, limit),
            values_of,
        )
        return [(piece.chunk, placed(piece, values)) for piece, values in found]

    def _has_type_of(self, source: StoredDataset) -> bool:
        """Return whether a source has the datatype of this dataset; ids of committed types are ignored."""
        types = [
            {key: value for key, value in one.items() if key != "id"} if isinstance(one, dict) else one
            for one in (source.record["type"], self._dataset.record["type"])
        ]
        return bool(types[0] == types[1])

    def _has_fill_of(self, wanted: OfSource) -> bool:
        """Return whether undefined elements of a source read as the fill value of this dataset."""
        source, own = wanted.source.dataset, self._dataset
        fills = [one.spec.fill.rstrip(b"\0") for one in (source, own)]
        return fills[0] == fills[1] and (not fills[0] or self._has_type_of(source))

    def _filled(
        self, chunk: PlannedChunk, found: DefinedElements | int, fields: tuple[str, ...]
    ) -> Values | int:
        """Return the values of a planned chunk from its defined elements; other elements get the fill value."""
        if isinstance(found, int):
            return found
        there, places = lookup(chunk.selection, found.offsets)
        index = np.where(there, places + 1, 0).reshape(chunk.selection.shape)
        fill: Any = self._dataset.arrays.fill
        values = _at(self._dataset.arrays.join([fill.reshape(1), found.values]), index)
        return values if isinstance(values, VlenArray) else pick_fields(values, fields)

    def _converted(self, wanted: OfSource, values: Values, fields: tuple[str, ...]) -> Values:
        """Convert a source's elements to this dataset's type and pick `fields`; raise `Conflict` if impossible."""
        source = wanted.source.dataset
        if isinstance(values, VlenArray) or self._dataset.spec.is_vlen:
            raise self._pieces.sources.unfit(
                wanted.name, "its type differs from the virtual dataset's, and vlen types are not converted."
            )
        shape = values.shape
        element, own = source.arrays.element, self._dataset.arrays.element
        try:
            given = np.ndarray(shape, element.dtype, np.ascontiguousarray(values))
            found = convert_elements(given, source.record["type"], self._dataset.record["type"])
        except Unsupported as error:
            raise self._pieces.sources.unfit(wanted.name, error.message) from error
        # Elements of an array type have further dimensions; they are handled as opaque bytes here.
        packed = (
            np.ascontiguousarray(found, own.dtype.base).view(np.uint8).reshape(-1).view(self._dataset.dtype)
        )
        return pick_fields(packed.reshape(shape), fields)

    def _placed(
        self, chunk: PlannedChunk, parts: Sequence[PlacedPiece], fields: tuple[str, ...]
    ) -> Values | int:
        """Assemble a planned chunk from its pieces or, if a piece is a byte count, return the total byte count."""
        if any(isinstance(values, int) for *_, values in parts):
            nbytes = self._dataset.arrays.nbytes
            return sum(values if isinstance(values, int) else nbytes(values) for *_, values in parts)
        arrays, shape = self._dataset.arrays.of_fields(fields), chunk.selection.shape
        fill: Any = arrays.fill
        last = sorted(parts, key=lambda part: part[0])
        _, _, first_shape, is_whole, values = last[0]
        if len(last) == 1 and is_whole and first_shape == shape:
            return values.reshape(shape)  # type: ignore[no-any-return]
        if arrays.is_exact:
            result: NDArray[Any] = np.empty(shape, fill.dtype)
            result[...] = fill
            for _, place, inner, _, values in last:
                result[index_of(place)] = as_type(values, result.dtype).reshape(inner)
            return result
        index, first = np.zeros(shape, np.intp), 1
        for _, place, inner, _, values in last:
            index[index_of(place)] = np.arange(first, first + values.size).reshape(inner)
            first += values.size
        return take_elements([fill, *(values for *_, values in last)], index)

    async def find(self, planned: Sequence[PlannedChunk], wanted: QueryRequest) -> list[FoundElements | None]:
        """Return the elements that a query finds; this node evaluates the query on values read from the sources."""
        search = wanted.bound(self._dataset.dtype)
        if self._dataset.spec.sparse and not search.query.takes(self._dataset.fill):
            return await self._find_defined(planned, search)
        return await self._read(planned, (), NO_LIMIT, search.among)

    async def _find_defined(
        self, planned: Sequence[PlannedChunk], search: Search
    ) -> list[FoundElements | None]:
        """Return the result of a query that the fill value does not satisfy, by searching only defined elements."""
        result: list[FoundElements | None] = []
        for chunk, found in zip(planned, await self.read_defined(planned), strict=True):
            if not isinstance(found, DefinedElements):
                result.append(None)
                continue
            values = as_type(cast("NDArray[Any]", found.values), self._dataset.dtype)
            there = np.flatnonzero(search.query.mask(values))
            positions = _positions(chunk.selection, found.offsets[there])
            order = np.argsort(positions, kind="stable")
            result.append(search.result(positions[order].astype(np.uint32), values[there[order]]))
        return result

    # --- defined elements ---------------------------------------------------------------------------

    async def read_defined(
        self, planned: Sequence[PlannedChunk], *, places_only: bool = False, limit: int = NO_LIMIT
    ) -> list[DefinedElements | int | None]:
        """Return the defined elements of each planned chunk, or None if it has none; see `ReadDefined`.

        If the elements have more than `limit` bytes, returns the byte count. With `places_only`, returns no values.
        """
        layout = await self._pieces.mapped()
        wanted = await self._pieces.of(layout, planned, once=True)
        self._check_sparse(wanted)
        most = max(1, limit // max(1, len(wanted)))
        read = await gather_each(
            lambda one: self._defined_source(layout, one, places_only, most), wanted, AT_ONCE
        )
        by_pieces = by_chunk(planned, [(one[0].chunk, one) for some in read for one in some])
        pairs = list(zip(planned, by_pieces, strict=True))
        size = sum(0 if isinstance(one, int) else len(one[0]) for some in read for _, one in some)
        result = await compute(
            size,
            lambda: [
                None if some is None else self._joined(layout, chunk, some, places_only)
                for chunk, some in pairs
            ],
        )
        if result and isinstance(result[0], int) and self._dataset.arrays.is_exact and limit != NO_LIMIT:
            # The first chunk is always returned: a chunk of fixed-size elements cannot be split.
            result[0] = (await self.read_defined(planned[:1], places_only=places_only))[0]
        return result

    async def _defined_source(
        self, layout: Mapped, wanted: OfSource, places_only: bool, limit: int
    ) -> list[tuple[Piece, _Found | int]]:
        """Return the defined elements of each piece of one source, or their byte count if it exceeds `limit`."""
        source, arrays = wanted.source.dataset, wanted.source.dataset.arrays
        is_same = places_only or self._has_type_of(source)

        def found_of(piece: Piece, plan: Sequence[PlannedChunk], some: Sequence[Any]) -> _Found:
            there = [pair for pair in zip(plan, some, strict=True) if pair[1] is not None]
            coords = [_coords(one.offsets, chunk.scaled, source.spec.dims) for chunk, one in there]
            inside = np.concatenate([np.zeros((0, len(source.extent)), np.uint64), *coords])
            moved = virtual_coords(layout.virtual(piece.number), piece.source, inside)
            values = arrays.join([] if places_only else [one.values for _, one in there])
            return moved, values if is_same else self._converted(wanted, values, ())

        return await by_piece(
            wanted,
            lambda piece: ascending(piece.cut.source),
            lambda elements, chunks: elements.read_defined(chunks, places_only=places_only, limit=limit),
            found_of,
        )

    def _joined(
        self,
        layout: Mapped,
        chunk: PlannedChunk,
        parts: Sequence[tuple[Piece, _Found | int]],
        places_only: bool,
    ) -> DefinedElements | int | None:
        """Merge the elements of one chunk in row-major order; where mappings overlap, the last one counts.

        Returns the total byte count if a part is a byte count, or None if there are no elements.
        """
        if any(isinstance(found, int) for _, found in parts):
            nbytes = self._dataset.arrays.nbytes
            return sum(found if isinstance(found, int) else nbytes(found[1]) for _, found in parts)
        dims = self._dataset.spec.dims
        origin = np.array([at * dim for at, dim in zip(chunk.scaled, dims, strict=True)], np.uint64)
        near = layout.near(origin.tolist(), (origin + np.array(dims, np.uint64)).tolist())
        coords: list[NDArray[np.uint64]] = [np.zeros((0, len(dims)), np.uint64)]
        values: list[Values] = []
        for piece, found in sorted(parts, key=lambda part: part[0].number):
            assert not isinstance(found, int)
            kept = self._not_covered(layout, near[near > piece.number].tolist(), found[0])
            coords.append(found[0] if kept is None else found[0][kept])
            values += [] if places_only else [found[1] if kept is None else _at(found[1], kept)]
        offsets = ravel(np.concatenate(coords) - origin, dims)
        if not len(offsets):
            return None
        order = np.argsort(offsets, kind="stable")
        joined = self._dataset.arrays.join(values)
        return DefinedElements(
            offsets[order].astype(np.uint32), joined if places_only else _at(joined, order)
        )

    def _not_covered(
        self, layout: Mapped, later: Sequence[int], coords: NDArray[np.uint64]
    ) -> NDArray[np.intp] | None:
        """Return the indices of elements that no later mapping with an existing source covers, or None for all."""
        if not len(coords):
            return None
        low, high = coords.min(axis=0).astype(np.int64), coords.max(axis=0).astype(np.int64) + 1
        covered = np.zeros(len(coords), np.bool_)
        for number in later:
            is_near = (layout.low[number] < high).all() and (layout.high[number] > low).all()
            if is_near and self._pieces.sources.has(layout.name(number)):
                covered |= numbers_of(layout.virtual(number), coords) >= 0
        return np.flatnonzero(~covered) if covered.any() else None

    def _check_sparse(self, wanted: Sequence[OfSource]) -> None:
        """Raise `Conflict` for a dense source, and for a mapping that selects an element of its source twice."""
        for one in wanted:
            if not one.source.dataset.spec.sparse:
                raise self._pieces.sources.unfit(one.name, "it is dense, but the virtual dataset is sparse.")
            if any(repeats(piece.source) for piece in one.pieces):
                raise self._pieces.sources.unfit(
                    one.name, "a mapping selects an element of it twice: use two mappings."
                )

    async def count_defined(self, selection: Selection) -> int | None:
        """Return the number of defined elements in a selection; sources count the elements unless mappings overlap."""
        layout, whole = await self._pieces.mapped(), ascending(selection)
        extent = self._dataset.extent
        everything = PlannedChunk((0,) * len(extent), whole, (), False)
        wanted = await self._pieces.of(layout, [everything], once=True)
        self._check_sparse(wanted)
        pieces = [(one.source, piece) for one in wanted for piece in one.pieces]
        if not layout.are_apart([piece.number for _, piece in pieces]):
            chunks = ChunkFanout(self._owners, self._dataset)
            found = [await self.read_defined(some, places_only=True) async for some in chunks.batches(whole)]
            return sum(len(one.offsets) for some in found for one in some if isinstance(one, DefinedElements))

        async def count(item: tuple[SourceDataset, Piece]) -> int:
            source, piece = item
            return await count_defined(source.owners, source.dataset, ascending(piece.cut.source))

        return sum(await gather_each(count, pieces, AT_ONCE))

    # --- reductions ---------------------------------------------------------------------------------

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        """Return partial results of a reduction, computed by the sources' owners if possible, else by this node."""
        pushed = await self._reduced_there(planned, reduction, codes)
        if pushed is not None:
            return pushed
        fill = self._dataset.fill if self._dataset.arrays.is_exact else np.zeros((), "u1")
        state = Partials.empty(reduction.places, reduction.numbers(fill).dtype, reduction.columns)
        for part, origin in self._parts(planned):
            shape = part.selection.shape
            own = None
            if codes is not None:
                at = origin[reduction.grouped]
                own = codes[at : at + shape[reduction.grouped]]
            found = await self._reduced(part, reduction, own)
            if found is not None:
                state.merge(found.placed(reduction, shape, origin))
        return [state]

    async def _reduced_there(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials] | None:
        """Return partial results that the sources' owners compute, or None if they cannot (see `_is_reducible`)."""
        layout = await self._pieces.mapped()
        wanted = await self._pieces.of(layout, planned)
        if self._dataset.spec.sparse:
            self._check_sparse(wanted)
        numbers = [piece.number for one in wanted for piece in one.pieces]
        if not layout.are_apart(numbers) or not all(map(self._is_reducible, wanted)):
            return None

        async def reduce(one: OfSource) -> list[Partials]:
            fan = ChunkFanout(one.source.owners, one.source.dataset)
            shifted: list[PlannedChunk] = []
            for piece in one.pieces:
                places = zip(planned[piece.chunk].origin, piece.cut.place, strict=True)
                first = [at + place.start for at, place in places]
                for chunk in await fan.planned(piece.cut.source):
                    begins = map(int.__add__, first, chunk.origin)
                    ends = zip(begins, chunk.selection.shape, strict=True)
                    place = tuple(slice(at, at + length) for at, length in ends)
                    shifted.append(replace(chunk, place=place))
            return await fan.source.reduce(shifted, reduction, codes)

        return [part for some in await gather_each(reduce, wanted, AT_ONCE) for part in some]

    def _is_reducible(self, wanted: OfSource) -> bool:
        """Return whether a source can reduce for this dataset: type, dimensions and dense fill value are equal.

        The fill value matters because a dense chunk that was never written consists of fill values.
        """
        source, own = wanted.source.dataset, self._dataset
        if not self._has_type_of(source) or source.spec.sparse != own.spec.sparse or source.spec.arange:
            return False
        if not own.spec.sparse and source.spec.fill != own.spec.fill:
            return False
        return all(
            isinstance(piece.cut.source, Orthogonal)
            and piece.cut.source.shape == piece.cut.shape
            and all(isinstance(place, slice) for place in piece.cut.place)
            for piece in wanted.pieces
        )

    async def _reduced(
        self, part: PlannedChunk, reduction: Reduction, codes: Codes | None
    ) -> Partials | None:
        """Return the partial results of one part of a planned chunk, or None if the part has no elements."""
        selection = part.selection
        if not self._dataset.spec.sparse:

            def reduced(values: NDArray[Any]) -> Partials:
                return reduce_array(as_type(values, self._dataset.dtype), reduction, codes)

            return cast("Partials | None", (await self._read([part], (), NO_LIMIT, reduced))[0])
        (found,) = await self.read_defined([part], places_only=not self._dataset.arrays.is_exact)
        if not isinstance(found, DefinedElements):
            return None
        positions = _positions(selection, found.offsets).astype(np.uint64)
        if not self._dataset.arrays.is_exact:
            return count_positions(positions, selection.shape, reduction, codes)
        values = as_type(cast("NDArray[Any]", found.values), self._dataset.dtype)
        return await compute(
            len(positions), lambda: reduce_positions(positions, values, selection.shape, reduction, codes)
        )

    def _parts(self, planned: Sequence[PlannedChunk]) -> Iterator[tuple[PlannedChunk, tuple[int, ...]]]:
        """Yield parts of planned chunks that fit into `REDUCED_BYTES`, each with its origin in the whole selection."""
        grid = Grid(self._dataset.spec.dims, self._dataset.spec.dims)
        room = max(1, REDUCED_BYTES // self._dataset.arrays.guessed_size)
        for chunk in planned:
            whole = chunk.selection
            assert isinstance(whole, Orthogonal)
            for part in [whole] if self._dataset.spec.sparse else pages(whole, grid, room):
                assert isinstance(part, Orthogonal)
                firsts = [ax.indices(ax.take(axis, 0, 1)) for axis in part.axes]
                inside = [int(ax.positions(*pair)[0]) for pair in zip(whole.axes, firsts, strict=True)]
                origin = tuple(map(int.__add__, chunk.origin, inside))
                yield replace(chunk, selection=part), origin


def _coords(offsets: NDArray[np.uint32], scaled: Sequence[int], dims: Sequence[int]) -> NDArray[np.uint64]:
    """Return the coordinates (n, rank) uint64 in the dataset of the elements at `offsets` in a chunk."""
    coords = np.empty((len(offsets), len(dims)), np.uint64)
    for dim, column in enumerate(coordinate_columns(offsets, dims)):
        coords[:, dim] = column
        coords[:, dim] += np.uint64(scaled[dim] * dims[dim])
    return coords


def _positions(selection: Selection, offsets: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return the position in a chunk selection of each selected offset; the selection has no element twice."""
    if isinstance(selection, Points):
        order = np.argsort(selection.offsets(), kind="stable")
        return order[np.searchsorted(selection.offsets()[order], offsets)]
    return selection.order_of(offsets)


def _at(values: Values, places: NDArray[np.intp]) -> Values:
    return take_elements([values], places) if isinstance(values, VlenArray) else values[places]
