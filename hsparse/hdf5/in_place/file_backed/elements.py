"""Read the elements of a file-backed dataset: locate its pieces in files, and send one message to each data node.

A piece is a chunk of the file, or a byte range of contiguous data. Pieces that are close together in a file are read
by the same data node, their owner, which can read them by one request to the store.

All reads of backing files go through `read_backing_files`, which checks access. The creator of a file-backed dataset
grants all readers of the dataset access to the file in its state at creation. If the file has changed since its
creation, or did not exist then, a reader needs the right to read the file itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Conflict, Forbidden, TooLarge
from hsparse.format.fields import as_type, end_texts, has_text_ends, pick_fields
from hsparse.format.file_backed import MAX_RANGE, ChunkPieces
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements, QueryRequest
from hsparse.format.kinds.dense import not_sparse
from hsparse.format.plan.chunk_plan import ChunkSelection, PlannedChunk, run_of, selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.reductions.partials import Partials, reduce_array
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.points import Selection
from hsparse.hdf5.in_place.file_backed.chunk_table import ChunkTable
from hsparse.model.file_backed import CHUNKED_REF, CONTIGUOUS_REF, BackingFile, file_backed_layout, piece_dims
from hsparse.model.json_values import Values
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import from_parts
from hsparse.sn.values.file_data import ReadTable
from hsparse.wire.chunk_info_message import ReadFileBacked

T = TypeVar("T")
Files = tuple[BackingFile, ...]


async def read_backing_files(
    dataset: StoredDataset, files: Files, read: Callable[[Files], Awaitable[T]]
) -> T:
    """Return `read(files)`, after checking that the dataset's reader may read the files in their current states.

    If the reader has no right to a file, raises `Forbidden` if the file was unseen when the dataset was created, and
    `Conflict` if it has changed since. Files that a chunk table names were checked when the table was read.
    """
    unseen = [file.uri for file in files if file.unseen]
    if unseen:
        await require_file_rights(dataset, *unseen)
    known = [file.uri for file in files if file.etag and not file.unseen]
    if not known:
        return await read(files)
    try:
        return await read(tuple(file.unchanged() for file in files))
    except Conflict:
        if not await _may_read(dataset, known):
            raise
    return await read(files)


async def require_file_rights(dataset: StoredDataset, *uris: str) -> None:
    """Raise `Forbidden` unless the dataset's reader may read the files, `BadRequest` if the reader is unknown."""
    if dataset.rights is None:
        raise BadRequest(f"The file-backed dataset {dataset.id} cannot be read here: request its values.")
    await dataset.rights.require(*uris)


async def _may_read(dataset: StoredDataset, uris: list[str]) -> bool:
    try:
        await require_file_rights(dataset, *uris)
    except (Forbidden, BadRequest):
        return False
    return True


MAX_PIECES = 1 << 20
"""Most pieces of one read, because the location of each piece is held in memory."""
MAX_FILES = 10_000
REDUCED_BYTES = 32 * 1024 * 1024
"""Most bytes of elements that a reduction holds in memory at a time."""


class FileBackedElements:
    """The `ElementSource` implementation for a file-backed dataset."""

    def __init__(self, owners: Owners, dataset: StoredDataset, read_table: ReadTable) -> None:
        layout = file_backed_layout(dataset.record)
        assert layout is not None
        self._owners = owners
        self._dataset = dataset
        self._layout = layout
        self._read_table = read_table
        self._piece = piece_dims(layout, dataset.spec.dims)

    async def read(
        self, planned: Sequence[PlannedChunk], fields: tuple[str, ...] = (), limit: int = 0
    ) -> list[Values | int | None]:
        """Return the values of each planned chunk, or None for a chunk without pieces in the file."""
        return [*await self._read(planned, lambda _, values: pick_fields(values, fields))]

    async def read_defined(
        self, planned: Sequence[PlannedChunk], *, places_only: bool = False, limit: int = 0
    ) -> list[DefinedElements | int | None]:
        """Raise an error, because file-backed datasets are dense."""
        raise not_sparse(self._dataset.spec)

    async def count_defined(self, selection: Selection) -> int | None:
        """Raise an error, because file-backed datasets are dense."""
        raise not_sparse(self._dataset.spec)

    async def find(self, planned: Sequence[PlannedChunk], wanted: QueryRequest) -> list[FoundElements | None]:
        """Return the elements that a query finds; this node evaluates the query on values that the owners read."""
        search = wanted.bound(self._dataset.dtype)
        return await self._read(planned, lambda _, values: search.among(values))

    async def reduce(
        self, planned: Sequence[PlannedChunk], reduction: Reduction, codes: Codes | None
    ) -> list[Partials]:
        """Return the partial result of a reduction: this node reduces the values that the owners read, run by run."""
        dtype = self._dataset.dtype
        room = max(1, REDUCED_BYTES // dtype.itemsize)
        state = Partials.empty(
            reduction.places, reduction.numbers(self._dataset.fill).dtype, reduction.columns
        )

        def add(chunk: PlannedChunk, values: NDArray[Any]) -> None:
            own = None
            if codes is not None:
                at = chunk.origin[reduction.grouped]
                own = codes[at : at + values.shape[reduction.grouped]]
            part = reduce_array(as_type(values, dtype), reduction, own)
            state.merge(part.placed(reduction, values.shape, chunk.origin))

        first = 0
        while first < len(planned):
            until = run_of(planned, first, room)
            await self._read(planned[first:until], add)
            first = until
        return [state]

    async def _read(
        self, planned: Sequence[PlannedChunk], look: Callable[[PlannedChunk, NDArray[Any]], T]
    ) -> list[T | None]:
        """Return `look(chunk, values)` for each planned chunk, or None for a chunk without pieces in the file."""
        count = len(planned)
        result: list[T | None] = [None] * count
        if not count:
            return result
        pieces, files = await self._locate(np.array([chunk.scaled for chunk in planned], np.int64))
        if files and files[0].unseen:
            pieces = self._touched(planned, pieces)
        there = np.flatnonzero(pieces.counts(count)).tolist()
        if not there:
            return result
        first, offset = pieces.firsts(count)
        regions = list(zip(first.tolist(), (offset // np.uint64(MAX_RANGE)).tolist(), strict=True))
        piece = () if self._layout["class"] == CONTIGUOUS_REF else self._piece
        spec = self._dataset.spec

        async def read(states: tuple[BackingFile, ...]) -> list[NDArray[Any] | None]:
            def message(some: list[int]) -> ReadFileBacked:
                parts = tuple(
                    ChunkSelection(planned[i].scaled, planned[i].selection, planned[i].full) for i in some
                )
                return ReadFileBacked(spec, parts, pieces.of(np.array(some, np.intp)), states, piece)

            return await self._owners.gather(
                there, lambda i: f"{files[regions[i][0]].uri}@{regions[i][1]}", message
            )

        def looked_at(found: Sequence[NDArray[Any] | None]) -> list[T | None]:
            for i, values in zip(there, found, strict=True):
                if values is not None:
                    if has_text_ends(spec.datatype.item):
                        values = values.copy()  # replies are read-only
                        end_texts(values, spec.datatype.item)
                    result[i] = look(planned[i], values)
            return result

        return await from_parts(await read_backing_files(self._dataset, files, read), looked_at)

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks that have a piece, (k, rank) uint64."""
        counts = self._dataset.grid.counts
        if self._layout["class"] == CONTIGUOUS_REF:
            if prod(counts) > MAX_PIECES:
                raise TooLarge(f"{self._dataset.id} has more than {MAX_PIECES} chunks; select by ranges.")
            return _grid_coords(counts).astype(np.uint64)
        found = await self.pieces()
        return np.unique(found // self._factors(), axis=0).astype(np.uint64).reshape(-1, len(counts))

    # --- pieces of the file -------------------------------------------------------------------------

    @property
    def piece_dims(self) -> tuple[int, ...]:
        """Dimensions of a piece: a chunk of the file or, for contiguous data, the whole extent."""
        return self._dataset.extent if self._layout["class"] == CONTIGUOUS_REF else self._piece

    async def pieces(self) -> NDArray[np.int64]:
        """Return the scaled coordinates (in units of pieces) of the existing pieces, (n, rank) int64, in any order.

        Pieces outside of the extent are omitted. Contiguous data is one piece.
        """
        if self._layout["class"] == CONTIGUOUS_REF:
            there = self._layout["size"] > 0 and prod(self._dataset.extent) > 0
            return np.zeros((int(there), len(self._dataset.extent)), np.int64)
        if self._layout["class"] == CHUNKED_REF:
            found = self._listed_coords()
        else:
            found = await (await self._table()).coords()
        return found[(found < np.array(self._pieces_grid().counts)).all(axis=1)]

    async def places(self, coords: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str] | None]:
        """Return a pair: offset, size and filter mask of the pieces at `coords`, (n, 3) int64, and their files' URIs.

        A size of 0 means that there is no piece. The URIs are None if the layout names one file for all pieces.
        Raises `Forbidden` without the right to read a file that a chunk table names.
        """
        if self._layout["class"] == CONTIGUOUS_REF:
            here = [self._layout["offset"], self._layout["size"], 0]
            return np.array([here] * len(coords), np.int64).reshape(-1, 3), None
        if self._layout["class"] == CHUNKED_REF:
            return self._listed(coords), None
        entries, uris = await (await self._table()).entries(coords)
        if uris is not None:
            await self._files([uri for uri in uris if uri])
        return entries, uris

    # --- places of pieces -------------------------------------------------------------------------

    async def _locate(self, scaled: NDArray[np.int64]) -> tuple[ChunkPieces, tuple[BackingFile, ...]]:
        """Return a pair: the existing pieces of the chunks at `scaled`, (k, rank) int64, and the files with them."""
        if self._layout["class"] == CONTIGUOUS_REF:
            return self._slabs(scaled), (backing_file(self._dataset),)
        factors = self._factors()
        if len(scaled) * prod(factors.tolist()) > MAX_PIECES:
            raise TooLarge(
                f"The selection needs more than {MAX_PIECES} chunks of the file; select fewer elements at a time."
            )
        places = _grid_coords(factors.tolist())
        coords = (scaled[:, None, :] * factors + places).reshape(-1, scaled.shape[1])
        rows = np.flatnonzero((coords < np.array(self._pieces_grid().counts)).all(axis=1))
        if self._layout["class"] == CHUNKED_REF:
            entries, uris = self._listed(coords[rows]), None
        else:
            entries, uris = await (await self._table()).entries(coords[rows])
        keep = entries[:, 1] > 0
        rows, entries = rows[keep], entries[keep]
        files: tuple[BackingFile, ...]
        if uris is None:
            file, files = np.zeros(len(rows), np.uint32), (backing_file(self._dataset),)
        else:
            file, files = await self._files(list(itertools.compress(uris, keep.tolist())))
        pieces = ChunkPieces(
            (rows // len(places)).astype(np.uint32),
            places[rows % len(places)].astype(np.uint32),
            file,
            entries[:, 0].astype(np.uint64),
            entries[:, 1].astype(np.uint64),
            entries[:, 2].astype(np.uint32),
        )
        return pieces, files

    def _touched(self, planned: Sequence[PlannedChunk], pieces: ChunkPieces) -> ChunkPieces:
        """Return the pieces that the selections intersect, so that no right is required for a file that is not read."""
        if self._layout["class"] == CONTIGUOUS_REF:
            return pieces
        grid, touched = Grid(self._dataset.spec.dims, self._piece), np.zeros(len(pieces.chunk), np.bool_)
        for number, chunk in enumerate(planned):
            rows = np.flatnonzero(pieces.chunk == number)
            places = pieces.place[rows].astype(np.uint64)
            touched[rows] = selection_intersects(chunk.selection, grid, places)
        return pieces.rows(np.flatnonzero(touched))

    async def _files(self, uris: list[str]) -> tuple[NDArray[np.uint32], tuple[BackingFile, ...]]:
        """Return a pair: the index of each URI's file, (n,) uint32, and the distinct files that the indices refer to.

        Checks rights (`Forbidden`) on each read, because a chunk table's writers choose the files. Raises `TooLarge`.
        """
        files = list(dict.fromkeys(uris))
        if len(files) > MAX_FILES:
            raise TooLarge(f"The selection needs more than {MAX_FILES} files; select less at a time.")
        await require_file_rights(self._dataset, *files)
        number = {uri: place for place, uri in enumerate(files)}
        return np.array([number[uri] for uri in uris], np.uint32), tuple(map(BackingFile, files))

    def _slabs(self, scaled: NDArray[np.int64]) -> ChunkPieces:
        """Return one piece (a byte range) per chunk of a contiguous dataset, or no pieces if it was never allocated."""
        extent = np.array(self._dataset.extent, np.int64)
        origins = scaled * np.array(self._dataset.spec.dims, np.int64)
        strides = np.append(np.cumprod(extent[:0:-1])[::-1], 1)
        itemsize = self._dataset.dtype.itemsize
        starts = (origins @ strides) * itemsize
        sizes = np.minimum(extent - origins, self._dataset.spec.dims).prod(axis=1) * itemsize
        total = self._layout["size"]
        if total and len(starts) and int((starts + sizes).max()) > total:
            raise Conflict(f"{self._dataset.id} needs more than the {total} bytes that its layout states.")
        count = len(scaled) if total else 0
        return ChunkPieces(
            np.arange(count, dtype=np.uint32),
            np.zeros((count, scaled.shape[1]), np.uint32),
            np.zeros(count, np.uint32),
            (starts[:count] + self._layout["offset"]).astype(np.uint64),
            sizes[:count].astype(np.uint64),
            np.zeros(count, np.uint32),
        )

    def _listed(self, coords: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return offset, size (0 if there is no piece) and filter mask of pieces in the record's list, (n, 3) int64."""
        chunks = self._layout["chunks"]
        found = np.zeros((len(coords), 3), np.int64)
        if len(coords) <= len(chunks):
            for row, coord in enumerate(coords.tolist()):
                entry = chunks.get("_".join(map(str, coord)), ())
                found[row, : len(entry)] = entry
            return found
        keys = self._listed_coords()
        order = np.lexsort(coords.T[::-1])
        counts = self._pieces_grid().counts
        numbers = np.ravel_multi_index(tuple(coords[order].T), counts)
        inside: NDArray[np.bool_] = np.all(keys < np.array(counts), axis=1)
        for key, entry in zip(
            keys[inside], itertools.compress(chunks.values(), inside.tolist()), strict=True
        ):
            row = np.searchsorted(numbers, np.ravel_multi_index(tuple(key), counts))
            if row < len(order) and (coords[order[row]] == key).all():
                found[order[row], : len(entry)] = entry
        return found

    def _listed_coords(self) -> NDArray[np.int64]:
        """Return the coordinates of the pieces that the record lists, (n, rank) int64, in the record's order."""
        keys = [key.split("_") for key in self._layout["chunks"]]
        return np.array(keys, np.int64).reshape(-1, len(self._dataset.extent))

    async def _table(self) -> ChunkTable:
        return await ChunkTable.open(self._owners, self._dataset, self._read_table)

    def _factors(self) -> NDArray[np.int64]:
        """Return the number of pieces per chunk in each dimension."""
        return np.array(self._dataset.spec.dims, np.int64) // np.array(self._piece, np.int64)

    def _pieces_grid(self) -> Grid:
        return Grid(self._dataset.extent, self._piece)


def backing_file(dataset: StoredDataset) -> BackingFile:
    """Return the backing file that a dataset's layout names, with the file's etag and head at creation if known."""
    layout = file_backed_layout(dataset.record) or {}
    known = dataset.record.get("linkedFile") or {}
    uri = layout.get("file_uri")
    if not isinstance(uri, str):
        raise BadRequest(f"The layout of the dataset {dataset.id} names no file: create it with a file_uri.")
    return BackingFile(uri, known.get("etag", ""), known.get("head", 0), known.get("unseen", False))


def _grid_coords(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return all coordinates in a grid, (n, rank) int64, in row-major order."""
    return np.indices(tuple(counts), np.int64).reshape(len(counts), -1).T
