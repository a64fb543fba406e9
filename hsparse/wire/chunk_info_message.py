"""Messages about chunks as they are stored: which there are, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.selections.selection import Selection
from hsparse.wire.message import Message


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Some of the stored chunks that were asked for; `marker` is the chunk to go on after, empty at the end.

    There are fewer rows than the limit, even none, where chunks were deleted while the page was made.
    """

    rows: ChunkRows
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListChunks(Message[ChunkPage]):
    """List the stored chunks inside `extent` that a selection of it meets; all, without one.

    They come in the order of their keys or, with `by_coords`, in row-major order of their coordinates: those after
    the chunk `after` (empty: from the first), without the first `skip`, at most `limit`. Any data node can; the
    owner of the dataset's chunk map has that in memory.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    by_coords: bool = False
    after: tuple[int, ...] = ()
    skip: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class CountChunks(Message[int]):
    """Count the stored chunks inside `extent` that a selection of it meets; all, without one."""

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class FindChunk(Message[ChunkRows]):
    """Look at one chunk: one row, or none where it is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SignKeys(Message[tuple[str, ...]]):
    """Return a URL of each object, by which anybody can read it for so many seconds; any data node can.

    `Unsupported` where the store has no URLs.
    """

    keys: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class DirectChunk:
    """A chunk's bytes as they are stored, `data: (n,) uint8`, without a footer, and its one row."""

    data: NDArray[np.uint8]
    row: ChunkRows


@dataclass(frozen=True, slots=True)
class ReadDirect(Message[DirectChunk | None]):
    """Read a chunk's bytes as they are stored; None where it is not."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteDirect(Message[None]):
    """Store a chunk's bytes, `data: (n,) uint8`, as they are; durable when answered.

    `sections: (k, 3) uint64` are as in `ChunkRows`: of a dense chunk one, whose unfiltered size is not looked at.
    `BadRequest` says why the bytes are no such chunk inside `extent`; then nothing was changed. A dense chunk whose
    mask is not 0 is put through the whole pipeline first: its object has no place for a mask.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[int, ...]
    data: NDArray[np.uint8]
    sections: NDArray[np.uint64]
