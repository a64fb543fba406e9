"""The chunk map of a dataset: the contents of its structured chunks' footers, in one object beside them.

A row is valid as long as its chunk's object has the etag that it had when its footer was read. Little-endian:

| bytes | content |
| --- | --- |
| 8 | `hsparsem` |
| 4 | version, 2 with statistics and else 1 |
| 4 | rank |
| 4 | number of sections |
| 4 | number of rows n |
| 4 | version 2: number of columns that have statistics |
| 8n | the digest of each chunk's etag: BLAKE2b of 8 bytes |
| rest | the other columns, 8 bytes a number, one after the other, through shuffle (8) and zstd |
| 4 | CRC-32 of all before it |

The other columns are the scaled coordinates, a column a dimension; the number of defined elements; of each
section stored size, unfiltered size and filter mask; and of each column with statistics the five words of
`hsparse.format.chunk_spec`. Rows are in row-major order of the coordinates, each once.

Stored chunks by column: the contents of a chunk index of an HDF5 file.

RFC "Chunk query functionality in HDF5" (2018), `H5D_chunk_info_t`; for structured chunks `H5D_struct_chunk_info_t`
of the sparse storage API.

Reading FlatBuffers ("FlatBuffers Internals"): the tables of Arrow's messages. No offset or length is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

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
"""The columns of a section."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """Some stored chunks of one dataset, in any order.

    `scaled: (n, rank) uint64` are scaled coordinates, `size: (n,) uint64` the bytes of their objects, `etags` (n)
    those objects' etags. `sections: (n, k, 3) uint64` has stored size, unfiltered size (both in bytes) and filter
    mask of each section, `defined: (n,) uint64` the number of defined elements; of dense chunks k is 0, and so is
    `defined`. `statistics: (n, columns, 5)` are words of `hsparse.format.chunk_spec`. Sections follow each other
    without gaps from the object's first byte.
    """

    scaled: NDArray[np.uint64]
    size: NDArray[np.uint64]
    etags: tuple[str, ...]
    sections: NDArray[np.uint64]
    defined: NDArray[np.uint64]
    statistics: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.scaled)

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes, without the etags."""
        columns = (self.scaled, self.size, self.sections, self.defined, self.statistics)
        return sum(column.nbytes for column in columns)

    @classmethod
    def of(
        cls, scaled: Sequence[Sequence[int]], rank: int, size: Sequence[int], etags: Sequence[str]
    ) -> ChunkRows:
        """Return rows with the columns that a listing has; the others are empty."""
        count = len(scaled)
        return cls(
            np.array(scaled, np.uint64).reshape(count, rank),
            np.array(size, np.uint64),
            tuple(etags),
            np.zeros((count, 0, 3), np.uint64),
            np.zeros(count, np.uint64),
            np.zeros((count, 0, 5), np.uint64),
        )

    @classmethod
    def joined(cls, pages: Sequence[ChunkRows], rank: int) -> ChunkRows:
        """Return all rows of `pages`, in order; all have the same number of sections."""
        if not pages:
            return cls.of((), rank, (), ())
        return cls(
            np.concatenate([rows.scaled for rows in pages]),
            np.concatenate([rows.size for rows in pages]),
            tuple(etag for rows in pages for etag in rows.etags),
            np.concatenate([rows.sections for rows in pages]),
            np.concatenate([rows.defined for rows in pages]),
            np.concatenate([rows.statistics for rows in pages]),
        )

    def take(self, places: NDArray[np.intp]) -> ChunkRows:
        """Return the rows at `places`, (m,), in that order."""
        return ChunkRows(
            self.scaled[places],
            self.size[places],
            tuple(self.etags[place] for place in places.tolist()),
            self.sections[places],
            self.defined[places],
            self.statistics[places],
        )

    def described(
        self,
        sections: NDArray[np.uint64],
        defined: NDArray[np.uint64],
        statistics: NDArray[np.uint64] | None = None,
    ) -> ChunkRows:
        """Return the rows with the columns of structured chunks."""
        words = np.zeros((len(self), 0, 5), np.uint64) if statistics is None else statistics
        return ChunkRows(self.scaled, self.size, self.etags, sections, defined, words)


def based(scaled: NDArray[np.uint64], base: Sequence[int]) -> NDArray[np.uint64]:
    """Return scaled coordinates, (n, rank), with the base of a signed dataset added, modulo 2^64.

    A chunk map has these: they stay as they are when the lower bound moves.
    """
    return scaled + np.array(base, np.int64).astype(np.uint64) if base else scaled


def row_names(scaled: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Return one name a row of `scaled`, (n, rank) uint64: names sort and compare as coordinates, row-major."""
    rank = max(scaled.shape[1], 1)
    wide = np.zeros((len(scaled), rank), ">u8")
    wide[:, : scaled.shape[1]] = scaled
    return wide.view(f"S{8 * rank}").reshape(len(scaled))


def sections_of(table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return the sections of one structured chunk, given its rows of `ChunkRows.sections`, (k, 3)."""
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
"""The most rows, the first in row-major order; footers of further chunks are read each time."""
MAX_RANK = 32
MAX_SECTIONS = 3

Column = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMap:
    """Rows in row-major order of `scaled: (n, rank) uint64`, each chunk once.

    `digest: (n,) uint64` is of the chunk's etag; `sections: (n, k, 3)`, `defined: (n,)` and
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
        """The memory of the columns, in bytes."""
        columns = (self.scaled, self.digest, self.sections, self.defined, self.statistics)
        return sum(column.nbytes for column in columns)

    def find(self, scaled: Column, digest: Column, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the row of each chunk at `scaled`, (m, rank), whose etag has this digest; -1 where none is valid.

        `names` are those of the rows, see `row_names`.
        """
        if not len(self):
            return np.full(len(scaled), -1, np.intp)
        wanted = row_names(scaled)
        place = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        good = (names[place] == wanted) & (self.digest[place] == digest)
        return np.where(good, place, -1).astype(np.intp)

    def merge(self, new: ChunkMap) -> ChunkMap:
        """Return this map with the rows of `new`, which are in any order, replacing older ones."""
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
        """Return the rows of the chunks of a grid that has `counts` chunks in each dimension, from `base` on."""
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
    """Return the digest of each etag, (n,) uint64."""
    return np.frombuffer(b"".join(blake2b(etag.encode(), digest_size=8).digest() for etag in etags), "<u8")


def encode_map(rows: ChunkMap) -> bytes:
    """Return the object of a map."""
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
    """Return the map of chunks of `rank` dimensions, so many sections and columns with statistics.

    `Corrupt` for anything else.

    Each row has at least 8 bytes that are not compressed, which bounds the memory.
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
            f"The chunk map is not of {rank} dimensions, {sections} sections and {columns} columns, version {wanted}."
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


MAX_NAME = 1024
"""Offsets may coincide: without limits a small schema could have many fields with the same long name."""
INVALID = (struct.error, IndexError, ValueError, OverflowError)
"""What reading raises of bytes that are none."""


class Table:
    """A table in a buffer. A vtable has the offset of each field, or 0 if the field is absent."""

    def __init__(self, data: memoryview, place: int) -> None:
        self.data = data
        self._place = place
        self._vtable = place - unpack("<i", data, place)[0]
        (self._size,) = unpack("<H", data, self._vtable)

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = unpack("<H", self.data, self._vtable + entry)
        return self._place + offset if offset else None

    def number(self, field: int, kind: str, default: int) -> int:
        at = self._at(field)
        return default if at is None else int(unpack(kind, self.data, at)[0])

    def _target(self, field: int) -> int | None:
        at = self._at(field)
        return None if at is None else at + int(unpack("<I", self.data, at)[0])

    def table(self, field: int) -> Table | None:
        at = self._target(field)
        return None if at is None else Table(self.data, at)

    def text(self, field: int) -> str:
        at = self._target(field)
        if at is None:
            return ""
        (length,) = unpack("<I", self.data, at)
        if length > MAX_NAME:
            raise ValueError(f"a name has {length} bytes; the limit is {MAX_NAME}")
        return bytes(part(self.data, at + 4, length)).decode()

    def tables(self, field: int) -> list[int]:
        """Return the offsets of the tables in a vector."""
        at = self._target(field)
        if at is None:
            return []
        (count,) = unpack("<I", self.data, at)
        offsets = np.frombuffer(part(self.data, at + 4, 4 * count), "<u4").tolist()
        return [at + 4 + 4 * i + offset for i, offset in enumerate(offsets)]

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return the structs of two int64 in a vector."""
        at = self._target(field)
        if at is None:
            return []
        (count,) = unpack("<I", self.data, at)
        return list(struct.iter_unpack("<qq", part(self.data, at + 4, 16 * count)))


def root_table(data: memoryview) -> Table:
    return Table(data, unpack("<I", data, 0)[0])


def unpack(kind: str, data: memoryview, at: int) -> tuple[Any, ...]:
    if at < 0:  # struct would count it from the end
        raise ValueError("an offset is negative")
    return struct.unpack_from(kind, data, at)


def part(data: memoryview, at: int, length: int) -> memoryview:
    if at < 0 or length < 0 or at + length > len(data):
        raise ValueError(f"{length} bytes at {at} are not all there")
    return data[at : at + length]
