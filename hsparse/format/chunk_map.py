"""The chunk map of a dataset: one object that caches the footers of the dataset's structured chunks.

A row has the footer of one chunk. The row is valid while the chunk's object has the same etag as when the footer was
read. The encoding is little-endian:

| bytes | content |
| --- | --- |
| 8 | `hsparsem` |
| 4 | version, 2 with statistics and else 1 |
| 4 | rank |
| 4 | number of sections |
| 4 | number of rows n |
| 4 | version 2: number of columns that have statistics |
| 8n | the 8-byte BLAKE2b digest of each chunk's etag |
| rest | the other columns in sequence, 8 bytes per number, filtered by shuffle (8) and zstd |
| 4 | CRC-32 of all bytes before it |

The other columns are: the scaled coordinates, one column per dimension; the number of defined elements; per section the
stored size, unfiltered size and filter mask; per column with statistics the five words of `hsparse.format.chunk_spec`.
Rows are in row-major order of the coordinates, and each chunk has at most one row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import WORDS
from hsparse.format.codec_library import crc32
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters, undo_filters
from hsparse.format.structured.container import Section

SIZE, UNFILTERED, MASK = range(3)
"""The columns of a section in `ChunkRows.sections`."""


def based(scaled: NDArray[np.uint64], base: Sequence[int]) -> NDArray[np.uint64]:
    """Return scaled coordinates, (n, rank), with the base of a signed dataset added, modulo 2^64.

    Chunk maps contain these sums, because a sum does not change when the lower bound moves.
    """
    return scaled + np.array(base, np.int64).astype(np.uint64) if base else scaled


def row_names(scaled: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Return one byte string per row of `scaled: (n, rank) uint64`, (n,); the strings sort in row-major order."""
    rank = max(scaled.shape[1], 1)
    wide = np.zeros((len(scaled), rank), ">u8")
    wide[:, : scaled.shape[1]] = scaled
    return wide.view(f"S{8 * rank}").reshape(len(scaled))


def sections_of(table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return the sections of one structured chunk, given its part of `ChunkRows.sections`, (k, 3)."""
    found, offset = [], 0
    for size, unfiltered, mask in table.tolist():
        found.append(Section(offset, size, unfiltered, mask))
        offset += size
    return tuple(found)


MAGIC = b"hsparsem"
VERSION, WITH_STATISTICS = 1, 2
HEAD = struct.Struct("<8sIIII")
COLUMNS = struct.Struct("<I")
PIPELINE = (Filter(2, (8,), optional=False), Filter(32015, (3,), optional=False))
MAX_ROWS = 1 << 20
"""The most rows of a map. A map has the first chunks in row-major order; readers read the footers of other chunks."""
MAX_RANK = 32
MAX_SECTIONS = 3

Column = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMap:
    """A decoded chunk map: rows in row-major order of `scaled: (n, rank) uint64`, at most one per chunk.

    `digest: (n,) uint64` is the digest of the chunk's etag. `sections: (n, k, 3)`, `defined: (n,)` and
    `statistics: (n, columns, 5)`, all uint64, are as in `ChunkRows`.
    """

    scaled: Column
    digest: Column
    sections: Column
    defined: Column
    statistics: Column

    def __len__(self) -> int:
        return len(self.digest)

    @classmethod
    def empty(cls, rank: int, sections: int, columns: int = 0) -> ChunkMap:
        return cls(
            np.zeros((0, rank), np.uint64),
            np.zeros(0, np.uint64),
            np.zeros((0, sections, 3), np.uint64),
            np.zeros(0, np.uint64),
            np.zeros((0, columns, WORDS), np.uint64),
        )

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take."""
        columns = (self.scaled, self.digest, self.sections, self.defined, self.statistics)
        return sum(column.nbytes for column in columns)

    def find(self, scaled: Column, digest: Column, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the number of each chunk's row, (m,), or -1 if there is no row or the row has another digest.

        `scaled: (m, rank)` and `digest: (m,)` describe the chunks; `names` are the `row_names` of this map.
        """
        if not len(self):
            return np.full(len(scaled), -1, np.intp)
        wanted = row_names(scaled)
        place = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        good = (names[place] == wanted) & (self.digest[place] == digest)
        return np.where(good, place, -1).astype(np.intp)

    def merge(self, new: ChunkMap) -> ChunkMap:
        """Return this map with the rows of `new` added, in any order; a new row replaces the chunk's existing row."""
        names = np.concatenate((row_names(new.scaled), row_names(self.scaled)))
        _, first = np.unique(names, return_index=True)
        both = [
            np.concatenate(pair)
            for pair in (
                (new.scaled, self.scaled),
                (new.digest, self.digest),
                (new.sections, self.sections),
                (new.defined, self.defined),
                (new.statistics, self.statistics),
            )
        ]
        return ChunkMap(*(column[first[:MAX_ROWS]] for column in both))

    def inside(self, counts: tuple[int, ...], base: tuple[int, ...] = ()) -> ChunkMap:
        """Return the rows of chunks inside a grid that begins at `base` and has `counts` chunks per dimension."""
        scaled = based(self.scaled, tuple(-number for number in base))
        keep = (scaled < np.array(counts, np.uint64)).all(axis=1)
        if keep.all():
            return self
        return ChunkMap(
            self.scaled[keep],
            self.digest[keep],
            self.sections[keep],
            self.defined[keep],
            self.statistics[keep],
        )


def digests(etags: Iterable[str]) -> Column:
    """Return the 8-byte BLAKE2b digest of each etag, (n,) uint64."""
    return np.frombuffer(b"".join(blake2b(etag.encode(), digest_size=8).digest() for etag in etags), "<u8")


def encode_map(rows: ChunkMap) -> bytes:
    """Return the bytes of a chunk map's object."""
    count, rank = rows.scaled.shape
    sections, columns = rows.sections.shape[1], rows.statistics.shape[1]
    table = np.empty((rank + 1 + 3 * sections + WORDS * columns, count), "<u8")
    table[:rank] = rows.scaled.T
    table[rank] = rows.defined
    first = rank + 1 + 3 * sections
    table[rank + 1 : first] = rows.sections.reshape(count, 3 * sections).T
    table[first:] = rows.statistics.reshape(count, WORDS * columns).T
    packed, _ = apply_filters(PIPELINE, table.tobytes())
    head = HEAD.pack(MAGIC, WITH_STATISTICS if columns else VERSION, rank, sections, count)
    head += COLUMNS.pack(columns) if columns else b""
    body = b"".join((head, rows.digest.astype("<u8").tobytes(), packed))
    return body + struct.pack("<I", crc32(body))


def decode_map(data: Buffer, rank: int, sections: int, columns: int = 0) -> ChunkMap:
    """Return the chunk map that the bytes `data` encode; raise `Corrupt` if the bytes are damaged.

    Raises `Corrupt` also if the map has another `rank` or other numbers of `sections` and of `columns` with statistics.
    The digests, 8 bytes per row, are not compressed, so the size of `data` bounds the memory.
    """
    view = memoryview(data)
    if len(view) < HEAD.size + 4 or struct.unpack("<I", view[-4:])[0] != crc32(view[:-4]):
        raise Corrupt("The chunk map is damaged: its checksum does not match.")
    magic, version, *shape, count = HEAD.unpack_from(view)
    wanted = WITH_STATISTICS if columns else VERSION
    begin = HEAD.size + (COLUMNS.size if columns else 0)
    found = COLUMNS.unpack_from(view, HEAD.size)[0] if columns and len(view) >= begin else 0
    if (magic, version, shape, found) != (MAGIC, wanted, [rank, sections], columns) or rank > MAX_RANK:
        raise Corrupt(
            f"The chunk map must have {rank} dimensions, {sections} sections, {columns} columns and version {wanted}."
        )
    start = begin + 8 * count
    if count > MAX_ROWS or start > len(view) - 4:
        raise Corrupt(f"The chunk map has {len(view)} bytes: too few for {count} rows.")
    first = rank + 1 + 3 * sections
    width = first + WORDS * columns
    content = undo_filters(PIPELINE, view[start:-4], 0, 8 * count * width)
    table = np.frombuffer(content, "<u8").reshape(width, count).astype(np.uint64)
    scaled = np.ascontiguousarray(table[:rank].T)
    names = row_names(scaled)
    if (names[1:] <= names[:-1]).any():
        raise Corrupt("The chunk map is damaged: its rows are not in order.")
    return ChunkMap(
        scaled,
        np.frombuffer(view[begin:start], "<u8").astype(np.uint64),
        np.ascontiguousarray(table[rank + 1 : first].T).reshape(count, sections, 3),
        np.ascontiguousarray(table[rank]),
        np.ascontiguousarray(table[first:].T).reshape(count, columns, WORDS),
    )
