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
    """A page of a listing; `marker` is the chunk after which the next page begins, empty on the last page.

    A page may have fewer rows than the limit, even none, if chunks were deleted while it was made.
    """

    rows: ChunkRows
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListChunks(ReadMessage[ChunkPage]):
    """List the stored chunks inside `extent` that `selection` intersects, or all of them without a selection.

    The order is that of the keys or, with `by_coords`, the row-major order of coordinates. A page begins after the
    chunk `after` (empty: at the first chunk), leaves out `skip` rows, and has at most `limit` rows. Any data node
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
    """Count the stored chunks inside `extent` that `selection` intersects, or all of them without a selection.

    `version` is as in `ListChunks`.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class FindChunk(ReadMessage[ChunkRows]):
    """Return the `ChunkRows` of one chunk: one row, or none if the chunk is not stored."""

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
    """A version of a dataset's chunks, and the keys that were put since an earlier one (None: unknown)."""

    version: str
    changed: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class GetChunkChanges(Message[ChunkChanges]):
    """Return the version of a dataset's chunks at this node, and the keys that the node has put since earlier versions.

    `since` are earlier versions, of any nodes. The node starts to note keys, as senders are expected to ask again.
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
    """Read the whole objects of chunks: the bytes of each, `(n,) uint8`, or None if an object lacks its expected etag.

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
    """Read values of chunks that are assembled from pieces of files; the reply is as to `ReadChunks`.

    `pieces.chunk` are indices of `selections`, `pieces.file` of `files`. `piece` has the dimensions of a piece; if it
    is empty, a piece is unfiltered and has the first elements of its chunk. `Conflict` names a file that is missing,
    too short, or changed since the dataset was created.
    """

    spec: ChunkSpec
    selections: tuple[ChunkSelection, ...]
    pieces: ChunkPieces
    files: tuple[BackingFile, ...]
    piece: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPiece(ReadMessage[NDArray[np.uint8]]):
    """Read `size` bytes of a file from `offset`, unchanged, as `(size,) uint8`; raises as `ReadFileBacked`.

    With `exact`, `Moved` is raised if the file has another etag, even if its head (its first bytes) is the same.
    """

    file: BackingFile
    offset: int
    size: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class InspectFile(ReadMessage[BackingFile]):
    """Return the etag and head checksum of a file for a dataset; `NotFound` if it is missing. Any data node answers."""

    uri: str
