"""Chunk queries of file-backed datasets: the file and offset of each chunk, and the number and bytes of chunks.

These are the chunks of the file, which may be smaller than those that reads are planned by. Contiguous data is one
chunk.
"""

from __future__ import annotations

from itertools import compress
from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import ErrorKind, HsparseError, NotFound
from hsparse.format.chunk_rows import row_names
from hsparse.format.plan.chunk_plan import selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.selection import Selection
from hsparse.model.file_backed import (
    CHUNKED_REF,
    CONTIGUOUS_REF,
    BackingFile,
    file_backed_layout,
    file_reference,
)
from hsparse.model.ids import chunk_name
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.file_backed.backing_reads import read_backing_files
from hsparse.sn.file_backed.chunk_table import ChunkTable, ReadTable
from hsparse.sn.file_backed.elements import FileBackedElements, backing_file
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import ChunkOrder, ChunkQuery, Json, Scaled, chunk_place
from hsparse.wire.file_backed_message import ReadPiece
from hsparse.wire.message import Record

OFFSET, SIZE, MASK = range(3)
"""Columns of the entries that `FileBackedElements.places` returns."""


class FileBackedChunkInfo:
    """`StoredChunks` of a file-backed dataset."""

    def __init__(self, owners: Owners, dataset: Dataset, bucket: str, read_table: ReadTable) -> None:
        self._owners = owners
        self._elements = FileBackedElements(owners, dataset, read_table)
        self._dataset = dataset
        self._bucket = bucket
        # In a dimension without elements there are no chunks, but a chunk still has at least one element there.
        self.grid = Grid(dataset.extent, tuple(max(1, dim) for dim in self._elements.piece_dims))

    async def version(self) -> str:
        return ""

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        coords = await self._overlapping(wanted.selection)
        if wanted.order is ChunkOrder.ADDR:
            coords, entries, places = await self._places(coords)
            names = ["/".join(place) for place in places]
            order = np.lexsort((entries[:, OFFSET], np.unique(names, return_inverse=True)[1]))
        else:
            order = np.argsort(row_names(coords.astype(np.uint64)), kind="stable")
        coords = coords[order]
        first = wanted.skip + self._start_of_page(coords, wanted)
        page = coords[first : first + wanted.limit]
        marker = tuple(page[-1].tolist()) if len(coords) > first + wanted.limit else ()
        return await self._chunks_json(page), marker

    async def count(self, selection: Selection | None) -> int:
        coords, _, _ = await self._places(await self._overlapping(selection))
        return len(coords)

    async def find(self, scaled: Scaled) -> Json | None:
        found = await self._chunks_json(np.array([scaled], np.int64))
        return found[0] if found else None

    async def scaled(self) -> NDArray[np.uint64]:
        coords, _, _ = await self._places(await self._elements.pieces())
        return coords.astype(np.uint64)

    async def locate(self, scaled: Scaled) -> tuple[BackingFile, int, int, int] | None:
        """Return the file of a chunk, its offset there, size and filter mask; None if the chunk does not exist."""
        entries, uris = await self._elements.places(np.array([scaled], np.int64))
        offset, size, mask = entries[0].tolist()
        if not size:
            return None
        file = backing_file(self._dataset) if uris is None else BackingFile(uris[0])
        return file, offset, size, mask

    async def stored_bytes(self, file: BackingFile, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a chunk that was located, (size,) uint8; the errors are those of `read_backing_files`."""

        async def read(files: tuple[BackingFile, ...]) -> NDArray[np.uint8]:
            return await self._owners.ask_owner(file.uri, ReadPiece(files[0], offset, size))

        return await read_backing_files(self._dataset, (file,), read)

    async def _overlapping(self, selection: Selection | None) -> NDArray[np.int64]:
        coords = await self._elements.pieces()
        return (
            coords
            if selection is None
            else coords[selection_intersects(selection, self.grid, coords.astype(np.uint64))]
        )

    async def _places(
        self, coords: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[str, str]]]:
        """Return the pieces that exist: coordinates, entries (offset, size, mask), buckets and keys of their files."""
        entries, uris = await self._elements.places(coords)
        there = entries[:, SIZE] > 0
        found = [backing_file(self._dataset).uri] * len(coords) if uris is None else uris
        known = {uri: file_reference(uri, self._bucket) for uri in set(compress(found, there.tolist()))}
        return coords[there], entries[there], [known[uri] for uri in compress(found, there.tolist())]

    def _start_of_page(self, coords: NDArray[np.int64], wanted: ChunkQuery) -> int:
        """Return the index after the chunk `wanted.after`, 0 without one."""
        if not wanted.after:
            return 0
        if wanted.order is not ChunkOrder.ADDR:
            names = row_names(coords.astype(np.uint64))
            return int(np.searchsorted(names, row_names(np.array([wanted.after], np.uint64))[0], "right"))
        found = np.flatnonzero((coords == np.array(wanted.after)).all(axis=1))
        if not len(found):
            raise NotFound(f"There is no chunk {chunk_name(wanted.after)} to continue after (marker).")
        return int(found[0]) + 1

    async def _chunks_json(self, coords: NDArray[np.int64]) -> list[Json]:
        coords, entries, places = await self._places(coords)
        rows = zip(coords.tolist(), entries.tolist(), places, strict=True)
        return [
            chunk_place(self.grid, scaled)
            | {"bucket": bucket, "key": key, "address": offset, "size": size, "filter_mask": mask}
            for scaled, (offset, size, mask), (bucket, key) in rows
        ]


UNREADABLE = (
    ErrorKind.NOT_FOUND,
    ErrorKind.GONE,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONFLICT,
    ErrorKind.UNSUPPORTED,
    ErrorKind.TOO_LARGE,
)
"""Errors of a chunk table that count as a table without chunks; a read reports them."""


async def file_backed_counts(owners: Owners, record: Record, read_table: ReadTable) -> Record:
    """Return `linked_bytes` and `num_linked_chunks`: stored bytes and chunks of the dataset in files."""
    layout = file_backed_layout(record)
    if layout is None:
        return {"linked_bytes": 0, "num_linked_chunks": 0}
    if layout["class"] == CONTIGUOUS_REF:
        count = prod(Dataset.of(record).grid.counts) if layout["size"] else 0
        return {"linked_bytes": layout["size"], "num_linked_chunks": count}
    if layout["class"] == CHUNKED_REF:
        sizes = [entry[1] for entry in layout["chunks"].values() if entry[1]]
        return {"linked_bytes": sum(sizes), "num_linked_chunks": len(sizes)}
    try:
        table = await ChunkTable.open(owners, Dataset.of(record), read_table)
        count, size = await table.totals()
    except HsparseError as error:
        if error.kind not in UNREADABLE:
            raise
        count = size = 0
    return {"linked_bytes": size, "num_linked_chunks": count}
