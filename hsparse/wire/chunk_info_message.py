"""Messages about stored chunks, which list them and carry their encoded bytes, and about file-backed chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.file_backed import ChunkPieces
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Selection
from hsparse.model.file_backed import BackingFile
from hsparse.wire.message import Message, ReadMessage


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """A page of a listing; `marker` is the chunk after which the next page begins, or empty on the last page.

    A page may have fewer rows than the limit, or no rows, if chunks are deleted during the listing.
    """

    rows: ChunkRows
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListChunks(ReadMessage[ChunkPage]):
    """List the stored chunks inside `extent` that `selection` intersects, or all stored chunks inside `extent`.

    Chunks are in the order of their keys or, with `by_coords`, in row-major order of coordinates. A page begins after
    the chunk `after` (empty: at the first chunk), omits `skip` rows, and has at most `limit` rows. Any data node
    answers; the owner of the dataset's chunk map has the map in its cache. With `version`, read before by
    `GetChunkVersion`, a node may remember the listing and answer later messages of this version from it.
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
    """Count the stored chunks inside `extent` that `selection` intersects, or all stored chunks inside `extent`.

    `version` is as in `ListChunks`.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class FindChunk(ReadMessage[ChunkRows]):
    """Return the `ChunkRows` of one chunk: one row, or no rows if the chunk is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GetChunkVersion(Message[str]):
    """Return the version of a dataset's chunks at this node, which differs after each change that the node makes.

    No two nodes, and no two runs of a node, have the same version. The versions of all nodes together tell whether any
    chunk has changed.
    """

    dataset: str


@dataclass(frozen=True, slots=True)
class ChunkChanges:
    """A version of a dataset's chunks, and the keys put since an earlier version, or None if they are unknown."""

    version: str
    changed: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class GetChunkChanges(Message[ChunkChanges]):
    """Return the version of a dataset's chunks at this node, and the keys that this node put since earlier versions.

    `since` are earlier versions, of any nodes. The node begins to note put keys, because senders will ask again.
    """

    dataset: str
    since: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignKeys(ReadMessage[tuple[str, ...]]):
    """Return a presigned URL of each object, valid for `seconds`; any data node answers.

    `Unsupported` is raised if the store has no URLs.
    """

    keys: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class DirectChunk:
    """The encoded bytes of a chunk without its footer, `data: (n,) uint8`, and the chunk as one row of `ChunkRows`."""

    data: NDArray[np.uint8]
    row: ChunkRows


@dataclass(frozen=True, slots=True)
class ReadDirect(ReadMessage[DirectChunk | None]):
    """Read a chunk's encoded bytes; the reply is None if the chunk is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReadObjectBytes(ReadMessage[tuple[NDArray[np.uint8] | None, ...]]):
    """Read the whole objects of chunks: the bytes of each, `(n,) uint8`, or None if an object has another etag.

    `scaled: (n, rank) uint64` are the chunks and `etags` the expected etags. `sizes: (n,) uint64` limits the bytes of
    each object without its footer; a larger object is not read. The caller limits the sum of the sizes.
    """

    spec: ChunkSpec
    scaled: NDArray[np.uint64]
    etags: tuple[str, ...]
    sizes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WriteDirect(Message[None]):
    """Store a chunk's encoded bytes, `data: (n,) uint8`; durable when answered.

    `sections: (k, 3) uint64` is as in `ChunkRows`; a dense chunk has one section, whose unfiltered size is ignored.
    `BadRequest` is raised, and nothing changes, if the bytes are not a chunk inside `extent`. A dense chunk with a
    filter mask other than 0 is encoded again with all filters, because its object has no room for a mask.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[int, ...]
    data: NDArray[np.uint8]
    sections: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ReadFileBacked(ReadMessage[tuple[NDArray[Any] | None, ...]]):
    """Read values of chunks that are assembled from byte ranges (pieces) of files; reply as to `ReadChunks`.

    `pieces.chunk` are indices of `selections`, `pieces.file` are indices of `files`. `piece` has a piece's dimensions;
    if empty, a piece is unfiltered and has the first elements of its chunk. `Conflict` names a file that is missing,
    too short, or changed since the dataset was created.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    pieces: ChunkPieces
    files: tuple[BackingFile, ...]
    piece: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPiece(ReadMessage[NDArray[np.uint8]]):
    """Read `size` bytes of a file from `offset` without decoding: `(size,) uint8`. Errors are as in `ReadFileBacked`.

    With `exact`, `Moved` is raised if the file has another etag, even if its head (its first bytes) is the same.
    """

    file: BackingFile
    offset: int
    size: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class InspectFile(ReadMessage[BackingFile]):
    """Return a file's etag and the checksum of its head, or raise `NotFound` if it is missing. Any node answers."""

    uri: str
