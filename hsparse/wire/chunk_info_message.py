"""Messages about stored chunks: which there are, and their encoded bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.selections.selection import Selection
from hsparse.wire.message import Message, ReadMessage


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """A page of a listing; `marker` is the chunk after which the next page begins, empty at the end.

    A page has fewer rows than the limit, even none, where chunks were deleted while it was made.
    """

    rows: ChunkRows
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListChunks(ReadMessage[ChunkPage]):
    """List the stored chunks inside `extent` that `selection` intersects; without it all.

    They come in the order of their keys or, with `by_coords`, in row-major order of their coordinates: the chunks after
    `after` (empty: from the first), without the first `skip`, at most `limit`. Any data node answers; the owner of
    the dataset's chunk map has it in its cache. With a `version`, that of the chunks at all data nodes before this was
    sent, the node may answer what it has listed in the same version, and list all chunks to remember them.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    by_coords: bool = False
    after: tuple[int, ...] = ()
    skip: int = 0
    limit: int = 1000
    version: str = ""


@dataclass(frozen=True, slots=True)
class CountChunks(ReadMessage[int]):
    """Count the stored chunks inside `extent` that `selection` intersects; without it all.

    `version` is as that of `ListChunks`.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class FindChunk(ReadMessage[ChunkRows]):
    """Return the row of one chunk; no row where it is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GetChunkVersion(Message[str]):
    """Return the version of a dataset's chunks at this node: another one after each change that the node has made.

    No two nodes, and no two runs of a node, have the same version. The versions of all nodes together tell whether any
    chunk has changed.
    """

    dataset: str


@dataclass(frozen=True, slots=True)
class SignKeys(ReadMessage[tuple[str, ...]]):
    """Return a presigned URL of each object, valid for `seconds`; any data node answers.

    `Unsupported` where the store has no URLs.
    """

    keys: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class DirectChunk:
    """A chunk's encoded bytes, `data: (n,) uint8`, without a footer, and its one row."""

    data: NDArray[np.uint8]
    row: ChunkRows


@dataclass(frozen=True, slots=True)
class ReadDirect(ReadMessage[DirectChunk | None]):
    """Read a chunk's encoded bytes; None where it is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReadObjectBytes(ReadMessage[tuple[NDArray[np.uint8] | None, ...]]):
    """Read the whole objects of chunks: for each its bytes, `(n,) uint8`, None unless it has the etag.

    `scaled: (n, rank) uint64`; `sizes: (n,) uint64` are the bytes of each chunk, without its footer: no object of more
    bytes is read. The caller limits their sum.
    """

    spec: ChunkSpec
    scaled: NDArray[np.uint64]
    etags: tuple[str, ...]
    sizes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WriteDirect(Message[None]):
    """Store a chunk's encoded bytes, `data: (n,) uint8`; durable when answered.

    `sections: (k, 3) uint64` are as in `ChunkRows`: of a dense chunk one, whose unfiltered size is ignored.
    `BadRequest` says why the bytes are not a chunk inside `extent`; then nothing is changed. A dense chunk whose filter
    mask is not 0 is encoded again through the whole pipeline: its object has no place for a mask.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[int, ...]
    data: NDArray[np.uint8]
    sections: NDArray[np.uint64]
