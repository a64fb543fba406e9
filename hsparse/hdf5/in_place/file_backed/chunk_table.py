"""Chunk tables: datasets whose elements are the locations in files of the pieces (file chunks) of another dataset.

This module also checks, when a file-backed dataset is created, that the principal may read the file if it exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Conflict, Forbidden, NotFound, TooLarge
from hsparse.format.selections.points import Orthogonal, Points
from hsparse.model.file_backed import CHUNKED_REF_INDIRECT, file_backed_layout
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.file_data import ReadTable
from hsparse.wire.chunk_info_message import InspectFile
from hsparse.wire.message import Record

MASK_FIELD = "filter_mask"
BLOCK_ENTRIES = 1 << 18
"""Number of table entries that are read at a time."""
MAX_TABLE_ENTRIES = 1 << 24
"""Most entries of a table that may be read whole; tables of 100,000 entries are common."""
MAX_FOUND = 1 << 20
"""Most existing pieces that `ChunkTable.coords` returns."""
MAX_ENTRY_BYTES = 4096
"""Most bytes of a table entry, which consists of two numbers, a mask and a URI."""


@dataclass(frozen=True, slots=True)
class TableFields:
    """The names of a table's fields. `uri` is None if the layout names one file for all pieces."""

    offset: str
    size: str
    mask: str | None
    uri: str | None


class ChunkTable:
    """The chunk table of a dataset with `rank` dimensions; `read` reads elements of the table."""

    def __init__(self, table: StoredDataset, layout: Record, rank: int, read: ReadTable) -> None:
        self._table = table
        self._fields = check_table(table, layout, rank)
        self._read = read

    @classmethod
    async def open(cls, owners: Owners, dataset: StoredDataset, read: ReadTable) -> ChunkTable:
        """Return the table that the layout of `dataset` names; raise `NotFound` if the table does not exist."""
        layout = file_backed_layout(dataset.record) or {}
        return cls(
            StoredDataset.of(await owners.record(layout["chunk_table"])), layout, len(dataset.extent), read
        )

    async def entries(self, coords: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str] | None]:
        """Return a pair: offset, size and filter mask of the pieces at `coords`, (n, 3) int64, and their files' URIs.

        A size of 0 means that there is no piece. The URIs are None if the layout names one file for all pieces.
        """
        table = self._table
        found = np.zeros((len(coords), 3), np.int64)
        uris: list[str] | None = None if self._fields.uri is None else [""] * len(coords)
        inside = np.flatnonzero((coords < np.array(table.extent, np.int64)).all(axis=1))
        if not len(inside):
            return found, uris
        wanted = coords[inside]
        low, high = wanted.min(axis=0), wanted.max(axis=0) + 1
        if prod((high - low).tolist()) <= 2 * len(inside):
            box = Orthogonal.box(table.extent, low.tolist(), high.tolist())
            values = (await self._read(table, box))[tuple((wanted - low).T)]
        else:
            values = await self._read(table, Points(table.extent, wanted.astype(np.uint64)))
        found[inside] = self._numbers(values)
        if uris is not None:
            for row, uri in zip(inside.tolist(), values[self._fields.uri].tolist(), strict=True):
                uris[row] = self._uri_text(uri) if found[row, 1] else ""
        return found, uris

    async def coords(self) -> NDArray[np.int64]:
        """Return the coordinates of the existing pieces, (n, rank) int64; raise `TooLarge` beyond `MAX_FOUND`."""
        found = [np.zeros((0, len(self._table.extent)), np.int64)]
        async for first, entries in self._blocks():
            places = np.argwhere(entries[..., 1] > 0)
            places[:, 0] += first
            found.append(places)
            if sum(map(len, found)) > MAX_FOUND:
                raise TooLarge(
                    f"The chunk table {self._table.id} lists more than {MAX_FOUND} chunks: select fewer at a time."
                )
        return np.concatenate(found)

    async def totals(self) -> tuple[int, int]:
        """Return a pair: the number of existing pieces and the sum of their sizes in bytes."""
        count = size = 0
        async for _, entries in self._blocks():
            count += int(np.count_nonzero(entries[..., 1]))
            size += int(entries[..., 1].sum())
        return count, size

    async def _blocks(self) -> AsyncIterator[tuple[int, NDArray[np.int64]]]:
        """Yield a pair for each block of whole rows: the number of its first row, and its entries, (..., 3) int64."""
        table = self._table
        if prod(table.extent) > MAX_TABLE_ENTRIES:
            raise TooLarge(
                f"The chunk table {table.id} has {prod(table.extent)} entries; the limit is {MAX_TABLE_ENTRIES}: "
                "select less at a time."
            )
        rows = max(1, BLOCK_ENTRIES // max(1, prod(table.extent[1:])))
        for first in range(0, table.extent[0], rows):
            start = (first, *(0,) * (len(table.extent) - 1))
            stop = (min(table.extent[0], first + rows), *table.extent[1:])
            values = await self._read(table, Orthogonal.box(table.extent, start, stop))
            yield first, self._numbers(values)

    def _numbers(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return offset, size and mask of table elements, (..., 3) int64; raise `Conflict` if a number is negative."""
        found = np.zeros((*values.shape, 3), np.int64)
        for place, name in enumerate((self._fields.offset, self._fields.size, self._fields.mask)):
            if name is not None:
                found[..., place] = values[name]
        if found.size and int(found.min()) < 0:
            raise Conflict(f"The chunk table {self._table.id} has a negative offset or size: correct it.")
        return found

    def _uri_text(self, uri: Any) -> str:
        """Return the URI of an existing piece; raise `Conflict` if it is empty or not UTF-8."""
        try:
            text = uri.decode() if isinstance(uri, bytes) else uri
        except UnicodeDecodeError as error:
            raise Conflict(f"The chunk table {self._table.id} has a file_uri that is not UTF-8.") from error
        if not isinstance(text, str) or not text:
            raise Conflict(f"The chunk table {self._table.id} has a chunk without file_uri: write it.")
        return text


def check_table(table: StoredDataset, layout: Record, rank: int) -> TableFields:
    """Return a table's fields; raise `BadRequest` if it cannot be the table of a layout with `rank` dimensions."""
    if file_backed_layout(table.record) is not None or table.spec.sparse or table.spec.base:
        raise BadRequest(f"The chunk table {table.id} must be dense, not file-backed, without lower bound.")
    if not table.arrays.is_exact:
        raise BadRequest(
            f"The chunk table {table.id} has fields of variable length, but all fields must have a fixed size: "
            "make its file_uri a fixed-size string."
        )
    if len(table.extent) != rank:
        raise BadRequest(
            f"The chunk table {table.id} has {len(table.extent)} dimensions, but needs {rank} like the dataset."
        )
    if table.dtype.itemsize > MAX_ENTRY_BYTES:
        raise BadRequest(
            f"An element of the chunk table {table.id} has {table.dtype.itemsize} bytes; the limit is "
            f"{MAX_ENTRY_BYTES}."
        )
    return _fields(table, layout)


def _fields(table: StoredDataset, layout: Record) -> TableFields:
    """Find the fields: the first two are offset and size; a URI field is needed only if the layout names no file."""
    dtype = table.dtype
    names = dtype.names or ()
    numbers = {name for name in names if dtype[name].kind in "iu" and dtype[name].shape == ()}
    if len(names) < 2 or not numbers >= set(names[:2]):
        raise BadRequest(
            f"An element of the chunk table {table.id} must be a compound that begins with integers offset and size."
        )
    uri = None
    if "file_uri" not in layout:
        uri = next((name for name in names[2:] if dtype[name].kind == "S"), None)
        if uri is None:
            raise BadRequest(
                f"Neither the layout nor the chunk table {table.id} names a file: add file_uri to the layout."
            )
    return TableFields(names[0], names[1], MASK_FIELD if MASK_FIELD in numbers else None, uri)


async def check_backing_file(request: Request, record: Record) -> None:
    """Check the backing file of a new dataset, and add the file's etag and head (CRC-32 of its beginning) to `record`.

    All readers of the domain can then read the file's data, so the principal must have the right to read the file's
    folder. A file that does not exist yet, or is in a bucket that is not served, is marked `unseen` instead: each
    reader of the dataset then needs the right to read the file.
    """
    layout = file_backed_layout(record)
    if layout is None:
        return
    if record["creationProperties"].get("initializer"):
        raise BadRequest("A file-backed dataset cannot have an initializer: omit it, or set a fill value.")
    owners = request.service.owners
    if layout["class"] == CHUNKED_REF_INDIRECT:
        id = layout["chunk_table"] = request.domain.member(layout["chunk_table"], "datasets")
        outcome = (await owners.read(id))[0]
        # h5pyd 1.0 creates a table and its dataset in one request, so the table may not exist yet; a read checks it.
        if outcome.failure is None:
            check_table(StoredDataset.of(outcome.unwrap()), layout, len(record["shape"]["dims"]))
    uri = layout.get("file_uri")
    if uri is not None:
        record["linkedFile"] = await _state_of(request, uri)


async def _state_of(request: Request, uri: str) -> Record:
    """Return the etag and the head of a file, or `{"unseen": True}` if it is missing or its bucket is not served."""
    rights = request.file_rights()
    try:
        rights.owners_of(uri)
    except Forbidden:  # the bucket is not served
        return {"unseen": True}
    await rights.require(uri)
    try:
        found = await request.service.owners.ask_any(InspectFile(uri))
    except NotFound:
        return {"unseen": True}
    return {"etag": found.etag, "head": found.head}
