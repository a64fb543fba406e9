"""Fill chunk tables from an HDF5 file (initializer `chunklocator`), as `hsload --fastlink` requests.

A chunk table is a dataset whose elements are the locations, in a file, of the chunks of another dataset. This module
also answers chunk queries of file-backed datasets: the file and offset of each chunk, and the number and bytes of all
chunks. A chunk of the file may be smaller than a chunk of the read plan. Contiguous data counts as one chunk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.concurrency.gathering import gather_each
from hsparse.errors import BadRequest, Corrupt, ErrorKind, HsparseError, NotFound, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import row_names
from hsparse.format.chunk_spec import chunk_name
from hsparse.format.plan.chunk_plan import selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Selection
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.file_fields import ByteRange, Reads
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.dataset_chunks import find_dataset, read_dataset_chunks
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.hdf5.in_place.file_backed.chunk_table import MASK_FIELD, ChunkTable, check_backing_file
from hsparse.hdf5.in_place.file_backed.elements import FileBackedElements, backing_file, read_backing_files
from hsparse.model.dataspace import Shape, dims_of
from hsparse.model.datatype import Datatype
from hsparse.model.element import Fixed
from hsparse.model.file_backed import (
    CHUNKED_REF,
    CONTIGUOUS_REF,
    SCHEMES,
    BackingFile,
    file_backed_layout,
    file_reference,
)
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.stored_chunks import ChunkOrder, ChunkQuery, Json, Scaled, chunk_place
from hsparse.sn.request import FileRights, Request
from hsparse.sn.values.chunk_fanout import table_reader
from hsparse.sn.values.file_data import ReadTable
from hsparse.wire.chunk_info_message import ReadPiece
from hsparse.wire.message import Record
from hsparse.wire.record_message import ListKeys

Result = TypeVar("Result")

LOCATOR = "chunklocator"
OPTIONS = ("--h5path", "--filepath", "--bucket")
MAX_READ = 64 * 1024 * 1024
"""Most bytes that are read from a file to find its chunks; enough for an index of some million chunks."""
BLOCK_BYTES = 64 * 1024
MAX_BLOCKS = 64
"""Most blocks of `BLOCK_BYTES` bytes that are cached; a range that lies in one block is read from the cache."""
READS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ChunkLocator:
    """The URI of a file, and the path of the dataset in it whose chunk locations fill a chunk table."""

    uri: str
    h5path: str


def take_locator(properties: Record, buckets: Collection[str]) -> ChunkLocator | None:
    """Remove and return the locator in creation properties, or return None; raise `BadRequest` if it is malformed."""
    words = properties.get("initializer")
    words = words.split() if isinstance(words, str) else words
    if not isinstance(words, list) or words[:1] != [LOCATOR]:
        return None
    given = dict(word.partition("=")[::2] for word in words[1:] if isinstance(word, str))
    if len(given) != len(words) - 1 or set(given) != set(OPTIONS) or not all(given.values()):
        raise BadRequest(f"The initializer {LOCATOR} needs {', '.join(OPTIONS)}, each with a value.")
    del properties["initializer"]
    bucket, key = given["--bucket"], given["--filepath"]
    # hsload sends the first component of a path as the bucket, even if there is no such bucket.
    scheme = SCHEMES[0] if bucket in buckets else ""
    return ChunkLocator(f"{scheme}{bucket}/{key}", given["--h5path"])


async def located_chunks(
    request: Request, locator: ChunkLocator, shape: Shape, datatype: Datatype
) -> NDArray[Any]:
    """Return the elements of a chunk table: offset, size and (if the table has the field) mask of each chunk.

    Raises `NotFound` for a missing file or dataset, `Forbidden` without the right to read the file, and `BadRequest`
    if the file is not HDF5, the dataset has no chunks, or a chunk's coordinates are outside of the table.
    """
    rights = request.file_rights()
    await rights.require(locator.uri)
    table = _empty_table(shape, datatype)
    reader = await _FileReader.open(rights, locator.uri)
    try:
        file = await reader.run(read_superblock(reader.size))
        records = await _records(reader, file, locator)
    except Corrupt as error:
        raise BadRequest(f"{locator.uri!r} cannot be read as an HDF5 file: {error.message}") from error
    scaled = records.scaled.astype(np.int64)
    if scaled.shape[1] != table.ndim or (scaled >= np.array(table.shape)).any():
        raise BadRequest(
            f"The chunk table's shape {list(table.shape)} does not hold all chunks of {locator.h5path!r}: enlarge it."
        )
    offset, size, *_ = table.dtype.names or ()
    places = tuple(scaled.T)
    table[offset][places] = records.address + np.uint64(file.base)
    table[size][places] = records.size
    if MASK_FIELD in (table.dtype.names or ()):
        table[MASK_FIELD][places] = records.mask
    return table


def _empty_table(shape: Shape, datatype: Datatype) -> NDArray[Any]:
    element, dims = datatype.element, dims_of(shape)
    names = element.dtype.names or () if isinstance(element, Fixed) else ()
    kinds = [element.dtype[name] for name in names]
    if not dims or len(names) < 2 or any(kind.kind not in "iu" or kind.shape for kind in kinds):
        raise BadRequest(
            f"The initializer {LOCATOR} needs a table with dimensions, and a compound type of integers: offset, size."
        )
    return np.zeros(dims, element.dtype)


async def _records(reader: _FileReader, file: Hdf5File, locator: ChunkLocator) -> ChunkRecords:
    dataset = await reader.run(find_dataset(file, locator.h5path))
    if not isinstance(dataset.layout, ChunkedLayout):
        raise BadRequest(
            f"The dataset {locator.h5path!r} of {locator.uri!r} has no chunks: link to it without a chunk table."
        )
    return await reader.run(read_dataset_chunks(file, dataset, dataset.layout))


class _FileReader:
    """Reads byte ranges of a file in the store through data nodes; raises `TooLarge` beyond `MAX_READ` bytes."""

    def __init__(self, owners: Owners, uri: str, size: int) -> None:
        self.size = size
        self._owners = owners
        self._file = BackingFile(uri)
        self._left = MAX_READ
        self._blocks: BoundedCache[int, Buffer] = BoundedCache.of_entries(MAX_BLOCKS)

    @classmethod
    async def open(cls, rights: FileRights, uri: str) -> _FileReader:
        """Return a reader of the file at `uri`; raise `NotFound` if the file does not exist."""
        owners, bucket, key = rights.owners_of(uri)
        listing = await owners.ask_any(ListKeys(key, limit=1))
        if listing.keys != (key,):
            raise NotFound(f"There is no file {key!r} in {bucket!r}: put it there before linking to it.")
        return cls(rights.owners, uri, listing.sizes[0])

    async def run(self, reads: Reads[Result]) -> Result:
        """Run a parser of the file and return its result. Its steps run in worker threads: an index may be large."""
        data: Sequence[Buffer] | None = None
        while True:
            wanted, found = await compute(LONG_WORK_BYTES, _step, reads, data)
            if wanted is None:
                result: Result = found
                return result
            data = await gather_each(self._read, wanted, READS_AT_ONCE)

    async def _read(self, wanted: ByteRange) -> Buffer:
        first = wanted.address // BLOCK_BYTES
        if wanted.size > BLOCK_BYTES or (wanted.address + wanted.size - 1) // BLOCK_BYTES != first:
            return await self._fetch(wanted.address, wanted.size)
        block = self._blocks.get(first)
        if block is None:
            size = min(BLOCK_BYTES, self.size - first * BLOCK_BYTES)
            block = await self._fetch(first * BLOCK_BYTES, size)
            self._blocks.keep(first, block)
        start = wanted.address - first * BLOCK_BYTES
        return memoryview(block)[start : start + wanted.size]

    async def _fetch(self, address: int, size: int) -> Buffer:
        self._left -= size
        if self._left < 0:
            raise TooLarge(
                f"To find the chunks of {self._file.uri!r}, more than {MAX_READ} bytes of the file must be read; "
                "let the client list the chunks (hsload --link)."
            )
        if not size:
            return b""
        data = await self._owners.ask_owner(self._file.uri, ReadPiece(self._file, address, size))
        return data.tobytes()


def _step(reads: Reads[Result], data: Sequence[Buffer] | None) -> tuple[tuple[ByteRange, ...] | None, Any]:
    """Run one step of a parser; return the pair (byte ranges to read next, None) or, at the end, (None, result)."""
    try:
        return (next(reads) if data is None else reads.send(data)), None
    except StopIteration as done:
        return None, done.value


OFFSET, SIZE, MASK = range(3)
"""Columns of the entries that `FileBackedElements.places` returns."""


class FileBackedChunkInfo:
    """The `StoredChunks` implementation for a file-backed dataset."""

    def __init__(self, owners: Owners, dataset: StoredDataset, bucket: str, read_table: ReadTable) -> None:
        self._owners = owners
        self._elements = FileBackedElements(owners, dataset, read_table)
        self._dataset = dataset
        self._bucket = bucket
        # A dimension of length 0 has no chunks, but a grid's chunk must have a length of at least 1 in each dimension.
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
        """Return a chunk's file, offset, size (bytes) and filter mask, or None if the chunk does not exist."""
        entries, uris = await self._elements.places(np.array([scaled], np.int64))
        offset, size, mask = entries[0].tolist()
        if not size:
            return None
        file = backing_file(self._dataset) if uris is None else BackingFile(uris[0])
        return file, offset, size, mask

    async def stored_bytes(self, file: BackingFile, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a chunk found by `locate`, (size,) uint8; raise the errors of `read_backing_files`."""

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
        """Return a triple for the existing pieces at `coords`: coordinates, (offset, size, mask), (bucket, key)."""
        entries, uris = await self._elements.places(coords)
        there = entries[:, SIZE] > 0
        found = [backing_file(self._dataset).uri] * len(coords) if uris is None else uris
        known = {uri: file_reference(uri, self._bucket) for uri in set(compress(found, there.tolist()))}
        return coords[there], entries[there], [known[uri] for uri in compress(found, there.tolist())]

    def _start_of_page(self, coords: NDArray[np.int64], wanted: ChunkQuery) -> int:
        """Return the index in `coords` of the first chunk after the marker `wanted.after`, or 0 if there is none."""
        if not wanted.after:
            return 0
        if wanted.order is not ChunkOrder.ADDR:
            names = row_names(coords.astype(np.uint64))
            return int(np.searchsorted(names, row_names(np.array([wanted.after], np.uint64))[0], "right"))
        found = np.flatnonzero((coords == np.array(wanted.after)).all(axis=1))
        if not len(found):
            raise NotFound(f"The marker {chunk_name(wanted.after)} names no chunk; list without a marker.")
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
"""If reading a chunk table fails with one of these errors, 0 chunks are counted; a read of the dataset raises it."""


async def file_backed_counts(owners: Owners, record: Record, read_table: ReadTable) -> Record:
    """Return the items `linked_bytes` and `num_linked_chunks`: size and number of the dataset's chunks in files."""
    layout = file_backed_layout(record)
    if layout is None:
        return {"linked_bytes": 0, "num_linked_chunks": 0}
    if layout["class"] == CONTIGUOUS_REF:
        count = prod(StoredDataset.of(record).grid.counts) if layout["size"] else 0
        return {"linked_bytes": layout["size"], "num_linked_chunks": count}
    if layout["class"] == CHUNKED_REF:
        sizes = [entry[1] for entry in layout["chunks"].values() if entry[1]]
        return {"linked_bytes": sum(sizes), "num_linked_chunks": len(sizes)}
    try:
        table = await ChunkTable.open(owners, StoredDataset.of(record), read_table)
        count, size = await table.totals()
    except HsparseError as error:
        if error.kind not in UNREADABLE:
            raise
        count = size = 0
    return {"linked_bytes": size, "num_linked_chunks": count}


class FileBackedData:
    """The `FileData` implementation for HDF5 files."""

    chunks = FileBackedChunkInfo
    counts = staticmethod(file_backed_counts)
    check = staticmethod(check_backing_file)
    take_locator = staticmethod(take_locator)
    located = staticmethod(located_chunks)

    def elements(self, owners: Owners, dataset: StoredDataset) -> FileBackedElements:
        """Return the element source of a file-backed dataset."""
        return FileBackedElements(owners, dataset, table_reader(owners))
