"""Messages about stored chunks: which there are, and their encoded bytes.

Messages about chunks of file-backed datasets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_map import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.file_backed import ChunkPieces
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Selection
from hsparse.model.file_backed import BackingFile
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


@dataclass(frozen=True, slots=True)
class ReadFileBacked(ReadMessage[tuple[NDArray[Any] | None, ...]]):
    """Read values of chunks that are assembled of pieces of files; answered as `ReadChunks`.

    `pieces.chunk` numbers the `selections`, `pieces.file` the `files`. `piece` are a piece's dimensions; empty: a
    piece is unfiltered and has the first elements of its chunk. `Conflict` names a file that is missing, was changed
    since the dataset was created, or is too short.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    pieces: ChunkPieces
    files: tuple[BackingFile, ...]
    piece: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPiece(ReadMessage[NDArray[np.uint8]]):
    """Read `size` bytes of a file from `offset`, (size,) uint8, as they are; raises what `ReadFileBacked` does.

    With `exact` the file must still have its etag: `Moved` where its head is the same but its etag is not.
    """

    file: BackingFile
    offset: int
    size: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class InspectFile(ReadMessage[BackingFile]):
    """Return the state of a file that is to back a dataset; `NotFound` when there is none. Any data node answers."""

    uri: str
