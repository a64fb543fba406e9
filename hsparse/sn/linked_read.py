"""Reading datasets whose data stays in files: where each chunk's pieces are, and one message an owner.

Chunks that lie close together in a file have one owner, so that it can read them in one request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Conflict, TooLarge
from hsparse.format.grid import Grid
from hsparse.format.linked_pieces import LONGEST, Pieces
from hsparse.format.plan import Share
from hsparse.format.selection import Orthogonal, Points, Selection
from hsparse.model.linked_file import LinkedFile
from hsparse.model.linked_layout import CHUNKED_REF, CONTIGUOUS_REF, linked_layout, piece_dims
from hsparse.sn.dataset import Dataset
from hsparse.sn.owners import Owners
from hsparse.wire.message import Part, ReadLinked, Record

MOST_PIECES = 1 << 20
"""The most pieces one read may meet: of each, the place in its file is in memory."""
MOST_FILES = 10_000
MASK = "filter_mask"
TABLE_ROWS = 1 << 18
"""Entries of a chunk table read at a time."""
ReadTable = Callable[[Dataset, Selection], Awaitable[NDArray[Any]]]


class LinkedRead:
    """The chunks of one dataset whose data stays in a file."""

    def __init__(self, owners: Owners, dataset: Dataset, read_table: ReadTable) -> None:
        layout = linked_layout(dataset.record)
        assert layout is not None
        self._owners = owners
        self._dataset = dataset
        self._layout = layout
        self._read_table = read_table
        self._piece = piece_dims(layout, dataset.spec.dims)

    async def read(self, shares: Sequence[Share]) -> list[NDArray[Any] | None]:
        """Return what each share selects, None where there is nothing in the file."""
        count = len(shares)
        result: list[NDArray[Any] | None] = [None] * count
        if not count:
            return result
        pieces, files = await self._locate(np.array([share.scaled for share in shares], np.int64))
        there = np.flatnonzero(pieces.counts(count)).tolist()
        first, offset = pieces.firsts(count)
        regions = list(zip(first.tolist(), (offset // np.uint64(LONGEST)).tolist(), strict=True))
        piece = () if self._layout["class"] == CONTIGUOUS_REF else self._piece
        spec = self._dataset.spec

        def message(some: list[int]) -> ReadLinked:
            parts = tuple(Part(shares[i].scaled, shares[i].selection, shares[i].full) for i in some)
            return ReadLinked(spec, parts, pieces.of(np.array(some, np.intp)), files, piece)

        values: list[NDArray[Any] | None] = await self._owners.gather(
            there, lambda i: f"{files[regions[i][0]].uri}@{regions[i][1]}", message
        )
        for i, value in zip(there, values, strict=True):
            result[i] = value
        return result

    async def existing(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of the chunks that have a piece, (k, rank) uint64."""
        counts = self._dataset.grid.counts
        if self._layout["class"] == CONTIGUOUS_REF:
            if prod(counts) > MOST_PIECES:
                raise TooLarge(f"The selection meets more than {MOST_PIECES} chunks; select less at a time.")
            return _all_places(counts).astype(np.uint64)
        rank = len(counts)
        if self._layout["class"] == CHUNKED_REF:
            entries = [key.split("_") for key, entry in self._layout["chunks"].items() if entry[1]]
            found = np.array(entries, np.int64).reshape(-1, rank)
        else:
            found = await self._table_entries()
        inside = (found < np.array(self._pieces_grid().counts)).all(axis=1)
        return np.unique(found[inside] // self._factors(), axis=0).astype(np.uint64).reshape(-1, rank)

    # --- where pieces are -------------------------------------------------------------------------

    async def _locate(self, scaled: NDArray[np.int64]) -> tuple[Pieces, tuple[LinkedFile, ...]]:
        """Return the pieces of the chunks at `scaled`, (k, rank), and the files they are in."""
        if self._layout["class"] == CONTIGUOUS_REF:
            return self._slabs(scaled), (linked_file(self._dataset),)
        factors = self._factors()
        if len(scaled) * prod(factors.tolist()) > MOST_PIECES:
            raise TooLarge(
                f"The selection meets more than {MOST_PIECES} chunks of the file; select less at a time."
            )
        places = _all_places(factors.tolist())
        coords = (scaled[:, None, :] * factors + places).reshape(-1, scaled.shape[1])
        rows = np.flatnonzero((coords < np.array(self._pieces_grid().counts)).all(axis=1))
        if self._layout["class"] == CHUNKED_REF:
            entries, uris = self._listed(coords[rows]), None
        else:
            entries, uris = await self._tabled(coords[rows])
        keep = entries[:, 1] > 0
        rows, entries = rows[keep], entries[keep]
        files: tuple[LinkedFile, ...]
        if uris is None:
            file, files = np.zeros(len(rows), np.uint32), (linked_file(self._dataset),)
        else:
            file, files = await self._files(uris[keep])
        pieces = Pieces(
            (rows // len(places)).astype(np.uint32),
            places[rows % len(places)].astype(np.uint32),
            file,
            entries[:, 0].astype(np.uint64),
            entries[:, 1].astype(np.uint64),
            entries[:, 2].astype(np.uint32),
        )
        return pieces, files

    async def _files(self, uris: NDArray[Any]) -> tuple[NDArray[np.uint32], tuple[LinkedFile, ...]]:
        """Return which file each of `uris` is, and the files; the reader must have the right to read them.

        Whoever filled the table named them, so nobody has looked at them or at the rights to them before.
        """
        table = self._layout["chunk_table"]
        texts = [_text(uri, table) for uri in uris.tolist()]
        files = list(dict.fromkeys(texts))
        if len(files) > MOST_FILES:
            raise TooLarge(f"The selection meets more than {MOST_FILES} files; select less at a time.")
        if self._dataset.rights is None:
            raise BadRequest(f"{self._dataset.id} can be read by requests for its values only.")
        await self._dataset.rights.require(*files)
        number = {uri: place for place, uri in enumerate(files)}
        return np.array([number[text] for text in texts], np.uint32), tuple(map(LinkedFile, files))

    def _slabs(self, scaled: NDArray[np.int64]) -> Pieces:
        """Return the one range of each chunk of a contiguous dataset; nothing when it was not allocated."""
        extent = np.array(self._dataset.extent, np.int64)
        origins = scaled * np.array(self._dataset.spec.dims, np.int64)
        strides = np.append(np.cumprod(extent[:0:-1])[::-1], 1)
        itemsize = self._dataset.dtype.itemsize
        starts = (origins @ strides) * itemsize
        sizes = np.minimum(extent - origins, self._dataset.spec.dims).prod(axis=1) * itemsize
        total = self._layout["size"]
        if total and len(starts) and int((starts + sizes).max()) > total:
            raise Conflict(f"{self._dataset.id} has more elements than the {total} bytes it was linked to.")
        count = len(scaled) if total else 0
        return Pieces(
            np.arange(count, dtype=np.uint32),
            np.zeros((count, scaled.shape[1]), np.uint32),
            np.zeros(count, np.uint32),
            (starts[:count] + self._layout["offset"]).astype(np.uint64),
            sizes[:count].astype(np.uint64),
            np.zeros(count, np.uint32),
        )

    def _listed(self, coords: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return offset, size and filter mask of pieces that the record lists, (n, 3); size 0: not there."""
        chunks = self._layout["chunks"]
        found = np.zeros((len(coords), 3), np.int64)
        for row, coord in enumerate(coords.tolist()):
            entry = chunks.get("_".join(map(str, coord)))
            if entry is not None:
                found[row, : len(entry)] = entry
        return found

    async def _tabled(self, coords: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
        """Return offset, size and filter mask of pieces from the chunk table, (n, 3), and their files' URIs.

        No URIs: the layout names the one file.
        """
        table = await self._table()
        found = np.zeros((len(coords), 3), np.int64)
        uri_field = table_fields(table.dtype, self._layout)[3]
        uris = None if uri_field is None else np.zeros(len(coords), table.dtype[uri_field])
        inside = np.flatnonzero((coords < np.array(table.extent, np.int64)).all(axis=1))
        wanted = coords[inside]
        if len(inside):
            low, high = wanted.min(axis=0), wanted.max(axis=0) + 1
            if prod((high - low).tolist()) <= 2 * len(inside):
                box = Orthogonal.box(table.extent, low.tolist(), high.tolist())
                values = await self._read_table(table, box)
                values = values[tuple((wanted - low).T)]
            else:
                values = await self._read_table(table, Points(table.extent, wanted.astype(np.uint64)))
            found[inside] = self._entries(values)
            if uris is not None:
                uris[inside] = values[uri_field]
        return found, uris

    async def _table_entries(self) -> NDArray[np.int64]:
        """Return the coordinates of the pieces the chunk table has, (n, rank), reading it in blocks of rows."""
        table = await self._table()
        rows = max(1, TABLE_ROWS // max(1, prod(table.extent[1:])))
        found = []
        for first in range(0, table.extent[0], rows):
            last = min(table.extent[0], first + rows)
            box = Orthogonal.box(
                table.extent, (first, *(0,) * (len(table.extent) - 1)), (last, *table.extent[1:])
            )
            values = await self._read_table(table, box)
            places = np.argwhere(self._entries(values)[..., 1].reshape(values.shape) > 0)
            places[:, 0] += first
            found.append(places)
            if sum(map(len, found)) > MOST_PIECES:
                raise TooLarge(f"The chunk table has more than {MOST_PIECES} entries; select less at a time.")
        return np.concatenate(found) if found else np.zeros((0, len(table.extent)), np.int64)

    def _entries(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return offset, size and filter mask of a table's elements, (..., 3)."""
        names = table_fields(values.dtype, self._layout)[:3]
        found = np.zeros((*values.shape, 3), np.int64)
        for place, name in enumerate(names):
            if name is not None:
                found[..., place] = values[name]
        if found.size and int(found.min()) < 0:
            raise Conflict(f"The chunk table {self._layout['chunk_table']} has a negative offset or size.")
        return found

    async def _table(self) -> Dataset:
        table = Dataset.of(await self._owners.record(self._layout["chunk_table"]))
        check_table(table, self._layout, len(self._dataset.extent))
        return table

    def _factors(self) -> NDArray[np.int64]:
        """Return how many pieces a chunk of the grid has in each dimension."""
        return np.array(self._dataset.spec.dims, np.int64) // np.array(self._piece, np.int64)

    def _pieces_grid(self) -> Grid:
        return Grid(self._dataset.extent, self._piece)


def linked_file(dataset: Dataset) -> LinkedFile:
    """Return the file a dataset is linked to, as it was when that was done, where that is known."""
    layout = linked_layout(dataset.record) or {}
    known = dataset.record.get("linkedFile") or {}
    uri = layout.get("file_uri")
    if not isinstance(uri, str):
        raise BadRequest(f"{dataset.id} is linked to no file: its layout has no file_uri.")
    return LinkedFile(uri, known.get("etag", ""), known.get("head", 0))


def check_table(table: Dataset, layout: Record, rank: int) -> None:
    """Raise `BadRequest` when a dataset cannot be the chunk table of a layout with `rank` dimensions."""
    if linked_layout(table.record) is not None or table.spec.sparse:
        raise BadRequest(f"The chunk table {table.id} must have dense chunks of its own.")
    if len(table.extent) != rank:
        raise BadRequest(
            f"The chunk table {table.id} has {len(table.extent)} dimensions; the dataset has {rank}."
        )
    table_fields(table.dtype, layout)


def table_fields(dtype: np.dtype[Any], layout: Record) -> tuple[str, str, str | None, str | None]:
    """Return the names of a table's fields: offset, size, filter mask if it has one, and URI if that counts.

    Offset and size are the first two; `file_uri` is the third and counts when the layout names no file.
    """
    names, id = dtype.names or (), layout["chunk_table"]
    numbers = {name for name in names if dtype[name].kind in "iu" and dtype[name].shape == ()}
    if len(names) < 2 or not numbers >= set(names[:2]):
        raise BadRequest(f"An element of the chunk table {id} must be a compound of an offset and a size.")
    uri = None
    if "file_uri" not in layout:
        uri = next((name for name in names[2:] if dtype[name].kind in "SO"), None)
        if uri is None:
            raise BadRequest(f"Neither the layout nor the chunk table {id} names a file; give file_uri.")
    return names[0], names[1], MASK if MASK in numbers else None, uri


def _text(uri: Any, table: str) -> str:
    """Return a URI as it stands in a chunk table."""
    try:
        text = uri.decode() if isinstance(uri, bytes) else uri
    except UnicodeDecodeError as error:
        raise Conflict(f"The chunk table {table} has a file_uri that is not UTF-8.") from error
    if not isinstance(text, str) or not text:
        raise Conflict(f"The chunk table {table} has an offset without a file_uri.")
    return text


def _all_places(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the coordinates of all places of a grid, (n, rank), in row-major order."""
    return np.indices(tuple(counts), np.int64).reshape(len(counts), -1).T
