"""Messages about chunks of file-backed datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.file_backed import ChunkPieces
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.model.file_backed import BackingFile
from hsparse.wire.message import ReadMessage


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
